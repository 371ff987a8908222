//! `lfp run`: the owner of the lock, what the command inherits, and what remains when any of the processes dies.

use rstest::rstest;
use testbed::{LIMIT, Process, User};

use crate::bench::{Bench, LONG, PORT};

/// Containers may have a network of their own without loopback. Nobody can listen there, so the files are used.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn run_works_in_a_network_without_loopback() {
    let bench = Bench::open();
    let words = ["--net", "/run/test/lfp", "run", PORT, "--", "cat", "/run/lock/LCK..ttyW0"];
    let end = bench.command("unshare").args(words).run().expect(0);
    let number = end.output().lines().last().unwrap_or_default().trim();
    assert!(number.parse::<u32>().is_ok(), "{end}");
    bench.assert_free();
}

/// The process that becomes the command is found below /proc.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn without_proc_run_says_what_is_missing() {
    let bench = Bench::open();
    let line = format!("mount -t tmpfs none /proc && exec /run/test/lfp run {PORT} -- true");
    let end = bench.command("unshare").args(["--mount", "sh", "-c", &line]).run().expect(71);
    assert!(end.said("lfp: run needs /proc, which is not mounted"), "{end}");
    bench.assert_free();
}

/// An ordinary user cannot record the pid namespace of the holder. Outside, its number means another process or none.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn run_in_a_container_without_a_service_keeps_its_lock() {
    let bench = Bench::open();
    assert_eq!(bench.shell(User::Root, "mkdir -p /run/lfpd").code(), 0);
    let lfp = "/run/test/lfp --direct";
    let command = format!("echo ready; cat; {lfp} unlock --pid $$ {PORT}");
    // A number that no process has here.
    let number = "echo 30000 >/proc/sys/kernel/ns_last_pid";
    let line = format!("{number} && {lfp} run {PORT} -- sh -c '{command}'");
    let words = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    let words = words.into_iter().chain(["--kill-child", "sh", "-c", &line]);
    let mut container = bench.command("unshare").args(words).user(User::Alice).spawn();
    container.expect("ready");
    let holder = bench.locked_by("ttyW0").expect("a lock");
    assert!(!bench.runs(holder), "its number means a process here");
    for user in [User::Alice, User::Root] {
        bench.lfp(user, &["--direct", "run", PORT, "--", "true"]).run().expect(1);
    }
    let told = bench.lfp(User::Root, &["clean"]).run();
    assert_eq!(bench.locked_by("ttyW0"), Some(holder), "{told}");
    // The command may release it: the flock on it is of its own pid namespace.
    container.end_input();
    container.wait(LIMIT).expect(0);
    bench.assert_free();
}

/// `lfp run` holds the lock by `flock(2)`, because this user cannot record it.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_command_may_pass_its_lock_without_a_service() {
    let bench = Bench::open();
    assert_eq!(bench.shell(User::Root, "mkdir -p /run/lfpd").code(), 0);
    let pass = format!("/run/test/lfp --direct pass --pid $$ --to $! {PORT}");
    let line = format!("sleep {LONG} & echo child $!; {pass}; echo code $?; cat");
    let words = ["--direct", "run", PORT, "--", "sh", "-c", &line];
    let command = bench.command("/run/test/lfp").args(words).user(User::Alice);
    let mut run = command.spawn();
    run.expect("code 0");
    let child = bench.locked_by("ttyW0").expect("a lock");
    assert!(run.output().contains(&format!("child {child}\n")), "{}", run.output());
    run.end_input();
    assert_eq!(run.wait(LIMIT).code(), 0);
    assert_eq!(bench.locked_by("ttyW0"), Some(child));
    bench.lfp(User::Alice, &["--direct", "run", PORT, "--", "true"]).run().expect(1);
}

