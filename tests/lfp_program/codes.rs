//! The table of exit codes in lfp(1).

use rstest::rstest;
use testbed::{LIMIT, User};

use crate::bench::{Bench, GONE, PORT};

/// Commands through the service, by a user who may not write the lock directory, on a free port.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_free_port() {
    let bench = Bench::served();
    let table: &[(&[&str], i32)] = &[
        (&["true"], 0),
        (&["sh", "-c", "exit 42"], 42),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["/etc/passwd"], 126),
        (&["no-such-command"], 127),
    ];
    for (command, code) in table {
        for before in [&["run", PORT, "--"][..], &["run", "--timeout", "5", PORT, "--"]] {
            let end = bench.lfp(User::Alice, &[before, command].concat()).run();
            assert_eq!(end.code(), *code, "{command:?}: {end}");
            bench.assert_free();
        }
    }
    let end = bench.lfp(User::Alice, &["run", PORT, "--", "no-such-command"]).run();
    assert!(end.said("lfp: no-such-command: command not found"), "{end}");
}

/// What `lfp` itself says about a port that another has.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_busy_port() {
    let bench = Bench::served();
    let holder = bench.holder(User::Bob);
    let bobs = holder.pid().to_string();
    let table: &[(&[&str], i32)] = &[
        (&["lock", PORT], 1),
        (&["lock", "-E", "9", PORT], 9),
        (&["lock", "--conflict-exit-code", "0", PORT], 0),
        (&["unlock", PORT], 1),
        (&["unlock", "-E", "9", PORT], 9),
        (&["run", PORT, "--", "true"], 1),
        (&["run", "-E", "255", PORT, "--", "true"], 255),
        (&["run", "--timeout", "0", PORT, "--", "true"], 75),
        (&["run", "--timeout", "0.1", PORT, "--", "true"], 75),
        (&["run", "-E", "9", "--timeout", ".1", PORT, "--", "true"], 75),
        (&["wait", "--timeout", "0", PORT], 75),
        (&["wait", "--timeout", "0.1", PORT], 75),
        (&["who", PORT], 0),
        (&["who", "-q", PORT], 0),
        (&["who", "ttyW9"], 66),
        (&["lock", "ttyW9"], 66),
        (&["who"], 0),
        (&["list"], 0),
        (&["list", "--all"], 0),
        (&["clean"], 0),
        // Not hers to lock or unlock for.
        (&["lock", "--pid", &bobs, PORT], 77),
        (&["unlock", "--pid", &bobs, PORT], 77),
        (&["--direct", "unlock", "--pid", &bobs, PORT], 77),
        (&["lock", "--pid", "99999999", PORT], 77),
        // Nobody listens.
        (&["--server", "/run/nobody.sock", "lock", PORT], 69),
        (&["--server", "127.0.0.1:1", "lock", PORT], 69),
        (&["--server", "127.0.0.1:1", "run", "--timeout", "9", PORT, "--", "true"], 69),
        (&["--server", "unix:/run/nobody.sock", "who", PORT], 69),
    ];
    for (words, code) in table {
        let end = bench.called(User::Alice, words).run();
        assert_eq!(end.code(), *code, "{words:?}: {end}");
        assert_eq!(bench.locked_by("ttyW0"), Some(holder.pid()), "{words:?}");
    }
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn without_a_service() {
    let bench = Bench::closed();
    let end = bench.called(User::Alice, &["lock", PORT]).run().expect(69);
    for words in [
        "/dev/ttyW0",
        "/run/lfpd/lfpd.sock: ",
        "127.0.0.1:50001: ",
        "to start the service: ",
        "--direct",
    ] {
        assert!(end.said(words), "{end}");
    }
    let end = bench.called(User::Alice, &["--direct", "lock", PORT]).run().expect(77);
    assert!(end.said("not permitted") && end.said("Permission denied"), "{end}");
    // The service's own user may.
    let pid = std::process::id().to_string();
    bench.called(User::Lfpd, &["--direct", "lock", "--pid", &pid, PORT]).run().expect(0);
}

/// What `lfp run` says in a sandbox, which has processes of its own, where no service locks the port.
const IN_A_CONTAINER: &str = "lfp: holders outside this container are not visible; give the container the service's \
                              socket, /run/lfpd/lfpd.sock\n";

