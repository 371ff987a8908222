//! Publish, read, replace and release with every single system call failing, losing its answer,
//! or being the last one before the process dies.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rstest::rstest;
use rustix::io::Errno;

use super::faults::{Fault, Trace, under};
use super::{EVERYTHING, NO_RENAME_FLAGS, Unknown, claim, judge, name};
use crate::{Attempt, Directory, Durability, Error, NewFile, Published, temporary};

const NO_LINKS_EITHER: Unknown = &[
    ("rename-noreplace", Errno::NOSYS),
    ("rename-exchange", Errno::OPNOTSUPP),
    ("linkat", Errno::PERM),
];

/// What any call may answer when it fails.
const ERRNOS: [Errno; 10] = [
    Errno::IO,
    Errno::NOSPC,
    Errno::ACCESS,
    Errno::PERM,
    Errno::INVAL,
    Errno::MFILE,
    Errno::INTR,
    Errno::NOSYS,
    Errno::NOENT,
    Errno::WOULDBLOCK,
];

/// What a call may answer although it was done: over a network, or interrupted. A repeated
/// request finds its own doing.
fn lost_answers(call: &str) -> Vec<Errno> {
    let repeated = match call {
        "create" | "linkat" => Errno::EXIST,
        "rename" | "rename-noreplace" | "unlinkat" => Errno::NOENT,
        _ => Errno::STALE,
    };
    vec![Errno::IO, Errno::INTR, Errno::TIMEDOUT, repeated]
}

const OLD: &str = "the old words\n";
const NEW: &str = "the new words\n";
const MODE: u32 = 0o444;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Publish,
    PublishLinked,
    PublishLast,
    Replace,
    ReplaceLinked,
    ReplaceAlone,
    Release,
    TryRelease,
    Remove,
    Withdraw,
}

impl Deed {
    /// The name was free before.
    fn is_first(self) -> bool {
        matches!(self, Self::Publish | Self::PublishLinked | Self::PublishLast)
    }

    fn links(self) -> bool {
        matches!(self, Self::PublishLinked | Self::ReplaceLinked)
    }

    fn replaces(self) -> bool {
        matches!(self, Self::Replace | Self::ReplaceLinked | Self::ReplaceAlone)
    }
}

/// What the deed said of itself.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Done,
    NotDone,
    Failed(Error),
}

fn on_disk(content: &str) -> NewFile<'_> {
    NewFile { durability: Durability::Disk, ..claim(content.as_bytes()) }
}

fn publish(directory: &Directory, content: &str) -> Option<Published> {
    directory.publish(&name(), &on_disk(content)).unwrap()
}

fn attempt(directory: &Directory, deed: Deed, old: Option<Published>) -> Result<Said, Error> {
    let said = |done| if done { Said::Done } else { Said::NotDone };
    if let (Deed::Withdraw, Some(published)) = (deed, old) {
        return Ok(said(directory.withdraw(&name(), &published)? == Attempt::Done(())));
    }
    if deed == Deed::PublishLinked {
        let linked = directory.linked(&on_disk(NEW))?;
        return Ok(said(linked.publish(&name())?));
    }
    if deed == Deed::PublishLast {
        let mut linked = directory.linked(&on_disk(NEW))?;
        return Ok(said(linked.publish_last(&name())?));
    }
    if deed == Deed::Publish {
        let publication = directory.publish(&name(), &on_disk(NEW))?;
        return Ok(said(publication.is_some()));
    }
    let Some(mut opened) = judge(directory)? else { return Ok(Said::NotDone) };
    if opened.content() != OLD.as_bytes() {
        return Ok(Said::NotDone);
    }
    Ok(said(match deed {
        Deed::Replace => {
            matches!(directory.replace(&name(), opened, &on_disk(NEW))?, Attempt::Done(_))
        }
        Deed::ReplaceLinked => {
            let linked = directory.linked(&on_disk(NEW))?;
            matches!(linked.replace(&name(), &mut opened)?, Attempt::Done(_))
        }
        Deed::ReplaceAlone => {
            let mut linked = directory.linked(&on_disk(NEW))?;
            matches!(linked.replace_alone(&name(), &mut opened)?, Attempt::Done(_))
        }
        Deed::Release => directory.release(&name(), opened, "t")? == Attempt::Done(()),
        Deed::TryRelease => directory.try_release(&name(), opened)? == Attempt::Done(()),
        Deed::Remove => {
            let (mut opened, prefix) = (opened, Some("t".as_ref()));
            let gone = directory.try_release_each(&[name()], &mut opened, prefix)?;
            matches!(gone, Attempt::Done(_))
        }
        Deed::Publish | Deed::PublishLinked | Deed::PublishLast | Deed::Withdraw => {
            unreachable!("done above")
        }
    }))
}

