//! Cases that surprise people.

use rstest::rstest;
use testbed::{LIMIT, User};

use crate::bench::{Bench, GONE, LONG, PORT};

/// A shell does not fork for its last command: `lfp` is then the process that has the lock.
#[rstest]
#[case::last_command("bash", "/run/test/lfp lock ttyW0; /run/test/lfp unlock ttyW0")]
#[case::chain("bash", "/run/test/lfp lock ttyW0 && /run/test/lfp unlock ttyW0")]
#[case::subshell("bash", "(/run/test/lfp lock ttyW0; /run/test/lfp unlock ttyW0); exit $?")]
#[case::zsh("zsh", "/run/test/lfp lock ttyW0; /run/test/lfp unlock ttyW0")]
#[case::dash("sh", "/run/test/lfp lock ttyW0; exec /run/test/lfp unlock ttyW0")]
#[ignore = "needs namespaces: tests/run"]
fn a_shell_that_becomes_lfp_unlocks_its_own(#[case] shell: &str, #[case] line: &str) {
    let bench = Bench::served();
    let shell = bench.command(shell).args(["-c", line]).user(User::Alice);
    shell.no_input().run().expect(0);
    bench.assert_free();
}

/// The shell that began it is gone when it becomes `lfp`: another process has adopted it, and must not have
/// the lock, for that would last until the machine goes down.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn an_orphan_takes_nothing_for_the_process_that_adopted_it() {
    let bench = Bench::open();
    let orphan = "setsid sh -c '( while kill -0 $$; do sleep 0.01; done
                                  exec /run/test/lfp lock --direct ttyW0 >/tmp/said 2>&1 ) 2>/dev/null &'
                  until grep -s lfp: /tmp/said || test -e /run/lock/LCK..ttyW0; do sleep 0.01; done";
    let told = bench.shell(User::Root, orphan);
    assert!(told.said("the process that called lfp has ended"), "{told}");
    bench.assert_free();
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_typo_is_no_free_port() {
    let bench = Bench::open();
    let told = bench.look(User::Bob, &["who", "ttyW9"]).expect(66);
    let expected = "lfp: /dev/ttyW9: there is no such device; did you mean /dev/ttyW0?\n";
    assert_eq!(told.output(), expected);
    // But one that was pulled out while somebody had it is told of.
    bench.plant(User::Bob, "LCK..ttyW9", 1);
    let told = bench.look(User::Bob, &["who", "ttyW9"]).expect(0);
    assert!(told.said("/dev/ttyW9") && told.said("alive"), "{told}");
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn quiet_is_for_scripts() {
    let bench = Bench::open();
    let quiet = |words: &[&str]| {
        let end = bench.lfp(User::Bob, &[&["who", "-q"], words].concat()).run();
        assert_eq!(end.output(), "");
        end.code()
    };
    assert_eq!([quiet(&[PORT]), quiet(&["ttyW9", PORT]), quiet(&[])], [1, 1, 1]);
    let _holder = bench.holder(User::Alice);
    assert_eq!([quiet(&[PORT]), quiet(&["ttyW9", PORT]), quiet(&[])], [0, 0, 0]);
}

/// A planted lock file in `/tmp` that names another user's process makes nobody a holder.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_claim_of_a_strangers_is_no_lock() {
    let bench = Bench::open();
    let alices = bench.sleeper(User::Alice);
    let pid = alices.pid().to_string();
    bench.shell(User::Bob, &format!("printf '%10d\\n' {pid} >/tmp/LCK..ttyW0")).expect(0);
    assert_eq!(bench.lfp(User::Bob, &["who", "-q", PORT]).run().code(), 1, "it is free");
    let told = bench.look(User::Bob, &["who", PORT]);
    assert!(told.said("ignored") && !told.said("sleep"), "{told}");
    let words = ["wait", PORT, "--pid", &pid, "--timeout", "30"];
    bench.lfp(User::Alice, &words).run().expect(0);
}

