"""Finds a server for a key among those that may be asked."""

from __future__ import annotations

import asyncio
import time
from typing import Awaitable, Callable, Dict, List, Optional, TypeVar

from . import _wire
from ._connection import Connection, open_connection, settled
from ._errors import Error, NotHeld, Silent, Unreachable, first_of
from ._settings import Address, Settings
from ._timing import TRIES_IN_TIME, Patience

T = TypeVar("T")

#: How long to wait for one server before the next is tried as well, in seconds (RFC 8305 says 0.25).
HEAD_START = 0.25


class Route:
    """Servers that know the same key. Remembers which one answered last."""

    def __init__(self, key: bytes, settings: Settings) -> None:
        self.settings = settings
        self._servers = settings.servers_of(key)
        self._at = 0

    @property
    def width(self) -> int:
        """How many servers there are."""
        return len(self._servers)

    @property
    def first(self) -> Address:
        """The server to ask first."""
        return self._servers[self._at]

    def prefer_next(self) -> None:
        """The next server is asked first from now on, because this one has failed or is late."""
        self._at = (self._at + 1) % len(self._servers)

    def patience(self) -> Patience:
        """To reach a server that is away."""
        limit = self.settings.patience
        return Patience(time.monotonic() + limit, limit=limit)

    @property
    def release_share(self) -> float:
        """How long one connection may take to answer a release. One that loses the request leaves time for others."""
        return self.settings.patience / TRIES_IN_TIME

    async def open(self) -> Connection:
        """A connection on which the server has answered. Otherwise a server that is about to end, or does not speak the
        protocol, would look like one with a long line. The servers are tried one after another, without waiting for slow
        ones; no request is sent that would matter if it arrived late."""
        if len(self._servers) == 1:
            return await open_connection(self.first, self.settings)
        waiting = [(self._at + step) % len(self._servers) for step in range(len(self._servers))]
        attempts: Dict[asyncio.Task[Connection], int] = {}
        failure: Optional[BaseException] = None
        try:
            while waiting or attempts:
                if waiting:
                    at = waiting.pop(0)
                    attempts[asyncio.ensure_future(open_connection(self._servers[at], self.settings))] = at
                head_start = HEAD_START if waiting else None
                await asyncio.wait(attempts, timeout=head_start, return_when=asyncio.FIRST_COMPLETED)
                for attempt in [attempt for attempt in attempts if attempt.done()]:
                    at = attempts.pop(attempt)
                    error = attempt.exception()
                    if error is None:
                        self._at = at
                        return attempt.result()
                    if not isinstance(error, Error):
                        raise error
                    failure = error if failure is None else first_of(failure, error)
            raise failure or Unreachable("no server is named")
        finally:
            for attempt in attempts:
                attempt.add_done_callback(_close)
                attempt.cancel()

    async def open_patiently(self) -> Connection:
        """A connection to a server that may be away for a moment."""

        async def keep(connection: Connection) -> Connection:
            return connection

        return await self._ask(self.patience(), keep)

    async def once(self, ask: Callable[[Connection], Awaitable[T]]) -> T:
        """Asks the first server that answers, once, over a connection of its own."""
        connection = await self.open()
        try:
            return await ask(connection)
        finally:
            connection.close()

    async def release_anew(self, key: bytes, kind: _wire.Kind, token: str) -> None:
        """Releases a hold of a connection that has failed or is left, at any server that answers. An earlier connection
        may have carried the request, so "holds nothing" counts as released.

        Takes as long as an answer may take, at most."""
        limit = self.settings.patience
        request = _wire.release(key, kind, token)

        async def release(connection: Connection) -> None:
            try:
                _wire.read_done(await connection.exchange(request, self.release_share))
            except NotHeld:
                pass
            finally:
                connection.close()

        work = asyncio.ensure_future(self._ask(Patience(time.monotonic() + limit), release))
        try:
            if not await settled(work, limit):
                raise Silent()
            work.result()
        finally:
            work.cancel()

    async def _ask(self, patience: Patience, ask: Callable[[Connection], Awaitable[T]]) -> T:
        """Asks any server that answers. After a failure that may pass, the next server is asked first."""
        while True:
            try:
                return await ask(await self.open())
            except Error as error:
                self.prefer_next()
                await outlast(patience, error)


def _close(attempt: "asyncio.Task[Connection]") -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


async def outlast(patience: Patience, error: Error) -> None:
    """Waits for the next attempt, or raises the error if there is none."""
    pause = patience.pause(error, time.monotonic())
    if pause is None:
        raise error
    await asyncio.sleep(pause)


def each(settings: Settings) -> List[Route]:
    """A route to each of the servers alone."""
    routes = []
    for server in settings.servers:
        route = Route(b"_", settings)
        route._servers, route._at = [server], 0
        routes.append(route)
    return routes
