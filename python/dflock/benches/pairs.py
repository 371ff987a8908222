"""Pairs of an acquire and its release each second: this client, the published client of dflockd, and the lock of redis-py,
in turns on one machine.

    pip install dflockd-client==2.1.1 redis
    DFLOCKD=target/release/dflockd python3 python/dflock/benches/pairs.py [SECONDS [ROUNDS]]

Each kind runs alone against its own server on this machine (`redis-server` without persistence), with one thread and one
key. The figure of a kind is the median of its rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
from typing import Awaitable, Callable, Dict, Iterator, List, Tuple

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("src", "tests")]

import redis
import redis.asyncio
from dflockd_client import AsyncDistributedLock, SyncDistributedLock
from support import Server, free_port, until

import dflock

SECONDS, ROUNDS = (float(word) for word in (sys.argv[1:] + ["2", "5"][len(sys.argv) - 1 :]))


#: Pairs a second, and microseconds of processor time of this process for each pair.
Rate = Tuple[float, float]


class Meter:
    def __init__(self) -> None:
        self._count, self._begun, self._used = 0, time.perf_counter(), time.process_time()

    def goes_on(self) -> bool:
        """Counts a pair that is about to be made."""
        self._time = time.perf_counter() - self._begun
        self._count += self._time < SECONDS
        return self._time < SECONDS

    def rate(self) -> Rate:
        return self._count / self._time, (time.process_time() - self._used) / self._count * 1e6


def rate(pair: Callable[[], object]) -> Rate:
    for _ in range(50):
        pair()
    meter = Meter()
    while meter.goes_on():
        pair()
    return meter.rate()


def rate_of_tasks(pair: Callable[[], Awaitable[object]]) -> Rate:
    async def play() -> Rate:
        for _ in range(50):
            await pair()
        meter = Meter()
        while meter.goes_on():
            await pair()
        return meter.rate()

    return asyncio.run(play())


@contextlib.contextmanager
def redis_server() -> Iterator[int]:
    port = free_port()
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            until("redis listens", lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
            yield port
        finally:
            process.kill()


def main() -> None:
    with Server() as server, redis_server() as port:
        ours, theirs = dflock.Client(servers=server.address), [("127.0.0.1", server.port)]
        store = redis.Redis(port=port)

        def dflock_pair() -> None:
            with ours.lock("k", ttl=30):
                pass

        def published_pair() -> None:
            with SyncDistributedLock("p", servers=theirs, lease_ttl_s=30):
                pass

        def redis_pair() -> None:
            with store.lock("r", timeout=30):
                pass

        tasks = dflock.aio.Client(servers=server.address)

        async def dflock_tasks() -> None:
            async with tasks.lock("k", ttl=30):
                pass

        async def published_tasks() -> None:
            async with AsyncDistributedLock("p", servers=theirs, lease_ttl_s=30):
                pass

        def redis_tasks() -> Callable[[], Awaitable[object]]:
            client = redis.asyncio.Redis(port=port)

            async def pair() -> None:
                async with client.lock("r", timeout=30):
                    pass

            return pair

        kinds: Dict[str, Callable[[], Rate]] = {
            "dflock": lambda: rate(dflock_pair),
            "dflockd-client": lambda: rate(published_pair),
            "redis-py": lambda: rate(redis_pair),
            "dflock.aio": lambda: rate_of_tasks(dflock_tasks),
            "dflockd-client, async": lambda: rate_of_tasks(published_tasks),
            "redis-py, async": lambda: rate_of_tasks(redis_tasks()),
        }
        rates: Dict[str, List[Rate]] = {kind: [] for kind in kinds}
        for _ in range(int(ROUNDS)):
            for kind, measure in kinds.items():
                rates[kind].append(measure())
        for kind, found in rates.items():
            pairs, used = zip(*found)
            times = f"{statistics.median(used):6.0f} us of processor a pair"
            print(f"{kind:22} {statistics.median(pairs):7.0f} pairs/s ({min(pairs):.0f} to {max(pairs):.0f}) {times}")


if __name__ == "__main__":
    main()