/// Where everybody may write the lock directory, nothing need be installed but `lfp`.
#[rstest]
#[case::lock("/run/test/lfp lock ttyW0 && /run/test/lfp unlock ttyW0", "")]
#[case::wait("/run/test/lfp wait --timeout 5 ttyW0 && /run/test/lfp unlock ttyW0", "")]
#[case::run("/run/test/lfp run ttyW0 -- test -e /run/lock/LCK..ttyW0", IN_A_CONTAINER)]
#[case::run_in_time(
    "/run/test/lfp run --timeout 5 ttyW0 -- test -e /run/lock/LCK..ttyW0",
    IN_A_CONTAINER
)]
#[ignore = "needs namespaces: tests/run"]
fn in_an_open_directory_lfp_works_without_a_service(#[case] line: &str, #[case] said: &str) {
    let bench = Bench::open();
    let end = bench.shell(User::Alice, &format!("{line}; exit $?"));
    assert_eq!((end.code(), end.output()), (0, said), "{end}");
    bench.assert_free();
}

/// The memo's TCP port.
const TCP: &str = "127.0.0.1:50001";

/// Over TCP where the Unix socket is not there.
#[rstest]
#[case::as_a_daemon(User::Lfpd)]
#[case::from_a_super_server(User::Root)]
#[case::the_callers_own(User::Alice)]
#[ignore = "needs namespaces: tests/run"]
fn the_second_choice_is_tcp(#[case] user: User) {
    let bench = Bench::open();
    let _service = bench.activate(user, TCP);
    bench.lfp(User::Alice, &["run", PORT, "--", "sh", "-c", "exit 3"]).run().expect(3);
    bench.assert_free();
}

/// While the service does not listen, any user can listen on port 50001 and answer 200 to everything; also at the path
/// of the socket, if its directory is open to all.
#[rstest]
#[case::on_the_port(TCP)]
#[case::at_the_socket("/run/lfpd/lfpd.sock")]
#[ignore = "needs namespaces: tests/run"]
fn a_stranger_that_listens_is_not_believed(#[case] address: &str) {
    let bench = Bench::closed();
    bench.make_place(User::Lfpd, "0777");
    let _fake = bench.activate(User::Bob, address);
    let end = bench.lfp(User::Alice, &["run", PORT, "--", "true"]).run().expect(69);
    assert!(end.said(&format!("{address}: the listener is uid 1001")), "{end}");
    let told = bench.look(User::Alice, &["--json", "who", PORT]);
    assert!(told.said("\"service\":false"), "{told}");
    // Unless she says so; it may not write the locks either.
    let words = ["--server", address, "run", PORT, "--", "true"];
    bench.lfp(User::Alice, &words).run().expect(77);
}

/// Nor is a process that takes the connection, and leaves the port before `lfp` looks for the listener.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_stranger_that_leaves_the_port_is_not_believed() {
    let bench = Bench::closed();
    let script = "import os, socket, time\n\
        door = socket.socket()\n\
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
        door.bind(('127.0.0.1', 50001)); door.listen()\n\
        print('listens', flush=True)\n\
        client, _ = door.accept()\n\
        door.close(); print('taken', flush=True)\n\
        input(); client.sendall(b'220 x ready\\r\\n')\n\
        while client.recv(512): client.sendall(b'200 Command okay.\\r\\n')\n";
    let mut fake = bench.command("python3").args(["-c", script]).user(User::Bob).spawn();
    fake.expect("listens");
    let words = ["run", PORT, "--", "echo", "without a lock"];
    let lfp = bench.lfp(User::Alice, &words).spawn();
    fake.expect("taken");
    // Now a trusted service listens there.
    let _service = bench.activate(User::Lfpd, TCP);
    fake.type_in("\n");
    let end = lfp.wait(LIMIT);
    assert!(end.said("uid 1001"), "{end}");
    assert!(!end.said("without a lock"), "{end}");
}

/// Root, the service's own user, and the user to whom root gave the directory.
#[rstest]
#[case::a_super_server(User::Root)]
#[case::the_service(User::Lfpd)]
#[case::another_user_for_the_service(User::Bob)]
#[ignore = "needs namespaces: tests/run"]
fn the_services_socket_is_believed(#[case] user: User) {
    let bench = Bench::open();
    let _service = bench.serve(user);
    let told = bench.look(User::Alice, &["--json", "who", PORT]);
    assert!(told.said("\"service\":true"), "{told}");
}

