//! A lock directory that only root may write (as newer systemd makes it), a service that is
//! not root, and ordinary users: nothing but the access that `etc/tmpfiles.d/lfpd.conf` grants.
//! The programs cannot lock by themselves there; by LFP their users can.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rstest::rstest;
use testbed::{LIMIT, Lfp, Sandbox, Service, User, until};

use crate::bench::{Bench, Came, Mark, PORT, Troupe};
use crate::programs::{self, Program};
use crate::scenes;
use crate::table::Table;

/// A sandbox whose lock directory is root's alone.
fn closed() -> Sandbox {
    let etc = concat!(env!("CARGO_MANIFEST_DIR"), "/etc/tmpfiles.d/lfpd.conf");
    Sandbox::layout()
        .port("ttyW0")
        .lock_dir("0755", "root:root")
        .bring("lfpd", env!("CARGO_BIN_EXE_lfpd"))
        .bring("tmpfiles.conf", etc)
        .enter()
}

/// The same, with what the package's tmpfiles.d file grants, as shipped.
fn granted() -> Sandbox {
    let sandbox = closed();
    let end = sandbox.command("systemd-tmpfiles").args(["--create", "/run/test/tmpfiles.conf"]);
    let end = end.run();
    assert_eq!(end.code(), 0, "{end}");
    sandbox
}

fn lfpd(sandbox: &Sandbox) -> Lfp<'_> {
    Service::run_by(User::Lfpd).start(sandbox)
}

#[test]
fn without_the_grant_nothing_is_locked() {
    let sandbox = closed();
    let holder = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    assert_eq!(lfpd(&sandbox).lock(PORT, holder.pid()), 550);
    assert_eq!(sandbox.locks(), [""; 0]);
}

#[test]
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
fn other_ways_into_the_directory_do_as_well(
    #[case] mode: &str,
    #[case] owner: &str,
    #[case] user: User,
) {
    let sandbox = Sandbox::layout()
        .port("ttyW0")
        .lock_dir(mode, owner)
        .bring("lfpd", env!("CARGO_BIN_EXE_lfpd"))
        .enter();
    let holder = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    let mut lfpd = Service::run_by(user).start(&sandbox);
    assert_eq!(lfpd.lock(PORT, holder.pid()), 200);
    assert_eq!(lfpd.unlock(PORT, holder.pid()), 200);
}

/// What a program does in a directory where it cannot write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Takes the port without any lock, and nobody can know.
    WithoutLock,
    /// The same, but leaves a lock file in /tmp, where no other program looks.
    LocksInTmp,
    /// Takes the port by flock(2), which needs no directory.
    Flocks,
    /// Ends without the port.
    Refuses,
}

static TABLE: Table = Table::new(
    "matrix-unprivileged.md",
    &[
        "Program",
        "Ordinary user, port free",
        "then LOCK",
        "`lfpd` has it for somebody else",
        "`lfpd`'s holder died",
    ],
    11,
);

/// Free port, held port, port of a dead holder: all as an ordinary user.
#[rstest]
#[case::minicom(programs::MINICOM, [Does::WithoutLock, Does::Refuses, Does::WithoutLock], "200")]
#[case::cu(programs::CU, [Does::Refuses; 3], "-")]
#[case::kermit(programs::KERMIT, [Does::Refuses; 3], "-")]
#[case::gensiot(programs::GENSIOT, [Does::Refuses; 3], "-")]
#[case::microcom(programs::MICROCOM, [Does::Refuses; 3], "-")]
#[case::busybox(programs::BUSYBOX, [Does::WithoutLock, Does::Refuses, Does::Refuses], "200")]
#[case::rxtx(programs::RXTX, [Does::Refuses; 3], "-")]
#[case::qt(programs::QT, [Does::LocksInTmp, Does::Refuses, Does::Refuses], "450")]
#[case::gammu(programs::GAMMU, [Does::Refuses; 3], "-")]
#[case::gnokii(programs::GNOKII, [Does::Refuses; 3], "-")]
#[case::picocom(programs::PICOCOM, [Does::Flocks; 3], "450")]
fn programs_of_ordinary_users(
    #[case] program: Program,
    #[case] expected: [Does; 3],
    #[case] answer: &str,
) {
    let sandbox = granted();
    let mut lfpd = lfpd(&sandbox);
    let program = Program { user: User::Bob, ..program };
    let holder = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    let (came, troupe) = tries(&sandbox, &program);
    let free = does(&sandbox, &program, &came);
    let code = match free {
        Does::Refuses => None,
        Does::WithoutLock | Does::LocksInTmp | Does::Flocks => Some(lfpd.lock(PORT, holder.pid())),
    };
    drop(troupe);

    if code != Some(200) {
        assert_eq!(lfpd.lock(PORT, holder.pid()), 200);
    }
    let (came, troupe) = tries(&sandbox, &program);
    drop(troupe);
    let held = does(&sandbox, &program, &came);
    if let Came::Ended(end) = came {
        scenes::refusal(&program, &end);
    }
    holder.kill();
    let (came, troupe) = tries(&sandbox, &program);
    drop(troupe);
    let dead = does(&sandbox, &program, &came);
    let locks = sandbox.locks();

    let [words, held_words, dead_words] = [free, held, dead].map(|it| match it {
        Does::WithoutLock => "starts, and locks nothing",
        Does::LocksInTmp => "starts, and locks in /tmp",
        Does::Flocks => "starts, with flock(2)",
        Does::Refuses => "refuses",
    });
    let code = code.map_or("-".to_owned(), |code| code.to_string());
    let row = [program.name, words, &code, held_words, dead_words];
    TABLE.add(row.map(String::from).into());
    assert_eq!([free, held, dead], expected, "{}", program.name);
    assert_eq!(code, answer, "{}", program.name);
    assert_eq!(locks, ["LCK..ttyW0"], "{} cannot touch lfpd's lock", program.name);
}

fn tries<'a>(sandbox: &'a Sandbox, program: &Program) -> (Came, Troupe<'a>) {
    let mark = if program.mark == Mark::Flock { Mark::Flock } else { Mark::Open };
    Bench::new(sandbox, &Program { mark, waits: None, ..*program }, PORT).attempt()
}

fn does(sandbox: &Sandbox, program: &Program, came: &Came) -> Does {
    match came {
        Came::Has if program.mark == Mark::Flock => Does::Flocks,
        Came::Has if sandbox.read("/tmp/LCK..ttyW0").is_some() => Does::LocksInTmp,
        Came::Has => Does::WithoutLock,
        Came::Ended(_) | Came::Waits(_) => Does::Refuses,
    }
}

/// A shell of alice's asks for the lock in its own name, and becomes a program that could not
/// have made a lock file itself. Every other program then sees that lock.
#[test]
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
