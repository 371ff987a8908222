"""Takes leases, one or several of which all or none are taken. Runs in the thread of the engine.

Several keys are taken all at once if they are free and the server can do that, otherwise one after another, in the order of
their bytes. A client that waits for a key holds only smaller ones. So clients that take their keys in this order never
deadlock, whatever the kinds of the locks, and whatever their servers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Callable, List, Optional, Sequence, Tuple

from . import _wire
from ._connection import Connection
from ._errors import Error, Refused, is_passing
from ._route import Route, outlast
from ._session import Hold, Sessions, Taken, Wanted, drop, loss_error
from ._settings import Settings
from ._timing import Patience, was_waited_for
from ._wire import MAX_LINE_BYTES, MAX_TIME, MOST_TOGETHER

log = logging.getLogger("dflock")


class Claim:
    """A request for one key, and the servers that know it."""

    def __init__(self, settings: Settings, wanted: Wanted) -> None:
        self.settings, self.wanted = settings, wanted
        self.route = Route(wanted.key, settings)

    async def obtain(self, sessions: Sessions, end: float, may_wait: bool) -> Taken:
        """Waits in line until this time. Joins the line again, at its end, if the server goes away meanwhile."""
        patience = self.route.patience()
        asked_at: Optional[float] = None

        async def opened() -> Tuple[Connection, int]:
            nonlocal asked_at
            connection = await self.route.open()
            asked_at = time.monotonic()
            left = max(end - asked_at, 0.0) if may_wait else 0.0
            return connection, _wire.whole_seconds(min(left, MAX_TIME), "the time")

        while True:
            asked_at = None
            try:
                return await sessions.take(self.route, [self.wanted], may_wait, opened)
            except Error as error:
                now = time.monotonic()
                if asked_at is not None and patience.was_in_line(error, asked_at, end, now):
                    key = _wire.shown(self.wanted.key)
                    log.info("%s: %s; waiting for the server to join the line again", key, error)
                self.route.prefer_next()
                await outlast(patience, error)


def in_order(claims: Sequence[Claim]) -> List[Claim]:
    """The claims in the order of their keys. A client that requested one key twice would wait for itself.

    Raises `ValueError`.
    """
    ordered = sorted(claims, key=lambda claim: claim.wanted.key)
    if not ordered:
        raise ValueError("no key is named")
    if any(one.wanted.key == other.wanted.key for one, other in zip(ordered, ordered[1:])):
        raise ValueError("a key is named twice")
    return ordered


def go_together(claims: List[Claim]) -> bool:
    """Whether these can be sent as one request, which takes all keys if they are free: locks for one holder alone, at one
    server, with leases of one length, on one line."""
    first = claims[0]
    return (
        2 <= len(claims) <= MOST_TOGETHER
        and sum(len(claim.wanted.key) + 1 for claim in claims) <= MAX_LINE_BYTES + 1
        and all(
            claim.wanted.kind.is_exclusive
            and claim.settings == first.settings
            and claim.wanted.ttl == first.wanted.ttl
            and set(claim.settings.servers_of(claim.wanted.key)) == set(first.settings.servers_of(first.wanted.key))
            for claim in claims
        )
    )


async def take(
    sessions: Sessions, claims: List[Claim], end: float, may_wait: bool, asked: Callable[[bytes], None]
) -> Taken:
    """Takes all, or none: before it returns without all, it releases those that were taken. If the lease of one key is
    lost while the client waits for another, it starts over. `asked` is called with each key that is requested."""
    if len(claims) == 1:
        asked(claims[0].wanted.key)
        return await claims[0].obtain(sessions, end, may_wait)
    patience = Patience(end, is_to_return=True)
    while True:
        holds: List[Hold] = []
        try:
            is_all = await _gather(sessions, claims, end, may_wait, asked, holds)
            lost = [hold for hold in holds if hold.loss is not None]
            if is_all and not lost:
                return holds
        except BaseException:
            await _release(holds)
            raise
        await _release(holds)
        if not lost:
            return None
        assert lost[0].loss is not None
        log.info("%s: %s; asking for all keys again", _wire.shown(lost[0].key), lost[0].loss.value)
        await outlast(patience, loss_error(lost[0].loss))


async def _release(holds: List[Hold]) -> None:
    """A key that cannot be released becomes free when its lease ends. Goes on if this task is cancelled."""
    releases = [hold.release() for hold in holds]
    if releases:
        await asyncio.wait(releases)


async def _gather(
    sessions: Sessions, claims: List[Claim], end: float, may_wait: bool, asked: Callable[[bytes], None], holds: List[Hold]
) -> bool:
    """Takes them into `holds`. Whether all were taken in time; a hold that is lost meanwhile ends it."""
    asked(claims[0].wanted.key)
    if go_together(claims):
        together = await _together(sessions, claims)
        if together is not None:
            holds += together
            return True
    first_at: Optional[float] = None
    for claim in claims:
        asked(claim.wanted.key)
        taken = await _obtain_beside(sessions, claim, end, may_wait, holds)
        if taken is None:
            return False
        holds += taken
        first_at = first_at or time.monotonic()
    now = time.monotonic()
    if first_at is not None and was_waited_for(first_at, now):
        # If the server was restarted, an earlier lease may be lost, and its session may not know that yet. The last is new.
        for hold in holds[:-1]:
            hold.session.renew(hold, now)
        for hold in holds[:-1]:
            await hold.known_since(now)
    return True


async def _together(sessions: Sessions, claims: List[Claim]) -> Taken:
    """Takes them by one request. `None`: they are taken one after another. So it is if one of them is in use, if the server
    refuses, because it does not know the request or for a reason that it tells again, and after a broken connection."""
    route = claims[0].route

    async def opened() -> Tuple[Connection, int]:
        return await route.open_patiently(), 0

    try:
        return await sessions.take(route, [claim.wanted for claim in claims], False, opened)
    except Error as error:
        if isinstance(error, Refused) or is_passing(error):
            return None
        raise


async def _obtain_beside(
    sessions: Sessions, claim: Claim, end: float, may_wait: bool, holds: List[Hold]
) -> Taken:
    """Takes one more, as long as none of these is lost."""
    attempt = asyncio.ensure_future(claim.obtain(sessions, end, may_wait))
    try:
        while not attempt.done() and all(hold.loss is None for hold in holds):
            changes = [asyncio.ensure_future(hold.change()) for hold in holds]
            try:
                await asyncio.wait((attempt, *changes), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for change in changes:
                    change.cancel()
        if not attempt.done() or any(hold.loss is not None for hold in holds):
            _abandon(attempt)
            return None
        return attempt.result()
    except asyncio.CancelledError:
        _abandon(attempt)
        raise


def _abandon(attempt: "asyncio.Task[Taken]") -> None:
    """A grant that comes in spite of it is released."""
    attempt.add_done_callback(_drop)
    attempt.cancel()


def _drop(attempt: "asyncio.Task[Taken]") -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        drop(attempt.result())