/// One word and one sentence, whatever the command.
#[rstest]
#[case::busy("lock ttyW0", "busy", 1)]
#[case::timed_out("wait --timeout 0 ttyW0", "timed-out", 75)]
#[case::in_a_command("run ttyW0 -- true", "busy", 1)]
#[case::asked("ask --timeout 0 ttyW0", "busy", 1)]
#[case::not_held("unlock ttyW0", "not-held", 1)]
#[case::passed("pass --pid 1 --to 1 ttyW0", "not-permitted", 77)]
#[case::forced("unlock --force ttyW0", "not-permitted", 77)]
#[case::missing("who ttyW9", "no-such-device", 66)]
#[case::missing_to_lock("lock ttyW9", "no-such-device", 66)]
#[case::no_service("--server /run/nobody.sock list", "unreachable", 69)]
#[case::no_program("adopt no-such-program", "system-error", 71)]
#[case::no_wrapper("adopt --undo minicom", "system-error", 71)]
#[case::no_library("shim --ports -- true", "system-error", 71)]
#[case::not_found("run ttyX1 -- no-such-program", "not-found", 127)]
#[case::usage("lock", "usage", 64)]
#[case::left("clean", "not-permitted", 77)]
#[ignore = "needs namespaces: tests/run"]
fn every_failure_in_json_has_an_error_and_a_message(
    #[case] words: &str,
    #[case] error: &str,
    #[case] code: i32,
) {
    let bench = Bench::of(Bench::layout("1777", "root:root").port("ttyX1")).with_a_daemon();
    let _holder = bench.holder(User::Bob);
    if words == "clean" {
        // The service does not remove what it may not.
        bench.plant(User::Bob, "LCK..ttyX1", GONE);
    }
    let words: Vec<&str> = words.split(' ').collect();
    let end = bench.called(User::Alice, &[&["--json"], &words[..]].concat()).run().expect(code);
    assert_eq!(end.output().lines().count(), 1, "{end}");
    let word = format!("\"error\":\"{error}\",\"message\":\"");
    assert!(end.said(&word), "{word}: {end}");
}

/// An administrator's command says so, and with which words.
#[rstest]
#[case::adopt(&["adopt", "ls"], "sudo lfp adopt ls")]
#[case::files(&["adopt", "--files", "ls"], "sudo lfp adopt --files ls")]
#[case::undo(&["adopt", "--undo", "ls"], "sudo lfp adopt --undo ls")]
#[ignore = "needs namespaces: tests/run"]
fn a_user_may_not_adopt(#[case] words: &[&str], #[case] told: &str) {
    let bench = Bench::open();
    let made = "mount -t tmpfs -o mode=755 none /usr/local/bin; mkdir -p /run/lib/lfp
                echo >/run/lib/lfp/liblfp_preload.so
                printf '#!/bin/sh\\n# Made by lfp adopt.' >/usr/local/bin/ls";
    bench.shell(User::Root, made).expect(0);
    let end = bench.called(User::Alice, words).run().expect(77);
    let expected = format!(
        "lfp: not permitted\n  /usr/local/bin/ls: Permission denied\n  an administrator may: {told}\n"
    );
    assert_eq!(end.output(), expected);
}

/// Most often the name was misspelt. A device that is plugged in later is locked by its option.
#[rstest]
#[case::lock("lock ttyU0", "ttyU0")]
#[case::wait("wait ttyU0", "ttyU0")]
#[case::run("run ttyU0 -- touch /tmp/ran", "ttyU0")]
#[case::run_also("run ttyW0 --also ttyU0 -- touch /tmp/ran", "ttyU0")]
#[case::run_as_its_command("run --no-fork ttyU0 -- touch /tmp/ran", "ttyU0")]
#[ignore = "needs namespaces: tests/run"]
fn what_is_not_there_is_locked_only_by_the_option(#[case] words: &str, #[case] name: &str) {
    let bench = Bench::listening();
    let end = bench.shell(User::Root, &format!("/run/test/lfp {words}; exit $?")).expect(66);
    let told = format!(
        "lfp: /dev/{name}: there is no such device; did you mean /dev/ttyW0?\n  \
         --absent locks a device that is away and will come\n"
    );
    assert_eq!(end.output(), told);
    bench.assert_free();
    let json =
        bench.shell(User::Root, &format!("/run/test/lfp --json {words}; exit $?")).expect(66);
    assert!(json.said("\"outcome\":\"no-such-device\",\"device\":\"/dev/ttyU0\""), "{json}");
    assert!(!bench.path("/tmp/ran").exists());
    let line = format!("/run/test/lfp {}; echo code $?", words.replacen(' ', " --absent ", 1));
    assert_eq!(bench.shell(User::Root, &line).output(), "code 0\n");
    assert_eq!(bench.path("/tmp/ran").exists(), words.starts_with("run"));
}