/// What the command sees of itself is what it would see without us.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn nothing_leaks_to_the_command() {
    let bench = Bench::open();
    let _service = bench.serve(User::Lfpd);
    let look = "exec 2>&1; ls /proc/$$/fd; env | grep -v ^_= | sort; \
                grep -E '^Sig(Blk|Ign)' /proc/self/status | cut -c1-8,17-24; cat; umask; ulimit -a";
    let compare = "cd /tmp; sh -c \"$LOOK\" >bare; for before in '' '--timeout 9'; do \
                   /run/test/lfp run $before ttyW0 -- sh -c \"$LOOK\" >ours || exit; \
                   diff bare ours || exit; done; grep -c . bare";
    let sh = bench.command("sh").args(["-c", compare]).env("LOOK", look);
    let end = sh.user(User::Alice).no_input().run().expect(0);
    assert!(end.output().trim().parse::<u32>().is_ok_and(|lines| lines > 10), "{end}");
}

/// The lock outlives a wrapper that is killed, as long as the command is at work, and not longer.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_wrapper_is_killed() {
    let bench = Bench::served();
    let lfp = bench.lfp(User::Alice, &["run", PORT, "--", "sleep", LONG]).spawn();
    let sleeper = bench.sleep_with_the_lock();
    lfp.kill();
    assert!(bench.runs(sleeper));
    bench.lfp(User::Bob, &["run", PORT, "--", "true"]).run().expect(1);
    bench.shell(User::Root, &format!("kill -KILL {sleeper}")).expect(0);
    bench.wait_for("the end of the command", || !bench.path(&format!("/proc/{sleeper}")).exists());
    bench.lfp(User::Bob, &["run", PORT, "--", "true"]).run().expect(0);
    bench.assert_free();
}

/// A waiter that is killed never runs the command, and leaves no lock that is in the way.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_wrapper_is_killed_while_it_waits() {
    let bench = Bench::served();
    let holder = bench.holder(User::Bob);
    let words = ["run", "--timeout", LONG, PORT, "--", "touch", "/tmp/ran"];
    let lfp = bench.lfp(User::Alice, &words).spawn();
    let child = bench.waiting_child(&lfp);
    lfp.kill();
    bench.wait_for("the end of the waiting process", || !bench.runs(child));
    holder.kill();
    bench.lfp(User::Bob, &["run", PORT, "--", "true"]).run().expect(0);
    assert!(!bench.path("/tmp/ran").exists());
}

/// The service goes away while the command runs: the code still arrives, and the lock is stale.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_service_is_gone_at_the_end() {
    let bench = Bench::closed();
    let service = bench.serve(User::Lfpd);
    let words = ["run", PORT, "--", "sh", "-c", "echo started; read x; exit 4"];
    let mut lfp = bench.command("/run/test/lfp").args(words).user(User::Alice).spawn();
    lfp.expect("started");
    service.kill();
    lfp.end_input();
    let end = lfp.wait(LIMIT).expect(4);
    assert!(end.said("the lock is stale now"), "{end}");
    let told = bench.look(User::Bob, &["who", PORT]);
    assert!(told.said("stale"), "{told}");
}

/// The command runs as soon as the holder has released the port or died. A client that gave up does not get the port.
#[rstest]
#[case::in_line(Bench::listen as fn(&Bench, User) -> Process<'_>)]
#[case::asking_again(Bench::serve)]
#[ignore = "needs namespaces: tests/run"]
fn a_waiter_gets_the_port(#[case] start: fn(&Bench, User) -> Process<'_>) {
    let bench = Bench::closed();
    let _service = start(&bench, User::Lfpd);
    let holder = bench.holder(User::Bob);
    let words = ["run", "--timeout", LONG, PORT, "--", "sh", "-c"];
    let gives_up = bench.lfp(User::Alice, &[&words[..], &["touch /tmp/ran"]].concat()).spawn();
    bench.waiting_child(&gives_up);
    let lfp = bench.lfp(User::Alice, &[&words[..], &["exit 6"]].concat()).spawn();
    bench.waiting_child(&lfp);
    gives_up.signal("TERM");
    assert_eq!(gives_up.wait(LIMIT).code(), 128 + 15);
    holder.kill();
    lfp.wait(LIMIT).expect(6);
    assert!(!bench.path("/tmp/ran").exists());
    bench.assert_free();
}