/// What is in the directory: each file's words and mode.
fn contents(path: &Path) -> BTreeMap<String, (String, u32)> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
        let words = std::fs::read_to_string(entry.path()).unwrap();
        (entry.file_name().into_string().unwrap(), (words, mode))
    });
    entries.collect()
}

/// Runs one deed in a fresh directory; tells what it said and what was there afterwards.
fn run(
    deed: Deed,
    fault: Fault,
    unknown: Unknown,
    check: impl FnOnce(&Trace<Said>, &Path, &Directory),
) -> Vec<&'static str> {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    let old = (!deed.is_first()).then(|| publish(&directory, OLD)).flatten();
    // A stranger's flock makes a release take the long way.
    let stranger = (deed == Deed::Release).then(|| judge(&directory).unwrap().unwrap());
    if let Some(stranger) = &stranger {
        assert!(crate::sys::try_lock_inode(&stranger.file.file).unwrap());
    }
    let trace =
        under(fault, unknown, None, || attempt(&directory, deed, old).unwrap_or_else(Said::Failed));
    drop(stranger);
    check(&trace, scratch.path(), &directory);
    trace.calls
}

/// The lock is as before, or as the deed makes it; never anything else.
fn assert_whole(deed: Deed, trace: &Trace<Said>, path: &Path) -> bool {
    let mut there = contents(path);
    let mut lock = there.remove("lock");
    if let (Deed::Release, Some((_, mode))) = (deed, &mut lock) {
        // The stand-in says the same as the lock it stands for.
        *mode &= !0o100;
    }
    let before = (!deed.is_first()).then(|| (OLD.to_owned(), MODE));
    let after = (deed.is_first() || deed.replaces()).then(|| (NEW.to_owned(), MODE));
    assert!(lock == before || lock == after, "{trace:?}: {lock:?}");
    lock == after
}

fn litter(path: &Path) -> Vec<String> {
    contents(path).into_keys().filter(|name| name != "lock").collect()
}

/// The steps whose failing leaves a second name behind: there is no other way to remove it.
fn is_last_cleaning(trace: &Trace<Said>, at: usize) -> bool {
    trace.calls.get(at) == Some(&"unlinkat")
}

/// The second creation is the one under the lock's name, or the third if the first was of a file with links.
fn is_made_in_place(deed: Deed, trace: &Trace<Said>, at: usize) -> bool {
    let before = trace.calls[..at].iter().filter(|call| **call == "create").count();
    trace.calls[at] == "create" && before == 1 + usize::from(deed.links())
}

