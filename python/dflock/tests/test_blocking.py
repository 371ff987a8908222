"""The blocking client against the real server."""

from __future__ import annotations

import gc
import os
import pathlib
import tempfile
import threading
import time
import unittest
import warnings
from http import client as http_client
from unittest import mock

import dflock
from support import KEEPS, LIMIT, Case, Rival, Server, ended, free_port, is_on_etcd, python, until


class Locks(Case):
    def setUp(self) -> None:
        super().setUp()
        self.client = dflock.Client(servers=self.server.address)

    def test_a_lock_is_held_in_the_with_statement(self) -> None:
        with self.client.lock("k", timeout=10) as lease:
            self.assertEqual((lease.key, len(lease.token), lease.ttl), ("k", 32, 33))
            self.assertEqual(lease.fence, int(lease.token[:16], 16))
            self.assertTrue(22 < lease.remaining() <= 23, lease.remaining())
            self.assertFalse(lease.lost.is_set())
            self.assertIsNone(lease.loss)
            (holder,) = self.server.stats("k")["holders"]
            self.assertIn(f"[{os.getpid()}] ", holder["name"])
            with self.assertRaises(dflock.Busy) as busy, self.client.lock("k", timeout=0):
                pass
            self.assertEqual(str(busy.exception), "k: held by another client")
        self.assertTrue(self.server.is_free("k"))
        self.assertEqual(lease.remaining(), 0)
        lease.release()  # Once more does nothing.

    def test_who_waits_gets_it_in_turn(self) -> None:
        order = []
        fences = []

        def wait(number: int) -> None:
            with self.client.lock("k") as lease:
                order.append(number)
                fences.append(lease.fence)

        with self.client.lock("k"):
            threads = []
            for number in range(5):
                threads.append(threading.Thread(target=wait, args=(number,)))
                threads[-1].start()
                self.server.until_waiters("k", number + 1)
        for thread in threads:
            thread.join(LIMIT)
        self.assertEqual(order, [0, 1, 2, 3, 4])
        self.assertEqual(fences, sorted(set(fences)))
        self.server.until_free("k")

    def test_a_timeout_ends_the_wait(self) -> None:
        with Rival(self.server) as rival:
            rival.take("k")
            begun = time.monotonic()
            with self.assertRaises(dflock.Busy) as busy:
                self.client.lock("k", timeout=0.2).acquire()
            self.assertGreaterEqual(time.monotonic() - begun, 0.2)
            self.assertEqual(busy.exception.key, "k")
            self.assertIn("for 0.2 s", str(busy.exception))
            self.assertEqual(self.server.stats("k")["waiters"], 0)

    def test_semaphores_and_shared_locks(self) -> None:
        with self.client.lock("s", limit=2) as first, self.client.lock("s", limit=2) as second:
            self.assertEqual(first.slot, 0)
            self.server.until_held("s", 2)
            with self.assertRaises(dflock.Busy):
                self.client.lock("s", 0, limit=2).acquire()
            with self.assertRaises(dflock.Refused) as refused:
                self.client.lock("s", 0, limit=3).acquire()
            self.assertEqual(refused.exception.word, "error_limit_mismatch")
            self.assertEqual(second.slot, 1)
        with self.client.lock("s1", limit=1) as lease, self.client.lock("l") as lock:
            self.assertEqual((lease.slot, lock.slot), (0, None))
        with self.client.lock("r", shared=True), self.client.lock("r", shared=True):
            self.server.until_held("r", 2)
            with self.assertRaises(dflock.Busy):
                self.client.lock("r", 0).acquire()
        self.server.until_free("s", "r")

    def test_several_keys_are_taken_together_or_not_at_all(self) -> None:
        with self.client.locks("b", "a", "c", timeout=5) as leases:
            self.assertEqual([lease.key for lease in leases], ["a", "b", "c"])
            self.assertEqual(len(leases), 3)
            self.assertGreater(leases.remaining(), 0)
        self.server.until_free("a", "b", "c")
        with Rival(self.server) as rival:
            rival.take("b")
            for timeout in (0, 0.3):
                with self.assertRaises(dflock.Busy) as busy:
                    self.client.locks("c", "b", "a", timeout=timeout).acquire()
                self.assertEqual(busy.exception.key, "b")
                self.server.until_free("a", "c")

    def test_a_wait_for_several_ends_with_all_of_them(self) -> None:
        rival = self.enter(Rival(self.server))
        rival.take("b")
        taken = []
        with_all = self.client.locks("b", "a", shared=True)
        thread = threading.Thread(target=lambda: taken.append(with_all.acquire()))
        thread.start()
        self.server.until_held("a")
        self.server.until_waiters("b", 1)
        rival.close()
        thread.join(LIMIT)
        self.assertEqual([lease.key for lease in taken[0]], ["a", "b"])
        taken[0].release()
        self.server.until_free("a", "b")

    def test_opposite_orders_never_wait_for_each_other(self) -> None:
        def play(*keys: str) -> None:
            for _ in range(20):
                with self.client.locks(*keys):
                    pass

        threads = [threading.Thread(target=play, args=keys) for keys in (("a", "b"), ("b", "a")) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
            self.assertFalse(thread.is_alive())

    def test_a_lease_is_renewed(self) -> None:
        """Longer than its lease. So is a grant that was waited for, and a lock in a child thread's hands."""
        lease = self.client.lock("k", ttl=6).acquire()
        self.assertEqual(lease.ttl, 6)
        self.assertFalse(lease.lost.wait(7))
        self.assertGreater(lease.remaining(), 0)
        waiting = []
        thread = threading.Thread(target=lambda: waiting.append(self.client.lock("k", ttl=6).acquire()))
        thread.start()
        self.server.until_waiters("k", 1)
        lease.release()
        thread.join(LIMIT)
        self.assertFalse(waiting[0].lost.wait(7))
        waiting[0].release()
        self.assertTrue(self.server.is_free("k"))

    def test_idle_leases_cost_no_thread(self) -> None:
        leases = [self.client.lock(f"k{number}").acquire() for number in range(100)]
        self.assertEqual([thread.name for thread in threading.enumerate() if thread.name.startswith("dflock")], ["dflock"])
        # Up to 16 share a connection. (A standby has connections of its own.)
        if not is_on_etcd():
            self.assertEqual(self.server.stats()["connections"] - 1, 7)
        for lease in leases:
            lease.release()
        if not is_on_etcd():
            until("the connections are closed", lambda: self.server.stats()["connections"] == 1)

    def test_one_request_can_be_entered_by_several_threads(self) -> None:
        lock = self.client.lock("k", limit=4)
        inside = threading.Barrier(2)

        def play() -> None:
            with lock as outer, lock as inner:
                inside.wait(LIMIT)
                self.assertNotEqual(outer.token, inner.token)
                inside.wait(LIMIT)

        thread = threading.Thread(target=play)
        thread.start()
        with lock, lock:
            inside.wait(LIMIT)
            self.server.until_held("k", 4)
            inside.wait(LIMIT)
        thread.join(LIMIT)
        self.server.until_free("k")

    def test_what_is_held_when_the_program_ends_is_released(self) -> None:
        with Server(KEEPS) as server:
            script = "import dflock, sys\nlease = dflock.Client(servers=sys.argv[1]).lock('k').acquire()\n"
            with ended(python(script, server.address)) as process:
                _, complaints = process.communicate(timeout=LIMIT)
                self.assertEqual((process.returncode, complaints), (0, ""))
            self.assertTrue(server.is_free("k"))


class Questions(Case):
    def setUp(self) -> None:
        super().setUp()
        self.client = dflock.Client(servers=self.server.address)

    def test_ping_and_stats(self) -> None:
        self.assertEqual(list(self.client.ping()), [self.server.address])
        with self.client.lock("k", name="the holder", value="10.0.0.1:80"):
            figures = self.client.stats()[self.server.address]
            self.assertEqual([lock["key"] for lock in figures["locks"]], ["k"])
            it = self.client.stats("k")
            self.assertEqual((it["held"], it["holders"][0]["name"]), (1, "the holder"))

    def test_a_watch_sees_who_holds_a_key(self) -> None:
        with self.client.watch("k") as watch:
            self.assertIsNone(next(watch))
            with self.client.lock("k", name="al", value="10.0.0.1:80 http") as lease:
                holder = next(watch)
                assert holder is not None
                seen = (holder.fence, holder.holders, holder.name, holder.value)
                self.assertEqual(seen, (lease.fence, 1, "al", "10.0.0.1:80 http"))
                self.assertTrue(0 <= holder.age < LIMIT)
            self.assertIsNone(next(watch))

    def test_what_no_server_takes_is_refused_before_it_is_sent(self) -> None:
        for key in ("", "a b", "a\tb", "a\nb", "k" * 257):
            with self.subTest(key), self.assertRaises(ValueError):
                self.client.lock(key)
        client = self.client
        for call in (
            lambda: client.lock("k", timeout=-1),
            lambda: client.lock("k", timeout=float("nan")),
            lambda: client.lock("k", timeout=float("inf")),
            lambda: client.lock("k", ttl=0),
            lambda: client.lock("k", ttl=2_147_483_648),
            lambda: client.lock("k", limit=0),
            lambda: client.lock("k", limit=2, shared=True),
            lambda: client.lock("k", value=""),
            lambda: client.lock("k", value="a\nb"),
            lambda: client.lock("k", value="v" * 257),
            lambda: client.locks(),
            lambda: client.locks("a", "b", "a"),
            lambda: client.watch(""),
        ):
            with self.subTest(call), self.assertRaises(ValueError):
                call()
        with self.assertRaises(TypeError):
            client.lock(7)  # type: ignore[arg-type]
        # The longest, in bytes that are no text.
        with client.lock(b"\xff" * 256) as lease:
            self.assertEqual(os.fsencode(lease.key), b"\xff" * 256)


class Loss(Case):
    def setUp(self) -> None:
        super().setUp()
        self.client = dflock.Client(servers=self.server.address)
        self.told: "list[dflock.LeaseLost]" = []

    def released_by_another(self, lease: dflock.Lease) -> None:
        self.assertEqual(self.server.ask("r", lease.key, lease.token), "ok")

    def test_the_event_the_callback_and_the_end_of_the_statement_tell(self) -> None:
        with self.assertRaises(dflock.LeaseLost) as lost:
            with self.client.lock("k", ttl=3, on_lost=self.told.append) as lease:
                self.released_by_another(lease)
                self.assertTrue(lease.lost.wait(LIMIT))
                self.assertEqual(lease.remaining(), 0)
                assert lease.loss is not None
                self.assertIs(lease.loss.loss, dflock.Loss.NOT_HELD)
        self.assertEqual(str(lost.exception), "lease lost: k: the server says the lease is over")
        self.assertEqual(lost.exception.key, "k")
        until("the callback", lambda: len(self.told) == 1)
        with self.assertRaises(dflock.LeaseLost):
            lease.release()

    def test_a_loss_that_only_the_release_shows(self) -> None:
        with self.assertRaises(dflock.LeaseLost), self.client.lock("k", ttl=60) as lease:
            self.released_by_another(lease)

    def test_an_error_of_the_body_is_the_context_of_the_loss(self) -> None:
        with self.assertRaises(dflock.LeaseLost) as lost:
            with self.client.lock("k", ttl=3) as lease:
                self.released_by_another(lease)
                lease.lost.wait(LIMIT)
                raise KeyError("stopped half-way")
        self.assertIsInstance(lost.exception.__context__, KeyError)

    def test_who_ends_the_program_is_not_hindered(self) -> None:
        for end in (KeyboardInterrupt, SystemExit):
            with self.subTest(end), self.assertRaises(end):
                with self.client.lock("k", ttl=3) as lease:
                    self.released_by_another(lease)
                    lease.lost.wait(LIMIT)
                    raise end

    def test_one_of_several_is_lost(self) -> None:
        with self.assertRaises(dflock.LeaseLost) as lost:
            with self.client.locks("a", "b", ttl=3, on_lost=self.told.append) as leases:
                self.released_by_another(leases[1])
                self.assertTrue(leases.lost.wait(LIMIT))
                self.assertFalse(leases[0].lost.is_set())
                self.assertEqual(leases.remaining(), 0)
        self.assertEqual(lost.exception.key, "b")
        until("the callback", lambda: len(self.told) == 1)
        self.server.until_free("a", "b")

    def test_a_callback_that_stands_still_or_fails_hinders_no_renewal(self) -> None:
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        first = self.client.lock("a", ttl=3, on_lost=lambda loss: go_on.wait(LIMIT)).acquire()
        second = self.client.lock("b", ttl=6).acquire()
        self.released_by_another(first)
        self.assertTrue(first.lost.wait(LIMIT))
        self.assertFalse(second.lost.wait(7))
        # So does one for which there is no thread.
        third = self.client.lock("c", ttl=3, on_lost=self.told.append).acquire()
        with mock.patch("dflock._blocking.threading.Thread", side_effect=RuntimeError("no thread")):
            with self.assertLogs("dflock", "ERROR"):
                self.released_by_another(third)
                self.assertTrue(third.lost.wait(LIMIT))
                self.assertFalse(second.lost.wait(3))
        second.release()

    def test_an_administrator_takes_it_away(self) -> None:
        """The holder hears of it at once: its next renewal would be minutes later."""
        place = self.enter(tempfile.TemporaryDirectory())
        secret, port = pathlib.Path(place, "secret"), free_port()
        secret.touch(0o600)
        secret.write_text("open sesame")
        server = self.enter(Server("--http-port", str(port), "--admin-token-file", str(secret)))
        client = dflock.Client(servers=server.address, read_timeout=1000)
        lease = client.lock("k", ttl=1000).acquire()
        http = http_client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        self.addCleanup(http.close)
        http.request("POST", "/v1/admin/release?key=k", headers={"Authorization": "Bearer open sesame"})
        self.assertEqual(http.getresponse().status, 200)
        self.assertTrue(lease.lost.wait(LIMIT))


class Forgotten(Case):
    """On a server that keeps what a closed connection held."""

    options = (KEEPS,)

    def setUp(self) -> None:
        super().setUp()
        self.client = dflock.Client(servers=self.server.address)

    def test_a_forgotten_lease_warns_and_is_released(self) -> None:
        with self.assertWarnsRegex(ResourceWarning, "'k' held> was forgotten and is released"):
            self.client.lock("k", ttl=600).acquire()
            self.until_collected("k")
        with self.assertWarns(ResourceWarning):
            self.client.locks("a", "b", ttl=600, shared=True).acquire()
            self.until_collected("a", "b")

    def until_collected(self, *keys: str) -> None:
        for key in keys:
            until("it is free", lambda: gc.collect() >= 0 and self.server.is_free(key))

    def test_a_callback_that_knows_the_lease_does_not_keep_it(self) -> None:
        class Owner:
            def take(self, client: dflock.Client) -> None:
                self.lease = client.lock("k", ttl=600, on_lost=self.lost).acquire()

            def lost(self, loss: dflock.LeaseLost) -> None:
                print(self.lease, loss)

        with self.assertWarns(ResourceWarning):
            Owner().take(self.client)
            self.until_collected("k")

    def test_a_lost_or_released_lease_says_nothing(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lease = self.client.lock("k", ttl=3).acquire()
            self.server.ask("r", "k", lease.token)
            self.assertTrue(lease.lost.wait(LIMIT))
            self.client.lock("j").acquire().release()
            del lease
            gc.collect()
        self.assertEqual([str(one.message) for one in caught if one.category is ResourceWarning], [])


if __name__ == "__main__":
    unittest.main()
