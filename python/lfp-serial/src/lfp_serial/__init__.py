"""Locks of serial ports, by the Lock File Protocol service lfpd.

    with lfp_serial.lock("/dev/ttyUSB0"):
        ...

With pyserial or serialx, after this module has been imported:

    serial.serial_for_url("lfp:///dev/ttyUSB0")

For asyncio, see `lfp_serial.aio`.
"""

from __future__ import annotations

import errno
import grp
import json
import math
import os
import pwd
import re
import socket
import stat
import struct
import subprocess
import threading
import time
from types import TracebackType
from typing import Callable, Optional, Union

__all__ = ["Busy", "Denied", "Lock", "NoService", "NotReleased", "SOCKET", "lock"]

#: Where the service listens on an installed system.
SOCKET: str = "/run/lfpd/lfpd.sock"

#: How long the service may take for one answer, in seconds.
PATIENCE = 10.0

#: The longest WAIT that the service takes, in seconds.
WAIT_MAX_SECS = 86400

#: WAIT counts whole seconds. What is left of a timeout is spent asking again, after so many seconds each.
PAUSE = 0.02

#: For so many seconds at a time, the command `lfp` waits for a port: so long may it take to give up.
COMMAND_WAIT = 1.0

#: As many symbolic links are followed as the kernel follows (path_resolution(7)).
LINKS_FOLLOWED = 40

#: What names a port: text, bytes, or a path.
Device = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

#: The longest line and the most lines of an answer.
LINE_BYTES = 4096
LINES = 4096


def user_name(uid: Optional[str]) -> Optional[str]:
    """The name of a user by the number that the service reported, or the number if there is no name."""
    try:
        return pwd.getpwuid(int(uid or "")).pw_name
    except (KeyError, ValueError, OverflowError):
        return uid


def closed_to_this_user(device: Device) -> Optional[str]:
    """The reason, in the words of the command `lfp`, if this user may not open the port; it names the group that may."""
    try:
        if os.access(device, os.R_OK | os.W_OK, effective_ids=True):
            return None
        gid = os.stat(device).st_gid
    except (OSError, ValueError):
        return None
    try:
        group = grp.getgrgid(gid).gr_name
    except KeyError:
        group = str(gid)
    return f"the service denies it: you may not read and write it; members of its group {group} may"


class Busy(OSError):
    """Another process has the port; `holders` names it, as far as the service can see."""

    def __init__(self, device: Device, holders: list[str]) -> None:
        names = ", ".join(holders) or "another process"
        super().__init__(errno.EBUSY, "held by " + names, os.fsdecode(device))
        self.holders = holders


class Denied(PermissionError):
    """The service refuses this port: it does not exist, or this user may not open it."""

    def __init__(self, device: Device) -> None:
        text = closed_to_this_user(device) or "the service denies it"
        super().__init__(errno.EACCES, text, os.fsdecode(device))


class NotReleased(OSError):
    """The port is not released: another process was changing the lock, or the service denies it."""

    def __init__(self, device: Device) -> None:
        text = "not released: another process is changing the lock, or the service denies it; try again"
        super().__init__(errno.EBUSY, text, os.fsdecode(device))


class NoService(ConnectionError):
    """No service answers."""


class _Absent(NoService):
    """Surely no service is there: a service that is busy is not passed by."""


def lock(device: Device, timeout: Optional[float] = None, server: Optional[str] = None) -> Lock:
    """Locks the port for this process, and returns a `Lock`.

    `timeout`: wait so many seconds for the port; without it, do not wait. `server`: the path of the
    service's socket, if it is not the usual one. If there is no service at the usual one, the command
    `lfp` is asked, which makes the lock files if this user may write the lock directory.

    Raises `Busy`, `Denied`, `NoService`, and `ValueError` for what cannot be a device or a timeout.
    """
    return _lock(device, timeout, server, _Asker())


