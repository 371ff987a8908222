"""Leases on named locks and semaphores, from a dflockd server. They renew themselves until they are released.

    with dflock.lock("nightly", timeout=10) as lease:
        ...  # lease.fence, lease.lost, lease.remaining()

The functions of this module ask the servers that the environment names (`DFLOCK_SERVERS`, otherwise 127.0.0.1:6388); a
`Client` has settings of its own. `dflock.aio` has the same for asyncio.

One thread of the process (`dflock`) owns the connections and renews all leases. It begins with the first request.

If the connection breaks, the thread connects again, or to the next server of `any_of`, and renews the leases there; their
holders notice nothing. If a lease is lost, `lease.lost` is set, `on_lost` is called, and the end of the `with` statement raises
`LeaseLost`. A child that was forked has no lease of its parent.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

from . import aio
from ._blocking import Client, Lease, Leases, Lock, Locks, OnLost, Watch, default
from ._errors import (
    BadAnswer,
    Busy,
    Error,
    LeaseLost,
    Loss,
    NotHeld,
    NotSupported,
    Refused,
    SettingsError,
    Unreachable,
)
from ._settings import DEFAULT_PORT, shard
from ._wire import Holder

__all__ = [
    "BadAnswer",
    "Busy",
    "Client",
    "DEFAULT_PORT",
    "Error",
    "Holder",
    "Lease",
    "LeaseLost",
    "Leases",
    "Lock",
    "Locks",
    "Loss",
    "NotHeld",
    "NotSupported",
    "Refused",
    "SettingsError",
    "Unreachable",
    "Watch",
    "aio",
    "lock",
    "locks",
    "ping",
    "shard",
    "stats",
    "watch",
]


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
    return default().lock(key, timeout, ttl=ttl, shared=shared, limit=limit, name=name, value=value, on_lost=on_lost)


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
    return default().locks(
        *keys, timeout=timeout, ttl=ttl, shared=shared, limit=limit, name=name, value=value, on_lost=on_lost
    )


def watch(key: "str | bytes") -> Watch:
    """`Client.watch` of the servers that the environment names; see there for arguments and errors."""
    return default().watch(key)


def stats(key: "Optional[str | bytes]" = None) -> Dict[str, Any]:
    """`Client.stats` of the servers that the environment names; see there for arguments and errors."""
    return default().stats(key)


def ping() -> Dict[str, float]:
    """`Client.ping` of the servers that the environment names; see there for arguments and errors."""
    return default().ping()
