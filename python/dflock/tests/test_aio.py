"""The client for asyncio against the real server."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import unittest
import warnings
from typing import Any, Awaitable, Callable, List, TypeVar

import dflock
from dflock import aio
from support import KEEPS, LIMIT, Case, Rival, until

T = TypeVar("T")


async def within(work: "Awaitable[T]") -> T:
    return await asyncio.wait_for(work, LIMIT)


async def comes(what: str, condition: Callable[[], Any]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, until, what, condition)


class AioCase(Case):
    def setUp(self) -> None:
        super().setUp()
        self.client = aio.Client(servers=self.server.address)

    def play(self, story: "Awaitable[T]") -> T:
        async def limited() -> T:
            return await within(story)

        return asyncio.run(limited(), debug=True)

    async def released_by_another(self, lease: aio.Lease) -> None:
        loop = asyncio.get_running_loop()
        self.assertEqual(await loop.run_in_executor(None, self.server.ask, "r", lease.key, lease.token), "ok")


class Locks(AioCase):
    def test_a_lock_is_held_in_the_statement(self) -> None:
        async def story() -> None:
            async with self.client.lock("k", timeout=10) as lease:
                self.assertEqual((lease.key, lease.fence), ("k", int(lease.token[:16], 16)))
                self.assertTrue(22 < lease.remaining() <= 23)
                self.assertFalse(lease.lost.is_set())
                with self.assertRaises(dflock.Busy):
                    await self.client.lock("k", timeout=0)
                with self.assertRaises(dflock.Busy):
                    await self.client.lock("k", timeout=0.2).acquire()
            self.assertTrue(self.server.is_free("k"))
            lease = await self.client.lock("k")
            await lease.release()
            await lease.release()
            self.assertTrue(self.server.is_free("k"))

        self.play(story())

    def test_tasks_wait_in_turn(self) -> None:
        order: List[int] = []

        async def wait(number: int) -> None:
            async with self.client.lock("k"):
                order.append(number)

        async def story() -> None:
            async with self.client.lock("k"):
                tasks = []
                for number in range(5):
                    tasks.append(asyncio.ensure_future(wait(number)))
                    await comes("it waits", lambda: self.server.stats("k")["waiters"] == len(tasks))
            await asyncio.gather(*tasks)

        self.play(story())
        self.assertEqual(order, [0, 1, 2, 3, 4])

    def test_one_request_can_be_entered_by_several_tasks(self) -> None:
        lock = self.client.lock("k", limit=3)
        tokens = set()

        async def hold() -> None:
            async with lock as outer, lock as inner:
                tokens.update((outer.token, inner.token))

        async def story() -> None:
            await asyncio.gather(*(hold() for _ in range(2)))

        self.play(story())
        self.assertEqual(len(tokens), 4)
        self.server.until_free("k")

    def test_many_leases_cost_no_thread_and_no_task(self) -> None:
        async def story() -> None:
            async with self.client.lock("warm"):
                tasks = len(asyncio.all_tasks())
            leases = await asyncio.gather(*(self.client.lock(f"k{number}").acquire() for number in range(50)))
            threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("dflock")]
            self.assertEqual((threads, len(asyncio.all_tasks())), (["dflock"], tasks))
            await asyncio.gather(*(lease.release() for lease in leases))

        self.play(story())

    def test_several_keys(self) -> None:
        async def story() -> None:
            async with self.client.locks("b", "a", timeout=5) as leases:
                self.assertEqual([lease.key for lease in leases], ["a", "b"])
                with self.assertRaises(dflock.Busy) as busy:
                    await self.client.locks("b", "c", timeout=0)
                self.assertEqual(busy.exception.key, "b")

        self.play(story())
        self.server.until_free("a", "b", "c")

    def test_ping_stats_and_watch(self) -> None:
        async def story() -> None:
            self.assertEqual(list(await self.client.ping()), [self.server.address])
            async with self.client.watch("k") as watch:
                self.assertIsNone(await watch.__anext__())
                async with self.client.lock("k", value="10.0.0.1:80"):
                    async for holder in watch:
                        assert holder is not None
                        self.assertEqual(holder.value, "10.0.0.1:80")
                        break
                    self.assertEqual((await self.client.stats("k"))["held"], 1)
                    # A call that is given up loses nothing.
                    for _ in range(3):
                        with self.assertRaises(asyncio.TimeoutError):
                            await asyncio.wait_for(watch.__anext__(), 0.05)
                self.assertIsNone(await watch.__anext__())
            self.assertEqual(len((await self.client.stats())[self.server.address]["locks"]), 0)

        self.play(story())


class Loss(AioCase):
    def test_the_body_is_cancelled_and_the_statement_raises_the_loss(self) -> None:
        told: List[dflock.LeaseLost] = []
        stopped: List[str] = []

        async def story() -> None:
            with self.assertRaises(dflock.LeaseLost) as lost:
                async with self.client.lock("k", ttl=3, on_lost=told.append) as lease:
                    waiter = asyncio.ensure_future(lease.lost.wait())
                    await self.released_by_another(lease)
                    try:
                        await asyncio.sleep(LIMIT / 2)
                    except asyncio.CancelledError as error:
                        stopped.append("in time")
                        if sys.version_info < (3, 11):  # Later ones do not keep the text.
                            self.assertIn("lease lost: k", str(error))
                        self.assertTrue(lease.lost.is_set())
                        self.assertEqual(lease.remaining(), 0)
                        raise
            self.assertIs(lost.exception.loss, dflock.Loss.NOT_HELD)
            self.assertTrue(await waiter)
            # The task is not cancelled any more.
            await asyncio.sleep(0.01)
            if sys.version_info >= (3, 11):
                task = asyncio.current_task()
                assert task is not None
                self.assertEqual(task.cancelling(), 0)

        self.play(story())
        self.assertEqual(stopped, ["in time"])
        self.assertEqual([str(loss) for loss in told], ["lease lost: k: the server says the lease is over"])

    def test_one_of_several(self) -> None:
        async def story() -> None:
            with self.assertRaises(dflock.LeaseLost) as lost:
                async with self.client.locks("a", "b", ttl=3) as leases:
                    await self.released_by_another(leases[1])
                    await asyncio.sleep(LIMIT)
            self.assertEqual(lost.exception.key, "b")

        self.play(story())
        self.server.until_free("a")

    def test_a_body_that_ends_otherwise(self) -> None:
        """A loss that the body does not await, one that it swallows, one that becomes another error, one that only the
        release shows."""

        async def blocked(lease: aio.Lease) -> None:
            until("the loss", lambda: lease.loss is not None)

        async def swallowed(lease: aio.Lease) -> None:
            try:
                await asyncio.sleep(LIMIT)
            except asyncio.CancelledError:
                pass

        async def changed(lease: aio.Lease) -> None:
            try:
                await asyncio.sleep(LIMIT)
            except asyncio.CancelledError:
                raise KeyError("half-way") from None

        async def unseen(lease: aio.Lease) -> None:
            pass

        async def story() -> None:
            for body in (blocked, swallowed, changed, unseen):
                with self.subTest(body.__name__):
                    with self.assertRaises(dflock.LeaseLost):
                        async with self.client.lock("k", ttl=60 if body is unseen else 3) as lease:
                            await self.released_by_another(lease)
                            await body(lease)
                    # Nothing of the cancellation is left for what follows.
                    for _ in range(3):
                        await asyncio.sleep(0)

        self.play(story())

    def test_a_lease_that_is_lost_before_the_statement(self) -> None:
        went_on: List[aio.Lease] = []

        async def story() -> None:
            for is_awaited in (False, True):
                lease = await self.client.lock("k", ttl=3)
                await self.released_by_another(lease)
                await lease.lost.wait()
                with self.assertRaises(dflock.LeaseLost):
                    async with lease:
                        if is_awaited:
                            await asyncio.sleep(LIMIT / 2)
                            went_on.append(lease)
                await asyncio.sleep(0.01)

        self.play(story())
        self.assertEqual(went_on, [])

    def test_a_cancellation_by_somebody_else_stays_one(self) -> None:
        async def hold(lost: bool) -> None:
            async with self.client.lock("k", ttl=3) as lease:
                if lost:
                    await self.released_by_another(lease)
                    try:
                        await asyncio.sleep(LIMIT)
                    finally:
                        await asyncio.sleep(LIMIT)  # The second cancellation comes here.
                held.set()
                await asyncio.sleep(LIMIT)

        async def story() -> None:
            task = asyncio.ensure_future(hold(False))
            await held.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertTrue(self.server.is_free("k"))
            if sys.version_info >= (3, 11):
                task = asyncio.ensure_future(hold(True))
                await comes("the loss", lambda: task.cancelling())
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

        async def begin() -> None:
            nonlocal held
            held = asyncio.Event()
            await story()

        held: asyncio.Event
        self.play(begin())

    def test_a_loop_that_is_blocked_loses_no_lease(self) -> None:
        async def story() -> None:
            async with self.client.lock("k", ttl=6) as lease:
                time.sleep(7)  # No wait for a condition: longer than the lease.
                self.assertFalse(lease.lost.is_set())
                self.assertGreater(lease.remaining(), 0)

        asyncio.run(story())


class Cancelled(AioCase):
    """On a server that keeps what a closed connection held."""

    options = (KEEPS,)

    def test_a_wait_that_is_cancelled_leaves_the_line(self) -> None:
        async def story() -> None:
            with Rival(self.server) as rival:
                rival.take("k")
                task = asyncio.ensure_future(self.client.lock("k").acquire())
                await comes("it waits", lambda: self.server.stats("k")["waiters"] == 1)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                await comes("it has left", lambda: self.server.stats("k")["waiters"] == 0)

        self.play(story())

    def test_a_task_that_is_cancelled_at_any_step_holds_nothing(self) -> None:
        """Each number of turns of the event loop, and then each pause in milliseconds."""

        async def hold() -> None:
            async with self.client.lock("k"):
                await asyncio.sleep(0)
            async with self.client.locks("k", "j"):
                await asyncio.sleep(0)

        async def story() -> None:
            for steps in [*range(12), *(number / 1000 for number in range(12))]:
                task = asyncio.ensure_future(hold())
                if isinstance(steps, int):
                    for _ in range(steps):
                        await asyncio.sleep(0)
                else:
                    await asyncio.sleep(steps)
                task.cancel()
                await asyncio.wait((task,))
                await comes("it is free", lambda: self.server.is_free("k") and self.server.is_free("j"))

        self.play(story())

    def test_a_loop_that_is_closed_holds_nothing(self) -> None:
        """With a task in the body, with one in the line, and with a lease that nobody releases."""
        with Rival(self.server) as rival, warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            rival.take("line")

            async def story(where: str) -> None:
                if where == "line":
                    await self.client.lock("line").acquire()
                elif where == "body":
                    async with self.client.lock("body"):
                        held.set()
                        await asyncio.sleep(LIMIT)
                else:
                    kept.append(await self.client.lock("kept").acquire())
                    held.set()

            kept: List[aio.Lease] = []
            for where in ("line", "body", "kept"):
                with self.subTest(where):
                    held = threading.Event()
                    loop = asyncio.new_event_loop()
                    task = loop.create_task(story(where))

                    async def begun() -> None:
                        if where == "line":
                            await comes("it waits", lambda: self.server.stats("line")["waiters"] == 1)
                        else:
                            await comes("it is held", held.is_set)

                    loop.run_until_complete(begun())
                    loop.close()
                    # The task is destroyed while it waits: Python says so.
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    del task
                    gc.collect()
                    if where == "line":
                        self.server.until_waiters("line", 0)
                    elif where == "body":
                        self.server.until_free("body")
            # A lease outlives its loop as long as somebody has it, and is renewed.
            self.assertGreater(kept[0].remaining(), 0)
            self.assertFalse(self.server.is_free("kept"))
            kept.clear()
            gc.collect()
            self.server.until_free("kept")

    def test_a_forgotten_lease_warns_and_is_released(self) -> None:
        async def story() -> None:
            with self.assertWarnsRegex(ResourceWarning, "was forgotten and is released"):
                await self.client.lock("k", ttl=600)
                await comes("it is free", lambda: gc.collect() >= 0 and self.server.is_free("k"))

        self.play(story())


if __name__ == "__main__":
    unittest.main()
