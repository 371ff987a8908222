//! `lfpd --watch-opens`: a process that holds a port open for a second without a lock is given one, and the second
//! comer is told that the port is busy. Real ports, real programs that lock nothing.

use rstest::rstest;
use testbed::{LFP, LFPD, Process, Sandbox, User, comes, steps};

use crate::machine::numbered;

const WATCH: &[&str] = &["--watch-opens"];

/// The service's own user as its unit would start it: it sees nobody's descriptors in `/proc`, and hears the kernel's word
/// alone. Root sees everybody's.
const OWN: User = User::LfpdWatching;

fn sandbox() -> Sandbox {
    Sandbox::layout()
        .port_with_mode("ttyW0", 0o660)
        .port_with_mode("ttyW1", 0o660)
        .installed()
        .enter()
}

/// The same with a service that watches, and ends with it.
fn watched_by(server: User) -> Sandbox {
    let sandbox = sandbox();
    std::mem::forget(sandbox.serve(server, WATCH));
    sandbox
}

/// `lfp lock` or `lfp unlock` for another process. 0: done; 1: busy.
fn lfp(sandbox: &Sandbox, verb: &str, holder: &Process<'_>) -> i32 {
    let words = [verb, "/dev/ttyW0", "--pid", &holder.pid().to_string()];
    sandbox.command(LFP).args(words).run().code()
}

fn wait_until_locked_by(sandbox: &Sandbox, port: &str, process: &Process<'_>) {
    assert!(comes(|| sandbox.locked_by(port) == Some(process.pid())), "its lock");
}

fn wait_until_free(sandbox: &Sandbox, port: &str) {
    assert!(comes(|| sandbox.locked_by(port).is_none()), "no lock");
}

/// A shell of Alice's that has done the first of its steps.
fn shell<'s>(sandbox: &'s Sandbox, its: &[&str]) -> Process<'s> {
    let mut shell = sandbox.command("sh").args(["-c", &steps(its)]).user(User::Alice).spawn();
    shell.expect("0.");
    shell
}

/// Everybody who opened a port before this call and is to be looked at has been looked at.
fn everybody_was_looked_at(sandbox: &Sandbox) {
    let later = shell(sandbox, &["exec 3<>/dev/ttyW1"]);
    wait_until_locked_by(sandbox, "ttyW1", &later);
    later.kill();
    wait_until_free(sandbox, "ttyW1");
}

#[rstest]
#[case::picocom(&["picocom", "--nolock", "-b", "9600", "/dev/ttyW0"])]
#[case::picocom_with_flock(&["picocom", "-b", "9600", "/dev/ttyW0"])]
#[case::shell(&["sh", "-c", "exec cat </dev/ttyW0"])]
#[ignore = "needs root: tests/run"]
fn a_program_without_locks_keeps_others_out(
    #[case] program: &[&str],
    #[values(User::Root, OWN)] server: User,
) {
    let sandbox = watched_by(server);
    let (words, other) = (&program[1..], sandbox.sleeper(User::Bob));
    let opener = sandbox.command(program[0]).args(words).user(User::Alice).spawn();
    wait_until_locked_by(&sandbox, "ttyW0", &opener);
    assert_eq!(lfp(&sandbox, "lock", &other), 1, "busy");
    let who = sandbox.command(LFP).args(["who", "/dev/ttyW0"]).user(User::Bob).run();
    assert!(who.said("LCK..ttyW0") && who.said("alice"), "{who}");
    opener.kill();
    wait_until_free(&sandbox, "ttyW0");
    assert_eq!(lfp(&sandbox, "lock", &other), 0, "free");
}

/// Off unless asked for: then a port that is merely open is anybody's.
#[test]
#[ignore = "needs root: tests/run"]
fn without_the_option_nothing_is_locked_for_anybody() {
    let sandbox = sandbox();
    let _daemon = sandbox.serve(OWN, &[]);
    let (_opener, other) = (shell(&sandbox, &["exec 3<>/dev/ttyW0"]), sandbox.sleeper(User::Bob));
    assert_eq!(lfp(&sandbox, "lock", &other), 0);
}

