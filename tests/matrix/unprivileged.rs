//! A lock directory that only root may write (as newer systemd makes it), a service that is
//! not root, and ordinary users: nothing but the access that `etc/tmpfiles.d/lfpd.conf` grants.
//! What programs do there by themselves: `unmodified`. By LFP their users can lock.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rstest::rstest;
use testbed::{LIMIT, Sandbox, Session, User, until};

use crate::bench::PORT;

/// A sandbox whose lock directory is root's alone.
fn closed() -> Sandbox {
    Sandbox::with_lfpd().port("ttyW0").lock_dir("0755", "root:root").enter()
}

/// The same, with what the package's tmpfiles.d file grants, as shipped.
fn granted() -> Sandbox {
    Sandbox::layout().port("ttyW0").installed().enter()
}

fn lfpd(sandbox: &Sandbox) -> Session<'_> {
    Session::start(sandbox, User::Lfpd, &[], User::Root)
}

#[test]
#[ignore = "needs root: tests/run"]
fn without_the_grant_nothing_is_locked() {
    let sandbox = closed();
    let holder = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    assert_eq!(lfpd(&sandbox).lock(PORT, holder.pid()), 550);
    assert_eq!(sandbox.locks(), [""; 0]);
}

#[test]
#[ignore = "needs root: tests/run"]
fn the_grant_is_all_that_the_service_needs() {
    let sandbox = granted();
    let mut lfpd = lfpd(&sandbox);
    let sleeper = |user| sandbox.command("sleep").arg("1000").user(user).spawn();
    let (alice, bob) = (sleeper(User::Alice), sleeper(User::Bob));

    assert_eq!(lfpd.lock(PORT, alice.pid()), 200);
    let lock = std::fs::symlink_metadata(sandbox.path("/run/lock/LCK..ttyW0")).unwrap();
    assert_eq!((lock.uid(), lock.permissions().mode() & 0o7777), (User::Lfpd.uid(), 0o444));
    assert_eq!(lfpd.lock(PORT, bob.pid()), 450);
    assert_eq!(lfpd.unlock(PORT, bob.pid()), 450);
    assert_eq!(lfpd.unlock(PORT, alice.pid()), 200);
    assert_eq!(sandbox.locks(), [""; 0]);

    assert_eq!(lfpd.lock(PORT, bob.pid()), 200);
    bob.kill();
    assert_eq!(lfpd.lock(PORT, alice.pid()), 200, "bob's process is gone");
}

#[rstest]
#[case::of_a_group("0775", "root:uucp", User::Uucp)]
#[case::of_its_own("0755", "lfpd:lfpd", User::Lfpd)]
#[ignore = "needs root: tests/run"]
fn other_ways_into_the_directory_do_as_well(
    #[case] mode: &str,
    #[case] owner: &str,
    #[case] user: User,
) {
    let sandbox = Sandbox::with_lfpd().port("ttyW0").lock_dir(mode, owner).enter();
    let holder = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    let mut lfpd = Session::start(&sandbox, user, &[], User::Root);
    assert_eq!(lfpd.lock(PORT, holder.pid()), 200);
    assert_eq!(lfpd.unlock(PORT, holder.pid()), 200);
}

/// A shell of alice's asks for the lock in its own name, and becomes a program that could not
/// have made a lock file itself. Every other program then sees that lock.
#[test]
#[ignore = "needs root: tests/run"]
fn an_ordinary_user_gets_the_lock_by_lfp() {
    let sandbox = granted();
    let service = ["-l", "localhost", "-u", "lfpd", "127.0.0.1", "50001", "/run/test/lfpd"];
    let _service = sandbox.command("tcpsvd").args(service).spawn();
    let listens = || sandbox.command("ss").arg("-Hltn").run().said(":50001").then_some(());
    assert!(until(LIMIT, listens).is_some());

    let script = r#"
        exec 3<>/dev/tcp/127.0.0.1/50001
        read -r greeting <&3
        printf 'LOCK %s %s\r\n' /dev/ttyW0 "${1:-$$}" >&3
        read -r reply <&3
        echo "answer: $reply"
        exec 3>&-
        case $reply in 200*) exec picocom -b 9600 /dev/ttyW0 ;; esac
    "#;
    let ask = |user| sandbox.command("bash").args(["-c", script, "bash"]).user(user);
    let mut alice = ask(User::Alice).spawn();
    alice.expect("Terminal ready");
    assert!(alice.output().contains("answer: 200 Command okay."), "{}", alice.output());
    let lock = sandbox.read("/run/lock/LCK..ttyW0").unwrap();
    assert_eq!(String::from_utf8_lossy(&lock), format!("{:10}\n", alice.pid()));

    let end = sandbox.command("minicom").args(["-D", PORT]).user(User::Bob).run();
    assert!(end.code() == 1 && end.said("Device /dev/ttyW0 is locked."), "{end}");
    let end = ask(User::Bob).run();
    assert!(end.said("answer: 450 : File busy"), "{end}");
    let end = ask(User::Bob).arg("1").run();
    assert!(end.said("answer: 550 : Permission denied."), "{end}");
    let end = ask(User::Bob).arg(alice.pid().to_string()).run();
    assert!(end.said("answer: 550 : Permission denied."), "{end}");

    alice.kill();
    let mut bob = ask(User::Bob).spawn();
    bob.expect("Terminal ready");
}
