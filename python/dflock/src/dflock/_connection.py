"""One connection to a server: a request, its answer, the next request.

An answer is never left unread for the next request: if a call is given up, by its deadline or because its task was
cancelled, no further request is sent before the answer has come.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import os
import socket
import ssl
import threading
import time
import weakref
from typing import Any, Callable, Coroutine, FrozenSet, List, Optional, Tuple

from . import _wire
from ._errors import BadAnswer, Error, NotHeld, NotSupported, Permanent, Silent, Unreachable
from ._settings import Address, Settings

#: A server on a dead machine sends nothing, and a waiting client has nothing to send. Only the kernel's probes can tell this
#: from a long wait. A server that misses all of them, in 40 seconds, is gone. Seconds, seconds, and their number.
KEEPALIVE = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))

#: The first bytes with which a TLS server answers a client without TLS (RFC 8446, 5.1): an alert.
TLS_ALERT = b"\x15\x03"

# `getaddrinfo` imports it at its first call. A child that was forked at that moment would wait for the import for ever.
codecs.lookup("idna")

#: All sockets of this process. A forked child closes its copies, so that the server sees when the parent closes its own.
sockets: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()
#: All connections of this process.
connections: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def closed(error: Optional[BaseException] = None) -> Unreachable:
    return Unreachable(f"connection lost: {error or 'closed by the server'}")


async def settled(future: "asyncio.Future[Any]", limit: Optional[float]) -> bool:
    """Waits for the future, at most so many seconds; whether it is done. It goes on if this task is cancelled."""
    if not future.done():
        await asyncio.wait((future,), timeout=limit)
    return future.done()


class Connection(asyncio.Protocol):
    """A connection, authenticated if the settings say so. Everything acquired here is released by a server with
    auto-release on when it is closed."""

    def __init__(self, settings: Settings, tls: Optional[Tuple[ssl.SSLContext, str]] = None) -> None:
        self.settings = settings
        connections.add(self)
        #: No answer is awaited, and a request may be sent.
        self.is_answered = True
        #: What the server can do beyond the reference; also `fences`, if the user says that the tokens have them.
        self.abilities: FrozenSet[str] = frozenset()
        self._hands_over = False
        #: Called when something came that answers no request, or the connection was lost.
        self.on_news: Callable[[], None] = lambda: None
        #: The tokens of holds that the server has taken away.
        self.news: List[str] = []
        self._transport: Optional[asyncio.Transport] = None
        self._buffer = bytearray()
        self._most_bytes = _wire.MAX_ANSWER_BYTES
        self._answer: Optional[asyncio.Future[str]] = None
        #: The answer to the last request.
        self._line: Optional[str] = None
        #: Somebody has stopped waiting for an answer.
        self._is_given_up = False
        #: Nothing more is sent.
        self._has_left = False
        self._failure: Optional[Error] = None
        self._tls = _Tls(*tls) if tls else None

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._tls is not None:
            self._through_tls(b"")

    def data_received(self, data: bytes) -> None:
        if self._tls is not None:
            self._through_tls(data)
        else:
            self._received(data)

    def eof_received(self) -> bool:
        self._end(closed())
        return False

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._end(closed(exc))

    def _through_tls(self, data: bytes) -> None:
        assert self._tls is not None and self._transport is not None
        try:
            plain, is_end = self._tls.received(data)
        except ssl.SSLError as error:
            self._tls.fail(_tls_words(error))
            plain, is_end = b"", True
        answer = self._tls.to_send()
        if answer and not self._has_left:
            self._transport.write(answer)
        if plain:
            self._received(plain)
        if is_end:
            self._end(closed())

    def _received(self, data: bytes) -> None:
        self._buffer += data
        if self._buffer.startswith(TLS_ALERT):
            self._end(BadAnswer("the server speaks TLS; see tls and tls_ca"))
            return
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = rest
        for line in lines:
            if not self._heard(bytes(line)):
                return
        if len(rest) > self._most_bytes:
            self._end(BadAnswer("a line without end"))

    def _heard(self, line: bytes) -> bool:
        if len(line) > self._most_bytes:
            self._end(BadAnswer("a line without end"))
            return False
        try:
            text = line[:-1].decode() if line.endswith(b"\r") else line.decode()
        except UnicodeDecodeError:
            self._end(BadAnswer("bytes that are not text"))
            return False
        lost = _wire.read_lost(text)
        if lost is not None:
            self.news.append(lost)
            self.on_news()
        elif self.is_answered:
            # A message that the server sends unasked before it closes. It answers nothing.
            self._end(closed())
        else:
            self.is_answered, self._line = True, text
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(text)
        return True

    def _end(self, error: Error) -> None:
        if self._failure is None:
            self._failure = error
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(error)
                self._answer.exception()  # It may be that nobody waits for it.
        self.on_news()

    # What the client calls.

    @property
    def is_made(self) -> bool:
        """Whether it has its transport, which closes the socket."""
        return self._transport is not None

    @property
    def is_usable(self) -> bool:
        """Whether a request may be sent now."""
        return self.is_answered and self._failure is None and not self._is_given_up

    @property
    def hands_over(self) -> bool:
        """Whether a hold of another connection stays when that closes, if this one has renewed it. Servers that say that
        they have fences do so."""
        return self._hands_over

    def ask(self, request: bytes, limit: Optional[float]) -> "asyncio.Future[str]":
        """Sends a request. The future is its answer, or fails if there is none within so many seconds."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        if not self.is_usable or self._transport is None:
            answer.set_exception(self._failure or closed())
            answer.exception()
            return answer
        self.is_answered, self._line, self._answer = False, None, answer
        self._transport.write(self._tls.encrypted(request) if self._tls else request)
        if limit is not None:
            timer = loop.call_later(limit, self._late, answer)
            answer.add_done_callback(lambda _: timer.cancel())
        return answer

    def _late(self, answer: "asyncio.Future[str]") -> None:
        if not answer.done():
            self.give_up()
            answer.set_exception(Silent())
            answer.exception()  # It may be that nobody waits for it.

    def give_up(self) -> None:
        """Nobody waits for the answer any more, so nothing more is asked here. See `late_answer`."""
        self._is_given_up = True

    async def exchange(self, request: bytes, limit: float) -> str:
        """A request and its answer."""
        try:
            return await self.ask(request, limit)
        except asyncio.CancelledError:
            self.give_up()
            raise

    async def long_exchange(self, request: bytes, limit: float) -> str:
        """The same, for an answer that may be very long."""
        self._most_bytes = _wire.MAX_STATS_BYTES
        try:
            return await self.exchange(request, limit)
        finally:
            self._most_bytes = _wire.MAX_ANSWER_BYTES

    async def late_answer(self, limit: float) -> Optional[str]:
        """The answer to a request that was given up, if it comes within this time."""
        if not self.is_answered and self._failure is None:
            self._answer = asyncio.get_running_loop().create_future()
            await settled(self._answer, limit)
        return self._line

    async def greet(self) -> None:
        """The first requests on every connection. Then it is also known what the server can do, and that it answers."""
        limit = self.settings.patience
        if self._tls is not None and not await settled(self._tls.shaken, limit):
            raise Unreachable("it accepted the connection but did not start TLS in time; does it speak TLS?")
        if self._tls is not None:
            self._tls.shaken.result()
        if self.settings.secret is not None:
            _wire.read_done(await self.exchange(_wire.auth(self.settings.secret), limit))
        try:
            _wire.read_done(await self.exchange(_wire.name(self.settings.shown_name()), limit))
        except NotHeld:
            pass  # Servers that do not know names say `error` and continue.
        if self.settings.value is not None:
            try:
                _wire.read_done(await self.exchange(_wire.value(self.settings.value), limit))
            except NotHeld:
                raise NotSupported("the server cannot be watched: it does not know the request `value`") from None
        abilities = _wire.read_hello(await self.exchange(_wire.HELLO, limit))
        self._hands_over = "fences" in abilities
        self.abilities = abilities | {"fences"} if self.settings.trust_fences else abilities

    def say_goodbye(self) -> None:
        """Says that nothing more will come. What the server has said until it hears that can still be read."""
        if self._transport is not None and not self._transport.is_closing() and not self._has_left:
            self._has_left = True
            if self._tls is not None:
                self._transport.write(self._tls.goodbye())
            self._transport.write_eof()

    def close(self) -> None:
        """Closes it."""
        if self._transport is not None and not self._transport.is_closing():
            if self._tls is not None and not self._has_left:
                self._transport.write(self._tls.goodbye())
            self._transport.close()
        self._end(closed())


