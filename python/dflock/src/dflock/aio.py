"""The leases of `dflock` for asyncio.

    async with dflock.aio.lock("pool", limit=4) as lease:
        ...  # lease.slot, lease.fence, lease.lost, lease.remaining()

Everything has the name that it has in `dflock`, and the same thread of the process does the work, so an event loop that is
blocked for a while loses no lease. The body of an `async with` statement is cancelled when its lease is lost, and the
statement raises `dflock.LeaseLost`. A task that is cancelled while it waits leaves the line, and keeps no lock that it gets
at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Coroutine, Dict, Generator, Generic, List, Optional, TypeVar

from . import _wire
from ._blocking import OnLost
from ._claims import Claim
from ._client import BaseClient, Terms, Watching, claims_of, counted, counted_of, pinged, released, taken
from ._engine import LOOK_UP, Engine, Request, engine
from ._errors import Error, LeaseLost
from ._lease import BaseLease, BaseLeases, Losable
from ._session import Hold
from ._wire import Holder

__all__ = ["Client", "Lease", "Leases", "Lock", "Locks", "Watch", "lock", "locks", "ping", "stats", "watch"]

T = TypeVar("T")
H = TypeVar("H", "Lease", "Leases")


async def run(
    work: "Callable[[Engine], Coroutine[Any, Any, T]]", discard: Callable[[T], None] = lambda result: None
) -> T:
    """Has the engine do this, and waits for it. A task that is cancelled meanwhile gives the work up."""
    request = _request(engine(), work, discard)
    try:
        await request.ended()
        return request.result()
    except BaseException:
        request.give_up()
        raise


class _Awaited(Request[T]):
    """Work for the engine that a task waits for."""

    def __init__(
        self, worker: Engine, work: "Callable[[], Coroutine[Any, Any, T]]", discard: Callable[[T], None]
    ) -> None:
        super().__init__(worker, work, discard, self._report)
        self._loop = asyncio.get_running_loop()
        self._end_seen: asyncio.Future[None] = self._loop.create_future()
        self._look_up: Optional[asyncio.TimerHandle] = None

    async def ended(self) -> None:
        """Begins it, and waits for its end."""
        self.start()
        await self._end_seen

    def _report(self) -> None:
        """In the thread of the engine."""
        if self._look_up is not None:
            self._look_up.cancel()
        try:
            self._loop.call_soon_threadsafe(self._see)
        except RuntimeError:  # The loop is closed, so nobody takes the result.
            self._give_up()

    def _begin(self) -> None:
        super()._begin()
        self._look_after()

    def _look_after(self) -> None:
        """A task whose event loop is closed waits no more, and nobody says so."""
        if self._loop.is_closed():
            self._give_up()
        else:
            self._look_up = asyncio.get_running_loop().call_later(LOOK_UP, self._look_after)

    def _see(self) -> None:
        if not self._end_seen.done():
            self._end_seen.set_result(None)


def _request(
    worker: Engine, work: "Callable[[Engine], Coroutine[Any, Any, T]]", discard: Callable[[T], None]
) -> "_Awaited[T]":
    return _Awaited(worker, lambda: work(worker), discard)


class Lost:
    """An event that is set when the lease is lost, and in a child of the process that has the lease."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._pid = loop, os.getpid()
        self._is_set = False
        self._waiters: List[asyncio.Future[bool]] = []

    def is_set(self) -> bool:
        """Whether the lease is lost."""
        return self._is_set or self._pid != os.getpid()

    async def wait(self) -> bool:
        """Waits for the loss."""
        if not self.is_set():
            waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        return True

    def _set(self) -> None:
        self._is_set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(True)


