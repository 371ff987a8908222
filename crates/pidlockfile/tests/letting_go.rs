//! Letting a lock go while others look at it: only the very file, and never past a breaker.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::File;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use pidlockfile::{Attempt, Claim, Directory, Durability, Found, Judged, Name, Published};
use rstest::rstest;

fn name() -> Name {
    Name::new("lock").unwrap()
}

fn publish(directory: &Directory, words: &str) -> Published {
    let claim = Claim {
        content: words.as_bytes(),
        mode: 0o644,
        prefix: "t".as_ref(),
        durability: Durability::Memory,
    };
    match directory.publish(&name(), &claim).unwrap() {
        Some(published) => published,
        None => panic!("the name was free"),
    }
}

fn judge(directory: &Directory) -> Judged {
    match directory.read(&name(), 64).unwrap() {
        Found::File(judged) => judged,
        other @ (Found::Nothing | Found::Obstacle(_)) => panic!("found {other:?}"),
    }
}

fn hold(path: &Path) -> Flock<File> {
    let file = File::open(path.join("lock")).unwrap();
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno).unwrap()
}

#[test]
fn try_release_removes_the_judged_file() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    publish(&directory, "a");
    let judged = judge(&directory);
    assert_eq!(directory.try_release(&name(), judged).unwrap(), Attempt::Done(()));
    assert!(matches!(directory.read(&name(), 64).unwrap(), Found::Nothing));
}

/// A process that was forked while it was held has the descriptor as long as it likes.
#[test]
fn a_dropped_lock_is_free_although_another_process_has_its_descriptor() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    publish(&directory, "a");
    let judged = judge(&directory);
    assert!(judged.try_hold().unwrap());
    let other = judge(&directory);
    assert!(!other.try_hold().unwrap());
    let _inherited = judged.try_clone().unwrap();
    drop(judged);
    assert!(other.try_hold().unwrap());
    // One that never had it takes it from nobody.
    drop(judge(&directory));
    assert!(!judge(&directory).try_hold().unwrap());
}

#[test]
fn try_release_steps_back_from_a_breaker_and_removes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    publish(&directory, "a");
    let breaker = hold(scratch.path());
    assert_eq!(directory.try_release(&name(), judge(&directory)).unwrap(), Attempt::Contended);
    assert!(matches!(directory.read(&name(), 64).unwrap(), Found::File(_)));
    drop(breaker);
    let removal = directory.try_release(&name(), judge(&directory)).unwrap();
    assert_eq!(removal, Attempt::Done(()));
}

#[rstest]
#[case::gone(None)]
#[case::a_fresh_one(Some("b"))]
#[case::a_fresh_one_with_the_same_words(Some("a"))]
fn neither_way_removes_another_file(#[case] successor: Option<&str>) {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    let published = publish(&directory, "a");
    let judged = judge(&directory);
    std::fs::remove_file(scratch.path().join("lock")).unwrap();
    let successor = successor.map(|words| publish(&directory, words));

    assert_eq!(directory.try_release(&name(), judged).unwrap(), Attempt::Changed);
    assert!(matches!(directory.withdraw(&name(), &published).unwrap(), Attempt::Changed));
    let there = scratch.path().join("lock").exists();
    assert_eq!(there, successor.is_some());
}

#[test]
fn withdraw_removes_what_was_published_and_hands_it_back_while_a_breaker_is_at_it() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    let published = publish(&directory, "a");
    let breaker = hold(scratch.path());
    let removal = directory.withdraw(&name(), &published).unwrap();
    assert_eq!(removal, Attempt::Contended, "a breaker was at it");
    assert!(scratch.path().join("lock").exists());
    drop(breaker);
    assert!(matches!(directory.withdraw(&name(), &published).unwrap(), Attempt::Done(())));
    assert!(!scratch.path().join("lock").exists());
}

/// A program with more facts about its lock than fit into it records them before anybody can break the lock.
#[test]
fn a_guarded_lock_is_not_broken_until_it_is_released() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap().guarding();
    let published = publish(&directory, "a");
    assert_eq!(directory.try_release(&name(), judge(&directory)).unwrap(), Attempt::Contended);
    let claim =
        Claim { content: b"b", mode: 0o644, prefix: "t".as_ref(), durability: Durability::Memory };
    let broken = directory.replace(&name(), judge(&directory), &claim).unwrap();
    assert!(matches!(broken, Attempt::Contended));
    published.let_go();
    let Attempt::Done(next) = directory.replace(&name(), judge(&directory), &claim).unwrap() else {
        panic!("nobody holds it");
    };
    // So is what takes the place of a stale one, until it is closed.
    assert_eq!(directory.try_release(&name(), judge(&directory)).unwrap(), Attempt::Contended);
    drop(next);
    let removal = directory.try_release(&name(), judge(&directory)).unwrap();
    assert_eq!(removal, Attempt::Done(()));
}
