"""What needs no server: the text of the protocol, addresses, settings, and times."""

from __future__ import annotations

import os
import pathlib
import pickle
import ssl
import tempfile
import unittest

import dflock
from dflock import _errors, _settings, _timing, _wire
from dflock._settings import Address
from dflock._wire import Grant, Holder, Kind
from support import TLS

TOKEN = "00000000000000ff0123456789abcdef"


class Requests(unittest.TestCase):
    def test_bytes(self) -> None:
        for request, text in (
            (_wire.PING, "ping _ _"),
            (_wire.HELLO, "ping hello lost leaves slots"),
            (_wire.STATS, "stats long _"),
            (_wire.key_stats(b"k"), "stats key k"),
            (_wire.auth(b"s3cret"), "auth _ s3cret"),
            (_wire.name("al@db[7] job"), "name _ al@db[7] job"),
            (_wire.name("a\nb\x7f"), "name _ a b "),
            (_wire.name("é" * 101), "name _ " + "é" * 100),
            (_wire.value("10.0.0.1:80"), "value _ 10.0.0.1:80"),
            (_wire.acquire(b"k", Kind(), 10, None), "l k 10"),
            (_wire.acquire(b"k", Kind(), 10, 60), "l k 10 60"),
            (_wire.acquire(b"k", Kind(shared=True), 0, 60), "rl k 0 60"),
            (_wire.acquire(b"k", Kind(limit=3), 10, 60), "sl k 10 3 60"),
            (_wire.acquire_all([b"a", b"b"], None), "al a b "),
            (_wire.acquire_all([b"a", b"b"], 5), "al a b 5"),
            (_wire.release(b"k", Kind(), TOKEN), f"r k {TOKEN}"),
            (_wire.release(b"k", Kind(shared=True), TOKEN), f"r k {TOKEN}"),
            (_wire.release(b"k", Kind(limit=1), TOKEN), f"sr k {TOKEN}"),
            (_wire.renew(b"k", Kind(shared=True), TOKEN, 33), f"n k {TOKEN} 33"),
            (_wire.renew(b"k", Kind(limit=2), TOKEN, 33), f"sn k {TOKEN} 33"),
            (_wire.watch(b"k", 0, None), "watch k 0"),
            (_wire.watch(b"k", 7, "01"), "watch k 7 01"),
        ):
            with self.subTest(text):
                self.assertEqual(request.decode().replace("\n", " "), text + " ")
                self.assertEqual(request.count(b"\n"), 3)


