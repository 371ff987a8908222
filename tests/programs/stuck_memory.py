"""A process whose command line nobody can read. One thread reads a page of a file system that never answers, by way of
/proc/self/mem, which keeps the address space; another one waits to change it, and whoever reads it waits behind. Prints
`stuck` after a line of input. Needs root and a mount namespace of its own. The argument is an empty directory."""

import ctypes
import mmap
import os
import struct
import sys
import threading
import time

LOOKUP, GETATTR, OPEN, READ, INIT = 1, 3, 14, 15, 26
PAGE = 4096


def attributes(number, mode):
    return struct.pack("<6Q10I", number, PAGE, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, PAGE, 0)


def answer(code, node):
    """FUSE's answer that lets a file be opened (fuse(4)); None to reading."""
    if code == INIT:
        return struct.pack("<IIIIHHII8I", 7, 31, 0, 0, 0, 0, PAGE, 1, *[0] * 8)
    if code == LOOKUP:
        return struct.pack("<4Q2I", 2, 0, 3600, 3600, 0, 0) + attributes(2, 0o100644)
    if code == GETATTR:
        return struct.pack("<QII", 3600, 0, 0) + attributes(node, 0o40755 if node == 1 else 0o100644)
    if code == OPEN:
        return struct.pack("<QII", 1, 0, 0)
    return None


def serve(device, asked):
    while True:
        _, code, unique, node = struct.unpack("<IIQQ", os.read(device, 1 << 17)[:24])
        body = answer(code, node)
        if body is not None:
            os.write(device, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
        elif code == READ:
            os.write(asked, b"1")
        else:
            os.write(device, struct.pack("<IiQ", 16, -38, unique))


directory = sys.argv[1]
os.mknod(directory + ".fuse", 0o20600, os.makedev(10, 229))
device = os.open(directory + ".fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"stuck", directory.encode(), b"fuse", 0, options):
    raise OSError(ctypes.get_errno(), "mount")
was_asked, asked = os.pipe()
# The server is another process, which is killed when the first thread of this one ends (PR_SET_PDEATHSIG): then all do.
if os.fork() == 0:
    libc.prctl(1, 9)
    serve(device, asked)
os.close(device)

libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
file = os.open(directory + "/file", os.O_RDONLY)
page = libc.mmap(None, PAGE, mmap.PROT_READ, mmap.MAP_PRIVATE, file, 0)
memory = os.open("/proc/self/mem", os.O_RDONLY)
print("ready", flush=True)
input()
threading.Thread(target=os.pread, args=(memory, 1, page)).start()
os.read(was_asked, 1)
print("stuck", flush=True)
libc.mmap(None, PAGE, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
time.sleep(1000)