class _Body:
    """The body of an `async with` statement, which is cancelled when the lease is lost."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task: Optional[asyncio.Task[Any]] = task
        #: Cancellations of others that were there before.
        self._before = task.cancelling() if sys.version_info >= (3, 11) else 0
        self._is_cancelled = False

    def cancel(self, loss: LeaseLost) -> None:
        if self._task is not None and not self._task.done():
            self._is_cancelled = True
            self._task.cancel(str(loss))

    async def end(self, kind: Optional[type]) -> bool:
        """It has ended. Whether an exception of this type, if any, is to become the loss."""
        task, self._task = self._task, None
        if not self._is_cancelled or task is None:
            return kind is None or issubclass(kind, Exception)
        if kind is None or not issubclass(kind, asyncio.CancelledError):
            # The cancellation has not reached the body: it must not reach what follows.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        if sys.version_info >= (3, 11) and task.uncancel() > self._before:
            # Somebody else has cancelled the task as well.
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                raise asyncio.CancelledError
            return False
        return kind is None or issubclass(kind, (Exception, asyncio.CancelledError))


class _Holding(Losable):
    """What one lease and several have in common."""

    def __init__(
        self, worker: Engine, holds: "List[Hold]", loop: asyncio.AbstractEventLoop, on_lost: Optional[OnLost]
    ) -> None:
        self._loop, self._on_lost = loop, on_lost
        self._bodies: List[_Body] = []
        #: An event, with `is_set()` and `await wait()`, that is set when the lease is lost.
        self.lost = Lost(loop)
        super().__init__(worker, holds)
        for hold in holds:
            if hold.loss is not None:
                self._hears(hold)

    def _hears(self, hold: Hold) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._lose)

    def _lose(self) -> None:
        loss = self.loss
        if self.lost.is_set() or loss is None:
            return
        self.lost._set()
        for body in self._bodies:
            body.cancel(loss)
        if self._on_lost is not None:
            self._on_lost(loss)

    async def release(self) -> None:
        """Releases it, and waits for the answer of the server; if the connection has broken, over another one. Nothing
        happens if it was released before. A release whose task is cancelled goes on in the background.

        Raises `LeaseLost` if the lease was over before, and `Unreachable` if no server answers: then the key is free when
        the lease ends.
        """
        loss = self.loss
        if loss is not None:
            self._give_back()
            raise loss
        await self._wait_for_release()

    async def _wait_for_release(self) -> None:
        holds = [hold for hold in self._holds if not hold.is_released]
        if holds:
            request = _request(self._engine, lambda worker: released(holds), lambda result: None)
            await request.ended()
            error = request.result()
            if error is not None:
                raise error

    def _enter(self) -> None:
        body = _Body()
        self._bodies.append(body)
        loss = self.loss
        if loss is not None:
            body.cancel(loss)

    async def _leave(self, kind: Optional[type]) -> None:
        """At the end of an `async with` statement."""
        body = self._bodies.pop()
        if kind is not None and issubclass(kind, GeneratorExit):
            # The event loop was closed, or the body was forgotten: nothing can be awaited.
            self._give_back()
            return
        loss = self.loss
        if loss is None:
            body._task = None
            try:
                await self._wait_for_release()
            except LeaseLost as error:
                loss = error
            except Error:
                pass  # The lease stood to the end of the body. The key is free when it ends.
            if loss is None:
                return
        self._give_back()
        if await body.end(kind):
            raise loss


class Lease(_Holding, BaseLease):
    """A lock or a slot that is held, and renewed in the background until it is released: by `release`, at the end of an
    `async with` statement, or, with a `ResourceWarning`, when the program forgets it."""

    def __init__(
        self, worker: Engine, hold: Hold, loop: asyncio.AbstractEventLoop, on_lost: Optional[OnLost]
    ) -> None:
        self._hold = hold
        super().__init__(worker, [hold], loop, on_lost)

    async def __aenter__(self) -> "Lease":
        self._enter()
        return self

    async def __aexit__(
        self, kind: Optional[type] = None, error: Optional[BaseException] = None, trace: Optional[TracebackType] = None
    ) -> None:
        await self._leave(kind)


class Leases(_Holding, BaseLeases[Lease]):
    """Several leases, a sequence in the order of their keys; see `Lease`. If one is lost, they count as lost."""

    def __init__(
        self, worker: Engine, leases: "List[Lease]", loop: asyncio.AbstractEventLoop, on_lost: Optional[OnLost]
    ) -> None:
        self._leases = tuple(leases)
        super().__init__(worker, [lease._hold for lease in leases], loop, on_lost)

    async def __aenter__(self) -> "Leases":
        self._enter()
        return self

    async def __aexit__(
        self, kind: Optional[type] = None, error: Optional[BaseException] = None, trace: Optional[TracebackType] = None
    ) -> None:
        await self._leave(kind)


class _Claimed(Generic[H]):
    """A request that can be made again and again, also by several tasks at once."""

    def __init__(self, claims: List[Claim], terms: Terms) -> None:
        self._claims, self._terms = claims, terms
        self._entered: "Dict[asyncio.Task[Any], List[H]]" = {}

    def _made(self, worker: Engine, holds: "List[Hold]", loop: asyncio.AbstractEventLoop) -> H:
        raise NotImplementedError

    async def acquire(self) -> H:
        """Waits in line, and returns what is held then. If the server goes away meanwhile, it is looked for as long as the
        timeout allows, and the line is joined again at its end.

        A task that is cancelled meanwhile leaves the line, at the latest a second after the request was sent, and keeps
        nothing. Raises `Busy` if the time is over first, and what `dflock.Client.lock` says.
        """
        loop = asyncio.get_running_loop()

        async def take(worker: Engine) -> H:
            return self._made(worker, await taken(worker, self._claims, self._terms), loop)

        return await run(take, lambda held: held._give_back())

    def __await__(self) -> Generator[Any, None, H]:
        return self.acquire().__await__()

    async def __aenter__(self) -> H:
        held = await self.acquire()
        try:
            held._enter()
            task = asyncio.current_task()
            assert task is not None
            self._entered.setdefault(task, []).append(held)
            return held
        except BaseException:
            held._give_back()
            raise

    async def __aexit__(
        self, kind: Optional[type] = None, error: Optional[BaseException] = None, trace: Optional[TracebackType] = None
    ) -> None:
        await self._pop()._leave(kind)

    def _pop(self) -> H:
        try:
            task = asyncio.current_task()
        except RuntimeError:  # The event loop was closed.
            task = None
        if task not in self._entered:
            task = next(iter(self._entered))
        stack = self._entered[task]
        held = stack.pop()
        if not stack:
            del self._entered[task]
        return held


class Lock(_Claimed[Lease]):
    """A request for one key: `async with lock as lease`, or `lease = await lock`."""

    def _made(self, worker: Engine, holds: "List[Hold]", loop: asyncio.AbstractEventLoop) -> Lease:
        return Lease(worker, holds[0], loop, self._terms.on_lost)


class Locks(_Claimed[Leases]):
    """A request for several keys, all or none: `async with locks as leases`, or `leases = await locks`."""

    def _made(self, worker: Engine, holds: "List[Hold]", loop: asyncio.AbstractEventLoop) -> Leases:
        return Leases(worker, [Lease(worker, hold, loop, None) for hold in holds], loop, self._terms.on_lost)


class Watch(AsyncIterator[Optional[Holder]]):
    """Iterates over the holders of a key: the present one at once, then each other one. `None`: the key is free."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._pid = os.getpid()

    async def __anext__(self) -> Optional[Holder]:
        if self._pid != os.getpid():
            raise RuntimeError("a watch belongs to the process that began it")
        return await run(self._watching.next)

    async def aclose(self) -> None:
        """Ends it, and closes its connection."""
        if self._pid == os.getpid():
            await run(lambda worker: self._watching.end())

    def __del__(self) -> None:
        self._watching.forget()

    async def __aenter__(self) -> "Watch":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class Client(BaseClient):
    """`dflock.Client` for asyncio, with the same settings. Can be used by several event loops."""

    def lock(
        self,
        key: "str | bytes",
        timeout: Optional[float] = None,
        *,
        ttl: Optional[float] = None,
        shared: bool = False,
        limit: Optional[int] = None,
        name: Optional[str] = None,
        value: Optional[str] = None,
        on_lost: Optional[OnLost] = None,
    ) -> Lock:
        """Names a lock; nothing is sent before it is acquired: `async with client.lock("nightly") as lease: ...`.

        The arguments and the errors are those of `dflock.Client.lock`. `on_lost` is called in the event loop.
        """
        return Lock([self._claim(key, ttl, shared, limit, name, value)], Terms(timeout, on_lost))

    def locks(
        self,
        *keys: "str | bytes",
        timeout: Optional[float] = None,
        ttl: Optional[float] = None,
        shared: bool = False,
        limit: Optional[int] = None,
        name: Optional[str] = None,
        value: Optional[str] = None,
        on_lost: Optional[OnLost] = None,
    ) -> Locks:
        """Names several locks, of which all are taken or none; see `dflock.Client.locks`."""
        claims = claims_of(keys, lambda key: self._claim(key, ttl, shared, limit, name, value))
        return Locks(claims, Terms(timeout, on_lost))

    def watch(self, key: "str | bytes") -> Watch:
        """Iterates over the holders of a key: `async for holder in client.watch("leader")`; see `dflock.Client.watch`."""
        return Watch(Watching(self._settings, _wire.checked_key(key)))

    async def stats(self, key: "Optional[str | bytes]" = None) -> Dict[str, Any]:
        """See `dflock.Client.stats`."""
        if key is None:
            return await run(lambda worker: counted(self._settings))
        name = _wire.checked_key(key)
        return await run(lambda worker: counted_of(self._settings, name))

    async def ping(self) -> Dict[str, float]:
        """See `dflock.Client.ping`."""
        return await run(lambda worker: pinged(self._settings))


