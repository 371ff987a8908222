"""The errors of the client."""

from __future__ import annotations

import enum
from typing import Optional

__all__ = [
    "BadAnswer", "Busy", "Error", "LeaseLost", "Loss", "NotHeld", "NotSupported", "Refused", "SettingsError", "Unreachable",
]  # fmt: skip


class Error(Exception):
    """The base of all errors of this package, except for `ValueError` and `TypeError` of wrong arguments."""


class Busy(Error):
    """Others held the key all the time.

    `key`: the key. Of several keys, the first that was not free.
    """

    def __init__(self, key: str, timeout: Optional[float]) -> None:
        super().__init__(key, timeout)
        self.key = key
        #: How long it was waited for, in seconds.
        self.timeout = timeout

    def __str__(self) -> str:
        waited = f" for {self.timeout:g} s" if self.timeout else ""
        return f"{self.key}: held by another client{waited}"


class Loss(enum.Enum):
    """Why a lease is over although its holder has not released it. The value is a sentence."""

    #: The lease ended there, another client released it, the connection broke under auto-release, an administrator took
    #: it away, or the server was restarted without its memory.
    NOT_HELD = "the server says the lease is over"
    #: Other clients may hold the key from now on.
    UNREACHABLE = "the server could not be reached to renew the lease"
    #: The lease belongs to the parent.
    FORKED = "this process was forked after the lease was taken; its parent has the lease"
    #: Nothing renews the lease any more: something has ended the thread `dflock` of this process.
    ENDED = "the thread that renews leases has ended"


class LeaseLost(Error):
    """The lease was lost, so others may hold the key.

    `key` is the key, and `loss` says why.
    """

    def __init__(self, key: str, loss: Loss) -> None:
        super().__init__(key, loss)
        self.key = key
        self.loss = loss

    def __str__(self) -> str:
        return f"lease lost: {self.key}: {self.loss.value}"


class Unreachable(Error, ConnectionError):
    """No server could be reached, the connection broke, or no answer came in time."""


class Silent(Unreachable):
    """No answer came in time. The request may be carried out nevertheless."""

    def __str__(self) -> str:
        return "the server does not answer"


class Permanent(Unreachable):
    """No connection, for a reason that does not pass by itself: a certificate, or a missing permission."""


class Refused(Error):
    """The server refused the request. `word` is its answer, such as `error_max_locks` or `error_limit_mismatch`."""

    def __init__(self, word: str, meaning: str) -> None:
        super().__init__(word, meaning)
        self.word = word

    def __str__(self) -> str:
        return f"{self.args[1]} ({self.word})"


class NotHeld(Refused):
    """The token holds nothing, or the server does not understand the request: `error`."""


class NotLeader(Refused):
    """From a cluster of the Go server: another server of the list leads."""


class NotSupported(Error):
    """The server does not know shared locks, values or watching, such as the Go server. A server that cannot record
    another hold refuses a shared lock with the same answer."""


class BadAnswer(Error):
    """The other end does not speak the protocol."""

    def __str__(self) -> str:
        if str(self.args[0]).startswith("HTTP/"):
            return "an HTTP server: name the port of the lock protocol, by default 6388"
        shown = str(self.args[0])[:80].encode("unicode_escape").decode("ascii")
        return f"not a dflockd answer: {shown}"


class SettingsError(Error, ValueError):
    """The settings cannot be used: an address, a secret file, or certificates."""


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed on another connection: it was not refused."""
    return isinstance(error, (Unreachable, NotLeader)) and not isinstance(error, Permanent)


def is_expired(error: BaseException) -> bool:
    """Whether the lease was over before the client could use it."""
    return isinstance(error, Refused) and error.word == "error_lease_expired"


def is_end_of_lease(error: BaseException) -> bool:
    """Whether this answer to a renewal says that the lease is over."""
    return isinstance(error, NotHeld) or is_expired(error)


def first_of(one: BaseException, other: BaseException) -> BaseException:
    """What is reported if one server failed with this and another with that. As long as one of them may come back, it is
    worth trying again."""
    return one if is_passing(one) else other