class Answers(unittest.TestCase):
    def test_grants(self) -> None:
        ours, none = frozenset(("fences", "lost", "slots")), frozenset()
        for line, many, abilities, limit, want in (
            (f"ok {TOKEN} 33", 1, ours, None, [Grant(TOKEN, 33, 255)]),
            (f"ok {TOKEN} 33", 1, none, None, [Grant(TOKEN, 33, None)]),
            (f"ok {TOKEN} 33 2", 1, ours, 3, [Grant(TOKEN, 33, 255, 2)]),
            (f"ok {TOKEN} 33", 1, ours, 3, [Grant(TOKEN, 33, 255, None)]),
            (f"ok {TOKEN} 33", 1, ours, 1, [Grant(TOKEN, 33, 255, 0)]),
            (f"ok {TOKEN} 33", 1, none, 1, [Grant(TOKEN, 33, None, None)]),
            ("ok a 1 b 2", 2, ours, None, [Grant("a", 1, None), Grant("b", 2, None)]),
            ("timeout", 1, ours, None, None),
        ):
            with self.subTest(line, limit=limit):
                self.assertEqual(_wire.read_grants(line, many, abilities, limit), want)
        for line in ("ok", "ok a", "ok a 0", "ok a b", "ok a -1", "ok a 1 x", "ok a 1 b 2", "ok  1", "ok a 1 ", "OK a 1", ""):
            with self.subTest(line), self.assertRaises(dflock.BadAnswer):
                _wire.read_grants(line, 1, ours)

    def test_the_fence_is_the_first_half(self) -> None:
        for token, fence in (
            ("f" * 32, 2**64 - 1),
            (TOKEN.upper(), None),
            (TOKEN[:-1], None),
            ("+" + TOKEN[1:], None),
            ("anything", None),
        ):
            grants = _wire.read_grants(f"ok {token} 33", 1, frozenset(("fences",)))
            assert grants is not None
            self.assertEqual(grants[0].fence, fence, token)

    def test_renewals(self) -> None:
        self.assertEqual((_wire.read_renewal("ok 9", 7), _wire.read_renewal("ok", 7)), (9, 7))
        with self.assertRaises(dflock.NotHeld):
            _wire.read_renewal("error", 7)

    def test_what_a_server_can_do(self) -> None:
        for line, words in (("ok fences lost", {"fences", "lost"}), ("ok", set()), ("error", set())):
            self.assertEqual(_wire.read_hello(line), words)
        with self.assertRaisesRegex(dflock.BadAnswer, "^an HTTP server: .* 6388$"):
            _wire.read_hello("HTTP/1.1 400 Bad Request")

    def test_refusals(self) -> None:
        for word, kind in (
            ("error", dflock.NotHeld),
            ("error_auth", dflock.Refused),
            ("error_max_locks", dflock.Refused),
            ("error_draining", dflock.Unreachable),
            ("error_not_leader 192.0.2.1:6388", dflock.Refused),
            ("what?", dflock.BadAnswer),
        ):
            error = _wire.refused(word)
            self.assertIsInstance(error, kind)
            self.assertIn(word.split()[0], str(error))

    def test_sights(self) -> None:
        self.assertEqual(_wire.read_sight("free 01"), ("01", None))
        holder = Holder(7, 1.5, 2, "al bo", None)
        self.assertEqual(_wire.read_sight("held 02 7 1500 2 al%20bo -"), ("02", holder))
        for line in ("held 02 7 1500 2 al", "held 02 x 1500 2 - -", "held 02 7 1500 2 %zz -", "free", "ok"):
            with self.subTest(line), self.assertRaises(dflock.BadAnswer):
                _wire.read_sight(line)


class Addresses(unittest.TestCase):
    def test_an_address_reads_back_as_its_full_form(self) -> None:
        for text, full in (
            ("127.0.0.1:6388", "127.0.0.1:6388"),
            ("localhost", "localhost:6388"),
            ("::1", "[::1]:6388"),
            ("[::1]", "[::1]:6388"),
            ("[fe80::1%eth0]:7000", "[fe80::1%eth0]:7000"),
            ("locks.example:65535", "locks.example:65535"),
            ("unix:/run/dflockd/socket", "unix:/run/dflockd/socket"),
        ):
            self.assertEqual(str(Address.parse(text)), full)
            self.assertEqual(str(Address.parse(full)), full)

    def test_a_bad_address(self) -> None:
        for text in (
            "", ":6388", "[]:6388", "unix:", "unix:/a\0b", "host:", "host:0", "host:65536", "host:+1", "host:-1", "host:1x",
            "[::1", "[::1]6388", "::1]:6388", "two words:1", "tab\t:1",
        ):  # fmt: skip
            with self.subTest(text), self.assertRaises(dflock.SettingsError):
                Address.parse(text)

    def test_all_clients_find_a_key_at_the_same_server(self) -> None:
        """As `dflock(1)` does, and the clients in Go and TypeScript."""
        self.assertEqual([dflock.shard(key, 3) for key in ("my-job", "a", "123456789", "schlüssel")], SHARDS)
        chosen = _settings.settings(any_of="a,b,c", environment={})
        self.assertEqual([str(it) for it in chosen.servers_of(b"a")], ["a:6388", "b:6388", "c:6388"])
        shards = _settings.settings(servers=["a", "b", "c"], environment={})
        self.assertEqual([str(it) for it in shards.servers_of(b"a")], ["a:6388"])


#: As CRC-32 of zlib says.
SHARDS = [1, 0, 2, 0]