/// The service and UNLOCK know of no such rule.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_device_that_was_pulled_out_is_unlocked() {
    let bench = Bench::listening();
    let line = "/run/test/lfp lock --absent ttyU0 && test -e /run/lock/LCK..ttyU0 && /run/test/lfp unlock ttyU0";
    assert_eq!(bench.shell(User::Alice, line).expect(0).output(), "");
    bench.assert_free();
}

#[rstest]
#[case::no_process(
    "--direct lock --pid 4000000 ttyW0",
    "lfp: there is no process 4000000: the next process that asks gets the lock\ncode 0\n"
)]
#[case::missing_in_json(
    "--direct --json lock --absent --pid 1 ttyU0",
    "{\"outcome\":\"done\",\"device\":\"/dev/ttyU0\",\"pid\":1,\"remarks\":[]}\ncode 0\n"
)]
#[case::there("--direct wait ttyW0", "code 0\n")]
#[case::behind_a_link("--direct lock modemW", "code 0\n")]
#[ignore = "needs namespaces: tests/run"]
fn what_may_surprise_is_remarked_on(#[case] words: &str, #[case] told: &str) {
    let bench = Bench::open();
    assert_eq!(bench.shell(User::Root, "ln -s ttyW0 /dev/modemW").code(), 0);
    let end = bench.shell(User::Root, &format!("/run/test/lfp {words}; echo code $?"));
    assert_eq!(end.output(), told, "{end}");
}

#[rstest]
#[case("lfp list")]
#[case("lfp --json list")]
#[case("lfp who ttyW0")]
#[case("lfp --direct clean --json")]
#[case("lfp --help")]
#[case("lfp run --help")]
#[case("lfp --version")]
#[case("lfp completions fish")]
#[case("lfpd --help")]
#[case("lfpd --version")]
#[ignore = "needs namespaces: tests/run"]
fn a_full_disk_is_not_silent(#[case] words: &str) {
    let bench = Bench::open();
    let line = format!("/run/test/{words} >/dev/full; echo code $?");
    let end = bench.shell(User::Alice, &line);
    assert!(end.said("code 74"), "{end}");
    assert!(end.said(": standard output: No space left on device"), "{end}");
    // A reader who has had enough is no failure.
    let line = format!("(/run/test/{words}; echo code $? >&2) | true");
    let end = bench.shell(User::Alice, &line);
    assert_eq!(end.output(), "code 0\n", "{end}");
}

/// There is room for the lock file of one port; that another process has the port is still the answer.
#[rstest]
#[case::lock("--direct lock", 1)]
#[case::wait("--direct wait --timeout 0", 75)]
#[ignore = "needs namespaces: tests/run"]
fn a_held_port_is_busy_on_a_full_disk_too(#[case] words: &str, #[case] code: i32) {
    let bench = Bench::open();
    let full = ["-t", "tmpfs", "-o", "size=4k,mode=1777", "none", "/run/lock"];
    bench.command("mount").args(full).run().expect(0);
    let held = bench.shell(User::Root, "/run/test/lfp --direct lock --pid 1 ttyW0; echo code $?");
    assert_eq!(held.output(), "code 0\n", "{held}");
    let line = format!("/run/test/lfp {words} ttyW0; echo code $?");
    let end = bench.shell(User::Alice, &line);
    assert!(end.said(&format!("code {code}\n")) && end.said("pid 1"), "{end}");
    assert!(!end.said("No space"), "{end}");
    let free = bench.shell(User::Alice, "/run/test/lfp --direct lock --absent ttyW9; echo code $?");
    assert!(free.said("No space left on device"), "{free}");
}
