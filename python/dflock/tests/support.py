"""Servers for the tests, what stands between them and a client, and waiting for a condition.

`DFLOCKD` names the program; without it, that of the workspace is used. With `DFLOCKD_STORE=etcd` in the environment the
servers keep their locks there (`DFLOCKD_ETCD_ENDPOINTS`), each in a service of its own; with `DFLOCKD_TEST_STANDBY`, they are
standbys of another one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

WORKSPACE = pathlib.Path(__file__).resolve().parents[3]
TLS = WORKSPACE / "crates/dflockd/tests/server/tls"
#: Seconds, for whatever must happen.
LIMIT = 60.0
#: How often a condition is looked at.
PAUSE = 0.01
#: A server that keeps what a closed connection held.
KEEPS = "--auto-release-on-disconnect=false"

_number = itertools.count()


def program(name: str) -> str:
    return os.environ.get(name.upper()) or str(WORKSPACE / "target/debug" / name)


def is_on_etcd() -> bool:
    return os.environ.get("DFLOCKD_STORE") == "etcd"


def until(what: str, condition: Callable[[], Any], limit: float = LIMIT) -> Any:
    """Waits for the condition, and returns its value."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {limit} s: {what}")
        time.sleep(PAUSE)


#: Sockets of UDP with the same numbers: no test program beside this one takes the number, until it ends.
_kept: List[socket.socket] = []


def free_port() -> int:
    """Below those that the system gives out by itself."""
    while True:
        port = 20_000 + (os.getpid() + next(_number)) % 12_000
        kept = socket.socket(type=socket.SOCK_DGRAM)
        try:
            kept.bind(("0.0.0.0", port))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            kept.close()
            continue
        _kept.append(kept)
        return port


