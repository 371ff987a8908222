//! The contract of a lock directory, case by case: what may stand under a name, what is written,
//! what is left alone, and what hostile users can and cannot do.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};
use nix::unistd::{Uid, setfsuid};
use pidlockfile::{
    Attempt, Directory, Durability, Error, Found, Name, NewFile, Obstacle, OpenFile, Pid,
    Published, Step,
};
use rstest::rstest;
use tempfile::TempDir;

fn name() -> Name {
    Name::new("LCK..x").unwrap()
}

fn claim(content: &[u8]) -> NewFile<'_> {
    NewFile::new(content, "t")
}

fn with_mode(content: &[u8], mode: u32) -> NewFile<'_> {
    let mut claim = claim(content);
    claim.mode = mode;
    claim
}

fn scratch() -> (TempDir, Directory) {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    (scratch, directory)
}

fn publish(directory: &Directory, content: &[u8]) -> Published {
    publish_as(directory, &claim(content))
}

fn publish_as(directory: &Directory, claim: &NewFile<'_>) -> Published {
    match directory.publish(&name(), claim).unwrap() {
        Some(published) => published,
        None => panic!("the name was free"),
    }
}

fn judge(directory: &Directory) -> OpenFile {
    match directory.read(&name(), 64).unwrap() {
        Found::File(opened) => opened,
        other @ (Found::Nothing | Found::Obstacle(_)) => panic!("found {other:?}"),
    }
}

fn files(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

// Reading.

#[rstest]
#[case::empty(0, 64, 0)]
#[case::below(63, 64, 63)]
#[case::at(64, 64, 64)]
#[case::above(65, 64, 64)]
#[case::sparse_terabyte(1 << 40, 64, 64)]
#[case::sparse_with_a_large_limit(1 << 40, 65_536, 65_536)]
#[case::nothing_wanted(5, 0, 0)]
fn no_more_than_the_limit_is_read(#[case] size: u64, #[case] limit: usize, #[case] read: usize) {
    let (scratch, directory) = scratch();
    File::create(scratch.path().join(name().as_str())).unwrap().set_len(size).unwrap();
    let Found::File(opened) = directory.read(&name(), limit).unwrap() else { panic!("a file") };
    assert_eq!(opened.content(), vec![0; read]);
    assert_eq!(opened.status().size, size);
}

// What is written.

#[rstest]
#[case::nothing(b"".to_vec())]
#[case::a_pid(b"      1234\n".to_vec())]
#[case::binary(vec![0, 255, 10, 13, 0])]
#[case::long(vec![b'x'; 100_000])]
fn the_file_says_exactly_what_was_claimed(
    #[case] content: Vec<u8>,
    #[values(Durability::Memory, Durability::Disk)] durability: Durability,
) {
    let (scratch, directory) = scratch();
    let mut claim = claim(&content);
    claim.durability = durability;
    let publication = directory.publish(&name(), &claim).unwrap();
    let Some(published) = publication else { panic!("it was free") };
    let at = scratch.path().join(name().as_str());
    assert_eq!(std::fs::read(&at).unwrap(), content);
    let data = std::fs::metadata(&at).unwrap();
    assert_eq!((data.mode() & 0o7777, data.nlink()), (0o444, 1));
    assert_eq!(published.identity.inode, data.ino());
    assert_eq!(files(scratch.path()), [name().as_str()]);
}

#[test]
fn no_more_than_permission_bits_are_set() {
    let (scratch, directory) = scratch();
    directory.publish(&name(), &with_mode(b"", 0o107_644)).unwrap();
    let mode = std::fs::metadata(scratch.path().join(name().as_str())).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o644);
}

#[rstest]
#[case::slash("../outside")]
#[case::nul("a\0b")]
#[case::too_long(&"p".repeat(240))]
fn a_prefix_that_makes_no_file_name_is_refused(#[case] prefix: &str) {
    let (scratch, directory) = scratch();
    let error = directory.publish(&name(), &NewFile::new(b"", prefix)).unwrap_err();
    assert_eq!(error.step, Step::Prepare);
    assert_eq!(files(scratch.path()), Vec::<String>::new());
}

#[rstest]
#[case::absent("nowhere", ErrorKind::NotFound)]
#[case::a_file("file", ErrorKind::NotADirectory)]
fn a_directory_that_cannot_be_opened_is_an_error(#[case] path: &str, #[case] kind: ErrorKind) {
    let scratch = tempfile::tempdir().unwrap();
    File::create(scratch.path().join("file")).unwrap();
    let error = Directory::open(&scratch.path().join(path)).unwrap_err();
    assert_eq!((error.step, error.kind()), (Step::OpenDirectory, kind));
}

