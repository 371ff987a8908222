"""Where the servers are, and the time limits: those of `dflock(1)`, from the same variables of the environment."""

from __future__ import annotations

import os
import socket
import ssl
import sys
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from ._errors import SettingsError
from ._wire import checked_value

try:
    import pwd
except ImportError:  # Only Unix has it.
    pwd = None  # type: ignore[assignment]

if TYPE_CHECKING:
    # Type checkers know it without the package; Python has it since 3.11.
    from typing_extensions import Unpack

#: The default port of all dflockd clients.
DEFAULT_PORT = 6388
#: The longest secret, in bytes.
MAX_SECRET_BYTES = 64 * 1024

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Address:
    """The address of one server: a host and a port, or the path of a Unix socket."""

    host: Optional[str] = None
    port: int = DEFAULT_PORT
    path: Optional[str] = None

    def __str__(self) -> str:
        if self.path is not None:
            return "unix:" + self.path
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """`HOST:PORT`, `HOST`, `[V6]:PORT` or `unix:PATH`.

        Raises `SettingsError`.
        """
        if text.startswith("unix:"):
            path = text[len("unix:") :]
            if not path or "\0" in path:
                raise SettingsError(f"{text!r}: the path is empty or has a NUL")
            return cls(path=path)
        if any(char.isspace() or not char.isprintable() for char in text):
            raise SettingsError(f"{text!r}: blanks and control characters are not allowed")
        host, port = _host_and_port(text)
        if not host:
            raise SettingsError(f"{text!r}: the host is empty")
        if port is None:
            return cls(host=host)
        if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
            raise SettingsError(f"{text!r}: the port must be a number from 1 to 65535")
        return cls(host=host, port=int(port))


def _host_and_port(text: str) -> Tuple[str, Optional[str]]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if bracket and not rest:
            return host, None
        if bracket and rest.startswith(":"):
            return host, rest[1:]
    elif "[" not in text and "]" not in text:
        if text.count(":") != 1:  # A bare IPv6 address has many colons and therefore no port.
            return text, None
        host, _, port = text.partition(":")
        return host, port
    raise SettingsError(f"{text!r}: brackets belong around an IPv6 address only, as in [::1]:6388")


def shard(key: "str | bytes", servers: int) -> int:
    """The index of the server for a key: CRC-32 (as `zlib.crc32`) of the key's bytes, modulo the number of servers, in
    the order of the user's list. All clients of dflockd compute the same."""
    data = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
    return zlib.crc32(data) % servers


@dataclass(frozen=True)
class Settings:
    """The settings of a client, complete and checked. Times are seconds."""

    servers: Tuple[Address, ...]
    #: Each of the servers knows every key.
    is_one_service: bool
    secret: Optional[bytes]
    name: Optional[str]
    value: Optional[str]
    trust_fences: bool
    tls: Optional[ssl.SSLContext]
    tls_name: Optional[str]
    patience: float
    read_timeout: float
    reclaim: Optional[float]
    margin: float

    def servers_of(self, key: bytes) -> List[Address]:
        """The servers that know this key, in the order in which they are asked. If there are several, the key chooses
        the first, as with shards. That spreads the load, and all clients of a key use the same server, which makes
        hand-overs cheap."""
        first = shard(key, len(self.servers))
        known = len(self.servers) if self.is_one_service else 1
        return [self.servers[(first + at) % len(self.servers)] for at in range(known)]

    def shown_name(self) -> str:
        """What the server is told: the name, or user, host, process and program. Never the program's arguments: there may
        be secrets in them."""
        if self.name is not None:
            return self.name
        user = os.environ.get("USER") or os.environ.get("LOGNAME") or _user()
        program = os.path.basename(sys.argv[0] if getattr(sys, "argv", None) else "") or "python"
        return f"{user}@{socket.gethostname()}[{os.getpid()}] {program}"


def _user() -> str:
    try:
        return "user" if pwd is None else pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "user"


class Given(TypedDict, total=False):
    """What a client may be given: see `dflock.Client`."""

    servers: str | Sequence[str] | None
    any_of: str | Sequence[str] | None
    auth_token: str | bytes | None
    auth_token_file: Path | None
    name: str | None
    value: str | None
    trust_fences: bool | None
    tls: bool | ssl.SSLContext
    tls_ca: Path | None
    tls_name: str | None
    patience: float
    read_timeout: float
    reclaim: float | None
    margin: float


