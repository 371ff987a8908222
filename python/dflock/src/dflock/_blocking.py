"""The client for programs without an event loop: each call blocks its thread."""

from __future__ import annotations

import functools
import os
import threading
from types import TracebackType
from typing import Any, Callable, Coroutine, Dict, Generic, Iterator, List, Optional, TypeVar

from . import _wire
from ._claims import Claim
from ._client import BaseClient, Terms, Watching, claims_of, counted, counted_of, pinged, released, taken
from ._engine import Engine, Request, engine
from ._errors import Error, LeaseLost
from ._lease import BaseLease, BaseLeases, Losable
from ._session import Hold
from ._wire import Holder

T = TypeVar("T")
H = TypeVar("H", "Lease", "Leases")
OnLost = Callable[[LeaseLost], object]


def run(
    work: "Callable[[Engine], Coroutine[Any, Any, T]]", discard: Callable[[T], None] = lambda result: None
) -> T:
    """Has the engine do this, and waits for it. What interrupts the wait gives the work up."""
    worker = engine()
    request = Request(worker, lambda: work(worker), discard)
    try:
        request.start()
        request.wait()
        return request.result()
    except BaseException:
        request.give_up()
        raise


class Lost(threading.Event):
    """Set when the lease is lost, and in a child of the process that has the lease."""

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()

    def is_set(self) -> bool:
        """Whether the lease is lost."""
        return self._pid != os.getpid() or super().is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits at most so many seconds for the loss; whether it is lost."""
        return self._pid != os.getpid() or super().wait(timeout)


class _Holding(Losable):
    """What one lease and several have in common."""

    def __init__(self, worker: Engine, holds: "List[Hold]", on_lost: Optional[OnLost]) -> None:
        self._on_lost = on_lost
        #: An event (as of `threading`) that is set when the lease is lost.
        self.lost = Lost()
        super().__init__(worker, holds)
        for hold in holds:
            if hold.loss is not None:
                self._hears(hold)

    def _hears(self, hold: Hold) -> None:
        loss = self.loss
        if self.lost.is_set() or loss is None:
            return
        self.lost.set()
        if self._on_lost is not None:
            # In a thread of its own: the one of the engine has other leases to renew.
            threading.Thread(target=self._on_lost, args=(loss,), name="dflock on_lost", daemon=True).start()

    def release(self) -> None:
        """Releases it, and waits for the answer of the server; if the connection has broken, over another one. Nothing
        happens if it was released before. A release that is interrupted goes on in the background.

        Raises `LeaseLost` if the lease was over before, and `Unreachable` if no server answers: then the key is free when
        the lease ends.
        """
        loss = self.loss
        if loss is not None:
            self._give_back()
            raise loss
        self._wait_for_release()

    def _wait_for_release(self) -> None:
        holds = [hold for hold in self._holds if not hold.is_released]
        if not holds:
            return
        # It is not given up if the wait is interrupted.
        request = Request(self._engine, lambda: released(holds), lambda result: None)
        request.start()
        request.wait()
        error = request.result()
        if error is not None:
            raise error

    def _leave(self, kind: Optional[type]) -> None:
        """At the end of a `with` statement."""
        try:
            loss = self.loss
            if loss is None:
                try:
                    self._wait_for_release()
                except LeaseLost as error:
                    loss = error
                except Error:
                    pass  # The lease stood to the end of the body. The key is free when it ends.
        finally:
            self._give_back()
        if loss is not None and (kind is None or issubclass(kind, Exception)):
            raise loss


class Lease(_Holding, BaseLease):
    """A lock or a slot that is held, and renewed in the background until it is released: by `release`, at the end of a
    `with` statement, or, with a `ResourceWarning`, when the program forgets it. It can be used by any thread."""

    def __init__(self, worker: Engine, hold: Hold, on_lost: Optional[OnLost]) -> None:
        self._hold = hold
        super().__init__(worker, [hold], on_lost)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self, kind: Optional[type] = None, error: Optional[BaseException] = None, trace: Optional[TracebackType] = None
    ) -> None:
        self._leave(kind)


class Leases(_Holding, BaseLeases[Lease]):
    """Several leases, a sequence in the order of their keys; see `Lease`. If one is lost, they count as lost."""

    def __init__(self, worker: Engine, leases: "List[Lease]", on_lost: Optional[OnLost]) -> None:
        self._leases = tuple(leases)
        super().__init__(worker, [lease._hold for lease in leases], on_lost)

    def __enter__(self) -> "Leases":
        return self

    def __exit__(
        self, kind: Optional[type] = None, error: Optional[BaseException] = None, trace: Optional[TracebackType] = None
    ) -> None:
        self._leave(kind)


class _Claimed(Generic[H]):
    """A request that can be made again and again, also by several threads at once."""

    def __init__(self, claims: List[Claim], terms: Terms) -> None:
        self._claims, self._terms = claims, terms
        self._entered = threading.local()

    def _made(self, worker: Engine, holds: "List[Hold]") -> H:
        raise NotImplementedError

    def acquire(self) -> H:
        """Waits in line, and returns what is held then. If the server goes away meanwhile, it is looked for as long as the
        timeout allows, and the line is joined again at its end.

        Raises `Busy` if the time is over first, and what the functions of this module say.
        """

        async def take(worker: Engine) -> H:
            return self._made(worker, await taken(worker, self._claims, self._terms))

        return run(take, lambda held: held._give_back())

    def __enter__(self) -> H:
        held = self.acquire()
        try:
            self._stack().append(held)
            return held
        except BaseException:
            held._give_back()
            raise

    def __exit__(
        self, kind: Optional[type] = None, error: Optional[BaseException] = None, trace: Optional[TracebackType] = None
    ) -> None:
        self._stack().pop()._leave(kind)

    def _stack(self) -> List[H]:
        stack: Optional[List[H]] = getattr(self._entered, "stack", None)
        if stack is None:
            stack = self._entered.stack = []
        return stack


class Lock(_Claimed[Lease]):
    """A request for one key: `with lock as lease`, or `lease = lock.acquire()`."""

    def _made(self, worker: Engine, holds: "List[Hold]") -> Lease:
        return Lease(worker, holds[0], self._terms.on_lost)


class Locks(_Claimed[Leases]):
    """A request for several keys, all or none: `with locks as leases`, or `leases = locks.acquire()`."""

    def _made(self, worker: Engine, holds: "List[Hold]") -> Leases:
        return Leases(worker, [Lease(worker, hold, None) for hold in holds], self._terms.on_lost)


class Watch(Iterator[Optional[Holder]]):
    """Iterates over the holders of a key: the present one at once, then each other one. `None`: the key is free."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._pid = os.getpid()

    def __next__(self) -> Optional[Holder]:
        if self._pid != os.getpid():
            raise RuntimeError("a watch belongs to the process that began it")
        return run(self._watching.next)

    def close(self) -> None:
        """Ends it, and closes its connection."""
        if self._pid == os.getpid():
            run(lambda worker: self._watching.end())

    def __del__(self) -> None:
        self._watching.forget()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Client(BaseClient):
    """A client of one server, or of several. Makes no connection before the first request; can be shared by threads.
    Clients with the same settings share their connections.

    What is not given is taken from the environment, as for `dflock(1)`: `DFLOCK_SERVERS` or `DFLOCK_ANY_OF`,
    `DFLOCK_AUTH_TOKEN_FILE` or `DFLOCK_AUTH_TOKEN`, and `DFLOCK_TRUST_FENCES`.

    - `servers`: `"HOST:PORT"`, `"HOST"`, `"[V6]:PORT"` or `"unix:PATH"`; several as a sequence, or separated by commas.
      Several share the keys: the CRC-32 of a key chooses one (`shard`). List the same servers in the same order everywhere.
      Default: `"127.0.0.1:6388"`.
    - `any_of`: instead of `servers`, addresses of one service, such as servers on one etcd. If one does not answer, the next
      is asked. Never list servers here that do not share their locks: two clients would get one lock.
    - `auth_token`, `auth_token_file`: the secret of the servers, or the file that has it.
    - `name`: what the servers show for this client. Default: user, host, process and program.
    - `value`: what programs that watch a key are told while this client holds it, such as its address: 1 to 256 bytes.
    - `trust_fences`: the tokens begin with fences, though the servers do not say so. True of the Go server since 2.1.
    - `tls`: `True`, or an `ssl.SSLContext`. `tls_ca`: a PEM file with the certificates to trust instead of those of the
      system. `tls_name`: the name in the server's certificate, if it is not the host. Both turn TLS on.
    - `patience`: how many seconds to look for a server that is away, to wait for a connection, and to wait for an answer that
      is overdue. Default: 10.
    - `read_timeout`: the servers' option of the same name, in seconds: a server that hears nothing for so long closes the
      connection and, with its default settings, frees its locks. So leases are renewed three times in it, and count as
      lost if no answer came during it. Default: 23.
    - `reclaim`: for how many seconds to look for a server after a broken connection, before the lease counts as lost.
      Default: as long as the lease lasts.
    - `margin`: how many seconds before the end of a lease that cannot be renewed the holder is told; at most a third of the
      lease. Default: 0.

    Raises `SettingsError` for what cannot be used.
    """

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
        """Names a lock; nothing is sent before it is acquired: `with client.lock("nightly") as lease: ...`.

        - `key`: 1 to 256 bytes without white space.
        - `timeout`: wait in line at most so many seconds; 0: do not wait. Default: wait for ever.
        - `ttl`: length of the lease in seconds, instead of the server's default. It is renewed in the background.
        - `shared`: share the lock with all others that do so (readers).
        - `limit`: a semaphore with so many slots. All clients of the key give the same number.
        - `name`, `value`: instead of those of the client.
        - `on_lost`: called with the `LeaseLost` when the lease is lost, in a thread of its own.

        Times have fractions here, but whole seconds on the wire: a part of a second counts as a whole one.

        To acquire it raises `Busy` if the time is over first, `Unreachable` if no server is reached in `patience` seconds,
        `Refused` if the server refuses, `NotSupported` if it is too old. At the end of the `with` statement `LeaseLost` is
        raised if the lease was lost.
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
        """Names several locks, of which all are taken or none; see `lock`. Their order makes no difference, so programs
        that name the same keys in different orders never wait for each other. `timeout` is the time for all of them.

        Raises `ValueError` for no key, and for a key that is named twice.
        """
        claims = claims_of(keys, lambda key: self._claim(key, ttl, shared, limit, name, value))
        return Locks(claims, Terms(timeout, on_lost))

    def watch(self, key: "str | bytes") -> Watch:
        """Iterates over the holders of a key: the present one at once (`None`: the key is free), then each other one.
        Changes that follow each other quickly may be one step; the last state always comes, and none comes twice in a row.

            for holder in client.watch("leader"):
                print(holder.value if holder else "nobody")

        A broken connection is replaced. Before the first answer a server is looked for during `patience`, later for ever.

        Raises `NotSupported` for servers that cannot be watched, and `Unreachable`; the next step tries again.
        """
        return Watch(Watching(self._settings, _wire.checked_key(key)))

    def stats(self, key: "Optional[str | bytes]" = None) -> Dict[str, Any]:
        """Without a key, the figures of each server by its address; of one service (`any_of`) those of the first server
        that answers. With a key: who holds it, and who waits for it. The objects are those of the server's `stats`.

        Raises `Unreachable` or `Refused`.
        """
        if key is None:
            return run(lambda worker: counted(self._settings))
        name = _wire.checked_key(key)
        return run(lambda worker: counted_of(self._settings, name))

    def ping(self) -> Dict[str, float]:
        """Asks every server whether it is there. In how many seconds each of them answered, by its address.

        Raises `Unreachable` or `Refused` if one of them does not.
        """
        return run(lambda worker: pinged(self._settings))


@functools.cache
def default() -> Client:
    """The client with the settings of the environment, as they were at the first use."""
    return Client()
