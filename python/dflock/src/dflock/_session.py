"""A session: one task owns one connection to a server, and everything that is held over it.

It takes what is free, renews all holds well before their end, reports if one is lost, and ends soon after the last. If its
connection breaks, or stays silent, it renews all holds over another one. A grant that nobody awaits any more is given back.

All of it runs in the thread of the engine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Any, Callable, Coroutine, Deque, Dict, FrozenSet, List, Optional, Sequence, Set, Tuple, Union

from . import _wire
from ._connection import Connection, closed, settled
from ._errors import Error, Loss, NotHeld, NotSupported, Refused, Silent, Unreachable, is_end_of_lease, is_passing
from ._route import Route
from ._settings import Address, Settings
from ._timing import TRIES_IN_TIME, Backoff, Schedule, share, was_waited_for
from ._wire import Grant, Kind

log = logging.getLogger("dflock")

#: A grant that needs no wait comes within this time, in seconds. A client that asked longer ago waits in line, and leaves it.
LINGER = 1.0
#: How long a connection without holds stays open, in seconds: the next lock of the program needs no new one.
IDLE = 1.0
#: Holds of one session. They are renewed one after the other: beside a slow server, the renewals of more might take longer
#: than they have.
MOST_HOLDS = 16


class Wanted:
    """What a client wants to hold. `ttl`: for how many seconds without a renewal; `None` is the server's default."""

    def __init__(self, key: bytes, kind: Kind, ttl: Optional[int]) -> None:
        self.key, self.kind, self.ttl = key, kind, ttl


