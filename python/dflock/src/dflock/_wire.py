"""The text of the protocol: requests as bytes, and the words of answers. Nothing here reads, waits or decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

from ._errors import BadAnswer, NotLeader, NotHeld, Refused, Unreachable

#: The longest line of a request, in bytes.
MAX_LINE_BYTES = 256
#: As much of a client's name is sent, in bytes.
MAX_NAME_BYTES = 200
#: All answers to requests for locks are much shorter than this, in bytes.
MAX_ANSWER_BYTES = 64 * 1024
#: The Go server answers `stats` with all keys: about 90 MB for a million.
MAX_STATS_BYTES = 256 * 1024 * 1024
#: The longest time to wait and the longest lease, in seconds: 68 years. All servers accept it.
MAX_TIME = 2_147_483_647
#: Most keys in one request.
MOST_TOGETHER = 16

_LOST = "lost "


@dataclass(frozen=True)
class Kind:
    """A lock, a shared lock, or a semaphore with its limit."""

    shared: bool = False
    limit: Optional[int] = None

    def command(self, verb: str) -> bytes:
        """The verb of the protocol for this kind: `l`, `rl` or `sl`. Releases and renewals of shared locks are those of
        locks."""
        if self.limit is not None:
            return b"s" + verb.encode()
        return (b"r" if self.shared and verb in ("l", "e") else b"") + verb.encode()

    @property
    def is_exclusive(self) -> bool:
        """Whether it has one holder at most."""
        return not self.shared and self.limit in (None, 1)


@dataclass(frozen=True)
class Grant:
    """A grant: `ttl` is the length of the lease in seconds, from the moment of the grant."""

    token: str
    ttl: int
    fence: Optional[int]
    #: Which slot of a semaphore, if the server says it.
    slot: Optional[int] = None


@dataclass(frozen=True)
class Holder:
    """Who holds a key, as `watch` reports it. Of several holders (readers, or a semaphore) the one that got it last."""

    #: The fence of its grant.
    fence: int
    #: How long it had held the key when the server answered, in seconds. A server that was restarted since knows only
    #: when it first saw the hold.
    age: float
    #: How many hold the key, at least 1.
    holders: int
    #: What the holder calls itself, for people; see `Client`.
    name: Optional[str]
    #: What the holder tells programs, such as its address; see `Client`.
    value: Optional[str]


def checked_key(key: "str | bytes") -> bytes:
    """The bytes of a key that every server accepts.

    Raises `ValueError` for any other.
    """
    if isinstance(key, str):
        key = key.encode("utf-8", "surrogateescape")
    if not isinstance(key, bytes):
        raise TypeError("a key is text or bytes, not " + type(key).__name__)
    if not key:
        raise ValueError("the key is empty")
    if len(key) > MAX_LINE_BYTES:
        raise ValueError("the key is longer than 256 bytes")
    if any(byte in b" \t\r\n" for byte in key):
        raise ValueError("the key contains a blank, tab or line end")
    return key


def shown(key: bytes) -> str:
    """A key as text."""
    return key.decode("utf-8", "surrogateescape")


def whole_seconds(time: float, what: str) -> int:
    """The protocol has whole seconds: a part of a second counts as a whole one.

    Raises `ValueError` for what is no time, or longer than `MAX_TIME`.
    """
    if not 0 <= time <= MAX_TIME:  # NaN is neither.
        raise ValueError(f"{what} must be 0 to {MAX_TIME} seconds, not {time}")
    return -int(-time // 1)


def checked_limit(limit: int) -> int:
    """The number of slots of a semaphore. Raises `ValueError` for less than one."""
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError("a limit is a whole number")
    if not 1 <= limit <= 0xFFFF_FFFF:
        raise ValueError("the limit must be at least 1")
    return limit


def checked_value(value: str) -> bytes:
    """The bytes of a value. Raises `ValueError` for what does not fit on its line."""
    data = value.encode("utf-8")
    if not 1 <= len(data) <= MAX_LINE_BYTES or value.strip() != value or _has_control(value):
        raise ValueError("a value is 1 to 256 bytes without control characters, and without blanks at its ends")
    return data


def _has_control(text: str) -> bool:
    return any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text)


def _frame(command: bytes, key: bytes, argument: bytes) -> bytes:
    return command + b"\n" + key + b"\n" + argument + b"\n"


def _words(*words: object) -> bytes:
    return " ".join(str(word) for word in words if word is not None).encode()


PING = _frame(b"ping", b"_", b"_")
#: What can the server do beyond the reference? Other servers take it for `ping`. The client understands `lost` and the slots
#: of grants, and leaves the line by closing its side of the connection.
HELLO = _frame(b"ping", b"hello", b"lost leaves slots")
STATS = _frame(b"stats", b"long", b"_")


def auth(token: bytes) -> bytes:
    return _frame(b"auth", b"_", token)


def name(text: str) -> bytes:
    line = "".join(" " if _has_control(char) else char for char in text)
    short = line.encode("utf-8", "replace")[:MAX_NAME_BYTES].decode("utf-8", "ignore")
    return _frame(b"name", b"_", short.encode("utf-8"))


def value(text: str) -> bytes:
    return _frame(b"value", b"_", checked_value(text))


def key_stats(key: bytes) -> bytes:
    return _frame(b"stats", b"key", key)


def acquire(key: bytes, kind: Kind, timeout: int, ttl: Optional[int]) -> bytes:
    return _frame(kind.command("l"), key, _words(timeout, kind.limit, ttl))


def acquire_all(keys: Sequence[bytes], ttl: Optional[int]) -> bytes:
    return _frame(b"al", b" ".join(keys), _words(ttl))


def release(key: bytes, kind: Kind, token: str) -> bytes:
    return _frame(kind.command("r"), key, token.encode())


def renew(key: bytes, kind: Kind, token: str, ttl: Optional[int]) -> bytes:
    return _frame(kind.command("n"), key, _words(token, ttl))


def watch(key: bytes, timeout: int, last: Optional[str]) -> bytes:
    return _frame(b"watch", key, _words(timeout, last))


#: What the server's refusals mean.
REFUSALS: Dict[str, str] = {
    "error": "not held, or not understood",
    "error_auth": "the server refused the auth token, or needs one",
    "error_max_locks": "the server has no room for another key",
    "error_max_waiters": "too many are waiting for this key",
    "error_limit_mismatch": "the key is in use with another limit",
    "error_not_enqueued": "not in the queue",
    "error_already_enqueued": "in the queue already",
    "error_lease_expired": "the lease ended before the client took it",
    "error_draining": "the server is shutting down",
    "error_not_leader": "the server does not lead its cluster",
}


def refused(line: str) -> Exception:
    """The error of a line that is not the answer which was expected."""
    word = "error_not_leader" if line.startswith("error_not_leader ") else line
    meaning = REFUSALS.get(word)
    if meaning is None:
        return BadAnswer(line)
    if word == "error":
        return NotHeld(word, meaning)
    if word == "error_not_leader":
        return NotLeader(word, meaning)
    if word == "error_draining":
        return Unreachable(f"{meaning} ({word})")
    return Refused(word, meaning)


def read_done(line: str) -> None:
    """The answer to `r`, `ping`, `auth`, `name` or `value`."""
    if line != "ok":
        raise refused(line)


def read_hello(line: str) -> FrozenSet[str]:
    """The words with which a server says what it can do: none for the reference."""
    words = line.split(" ")
    if words[0] == "ok" or line == "error":
        return frozenset(words[1:])
    raise refused(line)


def read_grants(line: str, many: int, abilities: FrozenSet[str], limit: Optional[int] = None) -> Optional[List[Grant]]:
    """The answer to `l`, `rl`, `sl` (with its limit) or, for so many keys, `al`, of a server that can do this. `None` if the
    time was over first, or one is in use."""
    if line == "timeout":
        return None
    word, *words = line.split(" ")
    if word == "ok" and many == 1 and len(words) in (2, 3):
        return [_grant(words, abilities, limit)]
    # Several keys are locks, which have no slot.
    if word == "ok" and many > 1 and len(words) == 2 * many:
        return [_grant(words[at : at + 2], abilities, None) for at in range(0, len(words), 2)]
    raise refused(line)


def _grant(words: List[str], abilities: FrozenSet[str], limit: Optional[int]) -> Grant:
    token, ttl = words[0], _number(words[1])
    slot = _number(words[2]) if len(words) > 2 else None
    is_whole = bool(ttl) and (len(words) == 2 or slot is not None)
    if not is_whole or not ttl or not 1 <= len(token) <= 128 or not all("!" <= char <= "~" for char in token):
        raise BadAnswer("a token")
    if limit is None:
        slot = None
    elif limit == 1:
        slot = 0 if "slots" in abilities else None
    return Grant(token, ttl, _fence(token) if "fences" in abilities else None, slot)


def _fence(token: str) -> Optional[int]:
    """The first 16 of 32 hexadecimal digits."""
    is_hex = len(token) == 32 and all(char in "0123456789abcdef" for char in token)
    return int(token[:16], 16) if is_hex else None


def _number(text: str) -> Optional[int]:
    is_number = text.isascii() and text.isdigit() and len(text) <= 10
    return int(text) if is_number else None


def read_renewal(line: str, asked: int) -> int:
    """The answer to `n` or `sn`: the length of the lease from now, in seconds. A bare `ok` means the length that was asked
    for."""
    if line == "ok":
        return asked
    length = _number(line[3:]) if line.startswith("ok ") else None
    if length is None:
        raise refused(line)
    return length


def read_body(line: str) -> str:
    """The JSON text of `stats`."""
    if not line.startswith("ok "):
        raise refused(line)
    return line[3:]


def read_lost(line: str) -> Optional[str]:
    """The token of a hold that an administrator has taken away. The line answers no request."""
    return line[len(_LOST) :] if line.startswith(_LOST) else None


def read_sight(line: str) -> Tuple[str, Optional[Holder]]:
    """The answer to `watch`: a tag, the same for the same state on every server, and the holder of a key that is not
    free."""
    words = line.split(" ")
    if words[0] == "free" and len(words) == 2:
        return words[1], None
    try:
        held, tag, fence, age_ms, holders, who, what = words
        if held == "held":
            return tag, Holder(int(fence), int(age_ms) / 1000, int(holders), _word(who), _word(what))
    except ValueError:
        pass
    raise refused(line)


def _word(word: str) -> Optional[str]:
    """One word of an answer as text; `-` is none."""
    if word == "-":
        return None
    first, *rest = word.encode().split(b"%")
    data = first + b"".join(bytes((int(part[:2], 16),)) + part[2:] for part in rest)
    return data.decode("utf-8", "replace")