class _Tls:
    """TLS between the lines and the transport. The transports of asyncio cannot close one side of a TLS connection alone,
    as a client does that leaves the line."""

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        #: Done with the handshake.
        self.shaken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def received(self, data: bytes) -> Tuple[bytes, bool]:
        """The plain bytes in what came, and whether these are the last."""
        self._incoming.write(data)
        pieces: List[bytes] = []
        try:
            if not self.shaken.done():
                self._object.do_handshake()
                self.shaken.set_result(None)
            while True:
                piece = self._object.read(64 * 1024)
                if not piece:
                    return b"".join(pieces), True
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces), False
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b"".join(pieces), True

    def fail(self, words: str) -> None:
        if not self.shaken.done():
            self.shaken.set_exception(Permanent(words))
            self.shaken.exception()

    def to_send(self) -> bytes:
        return self._outgoing.read()

    def encrypted(self, data: bytes) -> bytes:
        try:
            self._object.write(data)
        except ssl.SSLError:
            return b""  # The connection is about to end, and its reader learns why.
        return self._outgoing.read()

    def goodbye(self) -> bytes:
        try:
            self._object.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # It is sent; the other side has not said it yet.
        return self._outgoing.read()


def _tls_words(error: ssl.SSLError) -> str:
    """TLS errors as sentences."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (62, 63, 64):
            return "the server's certificate is for another name; see tls_name"
        if error.verify_code in (18, 19, 20, 21):
            return "the server's certificate is not signed by a trusted authority; see tls_ca"
        return f"the server's certificate is refused: {error.verify_message}"
    if error.reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE"):
        return "the server does not speak TLS"
    return f"TLS with the server failed: {error.reason or error}"


async def open_connection(address: Address, settings: Settings) -> Connection:
    """Connects, authenticates, and sends the client's name. On failure nothing stays open.

    Raises `Unreachable`, or the refusal of the secret.
    """
    loop = asyncio.get_running_loop()
    end = time.monotonic() + settings.patience
    try:
        sock = await _within(_connected(address), end)
    except OSError as error:
        kind = Permanent if isinstance(error, PermissionError) else Unreachable
        raise kind(f"cannot connect to {address}: {error.strerror or error}") from error
    connection: Optional[Connection] = None
    try:
        tls = None
        if settings.tls is not None:
            tls = settings.tls, settings.tls_name or address.host or "localhost"
        made = connection = Connection(settings, tls)
        await loop.create_connection(lambda: made, sock=sock)
        await connection.greet()
        return connection
    except BaseException as error:
        if connection is not None:
            connection.close()
        if connection is None or not connection.is_made:
            sock.close()
        if isinstance(error, Unreachable) and not isinstance(error, Silent):
            kind = Permanent if isinstance(error, Permanent) else Unreachable
            raise kind(f"cannot connect to {address}: {error}") from error
        raise


async def _within(work: "Coroutine[Any, Any, socket.socket]", end: float) -> socket.socket:
    task = asyncio.ensure_future(work)
    try:
        if await settled(task, max(end - time.monotonic(), 0)):
            return task.result()
        raise OSError(errno.ETIMEDOUT, "no connection in time")
    except BaseException:
        if not task.cancel() and not task.cancelled() and task.exception() is None:
            task.result().close()
        raise


async def _connected(address: Address) -> socket.socket:
    if address.path is not None:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError(errno.EAFNOSUPPORT, "there are no Unix sockets here; name a host")
        return await _try(socket.AF_UNIX, 0, address.path)
    failure: Optional[OSError] = None
    for family, _, protocol, _, where in await _look_up(address):
        try:
            sock = await _try(family, protocol, where)
        except OSError as error:
            failure = failure or error
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, number in KEEPALIVE:
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), number)
        return sock
    raise failure or OSError(errno.EADDRNOTAVAIL, "the name has no address")


async def _look_up(address: Address) -> Any:
    """The addresses of a host. A name is looked up in a thread, for which nobody waits when the program ends."""
    try:
        return socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def tell(found: Any, error: Optional[OSError]) -> None:
        if not outcome.done():
            outcome.set_exception(error) if error is not None else outcome.set_result(found)

    def look_up() -> None:
        found, failure = None, None
        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            failure = error if isinstance(error, OSError) else OSError(errno.EINVAL, "no such name can exist")
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(tell, found, failure)

    try:
        threading.Thread(target=look_up, name="dflock look-up", daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    return await outcome


async def _try(family: int, protocol: int, where: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM, protocol)
    sockets.add(sock)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def close_after_fork() -> None:
    """Closes this process's copies of all sockets. Nothing is said to the servers: the connections are the parent's."""
    for sock in list(sockets):
        number = sock.detach()
        if number >= 0:
            os.close(number)
    sockets.clear()