// Only the very file that was judged.

#[derive(Clone, Copy, Debug)]
enum Changed {
    Removed,
    SameWordsInANewFile,
    OtherWordsInPlace,
    /// Within one tick of the file system's clock.
    OtherWordsAtTheSameTime,
    MoreWordsInPlace,
    Touched,
}

fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1)
}

fn change(changed: Changed, at: &Path) {
    let open = || OpenOptions::new().append(true).open(at).unwrap();
    match changed {
        Changed::Removed => std::fs::remove_file(at).unwrap(),
        Changed::SameWordsInANewFile => {
            let new = at.with_file_name("new");
            std::fs::copy(at, &new).unwrap();
            std::fs::rename(&new, at).unwrap();
        }
        Changed::OtherWordsInPlace => std::fs::write(at, "new").unwrap(),
        Changed::OtherWordsAtTheSameTime => {
            std::fs::write(at, "new").unwrap();
            open().set_modified(long_ago()).unwrap();
        }
        Changed::MoreWordsInPlace => open().write_all(b"more").unwrap(),
        Changed::Touched => open().set_modified(SystemTime::now()).unwrap(),
    }
}

#[rstest]
fn a_file_that_changed_since_it_was_judged_is_neither_broken_nor_released(
    #[values(
        Changed::Removed,
        Changed::SameWordsInANewFile,
        Changed::OtherWordsInPlace,
        Changed::OtherWordsAtTheSameTime,
        Changed::MoreWordsInPlace,
        Changed::Touched
    )]
    changed: Changed,
) {
    let (scratch, directory) = scratch();
    let at = scratch.path().join(name().as_str());
    // The user that runs this may change it in place.
    let published = publish_as(&directory, &with_mode(b"old", 0o644));
    published.file.set_modified(long_ago()).unwrap();
    let [to_break, to_release, to_try] = [(), (), ()].map(|()| judge(&directory));
    change(changed, &at);
    let (before, all) = (std::fs::read(&at).ok(), files(scratch.path()));

    let breaking = directory.replace(&name(), to_break, &claim(b"mine")).unwrap();
    assert!(matches!(breaking, Attempt::Changed));
    assert_eq!(directory.release(&name(), to_release, "t").unwrap(), Attempt::Changed);
    assert_eq!(directory.try_release(&name(), to_try).unwrap(), Attempt::Changed);
    if matches!(changed, Changed::Removed | Changed::SameWordsInANewFile) {
        let withdrawal = directory.withdraw(&name(), &published).unwrap();
        assert!(matches!(withdrawal, Attempt::Changed), "{withdrawal:?}");
    }
    assert_eq!((std::fs::read(&at).ok(), files(scratch.path())), (before, all));
}

// Letting go.

/// A process that was forked while it was held has the descriptor as long as it likes.
#[test]
fn a_dropped_lock_is_free_although_another_process_has_its_descriptor() {
    let (_scratch, directory) = scratch();
    publish(&directory, b"a");
    let opened = judge(&directory);
    assert!(opened.try_hold().unwrap());
    let other = judge(&directory);
    assert!(!other.try_hold().unwrap());
    let _inherited = opened.try_clone().unwrap();
    drop(opened);
    assert!(other.try_hold().unwrap());
    // One that never had it takes it from nobody.
    drop(judge(&directory));
    assert!(!judge(&directory).try_hold().unwrap());
}

/// A program with more facts about its lock than fit into it records them before anybody can break the lock.
#[test]
fn a_guarded_lock_is_not_broken_until_it_is_released() {
    let (_scratch, directory) = scratch();
    let directory = directory.guarding();
    let published = publish(&directory, b"a");
    assert_eq!(directory.try_release(&name(), judge(&directory)).unwrap(), Attempt::Contended);
    let claim = claim(b"b");
    let broken = directory.replace(&name(), judge(&directory), &claim).unwrap();
    assert!(matches!(broken, Attempt::Contended));
    published.let_go();
    let Attempt::Done(next) = directory.replace(&name(), judge(&directory), &claim).unwrap() else {
        panic!("nobody holds it");
    };
    // So is what takes the place of a stale one, until it is closed, here and in what another test is starting.
    assert_eq!(directory.try_release(&name(), judge(&directory)).unwrap(), Attempt::Contended);
    drop(next);
    let release = || directory.try_release(&name(), judge(&directory)).unwrap();
    assert!(testbed::comes(|| release() == Attempt::Done(())));
}