#[rstest]
#[ignore = "needs root: tests/run"]
fn a_process_that_closes_the_port_loses_the_lock(#[values(User::Root, OWN)] server: User) {
    let sandbox = watched_by(server);
    let mut brief = shell(&sandbox, &["exec 3<>/dev/ttyW0; exec 3>&-"]);
    everybody_was_looked_at(&sandbox);
    assert_eq!(sandbox.locked_by("ttyW0"), None, "it was open for a moment");
    assert!(brief.runs());

    let mut opener = shell(&sandbox, &["exec 3<>/dev/ttyW0", "exec 3>&-"]);
    wait_until_locked_by(&sandbox, "ttyW0", &opener);
    opener.go_on(1);
    wait_until_free(&sandbox, "ttyW0");
    assert!(opener.runs());
}

/// Where `/proc` shows it, one descriptor of two that is closed changes nothing.
#[test]
#[ignore = "needs root: tests/run"]
fn a_process_that_closes_one_of_two_descriptors_keeps_it() {
    let sandbox = watched_by(User::Root);
    let mut opener = shell(&sandbox, &["exec 3<>/dev/ttyW0 4<>/dev/ttyW0", "exec 3>&-"]);
    wait_until_locked_by(&sandbox, "ttyW0", &opener);
    opener.go_on(1);
    everybody_was_looked_at(&sandbox);
    assert_eq!(sandbox.locked_by("ttyW0"), Some(opener.pid()));
}

/// A locked port stays its holder's; the process that has it open gets the lock when the holder is gone.
#[rstest]
#[ignore = "needs root: tests/run"]
fn the_lock_of_another_is_waited_for(#[values(User::Root, OWN)] server: User) {
    let sandbox = watched_by(server);
    let other = sandbox.sleeper(User::Bob);
    assert_eq!(lfp(&sandbox, "lock", &other), 0);
    let opener = shell(&sandbox, &["exec 3<>/dev/ttyW0"]);
    everybody_was_looked_at(&sandbox);
    assert_eq!(sandbox.locked_by("ttyW0"), Some(other.pid()));
    assert!(is_shown_open(&sandbox, "read line"), "who has it open is shown");
    other.kill();
    wait_until_locked_by(&sandbox, "ttyW0", &opener);
}

/// A lock that its owner has given up, or taken himself, is no affair of the watch.
#[test]
#[ignore = "needs root: tests/run"]
fn a_lock_of_its_own_is_left_alone() {
    let sandbox = watched_by(OWN);
    let mut opener = shell(&sandbox, &["exec 3<>/dev/ttyW0", "exec 3>&-"]);
    wait_until_locked_by(&sandbox, "ttyW0", &opener);
    assert_eq!(lfp(&sandbox, "unlock", &opener), 0);
    assert_eq!(lfp(&sandbox, "lock", &opener), 0);
    opener.go_on(1);
    everybody_was_looked_at(&sandbox);
    assert_eq!(sandbox.locked_by("ttyW0"), Some(opener.pid()));
}

/// What may become of the lock of a process that has the port open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Forced,
    Passed,
    /// The service is killed, and comes again.
    Orphaned,
}

/// The lock is like any other: it is taken away by force, passed to a child, and there when the service was killed.
#[rstest]
#[ignore = "needs root: tests/run"]
fn the_lock_of_an_opener_is_like_any_other(
    #[values(Fate::Forced, Fate::Passed, Fate::Orphaned)] fate: Fate,
    #[values(User::Root, OWN)] server: User,
) {
    let sandbox = sandbox();
    let mut daemon = sandbox.serve(server, WATCH);
    let mut opener = shell(&sandbox, &["exec 3<>/dev/ttyW0", "exec 3>&-"]);
    let (child, other) = (sandbox.sleeper(User::Alice), sandbox.sleeper(User::Bob));
    wait_until_locked_by(&sandbox, "ttyW0", &opener);
    match fate {
        Fate::Forced => {
            sandbox.command(LFP).args(["unlock", "--force", "/dev/ttyW0"]).run().expect(0);
            assert_eq!(lfp(&sandbox, "lock", &other), 0);
            everybody_was_looked_at(&sandbox);
            assert_eq!(sandbox.locked_by("ttyW0"), Some(other.pid()));
        }
        Fate::Passed => {
            let [from, to] = [opener.pid(), child.pid()].map(|pid| pid.to_string());
            let pass = ["pass", "/dev/ttyW0", "--pid", &from, "--to", &to];
            sandbox.command(LFP).args(pass).run().expect(0);
            opener.go_on(1);
            everybody_was_looked_at(&sandbox);
            assert_eq!(sandbox.locked_by("ttyW0"), Some(child.pid()));
            assert_eq!(lfp(&sandbox, "lock", &other), 1);
        }
        Fate::Orphaned => {
            daemon.kill();
            std::fs::remove_file(sandbox.path(testbed::SOCKET)).unwrap();
            assert_eq!(sandbox.locked_by("ttyW0"), Some(opener.pid()));
            daemon = sandbox.serve(server, WATCH);
            assert_eq!(lfp(&sandbox, "lock", &other), 1);
            opener.kill();
            wait_until_free(&sandbox, "ttyW0");
        }
    }
    assert!(daemon.runs());
}

