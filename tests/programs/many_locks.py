"""Holds so many fcntl(2) locks on files in a directory, and takes and drops so many flock(2)s there until
its input ends. Says "ALL THERE" when all are held for the first time."""

import fcntl
import os
import select
import sys

directory, standing, coming = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def own(name):
    return os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT, 0o600)


# The kernel goes through all locks of a file for each new one, so they are on many files.
files = [own(f"standing{number}") for number in range(0, standing, 500)]
for number in range(standing):
    fcntl.lockf(files[number // 500], fcntl.LOCK_EX, 1, 2 * number)
others = [own(f"coming{number}") for number in range(coming)]
for other in others:
    fcntl.flock(other, fcntl.LOCK_EX)
print("ALL THERE", flush=True)
while not select.select([sys.stdin], [], [], 0 if others else None)[0]:
    for way in fcntl.LOCK_UN, fcntl.LOCK_EX:
        for other in others:
            fcntl.flock(other, way)