class Server:
    """A dflockd. It is killed at the end of a `with` statement."""

    def __init__(self, *options: str, state: bool = False, port: int = 0, store: Optional[Dict[str, str]] = None) -> None:
        self._options, self._place = options, None
        if state:
            # The port stays for a restart.
            self._place, port = tempfile.TemporaryDirectory(), port or free_port()
            self._options += ("--state-dir", self._place.name)
        self._store = store or self._of_its_own()
        self.leader: Optional[Server] = None
        if os.environ.get("DFLOCKD_TEST_STANDBY") and is_on_etcd() and store is None:
            self.leader = Server(*_without_places(options), store=self._store)
        try:
            self._start(port)
        except BaseException:
            self.__exit__()
            raise

    @staticmethod
    def _of_its_own() -> Dict[str, str]:
        if not is_on_etcd():
            return {}
        named = {name: os.environ[name] for name in ("DFLOCKD_STORE", "DFLOCKD_ETCD_ENDPOINTS")}
        return {**named, "DFLOCKD_ETCD_PREFIX": f"python-{os.getpid()}-{next(_number)}/"}

    def _start(self, port: int) -> None:
        self.log: List[str] = []
        self.process = subprocess.Popen(
            [program("dflockd"), "--port", str(port), *self._options],
            env={"DFLOCKD_READ_TIMEOUT_S": "600", **self._store},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()
        listening = until("it listens", lambda: [line for line in self.log if "msg=listening" in line] or self._dead())
        host, self.port = "127.0.0.1", int(listening[0].rsplit(":", 1)[1])
        self.address = f"{host}:{self.port}"
        if self._store:
            words = ("linked to the leader", "this server leads")
            until("it serves", lambda: any(word in line for line in list(self.log) for word in words))

    def _dead(self) -> None:
        if self.process.poll() is not None:
            raise AssertionError(f"dflockd ended: {self.log}")

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self.log.append(line.rstrip())

    def send(self, what: int) -> None:
        self.process.send_signal(what)

    def end(self, what: int = signal.SIGKILL) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(what)
        self.process.wait()

    def start_again(self) -> None:
        self._start(self.port)

    def stats(self, key: Optional[str] = None) -> Any:
        """What a client sees that is no part of the package."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT) as stream:
            request = f"stats\nkey\n{key}\n" if key else "stats\nlong\n_\n"
            stream.sendall(request.encode())
            line = stream.makefile("r").readline()
        return json.loads(line[len("ok ") :])

    def is_free(self, key: str) -> bool:
        it = self.stats(key)
        return it["held"] == 0 and it["waiters"] == 0

    def until_free(self, *keys: str) -> None:
        for key in keys:
            until(f"{key} is free", lambda: self.is_free(key))

    def until_waiters(self, key: str, count: int) -> None:
        until(f"{count} wait for {key}", lambda: self.stats(key)["waiters"] == count)

    def until_held(self, key: str, count: int = 1) -> None:
        until(f"{count} hold {key}", lambda: self.stats(key)["held"] == count)

    def ask(self, command: str, key: str, argument: str) -> str:
        """One request on a connection of its own."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT) as stream:
            stream.sendall(f"{command}\n{key}\n{argument}\n".encode())
            return stream.makefile("r").readline().rstrip("\n")

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
        if self.leader is not None:
            self.leader.__exit__()
        if self._place is not None:
            self._place.cleanup()


def _without_places(options: Sequence[str]) -> List[str]:
    """For another server on this machine."""
    places = ("--http-port", "--unix-socket")
    return [
        option
        for at, option in enumerate(options)
        if option not in places and (at == 0 or options[at - 1] not in places)
    ]


class Rival:
    """Another client, with a connection of its own, that is no part of the package."""

    def __init__(self, server: Server) -> None:
        self._stream = socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT)
        self._lines = self._stream.makefile("r")

    def say(self, command: str, key: str, argument: str) -> None:
        self._stream.sendall(f"{command}\n{key}\n{argument}\n".encode())

    def hear(self) -> str:
        return self._lines.readline().rstrip("\n")

    def ask(self, command: str, key: str, argument: str) -> str:
        self.say(command, key, argument)
        return self.hear()

    def take(self, key: str, argument: str = "0 600") -> str:
        """The token."""
        word, token, _ = self.ask("l", key, argument).split()
        assert word == "ok"
        return token

    def close(self) -> None:
        self._lines.close()
        self._stream.close()

    def __enter__(self) -> "Rival":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Link:
    """One connection through a proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends: Dict[str, Optional[socket.socket]] = {"client": client, "server": server}
        self.swallows = self.stalls = False

    def reset(self, side: str) -> None:
        end, self.ends[side] = self.ends[side], None
        if end is not None:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()


class Proxy:
    """Before a server, and fails as networks do: it resets one side, drops bytes, delays them, or is gone for a while."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._links: List[_Link] = []
        self._swallows_all = False
        self.delay = 0.0
        #: How many connections there have been.
        self.count = 0
        self.revive()

    def revive(self) -> None:
        """Listens, where it did."""
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port))
        self._listener.listen(128)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server.port), timeout=LIMIT)
            except OSError:
                client.close()
                continue
            self.count += 1
            link = _Link(client, server)
            for end in (client, server):
                end.settimeout(PAUSE)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._links.append(link)
            for pair in (("client", "server"), ("server", "client")):
                threading.Thread(target=self._carry, args=(link, *pair), daemon=True).start()

    def _carry(self, link: _Link, source: str, sink: str) -> None:
        """Carries bytes and their end one way, until the side they come from is gone."""
        while True:
            end = link.ends[source]
            if end is None:
                return
            try:
                piece = end.recv(4096)
            except socket.timeout:
                continue
            except OSError:
                piece = b""
            time.sleep(self.delay)
            while source == "server" and link.stalls:
                time.sleep(PAUSE)
            other = link.ends[sink]
            if not (self._swallows_all or link.swallows):
                if other is None:
                    return
                with contextlib.suppress(OSError):
                    other.sendall(piece) if piece else other.shutdown(socket.SHUT_WR)
            if not piece:
                return

    def cut(self) -> None:
        """From now on nothing gets through, not even the end of a connection."""
        self._swallows_all = True

    def mend(self) -> None:
        """What comes from now on gets through."""
        self._swallows_all = False

    def swallow_what_is_open(self) -> None:
        """Swallows what is sent on the connections there are; new ones work."""
        for link in self._links:
            link.swallows = True

    def stall_answers(self, stalls: bool = True) -> None:
        """Holds back what the server sends on the connections there are; new ones work."""
        for link in self._links:
            link.stalls = stalls

    def reset(self, side: str) -> None:
        """Resets one side of the connections there are; the other learns nothing."""
        for link in self._links:
            link.swallows = True
            link.reset(side)

    def kill(self) -> None:
        """Ends with all its connections, as a killed process does."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            link.reset("client")
            link.reset("server")
        self._links.clear()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


class Scripted:
    """A server that is played: `answer` gives the line for the three of a request, or `None` to say nothing."""

    def __init__(self, answer: Callable[[str, str, str], Optional[str]]) -> None:
        self._answer = answer
        #: What was asked.
        self.heard: List[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._play, args=(stream,), daemon=True).start()

    def _play(self, stream: socket.socket) -> None:
        with stream, stream.makefile("rw", newline="\n") as lines, contextlib.suppress(OSError):
            while True:
                request = [lines.readline() for _ in range(3)]
                if not all(request):
                    return
                words = [line.rstrip("\n") for line in request]
                self.heard.append(" ".join(words))
                answer = self._answer(*words)
                if answer is not None:
                    lines.write(answer + "\n")
                    lines.flush()

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def python(script: str, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
    """A program that uses the package, with pipes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


class Case(unittest.TestCase):
    """A test with a server in memory, or on etcd."""

    options: "tuple[str, ...]" = ()

    def setUp(self) -> None:
        self.server = self.enter(Server(*self.options))

    def enter(self, manager: Any) -> Any:
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value


@contextlib.contextmanager
def ended(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    """A process that does not outlive the test."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)
