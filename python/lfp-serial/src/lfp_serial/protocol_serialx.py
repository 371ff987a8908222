"""serialx's handler for `lfp:///dev/ttyUSB0`, with `?timeout=SECS` to wait for the port."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Optional, Union

import serialx

from . import Lock, aio, lock
from ._address import SCHEME, is_address, path_and_timeout


def _parsed(path: Union[None, str, os.PathLike[str]]) -> tuple[Optional[str], Optional[float]]:
    if path is None:
        return None, None
    text = os.fspath(path)
    return path_and_timeout(text) if is_address(text) else (text, None)


class Serial(serialx.Serial):
    """A port that is locked from before it is opened until after it is closed."""

    lock_timeout: Optional[float] = None
    _lock_held: Optional[Lock] = None

    def __init__(
        self, path: Union[None, str, os.PathLike[str]] = None, *args: Any, port: Optional[str] = None, **kwargs: Any
    ) -> None:
        name, self.lock_timeout = _parsed(path if port is None else port)
        super().__init__(name, *args, **kwargs)

    def _open(self) -> None:
        # `open` calls `_close` when this fails.
        if self._lock_held is None and self.path is not None:
            self._lock_held = lock(self.path, self.lock_timeout)
        super()._open()  # type: ignore[safe-super] # serialx.Serial is another class when it runs

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[safe-super]
        finally:
            held, self._lock_held = self._lock_held, None
            if held is not None:
                held.__exit__()


class SerialTransport(serialx.SerialTransport):
    """The same for asyncio."""

    _lock_held: Optional[aio.Lock] = None
    _releasing: Optional[asyncio.Task[None]] = None

    async def connect(self, *, path: Optional[str], **kwargs: Any) -> None:
        """Locks the port, and opens it."""
        name, timeout = _parsed(path)
        if name is not None:
            self._lock_held = await aio.lock(name, timeout)
            # Also where nobody waits for the end.
            self._releasing = asyncio.ensure_future(self._release_when_closed())
        await super().connect(path=name, **kwargs)

    async def wait_closed(self) -> None:
        """Waits until the port is closed and its lock released."""
        await super().wait_closed()
        if self._releasing is not None:
            await asyncio.shield(self._releasing)

    async def _release_when_closed(self) -> None:
        await super().wait_closed()
        held, self._lock_held = self._lock_held, None
        if held is not None:
            await held.__aexit__()

    def __del__(self) -> None:
        # The event loop ended before the port was closed.
        closes = getattr(super(), "__del__", None)
        try:
            if closes is not None:
                closes()
        finally:
            held, self._lock_held = self._lock_held, None
            if held is not None:
                held.blocking.__exit__()


def register() -> None:
    """Adds the handler, once."""
    # Another copy of this module may have added it already.
    with contextlib.suppress(ValueError):
        # serialx's types call its classes abstract; when it runs, they are those of this system.
        serialx.register_uri_handler(
            scheme=SCHEME,
            unique_scheme=SCHEME,
            sync_cls=Serial,  # type: ignore[type-abstract]
            async_transport_cls=SerialTransport,  # type: ignore[type-abstract]
        )
