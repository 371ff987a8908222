"""The client when machines and networks fail: what the tests of the Rust client do to it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pathlib
import random
import signal
import tempfile
import threading
import time
import unittest
from typing import Any, List

import dflock
from dflock import aio
from support import KEEPS, LIMIT, TLS, Case, Proxy, Rival, Scripted, Server, is_on_etcd, until

GRACE = ("--disconnect-grace", "60")


class Connections(Case):
    """One server behind a proxy; it keeps the holds of a client that reconnects."""

    options = GRACE

    def setUp(self) -> None:
        super().setUp()
        self.proxy = self.enter(Proxy(self.server))
        self.client = dflock.Client(servers=self.proxy.address, patience=3)

    def assert_stands(self, lease: dflock.Lease, time_s: float = 0.5) -> None:
        self.assertFalse(lease.lost.wait(time_s), lease.loss)
        self.assertGreater(lease.remaining(), 0)

    def test_a_broken_connection_is_replaced_and_the_holder_notices_nothing(self) -> None:
        with self.client.lock("k", ttl=60) as lease:
            for side in ("client", "server"):
                before = self.proxy.count
                self.proxy.reset(side)
                if side == "server":
                    break  # Only the next renewal shows it.
                until("it is back", lambda: self.proxy.count > before)
                self.assert_stands(lease)
        self.server.until_free("k")

    def test_a_connection_that_swallows_is_replaced_in_time(self) -> None:
        with self.client.lock("k", ttl=6) as lease:
            self.proxy.swallow_what_is_open()
            self.assert_stands(lease, 7)
        self.server.until_free("k")

    def test_late_answers_lose_nothing(self) -> None:
        with self.client.lock("k", ttl=6) as lease:
            self.proxy.stall_answers()
            self.assert_stands(lease, 7)
            self.proxy.stall_answers(False)
            self.proxy.delay = 0.2
            self.assert_stands(lease, 3)
            self.proxy.delay = 0
        self.server.until_free("k")

    def test_a_lease_that_cannot_be_renewed_is_lost_before_its_end(self) -> None:
        lease = self.client.lock("k", ttl=3).acquire()
        self.proxy.cut()
        end = time.monotonic() + lease.remaining()
        self.assertTrue(lease.lost.wait(LIMIT))
        self.assertGreaterEqual(time.monotonic(), end - 0.1, "too early")
        assert lease.loss is not None
        self.assertIs(lease.loss.loss, dflock.Loss.UNREACHABLE)
        self.assertEqual(lease.remaining(), 0)
        with self.assertRaises(dflock.LeaseLost):
            lease.release()
        self.proxy.mend()
        self.server.until_free("k")

    def test_the_margin_is_left(self) -> None:
        client = dflock.Client(servers=self.proxy.address, margin=1, patience=3)
        lease = client.lock("k", ttl=6).acquire()
        self.proxy.cut()
        left = [lease.remaining()]
        until("it is lost", lambda: lease.lost.is_set() or left.append(lease.remaining()))
        self.assertGreater(min(it for it in left if it > 0), 0.3)

    def test_a_wait_survives_the_proxy_and_joins_the_line_again(self) -> None:
        rival = self.enter(Rival(self.server))
        token = rival.take("k")
        taken: List[dflock.Lease] = []
        thread = threading.Thread(target=lambda: taken.append(self.client.lock("k").acquire()))
        thread.start()
        self.server.until_waiters("k", 1)
        with self.assertLogs("dflock", "INFO") as logs:
            self.proxy.kill()
            until("it was said", lambda: logs.output)
            self.proxy.revive()
            self.server.until_waiters("k", 1)
        self.assertIn("waiting for the server to join the line again", logs.output[0])
        self.assertEqual(rival.ask("r", "k", token), "ok")
        thread.join(LIMIT)
        taken[0].release()

    def test_a_grant_that_comes_after_its_waiter_has_gone_is_given_back(self) -> None:
        """The answer is held back while the task is cancelled."""
        client = aio.Client(servers=self.proxy.address)

        async def story() -> None:
            rival = Rival(self.server)
            token = rival.take("k")
            task = asyncio.ensure_future(client.lock("k", ttl=600).acquire())
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self.server.until_waiters, "k", 1)
            self.proxy.stall_answers()
            self.assertEqual(rival.ask("r", "k", token), "ok")
            rival.close()
            await loop.run_in_executor(None, self.server.until_held, "k", 1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await asyncio.sleep(1.5)  # Longer than the client waits before it leaves.
            self.proxy.stall_answers(False)
            await loop.run_in_executor(None, self.server.until_free, "k")

        asyncio.run(asyncio.wait_for(story(), LIMIT))

    def test_a_watch_goes_on_over_another_connection(self) -> None:
        watch = self.enter(self.client.watch("k"))
        self.assertIsNone(next(watch))
        self.proxy.kill()
        seen: List[Any] = []
        thread = threading.Thread(target=lambda: seen.append(next(watch)), daemon=True)
        thread.start()
        self.proxy.revive()
        with dflock.Client(servers=self.server.address).lock("k", value="here"):
            thread.join(LIMIT)
            self.assertEqual(seen[0].value, "here")


class Restarts(unittest.TestCase):
    """A server that remembers what was held, and comes again where it was."""

    def setUp(self) -> None:
        if is_on_etcd():
            self.skipTest("the holds are in etcd")
        self.server = Server(*GRACE, state=True).__enter__()
        self.addCleanup(lambda: self.server.__exit__())
        self.client = dflock.Client(servers=self.server.address)

    def test_a_lease_outlives_a_restart_and_a_place_in_the_line_is_taken_again(self) -> None:
        lease = self.client.lock("k", ttl=60).acquire()
        taken: List[dflock.Lease] = []
        thread = threading.Thread(target=lambda: taken.append(self.client.lock("k").acquire()))
        thread.start()
        self.server.until_waiters("k", 1)
        for what in (signal.SIGKILL, signal.SIGTERM):
            self.server.end(what)
            self.server.start_again()
            self.server.until_waiters("k", 1)
            self.assertFalse(lease.lost.is_set())
        lease.release()
        thread.join(LIMIT)
        taken[0].release()
        self.server.until_free("k")

    def test_a_server_that_stands_still_loses_the_lease(self) -> None:
        lease = self.client.lock("k", ttl=3).acquire()
        self.server.send(signal.SIGSTOP)
        self.assertTrue(lease.lost.wait(LIMIT))
        assert lease.loss is not None
        self.assertIs(lease.loss.loss, dflock.Loss.UNREACHABLE)
        self.server.send(signal.SIGCONT)
        del lease
        self.server.until_free("k")

    def test_a_holder_may_go_while_the_server_is_away(self) -> None:
        client = dflock.Client(servers=self.server.address, patience=1)
        lease = client.lock("k", ttl=600).acquire()
        self.server.end()
        begun = time.monotonic()
        with self.assertRaises(dflock.Unreachable):
            lease.release()
        self.assertLess(time.monotonic() - begun, LIMIT / 2)
        # The end of a statement does not report it: the lease stood to the end of the body.
        self.server.start_again()
        with client.lock("j", ttl=600):
            self.server.end()

    def test_a_server_that_is_being_started_is_waited_for(self) -> None:
        self.server.end()
        threading.Timer(0.5, self.server.start_again).start()
        with self.client.lock("k", timeout=0):
            pass
        self.server.end()
        with self.assertRaises(dflock.Unreachable) as away:
            dflock.Client(servers=self.server.address, patience=0.5).lock("k").acquire()
        self.assertIn(f"cannot connect to {self.server.address}", str(away.exception))

    def test_a_server_without_tls_is_named(self) -> None:
        with self.assertRaises(dflock.Unreachable) as away:
            dflock.Client(servers=self.server.address, tls=True, patience=0.5).lock("k", timeout=0).acquire()
        self.assertIn(f"cannot connect to {self.server.address}: ", str(away.exception))
        self.assertIn("TLS", str(away.exception))


class Several(unittest.TestCase):
    def enter(self, manager: Any) -> Any:
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value

    def test_shards_have_keys_of_their_own(self) -> None:
        servers = [self.enter(Server()) for _ in range(3)]
        client = dflock.Client(servers=[server.address for server in servers])
        with client.locks("my-job", "a", "123456789"):
            for key in ("my-job", "a", "123456789"):
                held = [server.stats(key)["held"] for server in servers]
                self.assertEqual(held, [int(at == dflock.shard(key, 3)) for at in range(3)], key)
        self.assertEqual(len(client.stats()), 3)
        self.assertEqual(len(client.ping()), 3)

    def test_the_next_of_one_service_is_asked(self) -> None:
        """Behind two proxies, of which the first is killed: the lease goes on over the other one."""
        server = self.enter(Server(*GRACE))
        proxies = [self.enter(Proxy(server)) for _ in range(2)]
        client = dflock.Client(any_of=[proxy.address for proxy in proxies])
        for key in ("a", "my-job"):
            with client.lock(key, ttl=9) as lease:
                first = proxies[dflock.shard(key, 2)]
                other = proxies[1 - dflock.shard(key, 2)]
                before = other.count
                first.kill()
                until("it is renewed elsewhere", lambda: other.count > before)
                self.assertFalse(lease.lost.wait(0.3))
                # New ones begin there as well.
                with client.lock(key + "2", timeout=5), client.watch(key) as watch:
                    self.assertIsNotNone(next(watch))
                first.revive()
            server.until_free(key)

    def test_a_silent_server_of_one_service_is_passed_by(self) -> None:
        server = self.enter(Server())
        silent = self.enter(Scripted(lambda *request: None))
        client = dflock.Client(any_of=[silent.address, server.address, silent.address])
        begun = time.monotonic()
        for key in ("a", "my-job", "123456789"):
            with client.lock(key, timeout=0):
                pass
        self.assertLess(time.monotonic() - begun, 9)

    def test_a_unix_socket(self) -> None:
        place = self.enter(tempfile.TemporaryDirectory())
        path = os.path.join(place, "socket")
        self.enter(Server("--unix-socket", path))
        with dflock.Client(servers="unix:" + path).lock("k") as lease:
            self.assertEqual(lease.key, "k")

    @unittest.skipUnless(is_on_etcd(), "needs etcd")
    def test_a_leader_dies(self) -> None:
        """Two servers on one etcd, of which one leads: the lease goes on at the other one."""
        leader = self.enter(Server())
        standby = self.enter(Server(store=leader._store))
        client = dflock.Client(any_of=[leader.address, standby.address])
        with client.lock("k", ttl=30) as lease:
            for server in (leader.leader, leader):
                if server is not None:
                    server.end()
            until("the standby leads", lambda: any("this server leads" in line for line in list(standby.log)))
            with client.lock("j", timeout=LIMIT):
                self.assertFalse(lease.lost.is_set())
        standby.until_free("k", "j")


class Secrets(Case):
    def setUp(self) -> None:
        place = self.enter(tempfile.TemporaryDirectory())
        self.secret = pathlib.Path(place, "secret")
        self.secret.touch(0o600)
        self.secret.write_text("open sesame\n")

    def test_the_secret(self) -> None:
        server = self.enter(Server("--auth-token-file", str(self.secret)))
        for given in ({"auth_token_file": self.secret}, {"auth_token": "open sesame"}):
            with dflock.Client(servers=server.address, **given).lock("k"):  # type: ignore[arg-type]
                pass
        for given in ({}, {"auth_token": "wrong"}):
            with self.assertRaises(dflock.Refused) as refused:
                dflock.Client(servers=server.address, **given).lock("k").acquire()  # type: ignore[arg-type]
            self.assertEqual(refused.exception.word, "error_auth")

    def test_tls(self) -> None:
        files = ("--tls-cert", str(TLS / "cert.pem"), "--tls-key", str(TLS / "key.pem"))
        server = self.enter(Server(*files, KEEPS))
        client = dflock.Client(servers=server.address, tls_ca=TLS / "ca.pem", tls_name="localhost")
        with client.lock("k", ttl=6) as lease:
            self.assertFalse(lease.lost.wait(7))
            with self.assertRaises(dflock.Busy):
                client.lock("k", timeout=0.2).acquire()
            self.assertEqual(client.stats("k")["held"], 1)
        # Who gives up leaves the line, and holds nothing.
        waits = aio.Client(servers=server.address, tls_ca=TLS / "ca.pem", tls_name="localhost")

        async def story() -> None:
            async with waits.lock("k"):
                task = asyncio.ensure_future(waits.lock("k", ttl=600).acquire())
                await asyncio.get_running_loop().run_in_executor(
                    None, until, "it waits", lambda: client.stats("k")["waiters"] == 1
                )
                task.cancel()
                await asyncio.wait((task,))
                await asyncio.get_running_loop().run_in_executor(
                    None, until, "it has left", lambda: client.stats("k")["waiters"] == 0
                )

        asyncio.run(story())
        self.assertEqual(client.stats("k")["held"], 0)

    def test_certificates_that_are_refused(self) -> None:
        files = ("--tls-cert", str(TLS / "cert.pem"), "--tls-key", str(TLS / "key.pem"))
        server, plain = self.enter(Server(*files)), self.enter(Server())
        for address, given, words in (
            (server.address, {"tls": True}, "not signed by a trusted authority; see tls_ca"),
            (server.address, {"tls_ca": TLS / "ca.pem", "tls_name": "locks.example"}, "for another name; see tls_name"),
            (server.address, {}, "the server speaks TLS; see tls and tls_ca"),
            (plain.address, {"tls": True}, "TLS"),
        ):
            with self.subTest(words), self.assertRaises(dflock.Error) as error:
                dflock.Client(servers=address, patience=2, **given).lock("k", 0).acquire()  # type: ignore[arg-type]
            self.assertIn(words, str(error.exception))


class Scripts(unittest.TestCase):
    """Servers that are played."""

    def test_tokens_of_the_go_server(self) -> None:
        """Since 2.1 they begin with fences, and it does not say so."""
        answers = {"l": "ok 00000000000000ff0123456789abcdef 33", "name": "error", "n": "ok 33"}
        with Scripted(lambda verb, key, argument: answers.get(verb, "ok")) as server:
            for trust, fence in ((False, None), (True, 255)):
                with dflock.Client(servers=server.address, trust_fences=trust).lock("k") as lease:
                    self.assertEqual((lease.fence, lease.slot), (fence, None))
            for call in (
                lambda client: next(client.watch("k")),
                lambda client: client.lock("k", value="here").acquire(),
                lambda client: client.lock("k", shared=True).acquire(),
            ):
                answers.update(watch="error", value="error", rl="error")
                with self.assertRaises(dflock.NotSupported):
                    call(dflock.Client(servers=server.address))

    def test_a_server_that_does_not_lead(self) -> None:
        def follower(verb: str, key: str, argument: str) -> str:
            return {"ping": "ok", "name": "error"}.get(verb, "error_not_leader 192.0.2.1:6388")

        with Server() as server, Scripted(follower) as one, Scripted(follower) as two:
            client = dflock.Client(any_of=[one.address, two.address, server.address])
            for key in ("a", "my-job", "123456789"):
                for timeout in (0, 10):
                    with client.lock(key, timeout=timeout):
                        server.until_held(key)
            with self.assertRaises(dflock.Refused) as refused:
                dflock.Client(any_of=[one.address, two.address], patience=4).lock("k").acquire()
            self.assertEqual(refused.exception.word, "error_not_leader")

    def test_answers_that_are_none(self) -> None:
        for line in ("HTTP/1.1 400 Bad Request", "ok " + "x" * 70_000, "\x15\x03"):
            with self.subTest(line[:9]), Scripted(lambda *request: line) as server:
                with self.assertRaises(dflock.BadAnswer):
                    dflock.Client(servers=server.address, patience=1).lock("k").acquire()

    def test_a_full_server_is_no_reason_to_wait(self) -> None:
        with Server("--max-locks", "1") as server:
            client = dflock.Client(servers=server.address)
            with client.lock("a"), self.assertRaises(dflock.Refused) as refused:
                client.lock("b").acquire()
            self.assertEqual(refused.exception.word, "error_max_locks")


class Scene:
    """Two clients on one key, or on two keys in opposite orders, each behind a proxy of its own, through faults that come as
    they may. With settings that the guide calls safe they never hold it at the same time; and when all is well again, both
    get their turn."""

    TTL, MARGIN, FAULTS = 6, 1.0, 4

    def __init__(self, options: "tuple[str, ...]", seed: int, place: str) -> None:
        self.chance = random.Random(seed)
        self.server = Server(*options, "--shutdown-timeout", "1", state=True)
        self.proxies = [Proxy(self.server) for _ in range(2)]
        self.file = os.path.join(place, "alone")
        self.turns, self.two, self.told = [0, 0], 0, [f"seed {seed}"]
        self.end = threading.Event()
        keys = (("k",), ("k",)) if seed % 2 else (("a", "b"), ("b", "a"))
        self.threads = [threading.Thread(target=self.play, args=(who, keys[who]), daemon=True) for who in range(2)]

    def play(self, who: int, keys: "tuple[str, ...]") -> None:
        client = dflock.Client(servers=self.proxies[who].address, patience=2, margin=self.MARGIN)
        chance = random.Random(who)
        while not self.end.is_set():
            try:
                with client.locks(*keys, ttl=self.TTL) as leases, open(self.file, "w") as alone:
                    try:
                        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except OSError:
                        self.two += 1
                    self.turns[who] += 1
                    leases.lost.wait(chance.choice((0.05, 0.3, 8)))
            except dflock.Error:
                pass

    def fault(self) -> None:
        who, length, kind = self.chance.randrange(2), self.chance.uniform(0.1, 1.5), self.chance.randrange(8)
        proxy = self.proxies[who]
        self.told.append(f"{kind} at {who} for {length:.2f} s")
        if kind == 0:
            proxy.reset("client")
        elif kind == 1:
            proxy.reset("server")
        elif kind == 2:
            proxy.swallow_what_is_open()
        elif kind == 3:
            proxy.delay = length / 5
            self.end.wait(length)
            proxy.delay = 0
        elif kind == 4:
            proxy.kill()
            self.end.wait(length)
            proxy.revive()
        elif kind == 5:
            self.server.send(signal.SIGSTOP)
            self.end.wait(length * self.chance.choice((1, 4)))
            self.server.send(signal.SIGCONT)
        else:
            self.server.end(signal.SIGTERM if kind == 6 else signal.SIGKILL)
            self.end.wait(length)
            self.server.start_again()
        self.end.wait(length)

    def run(self) -> None:
        for thread in self.threads:
            thread.start()
        for _ in range(self.FAULTS):
            self.fault()
        before = list(self.turns)
        # Who waits on a connection that swallows would wait for the kernel to find out.
        for proxy in self.proxies:
            proxy.kill()
            proxy.revive()
        until(f"both have a turn: {self.told}", lambda: all(now > then for now, then in zip(self.turns, before)))
        self.end.set()
        for thread in self.threads:
            thread.join(LIMIT)
        for proxy in self.proxies:
            proxy.kill()
        self.server.__exit__()
        assert self.two == 0, f"two at once after {self.told}"


class Faults(unittest.TestCase):
    def test_two_never_hold_it_at_once(self) -> None:
        if is_on_etcd():
            self.skipTest("the server is restarted with its directory")
        failures: List[BaseException] = []

        def play(options: "tuple[str, ...]", seed: int) -> None:
            try:
                with tempfile.TemporaryDirectory() as place:
                    Scene(options, seed, place).run()
            except BaseException as error:
                failures.append(error)

        runs = int(os.environ.get("FAULT_RUNS", "6"))
        first = int(os.environ.get("FAULT_SEED", "0"))
        settings = ((KEEPS,), ("--disconnect-grace", "6"))
        threads = [
            threading.Thread(target=play, args=(settings[seed // 2 % 2], seed)) for seed in range(first, first + runs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]


if __name__ == "__main__":
    unittest.main()