#[rstest]
fn every_failing_call_leaves_the_old_lock_or_the_new_one_whole(
    #[values(
        Deed::Publish,
        Deed::PublishLinked,
        Deed::PublishLast,
        Deed::Replace,
        Deed::ReplaceLinked,
        Deed::ReplaceAlone,
        Deed::Release,
        Deed::TryRelease,
        Deed::Remove,
        Deed::Withdraw
    )]
    deed: Deed,
    #[values(EVERYTHING, NO_RENAME_FLAGS, NO_LINKS_EITHER)] unknown: Unknown,
    #[values(false, true)] lost: bool,
) {
    if deed.links() && unknown == NO_LINKS_EITHER {
        return;
    }
    let calls = run(deed, Fault::None, unknown, |trace, path, _| {
        assert_eq!(trace.result, Said::Done);
        assert!(assert_whole(deed, trace, path), "{trace:?}");
        assert_eq!(litter(path), Vec::<String>::new(), "{trace:?}");
    });
    assert!(calls.len() >= 3, "{calls:?}");
    let faults = calls.iter().enumerate().flat_map(|(at, call)| {
        let errnos = if lost { lost_answers(call) } else { ERRNOS.to_vec() };
        errnos.into_iter().map(move |errno| match lost {
            true => Fault::Lost { at, errno },
            false => Fault::Fail { at, errno },
        })
    });
    for fault in faults {
        let (Fault::Fail { at, .. } | Fault::Lost { at, .. }) = fault else { continue };
        if calls[at] == "unlinkat" && fault == (Fault::Fail { at, errno: Errno::NOENT }) {
            // Only true when somebody else has removed the file.
            continue;
        }
        run(deed, fault, unknown, |trace, path, _| {
            if lost && unknown == NO_LINKS_EITHER && is_made_in_place(deed, trace, at) {
                // Nobody can tell whose the empty file is; readers break it when it is old.
                let (words, mode) = &contents(path)["lock"];
                assert_eq!((words.as_str(), mode & !0o100), ("", MODE));
                return;
            }
            let changed = assert_whole(deed, trace, path);
            match &trace.result {
                Said::Done => assert!(changed, "{fault:?} {trace:?}"),
                // An unlink that answers wrongly, or with "no such file", has removed the lock.
                Said::NotDone | Said::Failed(_) => assert!(
                    !changed || (lost && is_last_cleaning(trace, at)),
                    "{fault:?} {trace:?}"
                ),
            }
            let left = litter(path);
            let excused = is_last_cleaning(trace, at) || lost && trace.calls[at] == "create";
            assert!(left.is_empty() || excused, "{fault:?} {trace:?} {left:?}");
            assert!(left.iter().all(|name| temporary::maker(name, "t").is_some()), "{left:?}");
        });
    }
}

#[rstest]
fn dying_before_any_call_leaves_a_lock_that_others_can_take(
    #[values(
        Deed::Publish,
        Deed::PublishLinked,
        Deed::PublishLast,
        Deed::Replace,
        Deed::ReplaceLinked,
        Deed::ReplaceAlone,
        Deed::Release,
        Deed::TryRelease,
        Deed::Remove,
        Deed::Withdraw
    )]
    deed: Deed,
    #[values(EVERYTHING, NO_RENAME_FLAGS)] unknown: Unknown,
) {
    let calls = run(deed, Fault::None, unknown, |_, _, _| {});
    let mut befores = 0;
    for at in 0..calls.len() {
        run(deed, Fault::Die { at }, unknown, |trace, path, directory| {
            assert!(trace.dead, "{trace:?}");
            let there = contents(path).remove("lock");
            let old = (OLD.to_owned(), MODE);
            let stand_in = (OLD.to_owned(), MODE | 0o100);
            let new = (NEW.to_owned(), MODE);
            // Where files cannot be exchanged, the stale lock's name may be vacant: it is free.
            let is_free = there.is_none() && (!deed.is_first() || at < calls.len());
            let whole = is_free
                || there == Some(new)
                || (!deed.is_first() && there == Some(old.clone()))
                || (deed == Deed::Release && there == Some(stand_in));
            assert!(whole, "at {at} of {trace:?}: {there:?}");
            befores += usize::from(there == Some(old) || there.is_none());
            if deed.replaces() && unknown == EVERYTHING {
                assert!(there.is_some(), "the name was vacant at {at} of {trace:?}");
            }
            let left = litter(path);
            assert!(left.len() <= 2 + usize::from(deed.links()), "{left:?}");
            assert!(left.iter().all(|name| temporary::maker(name, "t").is_some()), "{left:?}");
            assert_next_one_takes_it(directory);
        });
    }
    assert!(befores > 0);
}

