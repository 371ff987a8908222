"""Locks of serial ports, by the Lock File Protocol service lfpd.

    with lfp_serial.lock("/dev/ttyUSB0"):
        ...

With pyserial, after this module has been imported:

    serial.serial_for_url("lfp:///dev/ttyUSB0")
"""

import errno
import math
import os
import pwd
import re
import socket
import stat
import struct
import time

__all__ = ["Busy", "Denied", "Lock", "NoService", "SOCKET", "lock"]

#: Where the service listens on an installed system.
SOCKET = "/run/lfpd/lfpd.sock"

#: How long the service may take for one answer, in seconds.
PATIENCE = 10.0

#: The longest WAIT that the service takes, in seconds.
WAIT_MAX_SECS = 86400

#: The longest line and the most lines of an answer.
LINE_BYTES = 4096
LINES = 4096


def user_name(uid):
    """The name of a user whose number the service has told; the number where there is none."""
    try:
        return pwd.getpwuid(int(uid)).pw_name
    except (KeyError, TypeError, ValueError, OverflowError):
        return uid


class Busy(OSError):
    """Somebody else has the port; `holders` says who, as far as the service sees it."""

    def __init__(self, device, holders):
        who = ", ".join(holders) or "somebody else"
        super().__init__(errno.EBUSY, "held by " + who, device)
        self.holders = holders


class Denied(PermissionError):
    """The service does not give this port, or not to this user."""

    def __init__(self, device):
        super().__init__(errno.EACCES, "the service denies it", device)


class NoService(ConnectionError):
    """No service answers."""


def lock(device, timeout=None, server=None):
    """Takes the port for this process, and gives a `Lock`.

    `timeout`: wait for it for so many seconds; without it, do not wait. `server`: the path of the
    service's socket, if it is not the usual one.

    Raises `Busy`, `Denied`, `NoService`, and `ValueError` for what is no name of a device.
    """
    name = _name(device)
    pid = os.getpid()
    service = _Service(server)
    try:
        if timeout is None:
            code = service.ask("LOCK %s %d" % (name, pid))[0]
        else:
            code = _wait(service, name, pid, timeout)
        if code == 450:
            raise Busy(device, service.holders(name))
        if code == 550:
            raise Denied(device)
        if code != 200:
            raise NoService("unexpected reply, code %d" % code)
    finally:
        service.close()
    return Lock(name, pid, server)


class Lock:
    """A port that is this process's until `release`, or until the process ends."""

    def __init__(self, name, pid, server):
        self._name = name
        self._pid = pid
        self._server = server
        self._held = True

    @property
    def device(self):
        """The path of the port."""
        return "/dev/" + self._name

    def release(self):
        """Releases the port. Does nothing the second time, or in a child that was forked."""
        if not self._held or os.getpid() != self._pid:
            return
        self._held = False
        service = _Service(self._server)
        try:
            service.ask("UNLOCK %s %d" % (self._name, self._pid))
        finally:
            service.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.release()
        except NoService:
            # The lock is stale when the process is gone, and the next who asks will get it.
            pass


def _name(device):
    text = os.fsdecode(device)
    if not re.fullmatch(r"[!-~]{1,255}", text):
        raise ValueError("not the name of a device: %r" % text)
    name = text[5:] if text.startswith("/dev/") else text
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError("not the name of a device: %r" % text)
    return name


def _wait(service, name, pid, timeout):
    deadline = time.monotonic() + timeout
    while True:
        left = max(0.0, deadline - time.monotonic())
        seconds = min(int(math.ceil(left)), WAIT_MAX_SECS)
        code = service.ask("WAIT %s %d %d" % (name, pid, seconds), seconds + PATIENCE)[0]
        if code != 450 or deadline <= time.monotonic():
            return code


class _Service:
    """One connection, which has been greeted."""

    def __init__(self, server):
        path = SOCKET if server is None else server
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._buffer = b""
        try:
            self._socket.settimeout(PATIENCE)
            self._socket.connect(path)
            if server is None and not _is_trusted(self._socket):
                raise NoService("a stranger listens at " + path)
            if self._reply(PATIENCE)[0] != 220:
                raise NoService("the service does not serve us")
        except NoService:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise NoService("%s: %s" % (path, error)) from error

    def close(self):
        self._socket.close()

    def ask(self, line, patience=PATIENCE):
        """The code and the lines of the answer."""
        try:
            self._socket.sendall(line.encode("ascii") + b"\r\n")
            return self._reply(patience)
        except NoService:
            raise
        except OSError as error:
            raise NoService(str(error)) from error

    def holders(self, name):
        """Who has a port, for people."""
        code, lines = self.ask("STAT " + name)
        if code not in (211, 212, 213):
            return []
        found = []
        for line in lines[1:-1]:
            words = dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)', line))
            if words.get("standing") in ("stale", "claim"):
                continue
            command = re.sub(r"\\(.)", r"\1", words.get("command", "").strip('"'))
            who = ("pid", words.get("pid", "?"), user_name(words.get("uid")), command)
            text = " ".join(word for word in who if word)
            # A device has a lock file under each of its names.
            if words.get("scheme") != "waiting" and text not in found:
                found.append(text)
        return found

    def _reply(self, patience):
        deadline = time.monotonic() + patience
        first = self._line(deadline)
        lines = [first]
        if not re.match(r"\d{3}(?:[ -]|$)", first):
            raise NoService("what answers is no lock file service")
        code = first[:3]
        while first[3:4] == "-" and not re.match(code + r"(?: |$)", lines[-1]):
            lines.append(self._line(deadline))
            if len(lines) > LINES:
                raise NoService("the answer has no end")
        return int(code), lines

    def _line(self, deadline):
        while b"\n" not in self._buffer:
            if len(self._buffer) > LINE_BYTES:
                raise NoService("the answer has no end")
            left = deadline - time.monotonic()
            if left <= 0:
                raise NoService("no reply in time")
            self._socket.settimeout(left)
            piece = self._socket.recv(4096)
            if not piece:
                raise NoService("the connection ended before the reply")
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in line.rstrip(b"\r"))


def _is_trusted(connection):
    """Whether root, this user, or whom root gave the socket's directory to listens there."""
    size = struct.calcsize("3i")
    option = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    uid = struct.unpack("3i", option)[1]
    if uid in (0, os.geteuid()):
        return True
    directory = os.path.dirname(SOCKET)
    above = os.stat(os.path.dirname(directory))
    is_roots = above.st_uid == 0 and not above.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_roots and os.stat(directory).st_uid == uid


def _register():
    """Lets pyserial, where there is one, find `protocol_lfp`."""
    try:
        import serial
    except ImportError:
        return
    if __name__ not in serial.protocol_handler_packages:
        serial.protocol_handler_packages.append(__name__)


_register()