/// A service that is killed and started again costs no waiter its wait.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_service_is_started_again_while_somebody_waits() {
    let bench = Bench::closed();
    let service = bench.listen(User::Lfpd);
    let holder = bench.holder(User::Bob);
    let words = ["run", "--timeout", LONG, PORT, "--", "sh", "-c", "exit 6"];
    let mut lfp = bench.lfp(User::Alice, &words).spawn();
    let is_shown = || bench.lfp(User::Bob, &["who", PORT]).run().said("waiting: ");
    bench.wait_for("lfp in the line", is_shown);
    service.kill();
    let _service = bench.listen(User::Lfpd);
    assert!(lfp.runs(), "{}", lfp.output());
    holder.kill();
    lfp.wait(LIMIT).expect(6);
    // What a killed service was writing lies there for a minute.
    assert_eq!(bench.locked_by("ttyW0"), None);
}

/// `lfp wait` is `lfp lock` that waits: the lock is the calling shell's.
#[rstest]
#[case::in_line(Bench::listen as fn(&Bench, User) -> Process<'_>)]
#[case::asking_again(Bench::serve)]
#[ignore = "needs namespaces: tests/run"]
fn a_shell_waits(#[case] start: fn(&Bench, User) -> Process<'_>) {
    let bench = Bench::closed();
    let _service = start(&bench, User::Lfpd);
    let holder = bench.holder(User::Bob);
    let line = "/run/test/lfp wait --timeout 1000 ttyW0; echo code $? $$; cat";
    let mut shell = bench.command("sh").args(["-c", line]).user(User::Alice).spawn();
    bench.wait_for("lfp", || !bench.children(shell.pid()).is_empty());
    holder.kill();
    shell.expect(&format!("code 0 {}", shell.pid()));
    assert_eq!(bench.locked_by("ttyW0"), Some(shell.pid()));
    shell.end_input();
    assert_eq!(shell.wait(LIMIT).code(), 0);
    // A service that has a line also removes the locks of the dead.
    let told = bench.look(User::Bob, &["who", PORT]);
    assert!(told.said("stale") || told.said("nobody"), "the lock is not the shell's: {told}");
}

/// A script that locks its port may be run by another one that has locked it already.
#[rstest]
#[case::at_once(&["run", PORT, "--", "/run/test/lfp", "run", PORT, "--", "echo", "inside"])]
#[case::in_time(&["run", PORT, "--", "sh", "-c", "/run/test/lfp run --timeout 20 /dev/ttyW0 -- echo inside && :"])]
#[ignore = "needs namespaces: tests/run"]
fn a_script_under_lfp_run_may_use_lfp_run_for_the_same_port(#[case] words: &[&str]) {
    let bench = Bench::listening();
    let end = bench.lfp(User::Alice, words).run().expect(0);
    assert!(end.said("inside"), "{end}");
    bench.assert_free();
    let holder = bench.lfp(User::Alice, &["run", PORT, "--", "sleep", LONG]).spawn();
    bench.wait_for("the lock", || bench.locked_by("ttyW0").is_some());
    bench.lfp(User::Alice, &["run", PORT, "--", "true"]).run().expect(1);
    holder.kill();
}

/// A claim that keeps nobody out does not take the port from such a script either.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_claim_of_a_strangers_does_not_part_a_script_from_its_lock() {
    let bench = Bench::listening();
    let sleeper = bench.sleeper(User::Alice);
    let pid = sleeper.pid();
    bench.shell(User::Bob, &format!("printf '%10d\\n' {pid} >/tmp/LCK..ttyW0")).expect(0);
    let words = ["run", PORT, "--", "/run/test/lfp", "run", PORT, "--", "echo", "inside"];
    let end = bench.lfp(User::Alice, &words).run().expect(0);
    assert!(end.said("inside"), "{end}");
}