class _Asker:
    """One call for a lock, which may be given up by another thread."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._service: Optional[_Service] = None
        self.gave_up = False

    def asks(self, service: _Service) -> None:
        with self._mutex:
            self._service = service
            if self.gave_up:
                service.end_input()

    def give_up(self) -> None:
        """Ends the wait. The port may have been granted already, so the call ends in either way."""
        with self._mutex:
            self.gave_up = True
            if self._service is not None:
                self._service.end_input()


def _lock(
    device: Device, timeout: Optional[float], server: Optional[str], asker: _Asker
) -> Lock:
    name = _name(device)
    pid = os.getpid()
    if timeout is not None and not (0 <= timeout <= WAIT_MAX_SECS):
        raise ValueError("the timeout must be 0 to %d seconds: %r" % (WAIT_MAX_SECS, timeout))
    try:
        return _lock_at_service(device, name, pid, timeout or 0.0, server, asker)
    except NoService as error:
        if isinstance(error, _Absent) and server is None:
            held = _lock_by_command(device, name, pid, timeout or 0.0, asker)
            if held is not None:
                return held
        raise NoService("could not lock port /dev/%s: %s" % (name, error)) from error


def _lock_at_service(
    device: Device, name: str, pid: int, timeout: float, server: Optional[str], asker: _Asker
) -> Lock:
    service = _Service(server)
    try:
        asker.asks(service)
        code = _wait(service, name, pid, timeout)
        if code == 450:
            raise Busy(device, service.holders(name))
        if code == 550:
            raise Denied(device)
        if code != 200:
            raise NoService("unexpected reply, code %d" % code)
    finally:
        service.close()

    def release() -> bool:
        service = _Service(server)
        try:
            code = service.ask("UNLOCK %s %d" % (name, pid))[0]
            # Another process may have released it by force.
            return code == 200 or (code == 450 and service.knows_no_lock(name))
        finally:
            service.close()

    return Lock(name, pid, release)


def _lock_by_command(
    device: Device, name: str, pid: int, timeout: float, asker: _Asker
) -> Optional[Lock]:
    """None: the command is not installed, or cannot lock either."""
    deadline = time.monotonic() + timeout
    while True:
        left = min(deadline - time.monotonic(), COMMAND_WAIT)
        verb = ["wait", "--timeout", "%.3f" % left] if left > 0 else ["lock"]
        # As at the service, a device may be away.
        outcome, holders = _command([*verb, "--absent", "--pid", str(pid), "/dev/" + name])
        if outcome == "timed-out" and left == COMMAND_WAIT and not asker.gave_up:
            continue
        if outcome in ("busy", "timed-out"):
            raise Busy(device, holders)
        if outcome == "not-permitted":
            raise Denied(device)
        if outcome != "done":
            return None
        return Lock(name, pid, lambda: _unlock_by_command(name, pid))


def _unlock_by_command(name: str, pid: int) -> bool:
    return _command(["unlock", "--pid", str(pid), "/dev/" + name])[0] in ("done", "not-held")


def _command(words: list[str]) -> tuple[str, list[str]]:
    """What `lfp` says: the outcome, and the processes that have the port, in words for people."""
    try:
        end = subprocess.run(
            ["lfp", "--json", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
        )
        answer = json.loads(end.stdout)
        return str(answer["outcome"]), [_in_words(holder) for holder in answer.get("holders", [])]
    except (OSError, ValueError, KeyError, TypeError):
        return "unreachable", []


def _in_words(holder: dict[str, object]) -> str:
    words = ("pid", holder.get("pid") or "?", holder.get("user"), holder.get("command"))
    return " ".join(str(word) for word in words if word)


class Lock:
    """A port that belongs to this process until `release`, or until the process ends."""

    def __init__(self, name: str, pid: int, release: Callable[[], bool]) -> None:
        self._name = name
        self._pid = pid
        self._release = release
        self._held = True

    @property
    def device(self) -> str:
        """The path of the port."""
        return "/dev/" + self._name

    def release(self) -> None:
        """Releases the port. Does nothing the second time, or in a child that was forked.

        Raises `NotReleased`, and then does it the second time; `NoService`: the lock then ends with this process.
        """
        if not self._held or os.getpid() != self._pid:
            return
        self._held = False
        # Without an answer it stays as it is: a later release could end a newer lock.
        self._held = not self._release()
        if self._held:
            raise NotReleased(self.device)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]] = None,
        error: Optional[BaseException] = None,
        trace: Optional[TracebackType] = None,
    ) -> None:
        try:
            self.release()
        except (NoService, NotReleased):
            # When this process has ended the lock is stale, and the next process that asks gets the port.
            pass


def _name(device: Device) -> str:
    text = os.fsdecode(device)
    name = text[5:] if text.startswith("/dev/") else text
    if text.startswith(("/", "./", "../")) and not _is_name(name):
        name = _led_into_dev(text)[5:]
    if not _is_name(name):
        raise ValueError("not the name of a device: %r" % text)
    return name


def _is_name(name: str) -> bool:
    parts = name.split("/")
    return re.fullmatch(r"[!-~]{1,255}", name) is not None and not {"", ".", ".."} & set(parts)


def _led_into_dev(path: str) -> str:
    """Follows links until a name below /dev is reached, as `lfp` does; a link below /dev stays one."""
    path = os.path.join(os.getcwd(), path)
    for _ in range(LINKS_FOLLOWED + 1):
        directory, last = os.path.split(path)
        here = os.path.join(os.path.realpath(directory), last)
        if here.startswith("/dev/") and last not in ("", ".", ".."):
            return here
        try:
            path = os.path.join(os.path.dirname(here), os.readlink(here))
        except (OSError, ValueError):
            break
    return ""


def _wait(service: _Service, name: str, pid: int, timeout: float) -> int:
    deadline = time.monotonic() + timeout
    has_queue = True
    while True:
        left = deadline - time.monotonic()
        if left >= 1.0 and has_queue:
            seconds = math.floor(left)
            line = "WAIT %s %d %d" % (name, pid, seconds)
            code = service.ask(line, seconds + PATIENCE)[0]
            # A session of a super-server knows no other clients.
            has_queue = code not in (202, 500, 502)
            if not has_queue:
                continue
        else:
            code = service.ask("LOCK %s %d" % (name, pid))[0]
            if code == 450 and left > 0:
                time.sleep(min(PAUSE, left))
        if code != 450 or left <= 0:
            return code


class _Service:
    """One connection, which has been greeted."""

    def __init__(self, server: Optional[str]) -> None:
        path = SOCKET if server is None else server
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._buffer = b""
        try:
            self._socket.settimeout(PATIENCE)
            self._socket.connect(path)
            if server is None and not _is_trusted(self._socket):
                raise NoService("a stranger listens at " + path)
            if self._reply(PATIENCE)[0] != 220:
                raise NoService("the service refuses this client")
        except NoService:
            self.close()
            raise
        except OSError as error:
            self.close()
            text = "%s: %s (is lfpd running?)" % (path, error.strerror or error)
            if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
                raise _Absent(text + _how_to_start()) from error
            raise NoService(text) from error

    def close(self) -> None:
        self._socket.close()

    def end_input(self) -> None:
        """Tells the service that nothing is asked any more, which ends a WAIT; what it has answered can still be read."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            # Already at an end.
            pass

    def ask(self, line: str, patience: float = PATIENCE) -> tuple[int, list[str]]:
        """The code and the lines of the answer."""
        try:
            self._socket.sendall(line.encode("ascii") + b"\r\n")
            return self._reply(patience)
        except NoService:
            raise
        except OSError as error:
            raise NoService(str(error)) from error

    def holders(self, name: str) -> list[str]:
        """The processes that have a port, in words for people."""
        found: list[str] = []
        for words in self._rows(name) or []:
            if words.get("standing", "stale") in ("stale", "ignored"):
                continue
            command = re.sub(r"\\(.)", r"\1", words.get("command", "").strip('"'))
            who = ("pid", words.get("pid", "?"), user_name(words.get("uid")), command)
            text = " ".join(word for word in who if word)
            # A device has a lock file under each of its names.
            if words.get("scheme") != "waiting" and text not in found:
                found.append(text)
        return found

    def knows_no_lock(self, name: str) -> bool:
        """Whether the port surely has no lock file. A lock file that is ignored is no lock."""
        rows = self._rows(name)
        if rows is None or "incomplete" in rows[0]:
            return False
        locks = [row for row in rows if row.get("scheme") in ("uucp", "svr4")]
        return all(row.get("standing") == "ignored" for row in locks)

    def _rows(self, name: str) -> Optional[list[dict[str, str]]]:
        """What the service says of the search, and of each holder; None: it does not say it."""
        code, lines = self.ask("STAT " + name)
        if code not in (211, 212, 213):
            return None
        pattern = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')
        return [dict(pattern.findall(line)) for line in lines[:-1] or lines]

    def _reply(self, patience: float) -> tuple[int, list[str]]:
        deadline = time.monotonic() + patience
        first = self._line(deadline)
        lines = [first]
        if not re.match(r"\d{3}(?:[ -]|$)", first):
            raise NoService("the program that answers there is not a lock file service")
        code = first[:3]
        while first[3:4] == "-" and not re.match(code + r"(?: |$)", lines[-1]):
            lines.append(self._line(deadline))
            if len(lines) > LINES:
                raise NoService("the answer has no end")
        return int(code), lines

    def _line(self, deadline: float) -> str:
        while b"\n" not in self._buffer:
            if len(self._buffer) > LINE_BYTES:
                raise NoService("the answer has no end")
            left = deadline - time.monotonic()
            if left <= 0:
                raise NoService("the service gave no reply in time")
            self._socket.settimeout(left)
            piece = self._socket.recv(4096)
            if not piece:
                raise NoService("the connection to the service ended before the reply")
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in line.rstrip(b"\r"))


def _how_to_start() -> str:
    """The command that starts the service (sd_booted(3) tells whether systemd is there)."""
    if os.path.isdir("/run/systemd/system"):
        return "; to start it: sudo systemctl enable --now lfpd-unix.socket"
    return "; to start it: see EXAMPLES in lfpd(8)"


def _is_trusted(connection: socket.socket) -> bool:
    """Whether the listener is root, this user, or the user that root gave the socket's directory to."""
    size = struct.calcsize("3i")
    option = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    uid: int = struct.unpack("3i", option)[1]
    if uid in (0, os.geteuid()):
        return True
    directory = os.path.dirname(SOCKET)
    above = os.stat(os.path.dirname(directory))
    is_roots = above.st_uid == 0 and not above.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_roots and os.stat(directory).st_uid == uid


def _register() -> None:
    """Lets pyserial and serialx, where they are installed, find the handlers of `lfp://`."""
    # A module of that name may be another package, or broken: that is no reason to fail here.
    try:
        import serial

        packages = serial.protocol_handler_packages
        if __name__ not in packages:
            packages.append(__name__)
    except Exception:
        pass
    try:
        from . import protocol_serialx

        protocol_serialx.register()
    except Exception:
        pass


_register()
