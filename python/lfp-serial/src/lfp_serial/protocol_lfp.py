"""pyserial's handler for `lfp:///dev/ttyUSB0`, with `?timeout=SECS` to wait for the port."""

from __future__ import annotations

import errno
from typing import Optional

import serial

from . import Busy, Denied, Lock, NoService, lock
from ._address import is_address, path_and_timeout


def serial_class_for_url(url: str) -> tuple[str, type[Serial]]:
    """The address as it is, and the class that understands it."""
    return url, Serial


def _parsed(url: str) -> tuple[str, Optional[float]]:
    try:
        return path_and_timeout(url)
    except ValueError as error:
        raise serial.SerialException(str(error)) from error


#: pyserial's own property: a setter of a base class cannot be called by `super()`.
_PORT: property = vars(serial.SerialBase)["port"]


class Serial(serial.Serial):
    """A port that is locked from before it is opened until after it is closed."""

    lock_timeout: Optional[float] = None
    _lock: Optional[Lock] = None

    @property
    def port(self) -> Optional[str]:
        """The path of the port. An address `lfp:///dev/NAME` is accepted as well."""
        return super().port

    @port.setter
    def port(self, port: Optional[str]) -> None:
        if isinstance(port, str) and is_address(port):
            port, self.lock_timeout = _parsed(port)
        _PORT.__set__(self, port)

    def open(self) -> None:
        if self._lock is None and self.port is not None:
            try:
                self._lock = lock(self.port, self.lock_timeout)
            except (Busy, Denied) as error:
                text = "could not open port %s: %s" % (self.port, error.strerror)
                raise serial.SerialException(error.errno, text) from error
            except ValueError as error:
                text = "could not lock port %s: %s" % (self.port, error)
                raise serial.SerialException(errno.ENOLCK, text) from error
            except NoService as error:
                raise serial.SerialException(errno.ENOLCK, str(error)) from error
        try:
            super().open()
        except BaseException:
            self._release()
            raise

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._release()

    def _release(self) -> None:
        held, self._lock = self._lock, None
        if held is not None:
            held.__exit__()
