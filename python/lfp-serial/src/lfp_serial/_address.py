"""The addresses of locked ports: `lfp:///dev/ttyUSB0`, with `?timeout=SECS` to wait for the port."""

from __future__ import annotations

import urllib.parse
from typing import Optional

SCHEME = "lfp://"


def is_address(text: str) -> bool:
    """Whether this is an address, not a path. Schemes have no case."""
    return text.lower().startswith("lfp:")


def path_and_timeout(url: str) -> tuple[str, Optional[float]]:
    """The path of the port that an address names, and its timeout. Raises `ValueError`."""
    try:
        parts = urllib.parse.urlsplit(url)
        options = urllib.parse.parse_qs(parts.query, strict_parsing=bool(parts.query))
        timeout = float(options["timeout"][-1]) if options else None
    except (KeyError, ValueError) as error:
        raise _not_an_address(url) from error
    if parts.netloc or set(options) - {"timeout"}:
        raise _not_an_address(url)
    return parts.path, timeout


def _not_an_address(url: str) -> ValueError:
    return ValueError('expected "lfp:///dev/NAME" or "lfp:///dev/NAME?timeout=SECS": %r' % url)
