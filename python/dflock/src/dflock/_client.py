"""What both clients have in common: the settings, the arguments of requests, and the work that the engine does for them."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _claims, _route, _wire
from ._claims import Claim
from ._connection import Connection, settled
from ._engine import Engine
from ._errors import Busy, Error, LeaseLost, Loss, NotHeld, NotSupported
from ._route import Route, outlast
from ._session import Hold, Wanted
from ._settings import Given, Settings, settings
from ._timing import TRIES_IN_TIME, Patience
from ._wire import MAX_TIME, Holder, Kind

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: A watched server is asked again after this time in seconds at the latest, so that one that is gone is noticed.
MOST_WATCH = 20.0


class Terms:
    """How a lock is requested."""

    def __init__(self, timeout: Optional[float], on_lost: Optional[Callable[..., object]]) -> None:
        if timeout is not None:
            _wire.whole_seconds(timeout, "the timeout")
        self.timeout, self.on_lost = timeout, on_lost

    @property
    def end(self) -> float:
        return time.monotonic() + (MAX_TIME if self.timeout is None else self.timeout)


class BaseClient:
    """The settings, and how claims are made of arguments."""

    def __init__(self, **given: Unpack[Given]) -> None:
        self._settings = settings(**given)

    def _claim(
        self,
        key: "str | bytes",
        ttl: Optional[float],
        shared: bool,
        limit: Optional[int],
        name: Optional[str],
        value: Optional[str],
    ) -> Claim:
        if shared and limit is not None:
            raise ValueError("a lock is either shared or has a limit")
        changes: Dict[str, Any] = {"name": name} if name is not None else {}
        if value is not None:
            _wire.checked_value(value)
            changes["value"] = value
        length = None if ttl is None else _wire.whole_seconds(ttl, "the lease")
        if length == 0:
            raise ValueError("the lease must be longer than nothing")
        kind = Kind(shared, None if limit is None else _wire.checked_limit(limit))
        wanted = Wanted(_wire.checked_key(key), kind, length)
        return Claim(dataclasses.replace(self._settings, **changes), wanted)


async def taken(engine: Engine, claims: List[Claim], terms: Terms) -> List[Hold]:
    """Takes all, or raises `Busy`."""
    asked: List[bytes] = []
    may_wait = terms.timeout is None or terms.timeout > 0
    holds = await _claims.take(engine.sessions, claims, terms.end, may_wait, asked.append)
    if holds is None:
        raise Busy(_wire.shown(asked[-1]), terms.timeout)
    return holds


async def released(holds: List[Hold]) -> Optional[Error]:
    """Releases them all at once. The first failure in the order of the keys."""
    outcomes = [hold.release() for hold in holds]
    failure: Optional[Error] = None
    for hold, outcome in zip(holds, outcomes):
        try:
            await outcome
        except NotHeld:
            failure = failure or LeaseLost(_wire.shown(hold.key), hold.loss or Loss.NOT_HELD)
        except Error as error:
            failure = failure or error
    return failure


async def pinged(client_settings: Settings) -> Dict[str, float]:
    """For each server, in how many seconds it answered."""
    times = {}
    for route in _route.each(client_settings):
        connection = await route.open()
        try:
            begun = time.monotonic()
            _wire.read_done(await connection.exchange(_wire.PING, client_settings.patience))
            times[str(route.first)] = time.monotonic() - begun
        finally:
            connection.close()
    return times


async def counted(client_settings: Settings) -> Dict[str, Any]:
    """The figures of each server; of one service, of the first server that answers."""

    async def ask(connection: Connection) -> Any:
        line = await connection.long_exchange(_wire.STATS, client_settings.patience)
        return json.loads(_wire.read_body(line))

    if client_settings.is_one_service:
        route = Route(b"_", client_settings)
        figures = await route.once(ask)
        return {str(route.first): figures}
    return {str(route.first): await route.once(ask) for route in _route.each(client_settings)}


async def counted_of(client_settings: Settings, key: bytes) -> Dict[str, Any]:
    """Who holds a key, and who waits for it."""

    async def ask(connection: Connection) -> Any:
        line = await connection.long_exchange(_wire.key_stats(key), client_settings.patience)
        return json.loads(_wire.read_body(line))

    figures: Dict[str, Any] = await Route(key, client_settings).once(ask)
    return figures


class Watching:
    """Watches a key, over whatever connections. Runs in the thread of the engine.

    A call that is given up loses nothing: the next one goes on with the same request.
    """

    def __init__(self, client_settings: Settings, key: bytes) -> None:
        self._settings, self._key = client_settings, key
        self._route = Route(key, client_settings)
        self._connection: Optional[Connection] = None
        self._answer: Any = None
        self._last: Optional[str] = None
        self._patience: Optional[Patience] = None
        #: Whose thread it runs in.
        self.worker: Optional[Engine] = None

    async def next(self, worker: Engine) -> Optional[Holder]:
        """The holder of the key, or nothing when it is free: at first at once, later when it is another one."""
        self.worker = worker
        while True:
            try:
                tag, holder = await self._look()
                self._patience = Patience(time.monotonic() + MAX_TIME, is_to_return=True)
                is_new, self._last = tag != self._last, tag
                if is_new:
                    return holder
            except Error as error:
                self.close()
                self._route.prefer_next()
                self._patience = self._patience or self._route.patience()
                try:
                    await outlast(self._patience, error)
                except Error:
                    self._patience = None
                    raise

    async def _look(self) -> Tuple[str, Optional[Holder]]:
        if self._connection is None:
            self._connection = await self._route.open()
        if self._answer is None:
            period = min(self._settings.read_timeout / TRIES_IN_TIME, MOST_WATCH)
            wait = 0 if self._last is None else _wire.whole_seconds(period, "the period")
            request = _wire.watch(self._key, wait, self._last)
            self._answer = self._connection.ask(request, wait + self._settings.patience)
        await settled(self._answer, None)
        answer, self._answer = self._answer, None
        try:
            return _wire.read_sight(answer.result())
        except NotHeld:
            raise NotSupported("the server cannot be watched: it does not know the request `watch`") from None

    async def end(self) -> None:
        """The same as `close`, as work for the engine."""
        self.close()

    def forget(self) -> None:
        """Has the connection closed. May be called by any thread, also by a destructor."""
        if self.worker is not None and self.worker.is_alive:
            self.worker.post(self.close)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._answer = None


def claims_of(
    keys: "Sequence[str | bytes]", claim: "Callable[[str | bytes], Claim]"
) -> List[Claim]:
    """For several keys, in the order in which they are taken."""
    return _claims.in_order([claim(key) for key in keys])