def settings(environment: Optional[Mapping[str, str]] = None, **given: Unpack[Given]) -> Settings:
    """Completes what was given by the environment. An empty variable counts as unset."""
    unknown = given.keys() - Given.__annotations__.keys()
    if unknown:
        raise TypeError(f"a client has no setting {min(unknown)!r}; help(dflock.Client) names all")
    variables = {name: text for name, text in (os.environ if environment is None else environment).items() if text}
    addresses, is_one_service = _servers(given.get("servers"), given.get("any_of"), variables)
    value = given.get("value")
    if value is not None:
        checked_value(value)
    trust_fences = given.get("trust_fences")
    if trust_fences is None:
        trust_fences = variables.get("DFLOCK_TRUST_FENCES", "0").lower() not in ("0", "n", "no", "f", "off", "false")
    patience, read_timeout = given.get("patience", 10.0), given.get("read_timeout", 23.0)
    reclaim, margin = given.get("reclaim"), given.get("margin", 0.0)
    for what, time, least in (("patience", patience, 0.001), ("read_timeout", read_timeout, 0.001), ("margin", margin, 0)):
        if not least <= time <= 2_147_483_647:
            raise SettingsError(f"{what} must be a number of seconds, not {time}")
    if reclaim is not None and not reclaim >= 0:
        raise SettingsError(f"reclaim must be a number of seconds, not {reclaim}")
    return Settings(
        servers=addresses,
        is_one_service=is_one_service,
        secret=_secret(given.get("auth_token"), given.get("auth_token_file"), variables),
        name=given.get("name"),
        value=value,
        trust_fences=trust_fences,
        tls=_tls(given.get("tls", False), given.get("tls_ca"), given.get("tls_name")),
        tls_name=given.get("tls_name"),
        patience=patience,
        read_timeout=read_timeout,
        reclaim=reclaim,
        margin=margin,
    )


def _servers(
    servers: "Optional[str | Sequence[str]]", any_of: "Optional[str | Sequence[str]]", variables: Mapping[str, str]
) -> Tuple[Tuple[Address, ...], bool]:
    if servers is None and any_of is None:
        servers, any_of = variables.get("DFLOCK_SERVERS"), variables.get("DFLOCK_ANY_OF")
        if servers and any_of:
            raise SettingsError("DFLOCK_SERVERS names shards, DFLOCK_ANY_OF one service: set one of them")
    elif servers is not None and any_of is not None:
        raise SettingsError("servers names shards, any_of one service: give one of them")
    named = any_of if any_of is not None else servers if servers is not None else f"127.0.0.1:{DEFAULT_PORT}"
    texts = named.split(",") if isinstance(named, str) else list(named)
    if not texts:
        raise SettingsError("no server is named")
    return tuple(Address.parse(text) for text in texts), any_of is not None


def _secret(
    token: "Optional[str | bytes]", file: Optional[Path], variables: Mapping[str, str]
) -> Optional[bytes]:
    """What is given beats the environment, and a file beats the secret itself: a file is named on purpose."""
    if file is None and token is None:
        file, token = variables.get("DFLOCK_AUTH_TOKEN_FILE"), variables.get("DFLOCK_AUTH_TOKEN")
    if file is not None:
        try:
            with open(file, "rb") as stream:
                token = stream.read(MAX_SECRET_BYTES + 1)
        except OSError as error:
            raise SettingsError(f"{os.fspath(file)}: {error.strerror}") from error
        if len(token) > MAX_SECRET_BYTES:
            raise SettingsError(f"{os.fspath(file)}: too long for a token")
    if token is None:
        return None
    secret = (token.encode("utf-8", "surrogateescape") if isinstance(token, str) else token).strip()
    if not secret:
        raise SettingsError("the auth token is empty")
    if b"\n" in secret or b"\r" in secret:
        raise SettingsError("the auth token has more than one line")
    return secret


def _tls(
    tls: "Union[bool, ssl.SSLContext]", authorities: Optional[Path], name: Optional[str]
) -> Optional[ssl.SSLContext]:
    if isinstance(tls, ssl.SSLContext):
        return tls
    if not tls and authorities is None and name is None:
        return None
    try:
        context = ssl.create_default_context(cafile=None if authorities is None else os.fspath(authorities))
        if authorities is not None and hasattr(ssl, "VERIFY_X509_STRICT"):
            # Python 3.13 refuses private authorities without a keyUsage extension, which `dflock(1)` trusts.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context
    except ssl.SSLError as error:
        raise SettingsError(f"TLS: {authorities}: no trusted certificate found") from error
    except OSError as error:
        raise SettingsError(f"TLS: {authorities}: {error.strerror}") from error
