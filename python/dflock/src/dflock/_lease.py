"""What the leases of both clients have in common."""

from __future__ import annotations

import os
import time
import warnings
import weakref
from typing import Any, Callable, Iterator, Optional, Sequence, TypeVar, overload

from . import _wire
from ._engine import Engine
from ._errors import LeaseLost, Loss
from ._session import Hold

L = TypeVar("L", bound="BaseLease")


class Losable:
    """A lease, or several. Made in the thread of the engine."""

    def __init__(self, engine: Engine, holds: Sequence[Hold]) -> None:
        self._engine, self._holds = engine, tuple(holds)
        # The session must not keep a lease alive that its holder has forgotten.
        listener = _listener(self)
        for hold in holds:
            hold.listeners.append(listener)

    @property
    def _is_inherited(self) -> bool:
        """Whether this process is a child of the one that has the lease."""
        return self._engine.pid != os.getpid()

    def remaining(self) -> float:
        """For how many seconds the lease is trusted if no further renewal succeeds; 0 after it was lost or released. Of
        several leases, the shortest time."""
        if self._is_inherited:
            return 0.0
        return max(min(hold.until for hold in self._holds) - time.monotonic(), 0.0)

    @property
    def loss(self) -> Optional[LeaseLost]:
        """The loss, if it is lost: of several leases, the first lost one in the order of the keys."""
        if self._is_inherited:
            return LeaseLost(_wire.shown(self._holds[0].key), Loss.FORKED)
        for hold in self._holds:
            if hold.loss is not None:
                return LeaseLost(_wire.shown(hold.key), hold.loss)
        return None

    def _hears(self, hold: Hold) -> None:
        """In the thread of the engine: one of the holds is lost."""
        raise NotImplementedError

    def _give_back(self) -> None:
        """Orders the release, without waiting for it. May be called by any thread, also by a destructor."""
        if not self._is_inherited:
            for hold in self._holds:
                if not hold.is_released:
                    self._engine.post(hold.release)


class BaseLease(Losable):
    """A lock or a slot that is held, and renewed in the background until it is released."""

    _hold: Hold

    @property
    def key(self) -> str:
        """The key that is held."""
        return _wire.shown(self._hold.key)

    @property
    def token(self) -> str:
        """The proof of the hold: who has it may renew and release it."""
        return self._hold.grant.token

    @property
    def fence(self) -> Optional[int]:
        """A number that grows with every grant of the key. Storage that remembers the greatest number it has seen can
        refuse a holder whose lease is over. `None` from servers that do not say that their tokens contain it, such as the
        Go server (see `trust_fences` of `Client`)."""
        return self._hold.grant.fence

    @property
    def slot(self) -> Optional[int]:
        """Which of the slots of a semaphore it is: the lowest number from 0 below the limit that no other holder had.
        `None` from servers that do not say it."""
        return self._hold.grant.slot

    @property
    def ttl(self) -> int:
        """The length of the lease in seconds; every renewal starts it over."""
        return self._hold.grant.ttl

    def __repr__(self) -> str:
        state = self._hold.loss.name.lower() if self._hold.loss else "released" if self._hold.is_released else "held"
        return f"<{type(self).__module__}.{type(self).__name__} {self.key!r} {state}>"

    def __del__(self) -> None:
        hold = getattr(self, "_hold", None)
        if hold is None or hold.is_released or self._is_inherited:
            return
        if hold.loss is None:
            warnings.warn(f"{self!r} was forgotten and is released", ResourceWarning, source=self, stacklevel=2)
        self._give_back()


class BaseLeases(Losable, Sequence[L]):
    """Several leases, in the order of their keys."""

    _leases: Sequence[L]

    @overload
    def __getitem__(self, at: int) -> L: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[L]: ...

    def __getitem__(self, at: Any) -> Any:
        return self._leases[at]

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[L]:
        return iter(self._leases)


def _listener(losable: Losable) -> Callable[[Hold], None]:
    reference = weakref.ref(losable)

    def hear(hold: Hold) -> None:
        lease = reference()
        if lease is not None:
            lease._hears(hold)

    return hear