class Settings(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.file = pathlib.Path(place.name, "secret")
        self.file.write_text(" of a file \n")

    def test_the_environment_completes_what_is_given(self) -> None:
        file = str(self.file)
        for given, environment, servers, is_one, secret in (
            ({}, {}, ["127.0.0.1:6388"], False, None),
            ({}, {"DFLOCK_SERVERS": "", "DFLOCK_ANY_OF": "", "DFLOCK_AUTH_TOKEN": ""}, ["127.0.0.1:6388"], False, None),
            ({}, {"DFLOCK_SERVERS": "a,b:1"}, ["a:6388", "b:1"], False, None),
            ({}, {"DFLOCK_ANY_OF": "a,b:1"}, ["a:6388", "b:1"], True, None),
            ({"servers": "c"}, {"DFLOCK_ANY_OF": "a"}, ["c:6388"], False, None),
            ({"any_of": ["c"]}, {"DFLOCK_SERVERS": "a"}, ["c:6388"], True, None),
            ({}, {"DFLOCK_AUTH_TOKEN": "x"}, ["127.0.0.1:6388"], False, b"x"),
            ({}, {"DFLOCK_AUTH_TOKEN": "x", "DFLOCK_AUTH_TOKEN_FILE": file}, ["127.0.0.1:6388"], False, b"of a file"),
            ({"auth_token": "y"}, {"DFLOCK_AUTH_TOKEN_FILE": file}, ["127.0.0.1:6388"], False, b"y"),
            ({"auth_token_file": self.file}, {"DFLOCK_AUTH_TOKEN": "x"}, ["127.0.0.1:6388"], False, b"of a file"),
        ):
            with self.subTest(given=given, environment=environment):
                made = _settings.settings(**given, environment=environment)
                self.assertEqual([str(it) for it in made.servers], servers)
                self.assertEqual((made.is_one_service, made.secret), (is_one, secret))

    def test_trust_in_fences(self) -> None:
        for text, trusts in (("1", True), ("yes", True), ("0", False), ("no", False), ("OFF", False), ("", False)):
            made = _settings.settings(environment={"DFLOCK_TRUST_FENCES": text})
            self.assertEqual(made.trust_fences, trusts, text)
        self.assertFalse(_settings.settings(trust_fences=False, environment={"DFLOCK_TRUST_FENCES": "1"}).trust_fences)

    def test_settings_that_cannot_be_used(self) -> None:
        empty, lines = self.file.with_name("empty"), self.file.with_name("lines")
        empty.write_text("\n")
        lines.write_text("a\nb\n")
        long = self.file.with_name("long")
        long.write_text("x" * (64 * 1024 + 1))
        for given, environment in (
            ({}, {"DFLOCK_SERVERS": "a", "DFLOCK_ANY_OF": "b"}),
            ({"servers": "a", "any_of": "b"}, {}),
            ({"servers": []}, {}),
            ({"servers": "a,,b"}, {}),
            ({"auth_token_file": empty}, {}),
            ({"auth_token_file": lines}, {}),
            ({"auth_token_file": long}, {}),
            ({"auth_token_file": self.file.with_name("none")}, {}),
            ({"auth_token": ""}, {}),
            ({"tls_ca": self.file}, {}),
            ({"tls_ca": self.file.with_name("none")}, {}),
            ({"patience": 0}, {}),
            ({"read_timeout": float("nan")}, {}),
            ({"margin": -1}, {}),
            ({"reclaim": -1}, {}),
        ):
            with self.subTest(given=given), self.assertRaises(dflock.SettingsError):
                _settings.settings(**given, environment=environment)

    def test_a_setting_that_does_not_exist(self) -> None:
        with self.assertRaisesRegex(TypeError, "no setting 'server'"):
            dflock.Client(server="a")  # type: ignore[call-arg]

    def test_tls(self) -> None:
        self.assertIsNone(_settings.settings(environment={}).tls)
        context = ssl.create_default_context()
        self.assertIs(_settings.settings(tls=context, environment={}).tls, context)
        for given in ({"tls": True}, {"tls_ca": TLS / "ca.pem"}, {"tls_name": "locks"}):
            made = _settings.settings(**given, environment={})
            assert made.tls is not None
            self.assertTrue(made.tls.check_hostname)

    def test_the_name_has_no_arguments(self) -> None:
        name = _settings.settings(environment={}).shown_name()
        self.assertRegex(name, rf"^\S+@\S+\[{os.getpid()}\] \S")


class Times(unittest.TestCase):
    def schedule(self, ttl: int, **given: float) -> _timing.Schedule:
        return _timing.Schedule(_settings.settings(environment={}, **given), ttl, 100.0)  # type: ignore[arg-type]

    def test_a_lease_is_counted_from_before_its_request(self) -> None:
        for ttl, given, interval, until, given_up in (
            (9, {}, 3.0, 109.0, 109.0),
            (600, {}, 23 / 3, 123.0, 123.0),
            (600, {"read_timeout": 600.0}, 200.0, 700.0, 700.0),
            (9, {"margin": 1.0}, 3.0, 109.0, 108.0),
            (9, {"margin": 100.0}, 3.0, 109.0, 106.0),
        ):
            with self.subTest(ttl=ttl, given=given):
                it = self.schedule(ttl, **given)
                self.assertAlmostEqual(it.renewal_interval, interval)
                self.assertAlmostEqual(it.renew_at, 100 + interval)
                self.assertEqual((it.until, it.given_up_at), (until, given_up))

    def test_a_broken_connection(self) -> None:
        it = self.schedule(600)
        it.broken(110)
        self.assertEqual((it.until, it.given_up_at), (700, 700))
        it.renewed(120, 600)
        self.assertEqual(it.given_up_at, 143)
        it = self.schedule(600, reclaim=5.0)
        it.broken(110)
        self.assertEqual((it.until, it.given_up_at), (700, 115))

    def test_patience(self) -> None:
        away, full = dflock.Unreachable("away"), dflock.Refused("error_max_waiters", "")
        patience = _timing.Patience(100.0)
        self.assertEqual([patience.pause(away, 90.0) for _ in range(6)], [0.05, 0.1, 0.2, 0.4, 0.8, 1.0])
        self.assertEqual((patience.pause(away, 99.5), patience.pause(away, 100.0)), (0.5, None))
        self.assertIsNone(patience.pause(full, 90.0))
        # A client that stood in line comes back, though others may have filled it.
        self.assertTrue(patience.was_in_line(away, 90.0, 200.0, 90.0))
        self.assertEqual((patience.pause(away, 100.0), patience.pause(full, 100.0)), (0.05, 0.1))
        # One that is refused at once was not in line.
        self.assertFalse(patience.was_in_line(away, 99.95, 200.0, 100.0))
        self.assertTrue(patience.was_in_line(away, 99.0, 200.0, 100.0))

    def test_a_server_that_does_not_lead_has_no_line(self) -> None:
        """A busy one may be slow to say that it does not lead. After that it is asked like any other."""
        patience, error = _timing.Patience(100.0, limit=4.0), _wire.refused("error_not_leader x")
        for later, was_in_line in ((0, False), (0.1, False), (3.9, False), (4, True), (0.05, False), (0.1, True)):
            self.assertEqual(patience.was_in_line(error, 0.0, 200.0, later), was_in_line, later)

    def test_parts_of_a_second(self) -> None:
        self.assertEqual([_wire.whole_seconds(time, "t") for time in (0, 0.001, 1, 1.5, 2_147_483_647)], [0, 1, 1, 2, 2_147_483_647])


class Errors(unittest.TestCase):
    def test_errors_travel_between_processes(self) -> None:
        for error in (
            dflock.Busy("k", 3.0),
            dflock.LeaseLost("k", dflock.Loss.FORKED),
            _wire.refused("error_auth"),
            _wire.refused("error"),
            _wire.refused("what?"),
            _errors.Silent(),
        ):
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again)), (type(error), str(error)))

    def test_a_failure_that_may_pass_is_told_before_others(self) -> None:
        passing, refused = _errors.Silent(), dflock.Refused("error_auth", "")
        self.assertIs(_errors.first_of(refused, passing), passing)
        self.assertIs(_errors.first_of(passing, refused), passing)
        self.assertFalse(_errors.is_passing(_errors.Permanent("certificate")))


if __name__ == "__main__":
    unittest.main()