#[rstest]
#[case::relative("cd /dev; /run/test/lfp who ./ttyW0")]
#[case::link_outside("ln -s /dev/ttyW0 /tmp/port; /run/test/lfp who /tmp/port")]
#[case::link_to_a_link(
    "ln -s ttyW0 /dev/gps; ln -s /dev/gps /tmp/port; cd /tmp; /run/test/lfp who ./port"
)]
#[case::nothing_named("/run/test/lfp who")]
#[ignore = "needs namespaces: tests/run"]
fn a_port_by_any_path(#[case] line: &str) {
    let bench = Bench::open();
    let holder = bench.holder(User::Alice);
    let told = bench.shell(User::Root, line).expect(0);
    assert!(told.said("/dev/ttyW0  ") && told.said(&holder.pid().to_string()), "{told}");
}

/// The new holder is told of programs that still use the port without a lock.
#[rstest]
#[case::lock(&["lock", PORT])]
#[case::wait(&["wait", "--timeout", "9", PORT])]
#[case::run(&["run", PORT, "--", "true"])]
#[ignore = "needs namespaces: tests/run"]
fn an_open_port_is_told_of(#[case] words: &[&str]) {
    let bench = Bench::open();
    let opener = bench.ready(User::Bob, "exec 3<>/dev/ttyW0; echo ready; read line");
    let end = bench.called(User::Root, &[&["--direct"], words].concat()).run().expect(0);
    let remark = format!("locked, but open without a lock in pid {} of bob, sh", opener.pid());
    assert!(end.said(&remark), "{end}");
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn an_unlocked_port_that_is_still_open_is_told_of() {
    let bench = Bench::open();
    let line = "exec 3<>/dev/ttyW0; /run/test/lfp --direct lock ttyW0; echo ready; exec sleep 1000";
    let holder = bench.ready(User::Bob, line);
    let pid = holder.pid().to_string();
    let end = bench.lfp(User::Root, &["--direct", "unlock", "--pid", &pid, PORT]).run().expect(0);
    assert!(end.said(&format!("unlocked, but still open in pid {pid} of bob")), "{end}");
    bench.assert_free();
}

/// gpsd, without its option for the foreground, forks, ends, and opens the port then.
#[rstest]
#[case::as_it_ends("exec 3<>/dev/ttyW0; sleep 1000 & echo $! >/tmp/daemon")]
#[case::afterwards(
    "setsid sh -c 'echo $$ >/tmp/daemon
     while grep -q \"^PPid:.$PARENT$\" /proc/$$/status; do :; done
     exec 3<>/dev/ttyW0; exec sleep 1000' & until test -s /tmp/daemon; do :; done"
)]
#[ignore = "needs namespaces: tests/run"]
fn a_command_that_goes_into_the_background_is_told_of(
    #[case] daemon: &str,
    #[values(&[][..], &["--direct"])] route: &[&str],
) {
    let bench = Bench::open().with_a_daemon();
    let line = format!("PARENT=$$; export PARENT; {daemon}");
    let words = [route, &["run", PORT, "--", "sh", "-c", &line]].concat();
    let end = bench.called(User::Alice, &words).run().expect(0);
    let pid = bench.text("/tmp/daemon");
    let remark = format!("unlocked, but still open in pid {} of alice, s", pid.trim());
    assert!(end.said(&remark), "{end}");
    bench.assert_free();
    let free = bench.called(User::Alice, &["run", PORT, "--", "true"]).run().expect(0);
    assert!(free.said("open without a lock"), "{free}");
}

/// Everybody sees that a getty or a login has the port, though its descriptors are root's.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_login_on_the_port_is_seen_by_all() {
    let bench = Bench::open();
    let line = "setsid --wait sh -c 'exec 3<>/dev/ttyW0; echo ready; exec sleep 1000'";
    let _login = bench.ready(User::Root, line);
    let told = bench.look(User::Bob, &["who", PORT]);
    assert!(told.said("root") && told.said("open") && told.said("sleep 1000"), "{told}");
    let end = bench.called(User::Bob, &["--direct", "lock", PORT]).run();
    assert!(end.said("locked, but open without a lock in pid"), "{end}");
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn free_ports_are_listed_with_their_names() {
    let bench = Bench::open();
    let made = "mkdir -p /dev/serial/by-id; ln -s ../../ttyW0 /dev/serial/by-id/usb-W; \
                ln -s ttyW0 /dev/gps";
    assert_eq!(bench.shell(User::Root, made).code(), 0);
    let told = bench.look(User::Bob, &["list", "--all"]);
    let lines: Vec<&str> = told.output().lines().collect();
    let [_, port, names, remark] = lines.as_slice() else { panic!("{told}") };
    let columns: Vec<&str> = port.split_whitespace().take(4).collect();
    assert_eq!(columns, [PORT, "-", "-", "free"], "{told}");
    assert!(names.contains("/dev/gps"), "{told}");
    // Bob does not see which ports the programs of others have open.
    assert!(remark.contains("as far as you may see") && remark.contains("sudo lfp list"), "{told}");
    let told = bench.look(User::Root, &["list", "--all"]);
    assert!(told.said("free") && !told.said("sudo"), "{told}");
    let _holder = bench.holder(User::Alice);
    let told = bench.look(User::Bob, &["list", "--all"]);
    assert!(!told.said("free") && told.said("alive"), "{told}");
}