// Hostile users.

fn hold(at: &Path) -> Flock<File> {
    let file = File::open(at).unwrap();
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno).unwrap()
}

#[test]
fn a_strangers_flock_keeps_nobody_from_letting_go_but_a_breaker_steps_back() {
    let (scratch, directory) = scratch();
    let at = scratch.path().join(name().as_str());
    let published = publish(&directory, b"mine");
    let stranger = hold(&at);
    let breaking = directory.replace(&name(), judge(&directory), &claim(b"new")).unwrap();
    assert!(matches!(breaking, Attempt::Contended));
    // The stranger may be a process that is breaking the lock.
    assert_eq!(directory.withdraw(&name(), &published).unwrap(), Attempt::Contended);
    assert_eq!(directory.try_release(&name(), judge(&directory)).unwrap(), Attempt::Contended);
    assert_eq!(std::fs::read(&at).unwrap(), b"mine");
    assert_eq!(files(scratch.path()), [name().as_str()]);

    assert_eq!(directory.release(&name(), judge(&directory), "t").unwrap(), Attempt::Done(()));
    assert_eq!(files(scratch.path()), Vec::<String>::new());
    drop(stranger);
}

/// What a release left that was killed at its last step, is released or broken like any lock;
/// while it lasts, another release does not pass it.
#[rstest]
fn a_stand_in_is_not_passed_while_it_is_held_and_is_a_lock_when_it_is_not(
    #[values(false, true)] is_old: bool,
) {
    let (scratch, directory) = scratch();
    let at = scratch.path().join(name().as_str());
    directory.publish(&name(), &with_mode(b"mine", 0o544)).unwrap();
    let stranger = hold(&at);
    assert_eq!(directory.release(&name(), judge(&directory), "t").unwrap(), Attempt::Changed);
    assert_eq!(std::fs::read(&at).unwrap(), b"mine");
    if is_old {
        // No release takes so long: its maker was killed.
        File::open(&at).unwrap().set_modified(SystemTime::now() - Duration::from_secs(61)).unwrap();
    } else {
        drop(stranger);
    }
    assert_eq!(directory.release(&name(), judge(&directory), "t").unwrap(), Attempt::Done(()));
}

/// A release that was killed before its last step leaves its draft. Another release of the same lock waits until it
/// is old; the next holder of the name has nothing to do with it.
#[rstest]
#[case::of_an_earlier_lock(true, Attempt::Done(()))]
#[case::of_this_lock(false, Attempt::Changed)]
fn a_draft_of_a_killed_release_is_in_the_way_of_one_lock_only(
    #[case] is_older: bool,
    #[case] removal: Attempt,
) {
    let (scratch, directory) = scratch();
    let at = scratch.path().join(name().as_str());
    publish(&directory, b"mine");
    let stranger = hold(&at);
    let draft = scratch.path().join(draft_of_a_release(&name()));
    std::fs::write(&draft, "mine").unwrap();
    std::fs::set_permissions(&draft, PermissionsExt::from_mode(0o544)).unwrap();
    let taken = std::fs::metadata(&at).unwrap().modified().unwrap();
    let before = if is_older { Duration::from_millis(10) } else { Duration::ZERO };
    File::open(&draft).unwrap().set_modified(taken - before).unwrap();
    assert_eq!(directory.release(&name(), judge(&directory), "t").unwrap(), removal);
    drop(stranger);
}

/// The private name of a release, as another process makes it: it has the mark of the lock's name, by FNV-1a.
fn draft_of_a_release(lock: &Name) -> String {
    let mark = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let mark = lock.as_str().bytes().fold(0x811c_9dc5, mark);
    // No process has the largest number.
    format!("t.{}.{mark:08x}00000000.tmp", i32::MAX)
}

/// File access of this thread as an ordinary user, without the rights of root: `setfsuid(2)`.
fn as_user<T>(work: impl FnOnce() -> T) -> T {
    let user = Uid::from_raw(54_321);
    let root = setfsuid(user);
    assert_eq!(setfsuid(user), user, "these tests run as root");
    let result = work();
    setfsuid(root);
    result
}

fn open_to_all(mode: u32) -> (TempDir, Directory) {
    let (scratch, directory) = scratch();
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(mode)).unwrap();
    (scratch, directory)
}

