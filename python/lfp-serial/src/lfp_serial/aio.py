"""The locks of `lfp_serial` for asyncio.

    async with lfp_serial.aio.lock("/dev/ttyUSB0", timeout=30):
        ...

The service is asked in a thread of its own, so the event loop goes on. A task that is cancelled while it waits for a
port leaves the queue, and does not keep a port that it gets at that moment.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Generator
from types import TracebackType
from typing import Any, Callable, Optional, TypeVar

from . import Device, NoService, NotReleased, _Asker, _lock
from . import Lock as BlockingLock

__all__ = ["Lock", "lock"]

T = TypeVar("T")


class Lock:
    """A port that belongs to this process until `release`, or until the process ends."""

    def __init__(self, blocking: BlockingLock) -> None:
        #: The same lock for code that does not run in an event loop.
        self.blocking = blocking

    @property
    def device(self) -> str:
        """The path of the port."""
        return self.blocking.device

    async def release(self) -> None:
        """Releases the port, also if the task is cancelled meanwhile. Raises what `lfp_serial.Lock.release` does."""
        await _result(_started(self.blocking.release))

    async def __aenter__(self) -> Lock:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]] = None,
        error: Optional[BaseException] = None,
        trace: Optional[TracebackType] = None,
    ) -> None:
        # As at the end of a `with` statement of the blocking lock.
        with contextlib.suppress(NoService, NotReleased):
            await self.release()


class _Locking:
    """For `await lock(...)` and `async with lock(...)`."""

    def __init__(self, device: Device, timeout: Optional[float], server: Optional[str]) -> None:
        self._arguments = (device, timeout, server)
        self._lock: Optional[Lock] = None

    def __await__(self) -> Generator[Any, None, Lock]:
        return self._get().__await__()

    async def __aenter__(self) -> Lock:
        self._lock = await self
        return self._lock

    async def __aexit__(self, *error: Any) -> None:
        if self._lock is not None:
            await self._lock.__aexit__(*error)

    async def _get(self) -> Lock:
        asker = _Asker()
        attempt = _started(lambda: _lock(*self._arguments, asker))
        try:
            return Lock(await _result(attempt))
        except asyncio.CancelledError:
            asker.give_up()
            attempt.add_done_callback(_release_unwanted)
            raise


def lock(device: Device, timeout: Optional[float] = None, server: Optional[str] = None) -> _Locking:
    """Locks the port for this process, as `lfp_serial.lock` does: `async with lock(...)`, or `await lock(...)`."""
    return _Locking(device, timeout, server)


def _release_unwanted(attempt: concurrent.futures.Future[BlockingLock]) -> None:
    if attempt.exception() is None:
        _started(attempt.result().__exit__)


def _started(call: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Begins the call in a thread, for which nobody waits when the interpreter ends."""
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # It belongs to the task.
            outcome.set_exception(error)

    threading.Thread(target=run, name="lfp_serial", daemon=True).start()
    return outcome


async def _result(outcome: concurrent.futures.Future[T]) -> T:
    """What came of it. If the task is cancelled, the call goes on."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    def report(_: object) -> None:
        # The loop may have been closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(end)

    outcome.add_done_callback(report)
    await ended
    return outcome.result()
