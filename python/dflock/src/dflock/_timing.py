"""When a lease is renewed and until when it is trusted, and for how long a client tries again. All times are seconds; the
clock is `time.monotonic`. Nothing here waits."""

from __future__ import annotations

import math
from typing import Optional

from ._errors import NotLeader, Refused, is_expired, is_passing
from ._settings import Settings

#: How often something is tried in the time that it has: two may fail.
TRIES_IN_TIME = 3
#: A grant that comes later than this came after a wait.
PROMPT = 0.1
#: The first pause before another attempt, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


def was_waited_for(asked_at: float, now: float) -> bool:
    """Whether a grant that came now came after a wait. Then the exact moment of the grant, and so the end of the lease, is
    unknown."""
    return now - asked_at >= PROMPT


class Schedule:
    """The times of one lease. Its length is counted from before the request was sent, so that the lease ends later on
    the server."""

    def __init__(self, settings: Settings, ttl: int, asked_at: float) -> None:
        self._settings = settings
        #: The length that was granted.
        self.granted = ttl
        #: A moment before the grant, or its latest answered renewal, was requested.
        self.asked_at = asked_at
        self._ttl = ttl
        #: Until when the lease is trusted without further answers.
        self.until = asked_at + self._sure(ttl)
        self._searched_until: Optional[float] = None

    def _sure(self, ttl: int) -> float:
        """How long a lease of this length is certain: a server that hears nothing may free it before its end."""
        return min(float(ttl), self._settings.read_timeout)

    @property
    def renewal_interval(self) -> float:
        """The pause between two renewals."""
        return self._sure(self.granted) / TRIES_IN_TIME

    @property
    def renew_at(self) -> float:
        """When to renew next."""
        return self.asked_at + self.renewal_interval

    @property
    def ends_at(self) -> float:
        """When it ends at a server that has heard nothing since the latest confirmed request, at the earliest."""
        return self.asked_at + self._ttl

    @property
    def given_up_at(self) -> float:
        """When the lease is given up, and the holder must know, if no answer has come."""
        last = self.until - min(self._settings.margin, self.renewal_interval)
        return last if self._searched_until is None else min(last, self._searched_until)

    def renewed(self, asked_at: float, ttl: int) -> None:
        """A renewal that was sent at `asked_at` or later was answered."""
        self.asked_at, self._ttl = asked_at, ttl
        self.until = asked_at + self._sure(ttl)
        self._searched_until = None

    def broken(self, now: float) -> None:
        """The connection is gone, so the whole lease counts."""
        self.until = self.ends_at
        reclaim = self._settings.reclaim
        self._searched_until = None if reclaim is None else now + reclaim


class Backoff:
    """The next pause; each is twice as long as the previous one, up to a second. They are short at first, so that a broken
    connection costs little, then longer, so that a thousand clients do not overload a server that is starting."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE

    def next(self) -> float:
        pause = self._pause
        self._pause = min(pause * 2, LONGEST_PAUSE)
        return pause


class Patience:
    """For how long to try again."""

    def __init__(self, end: float, is_to_return: bool = False, limit: float = math.inf) -> None:
        self._end = end
        #: A server that takes as long as this to say that it does not lead has led before.
        self._limit = limit
        self._backoff = Backoff()
        #: The server has served this client before. Others may come back before it, and fill the server for a moment.
        self._is_to_return = is_to_return

    def was_in_line(self, error: BaseException, asked_at: float, end: float, now: float) -> bool:
        """A client that wants to wait in line until `end` has failed by this error, after a request that was sent at
        `asked_at`. Whether it stood in line, for the first time or again for a while; then it wants to return. A client
        that was refused at once was not in line. Nor was one that asked a server that does not lead, however slow that is,
        unless it waited as long as the patience lasts."""
        is_lost = is_passing(error) or is_expired(error)
        least = PROMPT if self._is_to_return else self._limit if isinstance(error, NotLeader) else 0.0
        was_in_line = is_lost and now - asked_at >= least
        if was_in_line:
            self._end, self._backoff, self._is_to_return = end, Backoff(), True
        return was_in_line

    def pause(self, error: BaseException, now: float) -> Optional[float]:
        """The pause before the next attempt; the last attempt is made at the end of the time. `None`: the error does not
        pass by itself, or there is no time left."""
        is_full = isinstance(error, Refused) and error.word in ("error_max_locks", "error_max_waiters")
        passes = is_passing(error) or self._is_to_return and (is_full or is_expired(error))
        left = self._end - now
        return min(self._backoff.next(), left) if passes and left > 0 else None


def share(end: float, now: float, servers: int, most: float) -> float:
    """How long one of so many servers may take to answer if all are to be tried before the end."""
    return min(max(end - now, 0.0) / servers, most)