#[test]
#[ignore = "needs root: tests/run"]
fn an_unreadable_file_is_an_obstacle() {
    let (scratch, directory) = open_to_all(0o1777);
    let at = scratch.path().join(name().as_str());
    std::fs::write(&at, "secret").unwrap();
    std::fs::set_permissions(&at, PermissionsExt::from_mode(0o600)).unwrap();
    let found = as_user(|| directory.read(&name(), 64)).unwrap();
    assert!(matches!(found, Found::Obstacle(Obstacle::Unreadable)), "{found:?}");
}

fn assert_not_permitted<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert!(error.is_not_permitted(), "{error}");
}

#[rstest]
#[case::sticky(0o1777)]
#[case::not_writable(0o755)]
#[ignore = "needs root: tests/run"]
fn somebody_elses_lock_where_it_may_not_be_removed_stands(
    #[case] mode: u32,
    #[values(false, true)] held: bool,
) {
    let (scratch, directory) = open_to_all(mode);
    let at = scratch.path().join(name().as_str());
    publish(&directory, b"root's");
    let stranger = held.then(|| hold(&at));
    as_user(|| {
        let breaking = directory.replace(&name(), judge(&directory), &claim(b"new"));
        match &stranger {
            None => assert_not_permitted(breaking),
            Some(_) => assert!(matches!(breaking.unwrap(), Attempt::Contended)),
        }
        assert_not_permitted(directory.release(&name(), judge(&directory), "t"));
    });
    assert_eq!(std::fs::read(&at).unwrap(), b"root's");
    assert_eq!(files(scratch.path()), [name().as_str()]);
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_directory_that_may_not_be_written_gets_no_lock() {
    let (scratch, directory) = open_to_all(0o755);
    assert_not_permitted(as_user(|| directory.publish(&name(), &claim(b""))));
    assert_eq!(files(scratch.path()), Vec::<String>::new());
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_directory_that_may_not_be_listed_can_be_used() {
    let (scratch, _) = open_to_all(0o1733);
    as_user(|| {
        let directory = Directory::open(scratch.path()).unwrap();
        publish(&directory, b"mine");
        assert_eq!(directory.release(&name(), judge(&directory), "t").unwrap(), Attempt::Done(()));
        assert_eq!(directory.names().unwrap_err().step, Step::List);
    });
}

// Sweeping.

const HOUR: Duration = Duration::from_secs(3600);

fn gone() -> Pid {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    Pid::new(child.id().into()).unwrap()
}

fn temporary(prefix: &str, maker: Pid) -> String {
    format!("{prefix}.{maker}.0123456789abcdef.tmp")
}

#[rstest]
#[case::old_and_gone(temporary("t", gone()), HOUR, true)]
#[case::at_the_age(temporary("t", gone()), Duration::from_secs(60), true)]
#[case::just_below_the_age(temporary("t", gone()), Duration::from_millis(59_999), false)]
#[case::made_by_the_living(temporary("t", Pid::this()), HOUR, false)]
#[case::another_prefix(temporary("u", gone()), HOUR, false)]
#[case::a_lock("LCK..ttyS0".to_owned(), HOUR, false)]
#[case::no_random_part(format!("t.{}.tmp", gone()), HOUR, false)]
fn only_old_temporary_files_of_the_dead_are_swept(
    #[case] file: String,
    #[case] age: Duration,
    #[case] swept: bool,
) {
    let (scratch, directory) = scratch();
    let now = SystemTime::now();
    File::create(scratch.path().join(&file)).unwrap().set_modified(now - age).unwrap();
    assert_eq!(directory.sweep("t", now).unwrap(), usize::from(swept));
    assert_eq!(files(scratch.path()).is_empty(), swept);
}

#[rstest]
#[case::a_second(Duration::from_secs(1), 0)]
#[case::an_hour(HOUR, 1)]
fn a_file_from_the_future_is_old(#[case] ahead: Duration, #[case] swept: usize) {
    let (scratch, directory) = scratch();
    let now = SystemTime::now();
    for maker in [gone(), Pid::this()] {
        let file = File::create(scratch.path().join(temporary("t", maker))).unwrap();
        file.set_modified(now + ahead).unwrap();
    }
    assert_eq!(directory.sweep("t", now).unwrap(), swept, "never one of the living");
    assert_eq!(directory.sweep("t", now + 3 * HOUR).unwrap(), 1 - swept);
}

// Descriptors.

#[test]
fn no_descriptor_goes_to_children() {
    let (_scratch, directory) = scratch();
    let published = publish(&directory, b"");
    for file in [directory.as_fd(), published.file.as_fd()] {
        let flags = FdFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFD).unwrap());
        assert!(flags.contains(FdFlag::FD_CLOEXEC));
    }
}
