"""Makes lock files in a directory, so many at a time, each with flock(2) on it as well, and lets
them go and come again until its input ends. Says "ALL THERE" when all have come for the first time,
and at the end how many have come."""

import fcntl
import os
import random
import select
import sys

directory, most = sys.argv[1], int(sys.argv[2])
content = b"%10d\n" % os.getpid()
held = []
free = list(range(most))


def come(number):
    path = f"{directory}/LCK..other{number}"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(lock, content)
    fcntl.flock(lock, fcntl.LOCK_EX)
    held.append((path, lock, number))


def go(path, lock, number):
    os.unlink(path)
    os.close(lock)
    free.append(number)


came = 0
while True:
    came += len(free)
    while free:
        come(free.pop())
    if came == most:
        print("ALL THERE", flush=True)
    if select.select([sys.stdin], [], [], 0)[0]:
        break
    random.shuffle(held)
    for _ in range(random.randint(1, most)):
        go(*held.pop())
print(came, "CAME", flush=True)