/// On a terminal, a waiter is told the holder; a script reads nothing of it.
#[rstest]
#[case::wait(&["wait", "--timeout", LONG, PORT])]
#[case::run(&["run", "--timeout", LONG, PORT, "--", "true"])]
#[ignore = "needs namespaces: tests/run"]
fn on_a_terminal_a_waiter_is_told_the_holder(#[case] words: &[&str]) {
    let bench = Bench::open();
    let holder = bench.holder(User::Bob);
    let words = [&["--direct"], words].concat();
    let line = format!("/run/test/lfp {}; exit $?", words.join(" "));
    let shell = bench.command("sh").args(["-c", &line]);
    let mut waiting = shell.on_terminal().spawn();
    waiting.expect("/dev/ttyW0: waiting");
    waiting.expect(&format!("held by bob, pid {}, sleep 1000", holder.pid()));
    holder.kill();
    waiting.wait(LIMIT).expect(0);
    let end = bench.called(User::Root, &["--direct", "wait", "--timeout", "9", PORT]).run();
    assert_eq!((end.code(), end.output()), (0, ""));
}

/// The message does not look as if somebody else had it.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_shell_that_locks_twice_is_told_that_it_has_it() {
    let bench = Bench::listening();
    let line = "/run/test/lfp lock ttyW0; /run/test/lfp lock ttyW0; echo code $?; exec cat";
    let end = bench.shell(User::Alice, line);
    let told = "lfp: /dev/ttyW0: busy: locked already for the same process\n  held by alice, pid ";
    assert!(end.output().starts_with(told) && end.said("code 1\n"), "{end}");
}

/// As under `su -c`: the process that called lfp waits with the rights of root, and the user is not in the port's group.
#[rstest]
#[case::lock("lock")]
#[case::wait("wait --timeout 9")]
#[ignore = "needs namespaces: tests/run"]
fn a_caller_with_other_rights_is_named_and_the_group_too(#[case] command: &str) {
    let bench = Bench::listening();
    bench.shell(User::Root, "chgrp dialout /dev/ttyW0; chmod 660 /dev/ttyW0").expect(0);
    let line = format!(
        "setpriv --reuid {} --regid 1000 --clear-groups /run/test/lfp {command} ttyW0; exit $?",
        User::Alice.uid()
    );
    let end = bench.shell(User::Root, &line).expect(77);
    let said = [
        " (sh) belongs to root: you can lock and unlock for your own processes only; --pid names another one",
        "you may not read and write it; members of its group dialout may",
    ];
    assert!(said.iter().all(|text| end.said(text)), "{end}");
}

/// Nobody else could release it while the shell waits for itself.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_shell_does_not_wait_for_itself() {
    let bench = Bench::listening();
    let line = "/run/test/lfp wait ttyW0 && /run/test/lfp wait ttyW0; echo code $?";
    let end = bench.shell(User::Alice, line);
    assert!(end.said("code 1") && end.said("busy"), "{end}");
}