class Hold:
    """One hold. A lost one stays in its session until its lease is released.

    Other threads read `until`, `loss` and `is_released`.
    """

    def __init__(self, session: "Session", wanted: Wanted, grant: Grant, asked_at: Optional[float]) -> None:
        self.session = session
        self.key, self.kind, self.grant = wanted.key, wanted.kind, grant
        #: To be renewed now. A grant that came after a wait may be over, and is not used before.
        self.is_urgent = asked_at is None
        self.is_confirmed = asked_at is not None
        self.schedule = Schedule(session.settings, grant.ttl, time.monotonic() if asked_at is None else asked_at)
        self.until = self.schedule.until
        self.loss: Optional[Loss] = None
        self.is_released = False
        #: Called once in this thread when it is lost.
        self.listeners: List[Callable[[Hold], None]] = []
        self._waiters: List[asyncio.Future[None]] = []

    def _changed(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def change(self) -> None:
        """Waits until it is renewed, lost or released."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def confirmed(self) -> None:
        """Waits until the server has confirmed a grant that came after a wait."""
        while not self.is_confirmed and self.loss is None and not self.is_released:
            await self.change()
        if self.loss is not None:
            raise loss_error(self.loss)

    async def known_since(self, moment: float) -> None:
        """Waits for a renewal that was sent at this time or later, or the loss."""
        while self.loss is None and not self.is_released and self.schedule.asked_at < moment:
            await self.change()

    @property
    def is_live(self) -> bool:
        return self.loss is None

    @property
    def due_at(self) -> float:
        return self.schedule.asked_at if self.is_urgent else self.schedule.renew_at

    @property
    def late_at(self) -> float:
        """When nothing else may delay its renewal any more."""
        return self.schedule.renew_at + self.schedule.renewal_interval / 4

    @property
    def may_stand(self) -> bool:
        """Whether the server may still hold it: a lease that could not be renewed stands until its end."""
        return self.loss is None or self.loss is Loss.UNREACHABLE and time.monotonic() < self.schedule.ends_at

    def renewed(self, asked_at: float, ttl: int) -> None:
        self.schedule.renewed(asked_at, ttl)
        self.is_urgent, self.is_confirmed = False, True
        self.until = self.schedule.until
        self._changed()

    def broken(self, now: float) -> None:
        self.schedule.broken(now)
        self.until = self.schedule.until

    def lose(self, loss: Loss) -> None:
        if self.loss is None and not self.is_released:
            self.loss = loss
            self.until = 0.0
            self._changed()
            for listener in self.listeners:
                try:
                    listener(self)
                except Exception:  # Such as a thread that cannot be started. The other leases go on.
                    log.exception("%s: the loss of the lease could not be reported", _wire.shown(self.key))

    def released(self) -> None:
        self.is_released = True
        self.until = 0.0
        self._changed()

    def release(self) -> "asyncio.Future[None]":
        """Orders its release, which happens also if nobody waits for the outcome."""
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(_heard)
        self.session.order(_Release(self, outcome))
        return outcome


def _heard(outcome: "asyncio.Future[Any]") -> None:
    if not outcome.cancelled():
        outcome.exception()


def drop(holds: "Optional[Sequence[Hold]]") -> None:
    """Releases holds that nobody wants any more."""
    for hold in holds or ():
        hold.release()


def loss_error(loss: Loss) -> Error:
    """For those who wanted the lease and did not get it yet."""
    if loss is Loss.NOT_HELD:
        return Refused("error_lease_expired", _wire.REFUSALS["error_lease_expired"])
    return Silent()


def not_held() -> NotHeld:
    return NotHeld("error", _wire.REFUSALS["error"])


#: What was taken: `None` if it is in use, or the time was over first.
Taken = Optional[List[Hold]]


class _Take:
    """To take these, all or none, if they are free; or to go on with what another session was granted, which ends then. A
    session that cannot do that answers `False`."""

    def __init__(self, wanted: List[Wanted], granted: Optional[List[Grant]], outcome: "asyncio.Future[Any]") -> None:
        self.wanted, self.granted, self.outcome = wanted, granted, outcome


class _Release:
    def __init__(self, hold: Hold, outcome: "asyncio.Future[None]") -> None:
        self.hold, self.outcome = hold, outcome


class _Renew:
    """To renew a hold soon, unless it was renewed since then."""

    def __init__(self, hold: Hold, since: float) -> None:
        self.hold, self.since = hold, since


_Order = Union[_Take, _Release, _Renew]


class Sessions:
    """All sessions of the process, and everything that goes on after they have ended."""

    def __init__(self) -> None:
        self._shared: Dict[Tuple[Settings, Address], Session] = {}
        self._work: Set[asyncio.Task[None]] = set()
        #: Every hold that is not released.
        self.holds: Set[Hold] = set()

    def begin(self, work: "Coroutine[Any, Any, None]") -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def idle(self) -> None:
        """Waits until nothing is held any more, and everything that was given up is released."""
        for session in list(self._shared.values()):
            session.end_when_empty()
        while self._work:
            await asyncio.wait(self._work)

    def of(self, settings: Settings, server: Address) -> "Optional[Session]":
        session = self._shared.get((settings, server))
        return session if session is not None and not session.has_ended else None

    def share(self, session: "Session") -> None:
        self._shared[session.settings, session.route.first] = session

    def forget(self, session: "Session") -> None:
        for place in [place for place, it in self._shared.items() if it is session]:
            del self._shared[place]

    async def take(
        self,
        route: Route,
        wanted: List[Wanted],
        may_wait: bool,
        opened: "Callable[[], Coroutine[Any, Any, Tuple[Connection, int]]]",
    ) -> Taken:
        """Takes these, all or none, over the session that there is, or else, if it may wait, over a new one: with a
        connection that `opened` makes, and for as many seconds as it says."""
        try:
            taken: Union[Taken, bool] = await self.join(route, wanted, None)
            if not isinstance(taken, bool) and (taken is not None or not may_wait):
                return taken
        except Error as error:
            if not is_passing(error):
                raise
        # In use. Or that session has no connection at present.
        connection, wait = await opened()
        outcome: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        self.begin(Session(self, route, connection).wait(wanted, wait, outcome))
        granted: Taken = await _answer(outcome)
        return granted

    async def join(self, route: Route, wanted: List[Wanted], granted: Optional[List[Grant]]) -> Any:
        """The answer of the session that there is, which is to take these, or to go on with what was granted to another.
        `False`: it cannot."""
        session = self.of(route.settings, route.first)
        if session is None or granted is not None and not session.has_live:
            return False
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        session.order(_Take(wanted, granted, outcome))
        return await _answer(outcome)


async def _answer(outcome: "asyncio.Future[Any]") -> Any:
    """What a session answers, when the server has confirmed grants that came after a wait."""
    holds: Any = None
    try:
        holds = await outcome
        for hold in holds or ():
            await hold.confirmed()
        return holds
    except BaseException:
        if holds is None and outcome.done() and not outcome.cancelled() and outcome.exception() is None:
            holds = outcome.result()
        drop(holds or ())
        raise


class _Anew:
    """Another connection, where all holds were renewed. `None`: the lease is over."""

    def __init__(self, connection: Connection, renewals: "List[Tuple[Hold, Optional[Tuple[float, int]]]]") -> None:
        self.connection, self.renewals = connection, renewals


class Session:
    def __init__(self, sessions: Sessions, route: Route, connection: Connection) -> None:
        self.sessions, self.route, self.settings = sessions, route, route.settings
        self.has_ended = False
        self._connection = connection
        #: An answer is missing on the connection, which may be open nevertheless.
        self._is_silent = False
        #: Keys that were requested here for somebody who no longer waits for the answer.
        self._unanswered: List[Wanted] = []
        #: Connections that have renewed some of the holds and fell silent then. The server would free these holds when
        #: they close, so they stay open until another one has renewed all.
        self._silent: List[Connection] = []
        #: The last thing that was done was a renewal, so orders come before the next one.
        self._has_renewed = False
        self._holds: List[Hold] = []
        self._orders: Deque[_Order] = deque()
        self._idle_until = 0.0
        self._may_idle = True
        self._waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.on_news = self._poke

    # From outside.

    def order(self, order: _Order) -> None:
        if self.has_ended:
            _refuse(order)
        else:
            self._orders.append(order)
            self._poke()

    def renew(self, hold: Hold, since: float) -> None:
        """Renews it soon, unless it was renewed since then."""
        self.order(_Renew(hold, since))

    @property
    def has_live(self) -> bool:
        return any(hold.is_live for hold in self._holds)

    def end_when_empty(self) -> None:
        self._may_idle, self._idle_until = False, 0.0
        self._poke()

    async def wait(self, wanted: List[Wanted], wait: int, outcome: "asyncio.Future[Taken]") -> None:
        """From the first request to the end."""
        try:
            await self._begin(wanted, wait, outcome)
            await self._hold()
        finally:
            _fail(outcome, closed())
            self._end()

    # The loop.

    def _poke(self) -> None:
        if not self._waker.done():
            self._waker.set_result(None)

    async def _rest(self, limit: Optional[float], *others: "asyncio.Future[Any]") -> None:
        """Until something is to be done, or one of these is, or the time is over."""
        if limit is None or limit > 0:
            await asyncio.wait((self._waker, *others), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if self._waker.done():
            self._waker = asyncio.get_running_loop().create_future()

    async def _begin(self, wanted: List[Wanted], wait: int, outcome: "asyncio.Future[Taken]") -> None:
        asked_at = time.monotonic()
        answer = self._connection.ask(_request(wanted, wait), self.settings.patience + wait)
        await asyncio.wait((answer, outcome), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            # Nobody waits for it any more.
            await settled(answer, max(asked_at + LINGER - time.monotonic(), 0))
        if not answer.done():
            # The client leaves the line. A grant that is on its way comes before the end.
            self._connection.say_goodbye()
            self._unanswered = wanted
            return
        await self._tell(outcome, self._taken(wanted, answer, asked_at))

    async def _hold(self) -> None:
        """Until everything is released, and a little longer."""
        while self._holds or not self._unanswered and self._connection.is_usable and time.monotonic() < self._idle_until:
            now = time.monotonic()
            live = [hold for hold in self._holds if hold.is_live]
            due_at = min((hold.due_at for hold in live), default=None)
            is_due = due_at is not None and due_at <= now
            if live and self._connection.news:
                self._urge(self._connection.news.pop(), now)
            elif live and not self._connection.is_usable:
                self._has_renewed = False
                await self._reclaim()
            elif is_due and not self._has_renewed:
                self._has_renewed = True
                await self._renew(live, now)
            elif self._orders:
                self._has_renewed = False
                await self._do(self._orders.popleft(), live, now)
            elif is_due:
                self._has_renewed = False
            else:
                if due_at is None:
                    due_at = None if self._holds else self._idle_until
                await self._rest(None if due_at is None else due_at - now)

    def _end(self) -> None:
        self.has_ended = True
        self.sessions.forget(self)
        for hold in self._holds:  # Only if this task was ended by force.
            hold.lose(Loss.ENDED)
        while self._orders:
            _refuse(self._orders.popleft())
        if self._unanswered:
            self._leave(self._connection, self._unanswered)
        else:
            self._connection.close()
        for connection in self._silent:
            connection.close()

    async def _do(self, order: _Order, live: List[Hold], now: float) -> None:
        if any(hold.late_at <= now for hold in live):
            # The renewals have fallen so far behind that the connection must do nothing else.
            self._do_elsewhere(order)
        elif isinstance(order, _Take):
            has_room = len(self._holds) < MOST_HOLDS and bool(live or not self._holds)
            if not has_room or order.outcome.done():
                _refuse(order)
            elif order.granted is None:
                await self._tell(order.outcome, self._take(order.wanted))
            else:
                self._give(order.outcome, self._keep(order.wanted, order.granted, None))
        elif isinstance(order, _Release) and order.hold in self._holds:
            may_stand = self._remove(order.hold)
            if may_stand:
                await self._release(order.hold, order.outcome)
            else:
                _fail(order.outcome, not_held())
        else:
            self._do_elsewhere(order)

    def _do_elsewhere(self, order: _Order) -> None:
        """Does what is ordered without the connection of the session."""
        if isinstance(order, _Take):
            _refuse(order)
        elif isinstance(order, _Renew):
            if order.hold.is_live and order.hold.schedule.asked_at < order.since:
                order.hold.is_urgent = True
        elif order.hold in self._holds and self._remove(order.hold):
            self._release_elsewhere(order.hold, order.outcome)
        else:
            _fail(order.outcome, not_held())

    async def _tell(self, outcome: "asyncio.Future[Taken]", taken: "Coroutine[Any, Any, Taken]") -> None:
        try:
            self._give(outcome, await taken)
        except Error as error:
            _fail(outcome, error)
        except BaseException:
            _fail(outcome, closed())
            raise

    def _give(self, outcome: "asyncio.Future[Taken]", taken: Taken) -> None:
        if outcome.done():
            drop(taken)
        else:
            outcome.set_result(taken)

    # Requests.

    async def _exchange(self, request: bytes, limit: Optional[float]) -> "asyncio.Future[str]":
        """One request. If its answer is late, another connection is looked for as well, in case only this one loses data.
        As long as the server may still receive our requests here, it has no reason to release the holds.

        Returns the answer, or how it failed."""
        answer = self._connection.ask(request, limit)
        if not await settled(answer, self._patience()):
            self.route.prefer_next()
            anew = await self._look_elsewhere(answer)
            if anew is not None or not answer.done():
                self._connection.give_up()
                answer = asyncio.get_running_loop().create_future()
                answer.set_exception(Silent())
                answer.exception()
                if anew is not None:
                    self._moved(anew)
                    return answer
        self._is_silent = self._is_silent or isinstance(answer.exception(), Silent)
        return answer

    async def _renew(self, live: List[Hold], now: float) -> None:
        """Renews the hold that must be renewed first: one that somebody waits for, or else the one that is due longest.
        With another order, a slow server would renew some holds again before others."""
        hold = min((it for it in live if it.due_at <= now), key=lambda it: (it.is_confirmed, it.due_at))
        ttl = hold.schedule.granted
        answer = await self._exchange(_wire.renew(hold.key, hold.kind, hold.grant.token, ttl), None)
        try:
            self._heard(hold, (now, _wire.read_renewal(answer.result(), ttl)))
        except Silent:
            pass  # If it is another connection by now, nothing is due.
        except Error as error:
            if is_end_of_lease(error):
                self._heard(hold, None)
            else:
                await self._reclaim()

    def _heard(self, hold: Hold, renewal: "Optional[Tuple[float, int]]") -> None:
        """The answer to a renewal. A hold that was given up stays so."""
        if hold.is_live and not hold.is_released:
            if renewal is None:
                hold.lose(Loss.NOT_HELD)
            else:
                hold.renewed(*renewal)

    def _urge(self, token: str, since: float) -> None:
        for hold in self._holds:
            if hold.is_live and hold.grant.token == token and hold.schedule.asked_at < since:
                hold.is_urgent = True

    async def _take(self, wanted: List[Wanted]) -> Taken:
        asked_at = time.monotonic()
        limit = self.settings.patience if self._holds else min(self.settings.patience, LINGER)
        self._unanswered = wanted
        answer = await self._exchange(_request(wanted, 0), limit)
        return await self._taken(wanted, answer, asked_at)

    async def _taken(self, wanted: List[Wanted], answer: "asyncio.Future[str]", asked_at: float) -> Taken:
        """Holds what was granted, or leaves it to the session that there is."""
        self._unanswered = []
        try:
            grants = _grants(wanted, answer.result(), self._connection.abilities)
        except Silent:
            # An answer that has not come yet may be a grant.
            self._unanswered = wanted
            raise
        if grants is None:
            return None
        # That session renews them before this connection closes. Then they stay, but not on every server.
        if not self._holds and self._connection.hands_over:
            taken: Union[Taken, bool] = await self.sessions.join(self.route, wanted, grants)
            if not isinstance(taken, bool):
                return taken
        is_prompt = not was_waited_for(asked_at, time.monotonic())
        return self._keep(wanted, grants, asked_at if is_prompt else None)

    def _keep(self, wanted: List[Wanted], grants: List[Grant], asked_at: Optional[float]) -> List[Hold]:
        """Holds these. A grant after a wait is renewed before it is used, because the exact moment of the grant, and so
        the end of the lease, is unknown until then (`asked_at` is `None`)."""
        holds = [Hold(self, one, grant, asked_at) for one, grant in zip(wanted, grants)]
        self._holds += holds
        self.sessions.holds.update(holds)
        self.sessions.share(self)
        return holds

    def _remove(self, hold: Hold) -> bool:
        """It is no longer held here. Whether it is to be released at the server."""
        self._holds.remove(hold)
        self.sessions.holds.discard(hold)
        if not self._holds and self._may_idle:
            self._idle_until = time.monotonic() + IDLE
        may_stand = hold.may_stand
        hold.released()
        return may_stand

    async def _release(self, hold: Hold, outcome: "asyncio.Future[None]") -> None:
        request = _wire.release(hold.key, hold.kind, hold.grant.token)
        answer = await self._exchange(request, self.route.release_share)
        try:
            _wire.read_done(answer.result())
            if not outcome.done():
                outcome.set_result(None)
        except Error as error:
            if is_passing(error):
                self._release_elsewhere(hold, outcome)
            else:
                _fail(outcome, error)

    def _release_elsewhere(self, hold: Hold, outcome: "asyncio.Future[None]") -> None:
        """Releases a hold over another connection, in the background."""

        async def release() -> None:
            try:
                await self.route.release_anew(hold.key, hold.kind, hold.grant.token)
                if not outcome.done():
                    outcome.set_result(None)
            except Error as error:
                _fail(outcome, error)

        self.sessions.begin(release())

    # Other connections.

    def _given_up_at(self) -> Optional[float]:
        """When the next hold is given up if it is not renewed. `None`: nothing is held."""
        return min((hold.schedule.given_up_at for hold in self._holds if hold.is_live), default=None)

    def _patience(self) -> float:
        """How long to wait for an answer on one connection alone."""
        end, limit = self._given_up_at(), self.settings.patience
        return limit if end is None else min(max(end - time.monotonic(), 0.0), limit) / TRIES_IN_TIME

    async def _reclaim(self) -> None:
        """The connection cannot be used. Renews all holds over another one, for as long as their leases may last."""
        if not self._is_silent:
            now = time.monotonic()
            for hold in self._holds:
                if hold.is_live:
                    hold.broken(now)
        anew = await self._look_elsewhere(None)
        if anew is not None:
            self._moved(anew)

    def _moved(self, anew: _Anew) -> None:
        earlier, self._connection = self._connection, anew.connection
        earlier.on_news = lambda: None
        self._connection.on_news = self._poke
        self._is_silent = False
        unanswered, self._unanswered = self._unanswered, []
        self._leave(earlier, unanswered)
        silent, self._silent = self._silent, []
        for connection in silent:
            self._leave(connection, [])
        for hold, renewal in anew.renewals:
            self._heard(hold, renewal)
        self.sessions.share(self)

    async def _look_elsewhere(self, answer: "Optional[asyncio.Future[str]]") -> Optional[_Anew]:
        """Waits for an answer as long as something is held, and meanwhile looks for another connection to renew all holds.
        Gives up each hold at its time, and does what is ordered meanwhile.

        If the first connection breaks while another one renews the holds, that one has inherited those it has renewed,
        and they would end with it: it goes on to the last of them, or fails by itself. One that fell silent stays open."""
        held = [hold for hold in self._holds if hold.is_live]
        renewing = asyncio.Lock()
        search = asyncio.ensure_future(self._renewed_anew(held, renewing))
        try:
            while True:
                end, now = self._given_up_at(), time.monotonic()
                if end is None:
                    return None
                if answer is not None and answer.done():
                    error = answer.exception()
                    is_broken = isinstance(error, Unreachable) and not isinstance(error, Silent)
                    if not is_broken or not renewing.locked():
                        return None
                if search.done():
                    anew, search = search.result(), None  # type: ignore[assignment]
                    return anew
                if end <= now:
                    # The search goes on: a connection that was dropped after half of the renewals might take the renewed
                    # holds along.
                    self._give_up(now)
                elif self._orders:
                    self._do_elsewhere(self._orders.popleft())
                else:
                    others = [search] if answer is None or answer.done() else [search, answer]
                    await self._rest(end - now, *others)
        finally:
            if search is not None:
                search.add_done_callback(_close_anew)
                search.cancel()

    def _give_up(self, now: float) -> None:
        for hold in self._holds:
            if hold.is_live and hold.schedule.given_up_at <= now:
                hold.lose(Loss.UNREACHABLE)

    async def _renewed_anew(self, held: List[Hold], renewing: asyncio.Lock) -> _Anew:
        """Opens connections until one of them has renewed each of these whose time is not over, or was told that there is
        none. Those that have renewed some and fell silent are put aside."""
        backoff = Backoff()
        while True:
            try:
                return await self._ask_anew(held, renewing)
            except Error:
                self.route.prefer_next()
            await asyncio.sleep(backoff.next())

    async def _ask_anew(self, held: List[Hold], renewing: asyncio.Lock) -> _Anew:
        """The time until the next of them is given up is divided so that every server can be tried."""
        connection = await self.route.open()
        is_kept = False
        try:
            async with renewing:
                renewals: List[Tuple[Hold, Optional[Tuple[float, int]]]] = []
                for hold in held:
                    asked_at = time.monotonic()
                    ends = [it.schedule.given_up_at for it in held if it.schedule.given_up_at > asked_at]
                    if not ends or hold.schedule.given_up_at <= asked_at:
                        continue
                    limit = share(min(ends), asked_at, self.route.width, self.settings.patience)
                    ttl = hold.schedule.granted
                    request = _wire.renew(hold.key, hold.kind, hold.grant.token, ttl)
                    try:
                        line = await connection.exchange(request, limit)
                        renewals.append((hold, (asked_at, _wire.read_renewal(line, ttl))))
                    except Error as error:
                        if is_end_of_lease(error):
                            renewals.append((hold, None))
                            continue
                        if isinstance(error, Silent) and renewals:
                            self._silent.append(connection)
                            is_kept = True
                        raise
            is_kept = True
            return _Anew(connection, renewals)
        finally:
            if not is_kept:
                connection.close()
            self._poke()

    def _leave(self, connection: Connection, unanswered: List[Wanted]) -> None:
        """Leaves a connection: gives back what was requested there and is granted late, and closes it then. A server that
        has not answered for its read timeout has closed the connection, or hangs.

        As long as a lost lease is neither over nor released, its holder may still be stopping its work. A server that
        resumes would free the lease when the connection closes, so that stays open."""
        lost = [hold for hold in self._holds if hold.loss is Loss.UNREACHABLE]

        async def leave() -> None:
            try:
                if unanswered:
                    limit = max(self.settings.read_timeout, self.settings.patience)
                    line = await connection.late_answer(limit)
                    for wanted, token in _late_tokens(unanswered, line):
                        try:
                            await self.route.release_anew(wanted.key, wanted.kind, token)
                        except Error:
                            pass  # A hold that cannot be released ends with its lease.
                for hold in lost:
                    await self._until_released(hold)
            finally:
                connection.close()

        self.sessions.begin(leave())

    async def _until_released(self, hold: Hold) -> None:
        while not hold.is_released:
            left = hold.schedule.ends_at - time.monotonic()
            if left <= 0:
                return
            change = asyncio.ensure_future(hold.change())
            await settled(change, left)
            change.cancel()


def _close_anew(search: "asyncio.Task[_Anew]") -> None:
    if not search.cancelled() and search.exception() is None:
        search.result().connection.close()


def _fail(outcome: "asyncio.Future[Any]", error: Error) -> None:
    if not outcome.done():
        outcome.set_exception(error)
        outcome.exception()  # It may be that nobody waits for it.


def _refuse(order: _Order) -> None:
    """The order of a session that cannot carry it out."""
    if isinstance(order, _Take):
        if not order.outcome.done():
            order.outcome.set_result(False)
    elif isinstance(order, _Release):
        _fail(order.outcome, not_held())


def _request(wanted: List[Wanted], wait: int) -> bytes:
    """For these: all or none."""
    first = wanted[0]
    if len(wanted) == 1:
        return _wire.acquire(first.key, first.kind, wait, first.ttl)
    return _wire.acquire_all([one.key for one in wanted], first.ttl)


def _grants(wanted: List[Wanted], line: str, abilities: FrozenSet[str]) -> Optional[List[Grant]]:
    try:
        return _wire.read_grants(line, len(wanted), abilities, wanted[0].kind.limit)
    except NotHeld:
        if wanted[0].kind.shared:
            raise NotSupported(
                "the server refuses a shared lock: it does not know the request `rl`, or cannot record another hold"
            ) from None
        raise


def _late_tokens(wanted: List[Wanted], line: Optional[str]) -> "List[Tuple[Wanted, str]]":
    """The tokens of an answer that came too late."""
    try:
        grants = _wire.read_grants(line, len(wanted), frozenset()) if line is not None else None
    except Error:
        grants = None
    return [(one, grant.token) for one, grant in zip(wanted, grants or ())]
