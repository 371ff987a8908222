"""pyserial's handler for `lfp:///dev/ttyUSB0`, with `?timeout=SECS` to wait for one's turn."""

import errno
import urllib.parse

import serial

from . import Busy, Denied, NoService, lock


def serial_class_for_url(url):
    """The path of the port, and the class that opens it."""
    parts = urllib.parse.urlsplit(url)
    options = urllib.parse.parse_qs(parts.query, strict_parsing=bool(parts.query))
    if parts.scheme.lower() != "lfp" or parts.netloc or set(options) - {"timeout"}:
        raise serial.SerialException(
            'expected "lfp:///dev/NAME" or "lfp:///dev/NAME?timeout=SECS": %r' % url
        )
    timeout = float(options["timeout"][-1]) if options else None
    return parts.path, type("Serial", (Serial,), {"lock_timeout": timeout})


class Serial(serial.Serial):
    """A port that is locked from before it is opened until after it is closed."""

    lock_timeout = None
    _lock = None

    def open(self):
        if self._lock is None and self._port is not None:
            try:
                self._lock = lock(self._port, self.lock_timeout)
            except (Busy, Denied) as error:
                text = "could not open port %s: %s" % (self._port, error.strerror)
                raise serial.SerialException(error.errno, text) from error
            except (NoService, ValueError) as error:
                text = "could not lock port %s: %s" % (self._port, error)
                raise serial.SerialException(errno.ENOLCK, text) from error
        try:
            super().open()
        except BaseException:
            self._release()
            raise

    def close(self):
        try:
            super().close()
        finally:
            self._release()

    def _release(self):
        held, self._lock = self._lock, None
        if held is not None:
            held.__exit__()