/// A lock that is passed stands at every moment, also where files can neither change places nor have a second name.
#[rstest]
fn a_lock_that_is_passed_is_the_old_one_or_the_new_one(
    #[values(EVERYTHING, NO_RENAME_FLAGS, NO_LINKS_EITHER)] unknown: Unknown,
) {
    let calls = run(Deed::ReplaceAlone, Fault::None, unknown, |_, _, _| {});
    let mut left = Vec::new();
    for at in 0..calls.len() {
        run(Deed::ReplaceAlone, Fault::Die { at }, unknown, |trace, path, _| {
            left.push(assert_whole(Deed::ReplaceAlone, trace, path));
        });
    }
    assert!(left.is_sorted() && left.contains(&true), "{left:?} of {calls:?}");
}

/// As the holder is dead, the next one breaks what is there, or publishes.
fn assert_next_one_takes_it(directory: &Directory) {
    let claim = claim(b"the next one\n");
    let taken = match judge(directory).unwrap() {
        None => directory.publish(&name(), &claim).unwrap().is_some(),
        Some(opened) => {
            matches!(directory.replace(&name(), opened, &claim).unwrap(), Attempt::Done(_))
        }
    };
    assert!(taken);
    assert_eq!(judge(directory).unwrap().unwrap().content(), b"the next one\n");
}

/// In place there is a moment in which the lock is visible and not full; dying then leaves what
/// readers take for "somebody is about to write", and break when it is old.
#[test]
fn dying_while_creating_in_place_leaves_a_lock_that_is_short_or_private() {
    let calls = run(Deed::Publish, Fault::None, NO_LINKS_EITHER, |_, _, _| {});
    for at in 0..calls.len() {
        run(Deed::Publish, Fault::Die { at }, NO_LINKS_EITHER, |trace, path, directory| {
            let there = contents(path).remove("lock");
            let full = there.as_ref().is_none_or(|(words, _)| words == NEW);
            let empty =
                there.as_ref().is_some_and(|(words, mode)| words.is_empty() && *mode == MODE);
            assert!(full || empty, "at {at} of {trace:?}: {there:?}");
            assert_next_one_takes_it(directory);
        });
    }
}

#[test]
fn a_free_lock_costs_six_calls_to_take_and_three_to_withdraw() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    let claim = claim(NEW.as_bytes());
    let taking =
        under(Fault::None, EVERYTHING, None, || directory.publish(&name(), &claim).unwrap());
    // Made for its owner alone, and let in to others when it is complete: one call more.
    let calls = ["create", "write", "fstat", "fchmod", "rename-noreplace", "fstatat"];
    assert_eq!(taking.calls, calls);
    let Some(published) = taking.result else { panic!("it was free") };

    let reading = under(Fault::None, EVERYTHING, None, || judge(&directory).unwrap().unwrap());
    assert_eq!(reading.calls, ["fstatat", "openat", "fstat", "pread"]);

    let trace =
        under(Fault::None, EVERYTHING, None, || directory.withdraw(&name(), &published).unwrap());
    assert_eq!(trace.calls, ["flock", "fstatat", "unlinkat"]);
}

/// On NFS `flock(2)` is a write lock, which a file that is open for reading cannot have.
#[rstest]
fn a_flock_that_asks_for_writing_gets_it(#[values(true, false)] same: bool) {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    directory.publish(&name(), &NewFile { mode: 0o644, ..claim(OLD.as_bytes()) }).unwrap();
    let opened = judge(&directory).unwrap().unwrap();
    if !same {
        std::fs::remove_file(scratch.path().join("lock")).unwrap();
        directory.publish(&name(), &NewFile { mode: 0o644, ..claim(OLD.as_bytes()) }).unwrap();
    }
    let trace = under(Fault::Fail { at: 0, errno: Errno::BADF }, EVERYTHING, None, || {
        directory.try_release(&name(), opened).unwrap()
    });
    assert_eq!(trace.calls[..2], ["flock", "openat"]);
    assert_eq!(trace.result, if same { Attempt::Done(()) } else { Attempt::Changed });
    assert_eq!(scratch.path().join("lock").exists(), !same);
}