/// The port is there once more, under another path.
#[rstest]
#[ignore = "needs root: tests/run"]
fn a_port_that_is_opened_by_another_path_is_locked(
    #[values(User::Root, OWN)] server: User,
    #[values("/dev/ttyW9", "/tmp/node")] node: &str,
) {
    let sandbox = sandbox();
    let made = format!(": >{node} && mount --bind /dev/ttyW0 {node}");
    sandbox.shell(User::Root, &made).expect(0);
    let (_daemon, other) = (sandbox.serve(server, WATCH), sandbox.sleeper(User::Bob));
    let opener = shell(&sandbox, &[&format!("exec 3<>{node}")]);
    wait_until_locked_by(&sandbox, "ttyW0", &opener);
    assert_eq!(lfp(&sandbox, "lock", &other), 1);
}

/// A login waits on the line without keeping anybody from it.
#[test]
#[ignore = "needs root: tests/run"]
fn agetty_gets_no_lock() {
    let sandbox = watched_by(OWN);
    let _getty = sandbox.command("agetty").args(["--local-line", "ttyW0", "9600"]).spawn();
    assert!(comes(|| is_shown_open(&sandbox, "agetty")), "it is shown");
    everybody_was_looked_at(&sandbox);
    assert_eq!(sandbox.locked_by("ttyW0"), None);
}

/// What another user is told, who sees nobody's descriptors.
fn is_shown_open(sandbox: &Sandbox, program: &str) -> bool {
    let who = sandbox.command(LFP).args(["who", "/dev/ttyW0"]).user(User::Bob).run();
    who.output().lines().any(|line| line.contains(" open ") && line.contains(program))
}

/// A process that may not use the port, and was handed it open, keeps nobody from it.
#[test]
#[ignore = "needs root: tests/run"]
fn without_the_right_to_open_a_port_none_to_lock_it() {
    let sandbox = watched_by(OWN);
    let script = "exec 3<>/dev/ttyW0; exec setpriv --reuid=bob --regid=bob --clear-groups cat";
    let mut opener = sandbox.command("sh").args(["-c", script]).spawn();
    everybody_was_looked_at(&sandbox);
    assert!(opener.runs() && sandbox.locked_by("ttyW0").is_none());
}

/// Who opens a port, hands it to a child and ends leaves nothing but a number, which is soon another's.
#[test]
#[ignore = "needs root: tests/run"]
fn the_number_of_an_opener_is_not_the_opener() {
    let sandbox = watched_by(OWN);
    let line = "exec 3<>/dev/ttyW0; sleep 1000 & echo ready; read line";
    let opener = sandbox.ready(User::Alice, line);
    let number = opener.pid();
    opener.kill();
    let _bobs = numbered(&sandbox, "bob", &[number]);
    everybody_was_looked_at(&sandbox);
    assert_eq!(sandbox.locked_by("ttyW0"), None);
}

/// A process that had the port open before the service began gets the lock, too, if the service can see it.
#[test]
#[ignore = "needs root: tests/run"]
fn a_program_that_opened_the_port_before_the_service_is_found() {
    let sandbox = sandbox();
    let opener = shell(&sandbox, &["exec 3<>/dev/ttyW0"]);
    let _daemon = sandbox.serve(User::Root, WATCH);
    wait_until_locked_by(&sandbox, "ttyW0", &opener);
}

