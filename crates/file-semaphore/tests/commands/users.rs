//! Several users of one lock: which of them may share it, which are in the way of others, and what the dead of one
//! leave to the others. Needs root and util-linux (setpriv).

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::programs::bring_sema;
use rstest::rstest;
use testbed::local::{End, NOBODY, Running, Scratch, run, start, until};

/// Numbers; nobody needs to have an account.
const ROOT: u32 = 0;
const ANN: u32 = 64_001;
const BOB: u32 = 64_002;
const GROUP: u32 = 64_010;

/// A directory that all may enter, and one for locks in it.
fn place(owner: u32, group: u32, mode: u32) -> Scratch {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    bring_sema(&scratch);
    fs::create_dir(scratch.at("locks")).unwrap();
    chown(scratch.at("locks"), Some(owner), Some(group)).unwrap();
    fs::set_permissions(scratch.at("locks"), PermissionsExt::from_mode(mode)).unwrap();
    scratch
}

/// `sema`, by one who is of the group besides one of its own, and has a umask that lets nobody in.
fn sema(scratch: &Scratch, user: u32, words: &str) -> Command {
    let mut command = scratch.command("setpriv");
    let script = format!("umask 077; exec ./sema {words}");
    command.args([format!("--reuid={user}"), format!("--regid={user}")]);
    command.args([format!("--groups={GROUP}"), "sh".into(), "-c".into(), script]);
    command
}

fn ran(scratch: &Scratch, user: u32, words: &str) -> End {
    run(&mut sema(scratch, user, words))
}

/// Holds on until it is killed, with its command.
fn reader(scratch: &Scratch, user: u32) -> Running {
    let child =
        start(&mut sema(scratch, user, "run -s locks/a sh -c 'echo ready; exec sleep 100'"));
    assert_eq!(child.lines(1), ["ready"]);
    child
}

/// As /run/lock is on newer systems.
#[test]
#[ignore = "needs root: tests/run"]
fn who_may_not_write_a_directory_hears_of_one_that_is_his() {
    let scratch = place(ROOT, ROOT, 0o755);
    for words in ["try locks/a", "acquire locks/a", "run locks/a true"] {
        let ran = ran(&scratch, ANN, words);
        let said = "sema: locks/a: you may not write the directory of the lock; ~/.local/state/lock is yours on every \
                    system (mkdir -p it once)\n";
        assert_eq!((ran.code, ran.err.as_str()), (3, said), "{ran:?}");
    }
}

#[rstest]
#[case::sticky(ROOT, ROOT, 0o1777, &[ANN, BOB, ROOT])]
#[case::open_to_all(ROOT, ROOT, 0o777, &[ANN, BOB, ROOT])]
#[case::setgid(ROOT, GROUP, 0o2775, &[ANN, BOB, ROOT])]
#[case::setgid_and_sticky(ROOT, GROUP, 0o3770, &[ANN, BOB, ROOT])]
#[case::group(ROOT, GROUP, 0o770, &[ANN, BOB, ROOT])]
#[case::private(ANN, ANN, 0o700, &[ANN, ROOT])]
#[ignore = "needs root: tests/run"]
fn users_share_and_exclude_each_other(
    #[case] owner: u32,
    #[case] group: u32,
    #[case] mode: u32,
    #[case] users: &[u32],
) {
    for first in users {
        let scratch = place(owner, group, mode);
        let child = reader(&scratch, *first);
        for other in users {
            let shares = ran(&scratch, *other, "run -n -s locks/a true");
            assert_eq!(shares.code, 0, "{first} then {other}: {shares:?}");
            let alone = ran(&scratch, *other, "run -n locks/a true");
            assert_eq!(alone.code, 1, "{first} then {other}: {alone:?}");
        }
        drop(child);
        for other in users.iter().rev() {
            let alone = ran(&scratch, *other, "run -w 60 locks/a true");
            assert_eq!(alone.code, 0, "{first} is dead, {other}: {alone:?}");
            let shares = ran(&scratch, *other, "run -n -s locks/a true");
            assert_eq!(shares.code, 0, "{first} is dead, {other}: {shares:?}");
        }
    }
}

#[rstest]
#[case::link("ln -s /etc locks/a.shared", "not a regular file")]
#[case::file("touch locks/a.shared", "not a regular file")]
#[case::closed("mkdir -m 700 locks/a.shared", "belongs to another user and is closed")]
#[ignore = "needs root: tests/run"]
fn an_unusable_directory_for_readers_is_refused_with_a_reason(
    #[case] plant: &str,
    #[case] words: &str,
) {
    let scratch = place(ROOT, ROOT, 0o1777);
    assert_eq!(scratch.sh(plant).code, 0);
    let refused = ran(&scratch, ANN, "run -s locks/a true");
    assert!(refused.code == 3 && refused.err.contains(words), "{refused:?}");
}

/// It may go: a process that waits for it is let in then.
#[rstest]
#[case::one_lock("", "a")]
#[case::slots("--slots 2 ", "a.2")]
#[ignore = "needs root: tests/run"]
fn a_stale_lock_of_another_user_is_waited_for(#[case] slots: &str, #[case] file: &str) {
    let scratch = place(ROOT, ROOT, 0o1777);
    let words = format!("pid={NOBODY}\ntimestamp=1\n");
    for name in ["locks/a", "locks/a.1", "locks/a.2"] {
        scratch.write(name, &words);
        chown(scratch.at(name), Some(ANN), Some(ANN)).unwrap();
    }
    for words in ["try", "run -n", "acquire -w 0.1", "run -w 0.1"] {
        let command = if words.starts_with("run") { " true" } else { "" };
        let refused = ran(&scratch, BOB, &format!("{words} {slots}locks/a{command}"));
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.err.contains("stale, of user 64001: process"), "{refused:?}");
    }
    let forced = ran(&scratch, BOB, &format!("release --force locks/{file}"));
    assert!(forced.code == 3 && forced.err.contains("not permitted"), "{forced:?}");
    assert_eq!(scratch.read(&format!("locks/{file}")), words);
    let waiter = start(&mut sema(&scratch, BOB, &format!("run {slots}locks/a echo in")));
    until("a waiter", || scratch.at("locks/a.queue").exists().then_some(()));
    fs::remove_file(scratch.at("locks").join(file)).unwrap();
    let let_in = waiter.end();
    assert_eq!((let_in.code, let_in.out.as_str()), (0, "in\n"), "{let_in:?}");
}