/// A process that writes its own number has no record of a lock, and what it starts does not go past it.
#[rstest]
#[case::of_root(User::Root)]
#[case::of_a_user(User::Alice)]
#[ignore = "needs namespaces: tests/run"]
fn a_bare_number_of_an_ancestor_is_not_our_lock(
    #[values(false, true)] by_service: bool,
    #[case] user: User,
) {
    let bench = if by_service { Bench::open().with_a_daemon() } else { Bench::open() };
    let line = "echo $$ >/run/lock/LCK..ttyW0; /run/test/lfp run ttyW0 -- touch /tmp/ran; exit $?";
    bench.shell(user, line).expect(1);
    assert!(!bench.path("/tmp/ran").exists());
    assert_eq!(bench.locks(), ["LCK..ttyW0"]);
}

/// `echo 1 >/run/lock/LCK..ttyS0` is how an administrator reserves a console. Everything descends from that process. Here
/// it is the shell, which may also have taken a lock that is on record.
#[rstest]
#[case::bare("echo 1 >/run/lock/LCK..ttyW0", false)]
#[case::bare_beside_a_service("echo 1 >/run/lock/LCK..ttyW0", true)]
#[case::on_record("/run/test/lfp --direct lock --pid 1 ttyW0", true)]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_of_init_keeps_root_out(#[case] reserve: &str, #[case] by_service: bool) {
    let bench = if by_service { Bench::open().with_a_daemon() } else { Bench::open() };
    let line =
        format!("{reserve}; /run/test/lfp run ttyW0 -- touch /tmp/ran; echo code $?; exit 0");
    let words = ["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", &line];
    let end = bench.command("unshare").args(words).run().expect(0);
    assert!(end.said("code 1") && !bench.path("/tmp/ran").exists(), "{end}");
}

/// The lock of a container's process is on record, but the number counts there: to name it here is of no use, also later.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_lock_of_another_container_is_not_unlocked_by_a_number() {
    let bench = Bench::listening();
    let line = "/run/test/lfp --direct run /dev/ttyW0 -- sh -c 'echo ready; cat'";
    let words = ["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", line];
    let mut container = bench.command("unshare").args(words).spawn();
    container.expect("ready");
    let number = bench.locked_by("ttyW0").expect("a lock").to_string();
    for route in [&["--direct"][..], &[]] {
        for words in [&["unlock", "--force", PORT][..], &["unlock", "--pid", &number, PORT]] {
            let end = bench.called(User::Root, &[route, words].concat()).run().expect(1);
            assert!(
                end.said("lfp: /dev/ttyW0: not unlocked: the holder is in another container"),
                "{end}"
            );
            assert!(end.said("unlock the port there") && !end.said("try again"), "{end}");
        }
    }
    assert_eq!(bench.locked_by("ttyW0").map(|pid| pid.to_string()), Some(number));
}

/// With the service's socket and a pid namespace of its own: the command is named by its number there. An ordinary
/// user has that in a user namespace of his own, by his own number or as its root.
#[rstest]
#[case::of_root(User::Root, &[])]
#[case::of_a_user(User::Alice, &["--user", "--map-current-user"])]
#[case::of_a_user_as_root(User::Alice, &["--user", "--map-root-user"])]
#[ignore = "needs namespaces: tests/run"]
fn in_a_container_as_a_child(#[case] user: User, #[case] namespaces: &[&str]) {
    let bench = Bench::listening();
    let line = "/run/test/lfp run /dev/ttyW0 -- sh -c 'echo ready; cat'; echo code $?";
    let words = ["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", line];
    let container = bench.command("unshare").args(namespaces).args(words);
    let mut container = container.user(user).spawn();
    container.expect("ready");
    let holder = bench.locked_by("ttyW0").expect("a lock");
    assert!(bench.runs(holder));
    container.end_input();
    container.expect("code 0");
    bench.wait_for("its release", || bench.locks().is_empty());
}