@functools.cache
def _client() -> Client:
    return Client()


def lock(
    key: "str | bytes",
    timeout: Optional[float] = None,
    *,
    ttl: Optional[float] = None,
    shared: bool = False,
    limit: Optional[int] = None,
    name: Optional[str] = None,
    value: Optional[str] = None,
    on_lost: Optional[OnLost] = None,
) -> Lock:
    """`Client.lock` of the servers that the environment names; see there for arguments and errors."""
    return _client().lock(key, timeout, ttl=ttl, shared=shared, limit=limit, name=name, value=value, on_lost=on_lost)


def locks(
    *keys: "str | bytes",
    timeout: Optional[float] = None,
    ttl: Optional[float] = None,
    shared: bool = False,
    limit: Optional[int] = None,
    name: Optional[str] = None,
    value: Optional[str] = None,
    on_lost: Optional[OnLost] = None,
) -> Locks:
    """`Client.locks` of the servers that the environment names; see there for arguments and errors."""
    return _client().locks(
        *keys, timeout=timeout, ttl=ttl, shared=shared, limit=limit, name=name, value=value, on_lost=on_lost
    )


def watch(key: "str | bytes") -> Watch:
    """`Client.watch` of the servers that the environment names; see there for arguments and errors."""
    return _client().watch(key)


async def stats(key: "Optional[str | bytes]" = None) -> Dict[str, Any]:
    """`Client.stats` of the servers that the environment names; see there for arguments and errors."""
    return await _client().stats(key)


async def ping() -> Dict[str, float]:
    """`Client.ping` of the servers that the environment names; see there for arguments and errors."""
    return await _client().ping()
