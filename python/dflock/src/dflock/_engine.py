"""The thread that does the work of all clients of this process: it owns the connections and renews the leases.

Programs never wait inside of it, so a signal, a cancelled task or an event loop that ends interrupts only the wait, never a
conversation with a server. It begins with the first request, and ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import threading
from typing import Any, Callable, Coroutine, Dict, Generic, List, Optional, Set, TypeVar

from ._connection import close_after_fork, closed, connections
from ._errors import Loss
from ._session import Sessions

T = TypeVar("T")

#: How long the end of the program waits for releases, in seconds.
EXIT_LIMIT = 1.0
#: A thread that waits looks this often, in seconds, whether another one has raised an exception in it.
LOOK_UP = 0.5


class Engine:
    """One thread with one event loop."""

    def __init__(self, number: int) -> None:
        #: The next one, if this one has ended, has the next number.
        self.number, self.pid = number, os.getpid()
        # Whatever kind of loop the program has.
        self._loop = asyncio.SelectorEventLoop()
        self.sessions = Sessions()
        self.requests: Set[Request[Any]] = set()
        self._has_ended = False
        # The thread that takes it is the one.
        self._tickets = [object()]
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Starts the thread, if none was. May be interrupted, and called again."""
        if self._tickets:
            threading.Thread(target=self._run, name="dflock", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return self.pid == os.getpid() and not self._has_ended

    def discard(self) -> None:
        """It was never used."""
        self._has_ended = True
        self._loop.close()

    def post(self, call: Callable[..., object], *arguments: object) -> bool:
        """Has the thread call this. Whether it lives. May be called by any thread, also by a destructor."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
            return True
        except RuntimeError:  # The loop is closed.
            return False

    def end(self, limit: float) -> None:
        """Releases everything, for at most so many seconds, and ends the thread."""
        thread = self._thread
        if self.is_alive and thread is not None and threading.current_thread() is not thread:
            self.post(self._begin_end, limit)
            thread.join(limit + EXIT_LIMIT)

    def _begin_end(self, limit: float) -> None:
        async def end() -> None:
            for hold in list(self.sessions.holds):
                hold.release()
            idle = asyncio.ensure_future(self.sessions.idle())
            await asyncio.wait((idle,), timeout=limit)
            self._loop.stop()

        self._ending = self._loop.create_task(end())

    def _run(self) -> None:
        try:
            self._tickets.pop()
        except IndexError:
            return
        self._thread = threading.current_thread()
        if hasattr(signal, "pthread_sigmask"):
            # Signals are for the program's threads. This one has the same mask as a fresh process otherwise.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            # Also if an exception was raised in this thread: nobody renews the leases from now on.
            self._has_ended = True
            self._end_all()

    def _end_all(self) -> None:
        for request in list(self.requests):
            request.fail(closed(RuntimeError(Loss.ENDED.value)))
        # The sessions report their leases as lost.
        while asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(self._cancel_all())
        for connection in list(connections):
            connection.close()
        # The transports close their sockets.
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Request(Generic[T]):
    """Work for the engine: a coroutine that nobody else may await. `discard` undoes a result that nobody wants."""

    def __init__(
        self,
        engine: Engine,
        work: "Callable[[], Coroutine[Any, Any, T]]",
        discard: Callable[[T], None],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine, self._work, self._discard, self._on_end = engine, work, discard, on_end
        self._task: Optional[asyncio.Task[T]] = None
        self._results: List[T] = []
        self._error: Optional[BaseException] = None
        self._is_unwanted = False
        self._is_done = False
        # Released when it is done.
        self._running = threading.Lock()
        self._running.acquire()

    def start(self) -> None:
        """Begins it. Who calls this calls `give_up` if anything is raised before the result is taken."""
        if not self._engine.post(self._begin):
            self.fail(closed(RuntimeError(Loss.ENDED.value)))

    def wait(self, limit: Optional[float] = None) -> bool:
        """Blocks until it is done, at most so many seconds; whether it is. A signal or an exception that another thread
        raises interrupts it."""
        while not self._running.acquire(timeout=LOOK_UP if limit is None else min(limit, LOOK_UP)):
            if limit is not None:
                limit -= LOOK_UP
                if limit <= 0:
                    return False
        self._running.release()
        return True

    def result(self) -> T:
        """What came of it."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def give_up(self) -> None:
        """Nobody wants the result any more."""
        self._engine.post(self._give_up)

    def fail(self, error: BaseException) -> None:
        """Ends it with this error."""
        if not self._is_done:
            self._error = error
            self._done()

    def _done(self) -> None:
        self._is_done, self._task = True, None
        self._engine.requests.discard(self)
        on_end, self._on_end = self._on_end, lambda: None
        self._running.release()
        on_end()

    # In the thread of the engine.

    def _begin(self) -> None:
        self._engine.requests.add(self)
        self._task = asyncio.ensure_future(self._work())
        self._task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[T]") -> None:
        if task.cancelled() or task.exception() is not None:
            self.fail(closed() if task.cancelled() else task.exception() or closed())
        elif self._is_unwanted or self._is_done:
            self._discard(task.result())
            self.fail(closed())
        else:
            self._results.append(task.result())
            self._done()

    def _give_up(self) -> None:
        self._is_unwanted = True
        if self._results:
            self._discard(self._results.pop())
        elif self._task is not None:
            self._task.cancel()


_engine: Optional[Engine] = None
#: All of this process by their numbers.
_engines: Dict[int, Engine] = {}
#: Engines of the parents of this process. Their event loops are never closed here: that would change the set of descriptors
#: (epoll) that the parent waits for.
_inherited: List[Engine] = []


def engine() -> Engine:
    """The engine of this process. Without a lock, which an exception in the wrong moment would leave locked."""
    global _engine
    while True:
        current = _engine
        if current is None or not current.is_alive:
            number = 0 if current is None else current.number + 1
            made = Engine(number)
            # Every thread gets the same one.
            _engine = current = _engines.setdefault(number, made)
            if current is not made:
                made.discard()
        if current.is_alive:
            current.start()
            return current


def _forked() -> None:
    global _engine
    _inherited.extend(_engines.values())
    _engines.clear()
    _engine = None
    close_after_fork()


def _exit() -> None:
    if _engine is not None:
        _engine.end(EXIT_LIMIT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
atexit.register(_exit)