/// A port that is plugged in is watched from then on.
#[test]
#[ignore = "needs root: tests/run"]
fn a_port_that_comes_is_watched() {
    let sandbox = sandbox();
    let daemon = sandbox.serve(OWN, WATCH);
    let node =
        "mknod -m 660 /dev/ttyW9 c 240 9 && chgrp dialout /dev/ttyW9 && stat -c %i /dev/ttyW9";
    let inode: u64 = sandbox.shell(User::Root, node).output().trim().parse().expect("its number");
    let marks = format!("cat /proc/{}/fdinfo/*", daemon.pid());
    let mark = format!("fanotify ino:{inode:x} ");
    let is_watched = || sandbox.shell(User::Root, &marks).said(&mark);
    assert!(comes(is_watched), "it is watched");
}

/// The one great capability is given up before the first client is served.
#[test]
#[ignore = "needs root: tests/run"]
fn the_capability_is_given_up_entirely() {
    let sandbox = sandbox();
    let daemon = sandbox.serve(OWN, WATCH);
    let status = sandbox.text(&format!("/proc/{}/status", daemon.pid()));
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000\n")), "{status}");
    }
}

#[rstest]
#[case::without_a_capability(&["--listen", "unix:/run/lfpd/lfpd.sock"], User::Lfpd, ["CAP_SYS_ADMIN", "CAP_SYS_PTRACE"])]
#[case::without_a_socket(&[], User::Root, ["--listen"; 2])]
#[ignore = "needs root: tests/run"]
fn an_option_that_cannot_work_is_refused_with_a_reason(
    #[case] words: &[&str],
    #[case] user: User,
    #[case] why: [&str; 2],
) {
    let sandbox = sandbox();
    for (option, why) in ["--watch-opens", "--exclusive"].into_iter().zip(why) {
        let end = sandbox.command(LFPD).arg(option).args(words).user(user).on_terminal().run();
        assert!(end.code() == 1 && end.said(why), "{end}");
    }
}

/// The descriptors of the process that is examined.
const DESCRIPTORS: usize = 4000;

/// How many descriptors of a process were examined by the daemon's main thread, which serves clients, and by its other
/// threads. A descriptor's name is a number.
fn examinations(trace: &str) -> (usize, usize) {
    let main = trace.split_ascii_whitespace().next().unwrap_or_default();
    let is_number = |name: &str| name.parse::<u32>().is_ok();
    let all = trace.lines().filter(|line| line.split('"').nth(1).is_some_and(is_number));
    let (of_main, others): (Vec<&str>, Vec<&str>) = all.partition(|line| line.starts_with(main));
    (of_main.len(), others.len())
}

/// However many descriptors a process has, and whenever it closes a port, the others are served.
#[test]
#[ignore = "needs root: tests/run"]
fn looking_at_very_many_descriptors_keeps_nobody_waiting() {
    let sandbox = sandbox();
    let trace = "/run/test/trace";
    let words = ["-f", "-qq", "-e", "trace=statx", "-o", trace];
    let daemon = sandbox.command("strace").args(words).arg(LFPD).args(WATCH);
    let _daemon = sandbox.serve_by(daemon);
    let mut client = sandbox.client().expect("a daemon").greeted();
    let many = format!(
        "ulimit -n {} && exec setpriv --reuid=alice --regid=alice --groups=dialout bash -c \
         'for ((i = 0; i < {DESCRIPTORS}; i++)); do exec {{fd}}</dev/null; done; \
         exec {{fd}}<>/dev/ttyW0; exec {{other}}<>/dev/ttyW0; exec {{fd}}>&-; echo many.; read line; \
         exec {{other}}>&-; echo closed.; read line'",
        DESCRIPTORS + 96
    );
    let mut opener = sandbox.command("bash").args(["-c", &many]).spawn();
    opener.expect("many.");
    let mut noop_until = |is_locked: bool| {
        let is_served_so_far = || {
            assert!(client.ask("noop").starts_with("200 "));
            sandbox.locked_by("ttyW0").is_some() == is_locked
        };
        assert!(comes(is_served_so_far), "the lock or its end");
    };
    noop_until(true);
    opener.type_in("\n");
    opener.expect("closed.");
    noop_until(false);

    let (by_main, by_others) = examinations(&sandbox.text(trace));
    // For the lock, and for the second closing.
    assert!(by_others >= 2 * DESCRIPTORS, "{by_others}");
    assert_eq!(by_main, 0);
}