/// In a container that has only the service's socket, `lfp` sees no lock file: the shell waits for itself, in vain, and
/// keeps what it has.
#[rstest]
#[case::whole_seconds("1")]
#[case::a_fraction("0.9")]
#[ignore = "needs namespaces: tests/run"]
fn a_wait_in_vain_releases_no_earlier_lock(#[case] time: &str) {
    let bench = Bench::listening();
    let line = format!(
        "mount -t tmpfs tmpfs /run/lock; /run/test/lfp lock ttyW0; echo code $?; \
         /run/test/lfp wait --timeout {time} ttyW0; echo then $?; read line"
    );
    let words = ["--mount", "sh", "-c", &line];
    let mut shell = bench.command("unshare").args(words).spawn();
    shell.expect("code 0");
    shell.expect("then 75");
    assert_eq!(bench.locked_by("ttyW0"), Some(shell.pid()), "{}", shell.output());
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn several_ports_for_one_command() {
    let bench = Bench::open();
    assert_eq!(bench.shell(User::Root, "ln -s ttyW0 /dev/gps").code(), 0);
    let run = ["--direct", "run", "--absent", "ttyX1", "--also", PORT, "--also", "gps", "--"];
    let end = bench.lfp(User::Alice, &[&run[..], &["ls", "/run/lock"]].concat()).run().expect(0);
    assert!(end.said("LCK..ttyW0\nLCK..ttyX1\n"), "{end}");
    bench.assert_free();
    // The one that is taken last is somebody's: nothing is kept.
    bench.plant(User::Bob, "LCK..ttyX1", 1);
    for (timeout, code) in [(&[][..], 1), (&["--timeout", "0.1"], 75)] {
        let words = ["--direct", "run", "--absent", PORT, "-a", "ttyX1"];
        let end = bench.lfp(User::Alice, &[&words[..], timeout, &["true"]].concat()).run();
        let end = end.expect(code);
        assert!(end.said("/dev/ttyX1: "), "{end}");
        assert_eq!(bench.locks(), ["LCK..ttyX1"]);
    }
}

/// For a supervisor that minds the process number: the command is the process that was started.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_command_in_the_place_of_lfp() {
    let bench = Bench::served();
    let line = "echo $$; exec /run/test/lfp run --no-fork ttyW0 -- \
                sh -c 'echo $$; cat /run/lock/LCK..ttyW0; exit 9'";
    let end = bench.shell(User::Alice, line).expect(9);
    let pids: Vec<&str> = end.output().split_whitespace().collect();
    assert!(pids.len() == 3 && pids.iter().all(|pid| *pid == pids[0]), "{end}");
    bench.lfp(User::Bob, &["run", PORT, "--", "true"]).run().expect(0);
    bench.lfp(User::Alice, &["run", "--no-fork", PORT, "--", "no-such-command"]).run().expect(127);
    bench.assert_free();
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn changes_are_watched() {
    let bench = Bench::open();
    let mut watching = bench.lfp(User::Bob, &["who", "--watch", PORT]).spawn();
    watching.expect("nobody holds it");
    let holder = bench.holder(User::Alice);
    watching.expect("alive");
    holder.kill();
    watching.expect("stale");
    // It ends with the one who reads.
    let line = "/run/test/lfp list --watch | head -1";
    assert_eq!(bench.shell(User::Bob, line).code(), 0);
}

/// After the crash of somebody else's program, in a directory where files are their owners'.
#[rstest]
#[case::directly(&["--direct"])]
#[case::through_the_service(&[])]
#[ignore = "needs namespaces: tests/run"]
fn a_stale_lock_in_the_way_is_named_with_its_remedy(#[case] route: &[&str]) {
    let bench = Bench::open();
    let _service = bench.serve(User::Lfpd);
    bench.plant(User::Bob, "LCK..ttyW0", GONE);
    for words in [&["lock", PORT][..], &["run", PORT, "--", "true"]] {
        let end = bench.called(User::Alice, &[route, words].concat()).run().expect(1);
        for told in ["stale lock is in the way, ", "/LCK..ttyW0 (pid 4000000)", "as bob or root"] {
            assert!(end.said(told), "{told}: {end}");
        }
    }
}

/// A daemon that goes into the background takes its parent's lock along.
#[rstest]
#[case::directly(&["--direct"])]
#[case::through_the_service(&[])]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_is_handed_over(#[case] route: &[&str]) {
    let bench = Bench::open().with_a_daemon();
    let lfp = ["/run/test/lfp", &route.join(" ")].join(" ");
    let line = format!(
        "{lfp} lock ttyW0 || exit; sleep 1000 & {lfp} pass --to $! ttyW0 || exit
         cat /run/lock/LCK..ttyW0; echo $!; {lfp} unlock ttyW0; echo code $?
         {lfp} pass --to 4000000 --pid $! ttyW0; echo code $?; kill -KILL $!; exit 0"
    );
    let end = bench.shell(User::Alice, &line);
    let words: Vec<&str> = end.output().split_whitespace().collect();
    assert!(words.len() > 2 && words[0] == words[1], "{end}");
    assert!(end.said("code 1\n") && end.said("there is no process 4000000"), "{end}");
    assert!(end.said("code 77\n"), "{end}");
}

/// What is no port is not locked, and is told what it is.
#[rstest]
#[case::directory("shm", "a directory, not a serial port")]
#[case::regular_file("shm/file", "not a device")]
#[case::null("null", "the null device, not a serial port")]
#[ignore = "needs namespaces: tests/run"]
fn a_name_that_is_no_port_is_refused_with_what_it_is(#[case] name: &str, #[case] told: &str) {
    let bench = Bench::open();
    assert_eq!(bench.shell(User::Root, "mkdir -p /dev/shm; touch /dev/shm/file").code(), 0);
    let _service = bench.listen(User::Lfpd);
    for route in [&["--direct"][..], &[]] {
        let end = bench.called(User::Root, &[route, &["lock", name]].concat()).run().expect(77);
        assert!(end.said(&format!("it is {told}")), "{end}");
    }
}

/// The example of the library's documentation, as it stands there, with a real service.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_librarys_example_holds_a_port() {
    let layout = Bench::layout("0755", "lfpd:lfpd");
    let bench = Bench::of(layout.bring("hold", testbed::example("lfp", "hold")));
    let _service = bench.listen(User::Lfpd);
    let mut holding = bench.command("/run/test/hold").arg(PORT).user(User::Alice).spawn();
    holding.expect("/dev/ttyW0 is ours");
    let pid = holding.pid();
    assert_eq!(bench.locked_by("ttyW0"), Some(pid));
    let told = bench.command("/run/test/hold").arg(PORT).user(User::Bob).no_input().run();
    assert!(told.said(&format!("is in use: Some(Pid({pid})) Some(\"hold\")")), "{told}");
    holding.end_input();
    assert_eq!(holding.wait(LIMIT).code(), 0);
    bench.assert_free();
}

/// The example of the crate of locks finds a holder without a service.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_example_of_the_locks_names_the_holder_of_a_port() {
    let layout = Bench::layout("0755", "root:root");
    let bench = Bench::of(layout.bring("who", testbed::example("ttylock", "who")));
    let holder = bench.holder(User::Root);
    let named = bench.command("/run/test/who").arg(PORT).run().expect(0);
    assert!(named.said(&format!("ttyW0: Some(Pid({}))", holder.pid())), "{named}");
}

/// The library's guard: it holds, says who has the port, waits, and releases when it goes.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_guard_of_the_library_holds_a_port() {
    let layout = Bench::layout("0755", "lfpd:lfpd");
    let bench = Bench::of(layout.bring("guard", testbed::example("lfp", "guard")));
    let _service = bench.listen(User::Lfpd);
    let guard = |user, seconds: &str| {
        let words = ["/run/lfpd/lfpd.sock", PORT, seconds];
        bench.command("/run/test/guard").args(words).user(user)
    };
    let mut alice = guard(User::Alice, "0").spawn();
    alice.expect("holds /dev/ttyW0");
    assert_eq!(bench.locked_by("ttyW0"), Some(alice.pid()));
    // The holder is looked for during half a second, and is not named if that was not enough.
    bench.wait_for("the holder's name", || {
        let refused = guard(User::Bob, "0.1").no_input().run().expect(1);
        refused.said(&alice.pid().to_string())
    });
    let mut bob = guard(User::Bob, LONG).spawn();
    alice.end_input();
    assert_eq!(alice.wait(LIMIT).code(), 0);
    bob.expect("holds /dev/ttyW0");
    bob.end_input();
    assert_eq!(bob.wait(LIMIT).code(), 0);
    bench.assert_free();
}

/// Those in the line are shown, in text and in JSON.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn waiters_are_shown() {
    let bench = Bench::listening();
    let holder = bench.holder(User::Alice);
    let words = ["run", "--timeout", LONG, PORT, "--", "true"];
    let waiting = bench.lfp(User::Bob, &words).spawn();
    let waiter = bench.waiting_child(&waiting).to_string();
    let shown = |words: &[&str], text: &str| {
        bench.wait_for("the line", || bench.lfp(User::Alice, words).run().said(text));
    };
    shown(&["who", PORT], &format!("\n  waiting: pid {waiter} of bob\n"));
    shown(&["list"], &format!("\n  waiting: pid {waiter} of bob\n"));
    let json = format!("\"waiters\":[{{\"pid\":{waiter},\"uid\":1001,\"user\":\"bob\"}}]");
    shown(&["--json", "who", PORT], &json);
    holder.kill();
    assert_eq!(waiting.wait(LIMIT).code(), 0);
}

/// Root takes a port from its holder, with or without telling it first and giving it time.
#[rstest]
#[case::directly(&["--direct"])]
#[case::through_the_service(&[])]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_is_taken_away(#[case] route: &[&str]) {
    let bench = Bench::open().with_a_daemon();
    let line =
        "trap 'echo told' USR1; /run/test/lfp lock ttyW0; echo ready; while :; do sleep 0.1; done";
    let mut holder = bench.ready(User::Alice, line);
    let force = [route, &["unlock", "--force", PORT]].concat();
    bench.lfp(User::Bob, &force).run().expect(77);
    assert_eq!(bench.locked_by("ttyW0"), Some(holder.pid()));
    let words = [&force[..], &["--signal", "usr1", "--grace", "0.3"]].concat();
    bench.lfp(User::Root, &words).run().expect(0);
    holder.expect("told");
    bench.assert_free();
    let end = bench.lfp(User::Root, &force).run().expect(1);
    assert!(end.said("not locked"), "{end}");
}

/// While a process is stopped in the gate, no lock is released. The answer does not say that it is another process's lock.
#[rstest]
#[case::directly(&["--direct"])]
#[case::through_the_service(&[])]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_that_is_being_changed_is_said_to_be_held(#[case] route: &[&str]) {
    let bench = Bench::closed().with_a_daemon();
    let holder = bench.holder(User::Alice);
    let other = bench.sleeper(User::Alice);
    let (pid, to) = (holder.pid().to_string(), other.pid().to_string());
    let unlock = [&["--json"], route, &["unlock", "--pid", &pid, PORT]].concat();
    let pass = [&["--json"], route, &["pass", "--pid", &pid, "--to", &to, PORT]].concat();
    let inside = bench.in_the_gate();
    for words in [&unlock, &pass] {
        let end = bench.lfp(User::Root, words).run().expect(1);
        assert!(end.said("\"outcome\":\"busy\",\"device\":\"/dev/ttyW0\""), "{end}");
        assert!(end.said("another process is changing the lock: try again"), "{end}");
        assert_eq!(bench.locked_by("ttyW0"), Some(holder.pid()));
    }
    inside.kill();
    bench.lfp(User::Root, &unlock).run().expect(0);
    bench.assert_free();
}

/// A long job gives way when somebody wants the port.
#[rstest]
#[case::asked(&["ask", "--timeout", LONG, PORT])]
#[case::waited_for(&["run", "--timeout", LONG, PORT, "--", "true"])]
#[ignore = "needs namespaces: tests/run"]
fn a_command_yields(#[case] wanting: &[&str]) {
    let bench = Bench::listening();
    let script = "trap 'echo yielding; exit 3' TERM; echo ready; while :; do sleep 0.1; done";
    let words = ["run", "--yield-on", "TERM", PORT, "--", "sh", "-c", script];
    let mut job = bench.lfp(User::Alice, &words).spawn();
    job.expect("ready");
    bench.lfp(User::Bob, wanting).run().expect(0);
    let end = job.wait(LIMIT);
    assert!(end.code() == 3 && end.said("yielding"), "{end}");
    bench.assert_free();
    // Nobody yields, and nothing is taken.
    let holder = bench.lfp(User::Alice, &["run", PORT, "--", "sleep", LONG]).spawn();
    bench.sleep_with_the_lock();
    let end = bench.lfp(User::Bob, &["ask", "--timeout", "0.2", PORT]).run().expect(1);
    assert!(end.output().starts_with("lfp: /dev/ttyW0: pid "), "{end}");
    assert!(end.said("of alice, sleep 1000 does not yield: "), "{end}");
    holder.kill();
}

/// Without a service, no holder learns that somebody asks: that is said before the wait.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn without_a_service_it_is_said_that_nobody_yields() {
    let bench = Bench::open();
    let _holder = bench.holder(User::Alice);
    let mut asking = bench.lfp(User::Bob, &["ask", "--timeout", LONG, PORT]).spawn();
    asking.expect("without the service no holder can yield");
    asking.expect("to start the service");
}

/// There is nothing to release by force: the holder comes first.
#[rstest]
#[case::directly(&["--direct"])]
#[case::through_the_service(&[])]
#[ignore = "needs namespaces: tests/run"]
fn a_holder_by_flock_is_named_before_what_cannot_be_done(#[case] route: &[&str]) {
    let bench = Bench::open().with_a_daemon();
    let _holder = bench.ready(User::Alice, "flock /dev/ttyW0 -c 'echo ready; exec sleep 1000'");
    let force = [route, &["unlock", "--force", PORT]].concat();
    let end = bench.lfp(User::Root, &force).run().expect(1);
    assert!(end.output().starts_with("lfp: /dev/ttyW0: held by alice, pid "), "{end}");
    assert!(end.said("only the holder can end flock(2)") && !end.said("not locked"), "{end}");
}

/// Without a service, nobody can be seen waiting: the user of the option hears that.
#[rstest]
#[case::no_service(&[])]
#[case::not_asked(&["--direct"])]
#[ignore = "needs namespaces: tests/run"]
fn yield_on_without_a_service_is_said_to_have_no_effect(#[case] route: &[&str]) {
    let bench = Bench::open();
    let words = [route, &["run", "--yield-on", "TERM", PORT, "--", "echo", "ran"]].concat();
    let end = bench.lfp(User::Alice, &words).run();
    assert!(end.code() == 0 && end.said("ran"), "{end}");
    assert!(end.said("--yield-on has no effect") && end.said("to start the service"), "{end}");
    bench.assert_free();
}

/// Anybody may write any number into a lock file of his own where all may write the directory.
#[rstest]
#[case::directly(&["--direct"], 0)]
#[case::through_a_service_that_may_not_remove_it(&[], 77)]
#[ignore = "needs namespaces: tests/run"]
fn a_process_named_by_a_planted_file_is_not_signalled(#[case] route: &[&str], #[case] code: i32) {
    let bench = Bench::open().with_a_daemon();
    let innocent = bench.sleeper(User::Alice);
    let plant = || bench.plant(User::Bob, "LCK..ttyW0", innocent.pid());
    plant();
    let force = [route, &["unlock", "--force", "--signal", "KILL", PORT]].concat();
    let end = bench.lfp(User::Root, &force).run();
    assert!(bench.runs(innocent.pid()), "{end}");
    let pid = innocent.pid().to_string();
    let named = [&force[..], &["--pid", &pid]].concat();
    plant();
    let end = bench.lfp(User::Root, &named).run();
    assert!(bench.runs(innocent.pid()), "{end}");
    assert_eq!(end.code(), code, "{end}");
    let said = end.said("got no signal: no service has recorded its lock");
    assert_eq!(said, code == 0, "{end}");
}

/// A user who may not use force sends no signal either, not even to a process of that user.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn without_the_right_to_force_no_process_is_signalled() {
    let bench = Bench::listening();
    let holder = bench.sleeper(User::Bob);
    let pid = holder.pid().to_string();
    assert_eq!(bench.lfp(User::Bob, &["lock", "--pid", &pid, PORT]).run().code(), 0);
    let words = ["unlock", "--force", "--signal", "KILL", PORT];
    let end = bench.lfp(User::Bob, &words).run().expect(77);
    assert!(bench.runs(holder.pid()), "{end}");
    bench.lfp(User::Root, &words).run().expect(0);
    bench.wait_for("its end", || !bench.runs(holder.pid()));
}
