//! What other processes find between two steps of taking a lock.

use std::cell::RefCell;
use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use pidlockfile::process::Machine;
use pidlockfile::{Name, Pid};
use rstest::rstest;
use rustix::fs::{AtFlags, CWD, Timestamps};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::lock_file::{Busy, Removal};
use super::{Answer, Layout, Stop, Table};
use crate::device::DeviceName;
use crate::device::node::Node;
use crate::limits::{LOCKS_FOR_INVENTED, LOCKS_OF_A_USER};
use crate::lock::backoff::Backoff;
use crate::lock::flock::{FlockHolder, Flocks};
use crate::lock::holders::out_of_sight;
use crate::lock::kernel_list::{Completeness, Listing, Shortage};
use crate::lock::meanwhile::{self, Before};
use crate::lock::{Cause, Event, Outcome, Pass, Request};
use crate::test_processes::{Sleeper, no_process, pid_of};

/// A machine whose lock and state directories two pid namespaces share.
pub(super) struct Shared(pub(super) tempfile::TempDir);

impl Shared {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["dev", "lock", "state"] {
            std::fs::create_dir(root.path().join(dir)).unwrap();
        }
        std::fs::write(root.path().join("dev/ttyS0"), "").unwrap();
        Self(root)
    }

    /// A service in one of them, which does not see the other's processes.
    pub(super) fn here(&self) -> Table {
        let mut table = self.service();
        move_elsewhere(&mut table);
        table
    }

    pub(super) fn service(&self) -> Table {
        Table::new(self.layout())
    }

    pub(super) fn layout(&self) -> Layout {
        let path = |below| self.0.path().join(below);
        Layout {
            dev_dir: path("dev"),
            lock_dir: path("lock"),
            search_dirs: Vec::new(),
            state_dir: path("state"),
            udev_dir: path("udev"),
            ..Layout::native()
        }
    }

    pub(super) fn lock_file(&self) -> PathBuf {
        self.0.path().join("lock/LCK..ttyS0")
    }

    /// The record of the only lock.
    fn record(&self) -> PathBuf {
        let mut records = self.records();
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }

    fn records(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.0.path().join("state")).unwrap().flatten();
        entries.map(|it| it.path()).filter(|it| it.is_symlink()).collect()
    }

    /// The process that the lock names.
    fn named(&self) -> String {
        std::fs::read_to_string(self.lock_file()).unwrap().trim().to_owned()
    }

    fn gate(&self) -> PathBuf {
        self.0.path().join("state/gate")
    }

    pub(super) fn assert_nothing_is_left(&self) {
        for left in ["lock", "state"] {
            let left = std::fs::read_dir(self.0.path().join(left)).unwrap().flatten();
            let left: Vec<_> = left.map(|it| it.file_name()).collect();
            assert!(left.iter().all(|it| it == "gate"), "{left:?}");
        }
    }

    /// A service in the other.
    pub(super) fn elsewhere(&self) -> Table {
        let mut table = self.here();
        move_elsewhere(&mut table);
        table
    }
}

/// From now on, it behaves as in another pid namespace that does not see all processes.
pub(super) fn move_elsewhere(table: &mut Table) {
    let mut here = (**table.machine().here()).clone();
    here.namespace = here.namespace.map(|namespace| namespace.wrapping_add(1));
    *table.machine() = Machine::seen_from(here);
}

/// Before the first attempt of a request, and before its last one.
pub(super) fn fresh() -> Backoff {
    Backoff::since(Instant::now())
}

pub(super) fn last() -> Backoff {
    fresh().exhausted(Instant::now())
}

pub(super) fn request(pid: Pid) -> Request {
    Request { device: DeviceName::parse(b"ttyS0").unwrap(), pid }
}

/// As long as it lives, it stays known, and is not looked for again.
#[test]
fn a_process_that_has_ended_is_not_the_one_that_asks_next() {
    let shared = Shared::new();
    let mut table = shared.service();
    let sleeper = Sleeper::new();
    let pid = sleeper.pid();
    for _ in 0..2 {
        assert!(table.observe(pid).claimant().was_there());
    }
    drop(sleeper);
    assert!(!table.observe(pid).claimant().was_there());
}

/// Until its parent waits for it, it has its number. Then programs take its lock file over in place, so that is looked at once
/// more before it goes.
#[rstest]
fn a_process_that_waits_for_its_parent_releases_a_stale_lock(
    #[values(false, true)] is_known: bool,
) {
    let mut table = Shared::new().service();
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = pid_of(&child);
    if is_known {
        table.observe(pid);
    }
    assert_eq!(Removal::by(table.state.lives(pid), false), Removal::OfOwn);
    child.kill().unwrap();
    let number = rustix::process::Pid::from_child(&child);
    waitid(WaitId::Pid(number), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    assert_eq!(Removal::by(table.state.lives(pid), false), Removal::OfStale);
    child.wait().unwrap();
    assert_eq!(Removal::by(table.state.lives(pid), false), Removal::OfStale);
}

/// The number in a lock of another pid namespace means no process here. The record identifies its holder, and exists
/// before the lock is reported as taken and before another process may break it.
#[test]
fn a_lock_of_another_pid_namespace_stands_from_its_first_moment() {
    let shared = Shared::new();
    let (mut first, mut second, mut third) = (shared.elsewhere(), shared.here(), shared.here());
    let pid = no_process();
    let met = Rc::new(RefCell::new(Vec::new()));
    let notes = Rc::clone(&met);
    meanwhile::at(Before::Confirm, move || {
        let own = request(Pid::this());
        let lock = second.attempt_lock(&own, None, last()).result;
        // A process with the same number here does not release it either.
        let unlock = second.attempt_unlock(&request(pid), &mut last()).result;
        notes.borrow_mut().extend([lock, unlock]);
    });
    assert_eq!(first.lock(&request(pid)).outcome(), Outcome::Done);
    assert!(met.borrow().iter().all(|it| matches!(it, Err(Stop::Busy(_)))), "{met:?}");
    assert_eq!(third.lock(&request(Pid::this())).outcome(), Outcome::Busy);
    assert_eq!(first.unlock(&request(pid)).outcome(), Outcome::Done);
    assert_eq!(third.lock(&request(Pid::this())).outcome(), Outcome::Done);
}

/// A daemon that starts keeps no lock of another pid namespace, and a process with the same number here has no right to
/// it.
#[test]
fn a_daemon_does_not_adopt_a_lock_of_another_pid_namespace() {
    let shared = Shared::new();
    let (mut elsewhere, mut here) = (shared.elsewhere(), shared.here());
    let request = request(Pid::this());
    assert_eq!(elsewhere.lock(&request).outcome(), Outcome::Done);
    here.keep_open(10);
    let answer = here.unlock(&request);
    assert_eq!(answer.outcome(), Outcome::Busy, "{answer:?}");
    assert!(shared.lock_file().exists());
    assert_eq!(elsewhere.unlock(&request).outcome(), Outcome::Done);
}

/// A process here has the number that the holder of another pid namespace has there. The record says whose the lock is
/// while it is being made.
#[test]
fn a_lock_that_is_being_made_is_not_given_to_a_process_with_its_number() {
    let shared = Shared::new();
    let (mut first, mut second) = (shared.elsewhere(), shared.here());
    let receiver = Sleeper::new();
    let own = request(Pid::this());
    let pass = Pass { device: own.device.clone(), from: own.pid, to: receiver.pid() };
    let file = shared.lock_file();
    let met = Rc::new(RefCell::new(Vec::new()));
    let (notes, unlock) = (Rc::clone(&met), own.clone());
    meanwhile::at(Before::Confirm, move || {
        let note = |answer: Answer| {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let is_as_written = text.trim() == Pid::this().to_string();
            notes.borrow_mut().push((answer.outcome(), is_as_written));
        };
        for mut backoff in [fresh(), last()] {
            note(second.attempt_unlock(&unlock, &mut backoff));
            note(second.attempt_pass(&pass, None, &mut backoff));
        }
    });
    assert_eq!(first.lock(&own).outcome(), Outcome::Done);
    assert_eq!(*met.borrow(), [(Outcome::Busy, true); 4]);
    assert_eq!(shared.here().lock(&own).outcome(), Outcome::Busy);
    assert_eq!(first.unlock(&own).outcome(), Outcome::Done);
}

/// A process that ends while a lock is taken for it gets no lock: another process may have its number.
#[test]
fn a_process_that_ends_meanwhile_gets_no_lock() {
    let shared = Shared::new();
    let child = Sleeper::new();
    let pid = child.pid();
    meanwhile::at(Before::Confirm, move || drop(child));
    let answer = shared.here().lock(&request(pid));
    assert_eq!(answer.outcome(), Outcome::Busy);
    assert!(answer.events.iter().any(|event| event.text.contains("ended while")), "{answer:?}");
    shared.assert_nothing_is_left();
}

/// A service of another pid namespace takes the maker of a lock for dead, and sweeps its draft, just before the last name is
/// given. The request comes back.
#[rstest]
#[case::of_one_name(&[])]
#[case::of_two_names(&["modem"])]
fn a_lock_whose_draft_is_swept_before_its_last_name_is_taken_once_more(#[case] links: &[&str]) {
    let shared = Shared::new();
    for link in links {
        symlink("ttyS0", shared.0.path().join("dev").join(link)).unwrap();
    }
    let locks = shared.0.path().join("lock");
    meanwhile::at(Before::LastName, move || {
        let files = std::fs::read_dir(locks).unwrap().map(|it| it.unwrap().path());
        let drafts: Vec<_> =
            files.filter(|it| it.extension().is_some_and(|it| it == "tmp")).collect();
        assert_eq!(drafts.len(), 1, "{drafts:?}");
        std::fs::remove_file(&drafts[0]).unwrap();
    });
    let mut table = shared.here();
    let request = request(Pid::this());
    let first = table.attempt_lock(&request, None, fresh());
    assert_eq!(first.result, Err(Stop::NotYet(Cause::Contended)));
    shared.assert_nothing_is_left();
    assert_eq!(table.attempt_lock(&request, None, fresh()).outcome(), Outcome::Done);
    assert_eq!(table.unlock(&request).outcome(), Outcome::Done);
    shared.assert_nothing_is_left();
}

/// Programs that ignore the rules remove locks by name, or rename them. No client is told that it has a lock that is gone.
#[rstest]
#[case::removed(|file: &Path| std::fs::remove_file(file))]
#[case::renamed(|file: &Path| std::fs::rename(file, file.with_file_name("../elsewhere")))]
fn a_lock_that_is_gone_in_its_first_moment_is_taken_once_more(
    #[case] go: fn(&Path) -> std::io::Result<()>,
) {
    let shared = Shared::new();
    let file = shared.lock_file();
    let gone = file.clone();
    meanwhile::at(Before::Confirm, move || go(&gone).unwrap());
    let mut table = shared.here();
    let request = request(Pid::this());
    let first = table.attempt_lock(&request, None, fresh());
    assert_eq!(first.result, Err(Stop::NotYet(Cause::Contended)));
    shared.assert_nothing_is_left();
    assert_eq!(table.attempt_lock(&request, None, fresh()).outcome(), Outcome::Done);
    assert!(file.exists() && shared.record().is_symlink());
}

/// What a service that writes another directory has made since this one looked there.
#[rstest]
#[case::a_lock(Some(Pid::this()), false, Outcome::Busy)]
#[case::no_file_that_can_be_read(None, false, Outcome::Busy)]
#[case::a_lock_of_another_pid_namespace_before_its_record(Some(no_process()), true, Outcome::Busy)]
#[case::a_lock_of_a_process_that_has_ended_since(Some(no_process()), false, Outcome::Done)]
fn two_services_with_different_directories_do_not_both_take_a_device(
    #[case] holder: Option<Pid>,
    #[case] is_held: bool,
    #[case] outcome: Outcome,
) {
    let shared = Shared::new();
    let other = shared.0.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let theirs = other.join("LCK..ttyS0");
    let held = Rc::new(RefCell::new(None));
    let holds = Rc::clone(&held);
    meanwhile::at(Before::Confirm, move || match holder {
        Some(pid) => {
            std::fs::write(&theirs, format!("{pid:>10}\n")).unwrap();
            *holds.borrow_mut() = is_held.then(|| flocked(&theirs));
        }
        None => std::fs::create_dir(&theirs).unwrap(),
    });
    let layout = shared.layout();
    let mut table = Table::new(Layout { search_dirs: vec![other], ..layout });
    assert_eq!(table.lock(&request(Pid::this())).outcome(), outcome);
    if outcome == Outcome::Busy {
        shared.assert_nothing_is_left();
    }
}

/// A process in the gate may be about to remove the name that a failed LOCK gives back, and then removes the next lock.
#[test]
fn what_a_failed_lock_has_written_goes_when_the_gate_is_free() {
    let shared = Shared::new();
    let other = shared.0.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let mut table = Table::new(Layout { search_dirs: vec![other.clone()], ..shared.layout() });
    let inside = Rc::new(RefCell::new(None));
    let (stays, leaves, gate) = (Rc::clone(&inside), Rc::clone(&inside), shared.service());
    let (file, stood) = (shared.lock_file(), Rc::new(RefCell::new(false)));
    meanwhile::at(Before::Confirm, move || {
        std::fs::write(other.join("LCK..ttyS0"), format!("{:>10}\n", Pid::this())).unwrap();
        *stays.borrow_mut() = Some(enter(gate));
    });
    let note = Rc::clone(&stood);
    meanwhile::at(Before::GiveBack, move || {
        *note.borrow_mut() = file.exists();
        leaves.borrow_mut().take();
    });
    assert_eq!(table.lock(&request(Pid::this())).outcome(), Outcome::Busy);
    assert!(*stood.borrow() && inside.borrow().is_none());
    shared.assert_nothing_is_left();
}

/// Another program removes a name in the first moment of a lock, whichever name. The lock is taken once more, with all names.
#[rstest]
fn a_lock_that_loses_a_name_in_its_first_moment_is_taken_once_more(
    #[values("LCK..ttyS0", "LCK..modem")] name: &str,
) {
    let shared = Shared::new();
    symlink("ttyS0", shared.0.path().join("dev/modem")).unwrap();
    let locks = shared.0.path().join("lock");
    let lost = locks.join(name);
    meanwhile::at(Before::Confirm, move || std::fs::remove_file(lost).unwrap());
    let own = request(Pid::this());
    assert_eq!(shared.service().lock(&own).outcome(), Outcome::Done);
    for name in ["LCK..ttyS0", "LCK..modem"] {
        assert!(locks.join(name).exists(), "{name}");
    }
    assert_eq!(shared.service().unlock(&own).outcome(), Outcome::Done);
    shared.assert_nothing_is_left();
}

/// The names of the last device are kept only as long as the same name leads to the same device with the same links.
#[test]
fn a_link_that_comes_or_goes_between_two_locks_counts() {
    let shared = Shared::new();
    let [link, name] = ["dev/modem", "lock/LCK..modem"].map(|it| shared.0.path().join(it));
    let (mut table, own) = (shared.service(), request(Pid::this()));
    for has_link in [false, true, true, false, true] {
        let _ = std::fs::remove_file(&link);
        has_link.then(|| symlink("ttyS0", &link).unwrap());
        assert_eq!(table.lock(&own).outcome(), Outcome::Done);
        assert_eq!(name.exists(), has_link);
        assert_eq!(table.unlock(&own).outcome(), Outcome::Done);
    }
}

/// Another program has written its own number into the file, and a coarse clock does not show when. The lock is its own.
#[test]
fn a_record_of_another_number_does_not_count() {
    let shared = Shared::new();
    let other = Sleeper::new();
    let mut table = shared.service();
    let own = request(Pid::this());
    assert_eq!(table.lock(&own).outcome(), Outcome::Done);
    let file = shared.lock_file();
    let at = file.metadata().unwrap().modified().unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    std::fs::write(&file, format!("{:>10}\n", other.pid())).unwrap();
    File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
    assert_eq!(table.attempt_unlock(&own, &mut last()).outcome(), Outcome::Busy);
    assert_eq!(shared.named(), other.pid().to_string());
    assert_eq!(table.unlock(&request(other.pid())).outcome(), Outcome::Done);
    assert!(!file.exists());
}

/// A process of another pid namespace releases its lock while it is read here: it is no dead lock then.
#[test]
fn a_lock_that_is_released_while_it_is_read_is_not_reported_as_dead() {
    let shared = Shared::new();
    let (mut here, mut elsewhere) = (shared.here(), shared.elsewhere());
    let theirs = request(no_process());
    assert_eq!(elsewhere.lock(&theirs).outcome(), Outcome::Done);
    meanwhile::at(Before::Record, move || {
        assert_eq!(elsewhere.unlock(&theirs).outcome(), Outcome::Done);
    });
    let found = here.all_lock_files(Duration::from_secs(10)).holders;
    assert!(found.is_empty(), "{found:?}");
    shared.assert_nothing_is_left();
}

/// A daemon that starts removes all names of the locks of a process that has ended, also if these are more than are listed
/// for people.
#[test]
fn a_daemon_that_starts_knows_all_names_of_the_locks_of_a_user() {
    let shared = Shared::new();
    let dead = format!("{:>10}\n", no_process());
    for number in 0..=LOCKS_FOR_INVENTED {
        let name = format!("LCK..ttyS{number}");
        std::fs::write(shared.0.path().join("lock").join(name), &dead).unwrap();
    }
    shared.service().keep_open(0);
    shared.assert_nothing_is_left();
}

/// Two services with different lock directories share the state directory. Neither forgets or replaces a record of the
/// other's.
#[test]
fn the_records_of_another_lock_directory_stay() {
    let shared = Shared::new();
    let other = shared.0.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let own = request(Pid::this());
    let mut first = shared.elsewhere();
    assert_eq!(first.lock(&own).outcome(), Outcome::Done);
    let record = shared.record();
    let text = std::fs::read_link(&record).unwrap();
    let stands = || std::fs::read_link(&record).is_ok_and(|it| it == text);
    let mut second = Table::new(Layout { lock_dir: other, ..shared.layout() });
    second.keep_open(10);
    assert!(stands());
    let hours_ago = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
    let times = Timestamps { last_access: hours_ago, last_modification: hours_ago };
    let aged = rustix::fs::utimensat(CWD, &record, &times, AtFlags::SYMLINK_NOFOLLOW);
    assert_eq!((aged, second.clean_records()), (Ok(()), 0));
    assert!(stands());
    for _ in 0..2 {
        assert_eq!(second.lock(&own).outcome(), Outcome::Done);
        assert!(stands());
        assert_eq!(shared.here().lock(&own).outcome(), Outcome::Busy);
        assert_eq!(second.unlock(&own).outcome(), Outcome::Done);
        assert!(stands());
    }
    assert_eq!(shared.here().lock(&own).outcome(), Outcome::Busy);
    assert_eq!(first.unlock(&own).outcome(), Outcome::Done);
    let mut left = std::fs::read_dir(shared.0.path().join("state")).unwrap().flatten();
    assert!(left.all(|it| it.file_name() == "gate"));
}

/// Other programs have removed the locks of a user. Their records count only until they are swept.
#[rstest]
#[case::swept(true, Outcome::Done)]
#[case::too_young(false, Outcome::Denied)]
fn records_of_locks_that_are_gone_refuse_no_lock(#[case] are_old: bool, #[case] expected: Outcome) {
    let shared = Shared::new();
    let mut table = shared.service();
    let own = request(no_process());
    assert_eq!(table.lock(&own).outcome(), Outcome::Done);
    let record = std::fs::read_link(shared.record()).unwrap().into_os_string();
    let record = record.into_string().unwrap();
    for number in 0..LOCKS_OF_A_USER {
        let path = shared.0.path().join(format!("state/held.1.{number}.1"));
        symlink(record.replace("LCK..ttyS0", &format!("LCK..gone{number}")), &path).unwrap();
        if are_old {
            let hours_ago = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
            let times = Timestamps { last_access: hours_ago, last_modification: hours_ago };
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }
    assert_eq!(table.unlock(&own).outcome(), Outcome::Done);
    assert_eq!(table.lock(&own).outcome(), expected);
    let left = if are_old { 1 } else { LOCKS_OF_A_USER };
    assert_eq!(shared.records().len(), left);
}

/// If the kernel's list was not read completely, a process that has the port open may have locked it.
#[rstest]
#[case::all_is_told(Completeness::Whole, Outcome::Done)]
#[case::some_may_be_missed(Completeness::Partial(Shortage::TooLong(None)), Outcome::Busy)]
fn an_open_port_is_busy_unless_all_locks_are_told(
    #[case] completeness: Completeness,
    #[case] outcome: Outcome,
) {
    let shared = Shared::new();
    let _port = File::open(shared.0.path().join("dev/ttyS0")).unwrap();
    let holder = Sleeper::new();
    let mut table = shared.here();
    let listing = Listing { completeness, ..Listing::default() };
    table.state.flocks = Flocks::answering([Some(listing)]);
    let answer = table.lock(&request(holder.pid()));
    assert_eq!(answer.outcome(), outcome, "{answer:?}");
    let said = answer.events.iter().any(|event| event.text.contains("too many kernel locks"));
    assert_eq!(said, completeness != Completeness::Whole, "{answer:?}");
}

/// The path of a stale lock file, and the file, which somebody holds by `flock(2)`.
fn stale_and_held(shared: &Shared) -> (PathBuf, Flock<File>) {
    stale_and_held_in(&shared.0.path().join("lock"))
}

fn stale_and_held_in(directory: &Path) -> (PathBuf, Flock<File>) {
    let path = directory.join("LCK..ttyS0");
    std::fs::write(&path, format!("{:>10}\n", no_process())).unwrap();
    let file = flocked(&path);
    (path, file)
}

/// Ends when it is dropped. Closing the file would not be enough, because a process that another test is just starting
/// has the descriptor as well.
pub(super) fn flocked(path: &Path) -> Flock<File> {
    Flock::lock(File::open(path).unwrap(), FlockArg::LockExclusive).unwrap()
}

/// Nothing is refused while the list that shows the holder of a stale lock file is being read: even a caller that
/// decides comes back.
#[test]
fn while_the_list_is_read_everybody_comes_back() {
    let shared = Shared::new();
    let (path, _held) = stale_and_held(&shared);
    let mut table = shared.service();
    let request = request(Pid::this());
    table.state.flocks = Flocks::answering([None]);
    for _ in 0..2 {
        let answer = table.attempt_unlock(&request, &mut last());
        let is_read = Answer { result: Err(Stop::NotYet(Cause::Reading)), events: Vec::new() };
        assert_eq!(answer, is_read);
        let answer = table.attempt_lock(&request, None, last());
        assert_eq!(answer, is_read);
        assert!(path.exists());
    }
    table.state.flocks = Flocks::answering([Some(Listing::default())]);
    let answer = table.attempt_unlock(&request, &mut last());
    assert!(!matches!(answer.result, Err(Stop::NotYet(_))), "{answer:?}");
}

/// A stale lock file is held by a process that may be a service: it stays, and the log names the holder.
#[test]
fn a_held_lock_that_is_not_unlocked_is_reported() {
    let shared = Shared::new();
    let (path, _held) = stale_and_held(&shared);
    let mut table = shared.service();
    let partial = Listing {
        completeness: Completeness::Partial(Shortage::TooLong(None)),
        ..Listing::default()
    };
    table.state.flocks = Flocks::answering([Some(partial)]);
    let answer = table.attempt_unlock(&request(Pid::this()), &mut last());
    assert!(matches!(answer.result, Err(Stop::Busy(_))), "{answer:?}");
    let says_why = |event: &Event| event.text.contains("is stale, but a lock on it is held");
    assert!(path.exists() && answer.events.iter().any(says_why), "{answer:?}");
}

/// Any user may make a stale lock in such a directory, and hold it for ever.
#[rstest]
fn a_held_stale_lock_in_a_directory_open_to_all_keeps_nobody_out(
    #[values(fresh(), last())] backoff: Backoff,
) {
    let shared = Shared::new();
    let open = shared.0.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
    let (path, _held) = stale_and_held_in(&open);
    let layout = shared.service().layout().clone();
    let mut table = Table::new(Layout { search_dirs: vec![open], ..layout });
    let answers = [Completeness::Whole, Completeness::Partial(Shortage::TooLong(None))];
    let listing = |completeness| Some(Listing { completeness, ..Listing::default() });
    table.state.flocks = Flocks::answering(answers.map(listing));
    let answer = table.attempt_lock(&request(Pid::this()), None, backoff);
    assert_eq!(answer.outcome(), Outcome::Done, "{answer:?}");
    assert!(path.exists());
}

/// The list takes long to read, so that each question about it is answered only when the caller comes back. The holder
/// of a stale lock file is asked for once in an attempt.
#[test]
fn a_list_that_takes_long_to_read_ends_in_an_answer() {
    let shared = Shared::new();
    let (_, _held) = stale_and_held(&shared);
    let mut table = shared.service();
    table.state.flocks = Flocks::answering([None, Some(Listing::default())]);
    let request = request(Pid::this());
    let answers: Vec<_> =
        (0..4).map(|_| table.attempt_unlock(&request, &mut last()).result).collect();
    assert!(answers.iter().any(|it| !matches!(it, Err(Stop::NotYet(_)))), "{answers:?}");
}

#[test]
fn a_request_that_comes_back_was_asked_once() {
    let shared = Shared::new();
    let mut table = shared.service();
    let mut asked = Vec::new();
    let answer = table.with_pauses(|table, backoff| {
        asked.push(backoff.asked());
        let came_back = asked.len() > 3;
        let done = if came_back { Ok(String::new()) } else { Err(Stop::NotYet(Cause::Reading)) };
        table.attempt(*backoff, |_| done)
    });
    assert_eq!(answer.outcome(), Outcome::Done);
    assert!(asked.iter().all(|it| *it == asked[0]), "{asked:?}");
}

/// While a lock is being made, it is its holder's: a process that took it for dead would break it as soon as its maker lets
/// go of it.
#[test]
fn a_lock_that_is_being_made_is_no_stale_one() {
    let shared = Shared::new();
    let (mut first, mut second) = (shared.elsewhere(), shared.here());
    let met = Rc::new(RefCell::new(None));
    let note = Rc::clone(&met);
    meanwhile::at(Before::Confirm, move || {
        let open = second.state.open().unwrap();
        let name = Name::new("LCK..ttyS0").unwrap();
        *note.borrow_mut() = Some(second.state.examine(open.own.file(&name)));
    });
    assert_eq!(first.lock(&request(no_process())).outcome(), Outcome::Done);
    assert!(matches!(*met.borrow(), Some(Err(Busy::Held(_)))), "{met:?}");
}

/// A kernel's list that is whole and has no `flock(2)`.
fn without_flocks() -> Flocks {
    let listing = Listing { completeness: Completeness::Whole, ..Listing::default() };
    Flocks::answering([Some(listing)])
}

/// The kernel's list with `flock(2)` on a file.
fn listing_of(file: &File, holder: FlockHolder) -> Listing {
    let node = Node::of(&file.metadata().unwrap());
    let place = (node.file_system.major, node.file_system.minor, node.inode);
    Listing { locks: vec![(place, holder)], completeness: Completeness::Whole }
}

/// Another process may hold a file just for a moment, when its holder has ended: it is tried again. A stranger that
/// never lets go of it does not keep it there.
#[rstest]
#[case::for_a_moment(true)]
#[case::for_ever(false)]
fn the_lock_of_the_dead_that_was_held_is_removed_later(#[case] is_brief: bool) {
    let shared = Shared::new();
    let mut table = shared.service();
    table.keep_open(0);
    let holder = Sleeper::new();
    let pid = holder.pid();
    assert_eq!(table.lock(&request(pid)).outcome(), Outcome::Done);
    let path = shared.lock_file();
    let file = flocked(&path);
    table.state.flocks =
        Flocks::answering([Some(listing_of(&file, FlockHolder::Process(no_process())))]);
    drop(holder);
    table.remove_locks_of_ended(pid);
    assert!(path.exists(), "it is held");
    let mut held = Some(file);
    if is_brief {
        held.take();
    }
    let mut tries = 0;
    while tries < 100 && !table.ended_holders(much_later()).is_empty() {
        tries += 1;
        table.remove_locks_of_ended(pid);
    }
    // A process that is not seen may be a service.
    let is_gone = !path.exists() && tries < 100;
    assert!(is_gone || !is_brief && out_of_sight().outside, "after {tries} more tries");
}

/// When every attempt is due.
fn much_later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// The owner of the file holds it for long, also since before the daemon began. It goes when it is let go.
#[rstest]
#[case::before_the_start(true)]
#[case::before_the_end(false)]
fn the_lock_of_the_dead_that_is_held_for_long_goes_at_last(#[case] is_before_start: bool) {
    let shared = Shared::new();
    let mut table = shared.service();
    let holder = Sleeper::new();
    let pid = holder.pid();
    assert_eq!(table.lock(&request(pid)).outcome(), Outcome::Done);
    let path = shared.lock_file();
    let file = flocked(&path);
    let mut holder = Some(holder);
    holder.take_if(|_| is_before_start);
    table.keep_open(0);
    drop(holder);
    let listing = listing_of(&file, FlockHolder::Process(Pid::this()));
    table.state.flocks = Flocks::answering([None, Some(listing)]);
    for _ in 0..20 {
        assert_eq!(table.ended_holders(much_later()), [pid]);
        let before = Instant::now();
        table.remove_locks_of_ended(pid);
        assert!(table.ended_holders(before).is_empty(), "not before its rest is over");
    }
    assert!(path.exists(), "it is held");
    drop(file);
    table.remove_locks_of_ended(pid);
    assert!(!path.exists() && table.held_files().is_empty());
}

/// One reading of the kernel's list may miss a lock.
#[test]
fn a_stale_lock_that_is_held_and_not_in_the_list_is_not_broken() {
    let shared = Shared::new();
    let mut table = shared.service();
    assert_eq!(table.lock(&request(no_process())).outcome(), Outcome::Done);
    let path = shared.lock_file();
    let file = flocked(&path);
    table.state.flocks = without_flocks();
    assert_eq!(table.lock(&request(Pid::this())).outcome(), Outcome::Busy);
    drop(file);
    assert_eq!(table.lock(&request(Pid::this())).outcome(), Outcome::Done);
}

/// The reading that told of the port began before the pauses of the attempts.
#[test]
fn a_flock_on_a_lock_file_is_judged_by_a_later_reading() {
    let shared = Shared::new();
    let mut table = shared.service();
    table.keep_open(0);
    assert_eq!(table.lock(&request(no_process())).outcome(), Outcome::Done);
    let asked = Instant::now();
    let node = Node::of(&std::fs::metadata(shared.lock_file()).unwrap());
    while table.state.flocks.holders(&node, asked).unwrap().is_none() {
        std::thread::yield_now();
    }
    let _file = flocked(&shared.lock_file());
    let backoff = Backoff::since(asked).exhausted(Instant::now());
    let answer = loop {
        let answer = table.attempt_lock(&request(Pid::this()), None, backoff);
        if !matches!(answer.result, Err(Stop::NotYet(_))) {
            break answer;
        }
    };
    let holder = format!("held by pid {}", Pid::this());
    let told = answer.events.iter().any(|event| event.text.contains(&holder));
    assert!(answer.outcome() == Outcome::Busy && told, "{answer:?}");
}

/// A daemon's own `flock(2)` protects its locks where there is no record.
#[rstest]
#[case::removed(false)]
#[case::replaced(true)]
fn a_state_directory_that_is_gone_refuses_no_lock(#[case] is_replaced: bool) {
    let shared = Shared::new();
    let mut table = shared.service();
    table.keep_open(8);
    assert_eq!(table.lock(&request(Pid::this())).outcome(), Outcome::Done);
    assert_eq!(table.unlock(&request(Pid::this())).outcome(), Outcome::Done);
    let state = shared.0.path().join("state");
    std::fs::remove_dir_all(&state).unwrap();
    if is_replaced {
        std::fs::create_dir(&state).unwrap();
    }
    assert_eq!(table.lock(&request(Pid::this())).outcome(), Outcome::Done);
}

/// Two sessions release the same lock: the one that comes second waits for the first, which may be stopped between its
/// last look and the removal. A stranger that holds the file for ever does not keep it there.
#[test]
fn a_release_goes_past_a_held_file_only_after_a_while() {
    let shared = Shared::new();
    let mut table = shared.service();
    let own = request(Pid::this());
    assert_eq!(table.lock(&own).outcome(), Outcome::Done);
    let path = shared.lock_file();
    let _held = flocked(&path);
    let answer = table.attempt_unlock(&own, &mut fresh());
    assert_eq!(answer.result, Err(Stop::NotYet(Cause::Contended)));
    assert!(path.exists());
    assert_eq!(table.unlock(&own).outcome(), Outcome::Done);
    assert!(!path.exists());
}

/// No client is told that it has passed a lock whose file is gone.
#[test]
fn a_lock_that_is_removed_while_it_is_passed_is_not_passed() {
    let shared = Shared::new();
    let mut table = shared.service();
    let receiver = Sleeper::new();
    let (device, from, to) = (request(Pid::this()).device, Pid::this(), receiver.pid());
    assert_eq!(table.lock(&request(from)).outcome(), Outcome::Done);
    let file = shared.lock_file();
    meanwhile::at(Before::Decision, move || std::fs::remove_file(file).unwrap());
    let answer = table.pass(&Pass { device, from, to });
    assert_eq!(answer.outcome(), Outcome::Busy, "{answer:?}");
    // The record of the file that another program has removed is swept later.
    assert_eq!((shared.lock_file().exists(), shared.records().len()), (false, 1));
}

/// Another process may be in the gate: no lock is broken, released or passed without it, and the port is busy until the
/// gate can be entered.
#[rstest]
fn without_its_gate_a_service_says_busy(#[values(true, false)] is_daemon: bool) {
    let shared = Shared::new();
    let mut table = shared.service();
    if is_daemon {
        table.keep_open(8);
    }
    let receiver = Sleeper::new();
    let own = request(Pid::this());
    assert_eq!(table.lock(&own).outcome(), Outcome::Done);
    shut(&shared.gate());
    let busy_for_the_gate = |answer: Answer| {
        let says = |what| answer.events.iter().any(|event| event.text.contains(what));
        answer.outcome() == Outcome::Busy && says("see gate in ") && !says("'s to unlock")
    };
    let pass = Pass { device: own.device.clone(), from: own.pid, to: receiver.pid() };
    assert!(busy_for_the_gate(table.pass(&pass)));
    assert!(busy_for_the_gate(table.unlock(&own)));
    std::fs::remove_dir(shared.gate()).unwrap();
    assert_eq!(table.unlock(&own).outcome(), Outcome::Done);
    shared.assert_nothing_is_left();
}

/// Two services with different lock directories share the state directory. The record of the second still has the names of
/// its lock when the first has forgotten its own, and the links are gone.
#[test]
fn a_lock_is_released_whole_when_another_directory_has_forgotten_its_own() {
    let shared = Shared::new();
    let link = shared.0.path().join("dev/modem");
    symlink("ttyS0", &link).unwrap();
    let other = shared.0.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let own = request(Pid::this());
    let mut first = shared.service();
    let mut second = Table::new(Layout { lock_dir: other.clone(), ..shared.layout() });
    assert_eq!(first.lock(&own).outcome(), Outcome::Done);
    assert_eq!(second.lock(&own).outcome(), Outcome::Done);
    assert_eq!(first.unlock(&own).outcome(), Outcome::Done);
    std::fs::remove_file(link).unwrap();
    assert_eq!(second.unlock(&own).outcome(), Outcome::Done);
    assert_eq!(std::fs::read_dir(other).unwrap().count(), 0);
    shared.assert_nothing_is_left();
}

/// A stranger holds a lock file by `flock(2)`, and a release past that is stopped. The next one is refused, and the lock
/// keeps its record.
#[test]
fn a_lock_that_is_not_released_keeps_its_record() {
    let shared = Shared::new();
    let mut table = shared.service();
    let own = request(Pid::this());
    assert_eq!(table.lock(&own).outcome(), Outcome::Done);
    table.state.flocks = without_flocks();
    let path = shared.lock_file();
    let _stranger = flocked(&path);
    // FNV-1a, as in the names of the drafts.
    let mark = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let mark = "LCK..ttyS0".bytes().fold(0x811c_9dc5, mark);
    let draft = path.with_file_name(format!("lfpd.{}.{mark:08x}00000000.tmp", Pid::this()));
    std::fs::write(&draft, "").unwrap();
    std::fs::set_permissions(&draft, Permissions::from_mode(0o544)).unwrap();
    let answer = table.attempt_unlock(&own, &mut last());
    assert_eq!(answer.outcome(), Outcome::Busy, "{answer:?}");
    assert!(path.exists() && shared.record().is_symlink());
}

/// A process that releases the lock of the giver forgets the record first. It may be stopped then, in the gate and with
/// `flock(2)` on the file, and remove the name later: PASS must not put the receiver's file there.
#[test]
fn a_lock_that_is_being_released_is_not_passed() {
    let shared = Shared::new();
    let (mut table, mut releasing) = (shared.service(), shared.service());
    let [giver, receiver] = [Sleeper::new(), Sleeper::new()];
    assert_eq!(table.lock(&request(giver.pid())).outcome(), Outcome::Done);
    let open = releasing.state.open().unwrap();
    let name = Name::new("LCK..ttyS0").unwrap();
    let Ok(pidlockfile::Found::File(mut opened)) = open.own.file(&name).read() else { panic!() };
    let held = open.own.directory.hold(&name, &mut opened);
    assert!(matches!(held, Ok(pidlockfile::Attempt::Done(()))), "{held:?}");
    std::fs::remove_file(shared.record()).unwrap();
    let by = FlockHolder::Process(Pid::this());
    let file = File::open(shared.lock_file()).unwrap();
    table.state.flocks = Flocks::answering([Some(listing_of(&file, by))]);
    let device = request(giver.pid()).device;
    let pass = Pass { device, from: giver.pid(), to: receiver.pid() };
    let answer = table.attempt_pass(&pass, None, &mut last());
    assert_eq!(answer.outcome(), Outcome::Busy, "{answer:?}");
    assert_eq!(shared.named(), giver.pid().to_string());
}

/// A lock without a record is kept by its giver, or by `lfp run` for its command. Any other process that holds the file may
/// be about to remove it.
#[rstest]
#[case::the_giver(Outcome::Done, |giver: Pid, _: Pid| giver)]
#[case::the_program_that_started_the_giver(Outcome::Done, |_: Pid, _: Pid| Pid::this())]
#[case::another_process(Outcome::Busy, |_: Pid, receiver: Pid| receiver)]
fn an_unrecorded_lock_is_passed_if_its_giver_keeps_it(
    #[case] expected: Outcome,
    #[case] keeper: fn(Pid, Pid) -> Pid,
) {
    let shared = Shared::new();
    let mut table = shared.service();
    let [giver, receiver] = [Sleeper::new(), Sleeper::new()];
    let device = request(giver.pid()).device;
    assert_eq!(table.lock(&request(giver.pid())).outcome(), Outcome::Done);
    std::fs::remove_file(shared.record()).unwrap();
    let file = flocked(&shared.lock_file());
    let by = FlockHolder::Process(keeper(giver.pid(), receiver.pid()));
    table.state.flocks = Flocks::answering([Some(listing_of(&file, by))]);
    let pass = Pass { device, from: giver.pid(), to: receiver.pid() };
    let answer = table.attempt_pass(&pass, None, &mut last());
    assert_eq!(answer.outcome(), expected, "{answer:?}");
    let named = if expected == Outcome::Done { receiver } else { giver };
    assert_eq!(shared.named(), named.pid().to_string());
}

/// A request has no answer yet: this process is in the gate.
#[track_caller]
fn assert_waits_for_us(answer: &Answer) {
    let Err(Stop::NotYet(Cause::Gate(occupant))) = &answer.result else { panic!("{answer:?}") };
    assert_eq!(occupant.pid(), Some(Pid::this()));
}

/// Another process goes through the gate, and is stopped there.
fn enter(mut table: Table) -> pidlockfile::Entry {
    let entered = table.state.open().unwrap().own.directory.try_enter().unwrap();
    assert!(matches!(entered, pidlockfile::Entry::Inside(_)));
    entered
}

/// The same on account of this file.
fn in_the_gate(shared: &Shared, name: &str) -> pidlockfile::OpenFile {
    let open = shared.service().state.open().unwrap();
    let name = Name::new(name).unwrap();
    let Ok(pidlockfile::Found::File(mut opened)) = open.own.file(&name).read() else { panic!() };
    let entered = open.own.directory.enter(&name, &mut opened).unwrap();
    assert!(matches!(entered, pidlockfile::Entry::Inside(_)));
    opened
}

fn is_free_for_flock(path: &Path) -> bool {
    Flock::lock(File::open(path).unwrap(), FlockArg::LockExclusiveNonblock).is_ok()
}

/// A lock of two names.
fn with_two_names(shared: &Shared, table: &mut Table) -> [PathBuf; 2] {
    symlink("ttyS0", shared.0.path().join("dev/modem")).unwrap();
    assert_eq!(table.lock(&request(Pid::this())).outcome(), Outcome::Done);
    [shared.lock_file(), shared.0.path().join("lock/LCK..modem")]
}

/// From now on, nobody can enter the gate. A process that is inside stays there.
fn shut(gate: &Path) {
    let _ = std::fs::remove_file(gate);
    std::fs::create_dir(gate).unwrap();
}

/// A process that removes the lock is stopped in the gate, between its last look and the removal. The owner's UNLOCK waits
/// for it: another lock might have the name when it goes on. Until it is released, a daemon protects the lock from Qt.
#[rstest]
#[case::of_a_session(false)]
#[case::of_a_daemon(true)]
fn a_release_does_not_overtake_a_process_in_the_gate(#[case] is_daemon: bool) {
    let shared = Shared::new();
    let mut table = shared.service();
    if is_daemon {
        table.keep_open(10);
    }
    let own = request(Pid::this());
    assert_eq!(table.lock(&own).outcome(), Outcome::Done);
    let stands = || {
        let is_kept = !is_free_for_flock(&shared.lock_file());
        is_kept == is_daemon && shared.record().is_symlink()
    };
    let inside = in_the_gate(&shared, "LCK..ttyS0");
    for mut backoff in [fresh(), fresh().exhausted(Instant::now())] {
        let answer = table.attempt_unlock(&own, &mut backoff);
        assert_waits_for_us(&answer);
        assert!(stands());
    }
    let answer = table.attempt_unlock(&own, &mut fresh().last(Instant::now()));
    assert_eq!((answer.outcome(), stands()), (Outcome::Busy, true), "{answer:?}");
    let before = Instant::now();
    assert_eq!(table.unlock(&own).outcome(), Outcome::Busy);
    assert!(before.elapsed() >= Duration::from_millis(700) && stands());
    drop(inside);
    assert_eq!(table.unlock(&own).outcome(), Outcome::Done);
    shared.assert_nothing_is_left();
}

/// A container that shares only the lock directory takes the lock for stale, and Qt as root removes foreign locks.
#[test]
fn a_daemon_keeps_its_flock_until_the_lock_is_gone() {
    let shared = Shared::new();
    let mut table = shared.service();
    table.keep_open(10);
    let own = request(Pid::this());
    assert_eq!(table.lock(&own).outcome(), Outcome::Done);
    let path = shared.lock_file();
    let free = Rc::new(RefCell::new(None));
    let note = Rc::clone(&free);
    meanwhile::at(Before::Hold, move || *note.borrow_mut() = Some(is_free_for_flock(&path)));
    assert_eq!(table.unlock(&own).outcome(), Outcome::Done);
    assert_eq!(*free.borrow(), Some(false));
}

/// Whichever process holds the file of a living owner by flock, it is released. The kernel's list, which may take seconds,
/// is not read for that.
#[test]
fn an_owners_release_needs_no_list() {
    let shared = Shared::new();
    let mut table = shared.service();
    let own = request(Pid::this());
    assert_eq!(table.lock(&own).outcome(), Outcome::Done);
    let _held = flocked(&shared.lock_file());
    table.state.flocks = Flocks::answering([None]);
    assert_eq!(table.attempt_unlock(&own, &mut last()).outcome(), Outcome::Done);
    shared.assert_nothing_is_left();
}

/// A stale lock is not broken while another process is in the gate, which may be stopped there: the port is busy then.
#[test]
fn a_lock_waits_for_a_process_in_the_gate_and_is_refused() {
    let shared = Shared::new();
    let (path, held) = stale_and_held(&shared);
    drop(held);
    let mut table = shared.service();
    let inside = in_the_gate(&shared, "LCK..ttyS0");
    let own = request(Pid::this());
    let answer = table.attempt_lock(&own, None, last());
    assert_waits_for_us(&answer);
    let answer = table.attempt_lock(&own, None, fresh().last(Instant::now()));
    assert_eq!(answer.outcome(), Outcome::Busy, "{answer:?}");
    let names_it = format!("pid {} stays in the gate", Pid::this());
    assert!(answer.events.iter().any(|event| event.text.contains(&names_it)), "{answer:?}");
    assert!(path.exists());
    drop(inside);
    assert_eq!(table.attempt_lock(&own, None, last()).outcome(), Outcome::Done);
}

/// What keeps the gate shut is said in one line, and nothing else.
#[rstest]
fn a_refusal_at_the_gate_has_one_line(
    #[values(true, false)] is_occupied: bool,
    #[values("lock", "unlock", "pass")] request_for: &str,
) {
    let (shared, receiver) = (Shared::new(), Sleeper::new());
    let mut table = shared.service();
    let own = request(Pid::this());
    assert_eq!(table.lock(&own).outcome(), Outcome::Done);
    if request_for == "lock" {
        assert_eq!(table.unlock(&own).outcome(), Outcome::Done);
    }
    let _inside = is_occupied.then(|| enter(shared.service()));
    if !is_occupied {
        shut(&shared.gate());
    }
    let mut last = fresh().last(Instant::now());
    let answer = match request_for {
        "lock" => table.attempt_lock(&own, None, last),
        "unlock" => table.attempt_unlock(&own, &mut last),
        _ => {
            let pass = Pass { device: own.device, from: own.pid, to: receiver.pid() };
            table.attempt_pass(&pass, None, &mut last)
        }
    };
    assert_eq!(answer.outcome(), Outcome::Busy);
    let lines: Vec<_> = answer.events.iter().map(|event| event.text.as_str()).collect();
    assert!(matches!(lines[..], [line] if line.contains("see gate in ")), "{lines:?}");
}

/// Nor does it wait there to say that the port is held.
#[test]
fn a_held_port_is_busy_whoever_is_in_the_gate() {
    let shared = Shared::new();
    let (mut table, holder) = (shared.service(), Sleeper::new());
    assert_eq!(table.lock(&request(holder.pid())).outcome(), Outcome::Done);
    let _inside = enter(shared.service());
    let answer = table.attempt_lock(&request(Pid::this()), None, fresh());
    let Err(Stop::Busy(Some(who))) = answer.result else { panic!("{answer:?}") };
    assert_eq!(who.pid, holder.pid());
    assert_eq!(std::fs::read_dir(shared.0.path().join("lock")).unwrap().count(), 1);
}

/// The first name is the one that others meet.
#[test]
fn a_lock_that_is_not_unlocked_keeps_its_first_name() {
    let shared = Shared::new();
    let mut table = shared.service();
    let [first, second] = with_two_names(&shared, &mut table);
    let inside = in_the_gate(&shared, "LCK..modem");
    let own = request(Pid::this());
    for mut backoff in [fresh(), fresh().last(Instant::now())] {
        assert_ne!(table.attempt_unlock(&own, &mut backoff).outcome(), Outcome::Done);
        assert!(first.exists() && second.exists());
    }
    drop(inside);
    assert_eq!(table.unlock(&own).outcome(), Outcome::Done);
    shared.assert_nothing_is_left();
}

#[rstest]
fn without_the_gate_no_name_is_released(#[values(true, false)] is_daemon: bool) {
    let shared = Shared::new();
    let mut table = shared.service();
    if is_daemon {
        table.keep_open(10);
    }
    let paths = with_two_names(&shared, &mut table);
    shut(&shared.gate());
    let answer = table.unlock(&request(Pid::this()));
    assert_eq!(answer.outcome(), Outcome::Busy, "{answer:?}");
    assert!(paths.iter().all(|path| path.exists()));
    std::fs::remove_dir(shared.gate()).unwrap();
    assert_eq!(table.unlock(&request(Pid::this())).outcome(), Outcome::Done);
    shared.assert_nothing_is_left();
}

/// A program has put a file of its own in the place of a link of its lock. UNLOCK has released the lock when it meets a
/// process in the gate on account of that file, and the program removes the file before UNLOCK comes again.
#[rstest]
#[case::of_the_same_request(true, Outcome::Done)]
#[case::of_another_request(false, Outcome::Busy)]
fn what_an_earlier_attempt_has_released_is_unlocked(
    #[case] is_same: bool,
    #[case] expected: Outcome,
) {
    let shared = Shared::new();
    let mut table = shared.service();
    let [first, second] = with_two_names(&shared, &mut table);
    std::fs::remove_file(&second).unwrap();
    std::fs::write(&second, format!("{:>10}\n", Pid::this())).unwrap();
    let inside = Rc::new(RefCell::new(None));
    let (stays, gate) = (Rc::clone(&inside), shared.service());
    // The first file that is read is the lock, the next one the program's.
    meanwhile::at(Before::Record, || {
        meanwhile::at(Before::Record, move || *stays.borrow_mut() = Some(enter(gate)));
    });
    let (own, mut first_request) = (request(Pid::this()), fresh());
    assert_waits_for_us(&table.attempt_unlock(&own, &mut first_request));
    assert_eq!((first.exists(), second.exists()), (false, true));
    std::fs::remove_file(second).unwrap();
    inside.borrow_mut().take();
    let mut later = if is_same { first_request } else { fresh() };
    let answer = table.attempt_unlock(&own, &mut later);
    assert_eq!(answer.outcome(), expected, "{answer:?}");
    // It has its answer.
    assert_eq!(table.attempt_unlock(&own, &mut fresh()).outcome(), Outcome::Busy);
    shared.assert_nothing_is_left();
}

/// Reading the kernel's list may take seconds. Other processes can enter the gate meanwhile.
#[test]
fn nobody_waits_at_the_gate_while_the_list_is_read() {
    let shared = Shared::new();
    let (_, held) = stale_and_held(&shared);
    let mut table = shared.service();
    table.state.flocks =
        Flocks::answering([Some(listing_of(&held, FlockHolder::Process(no_process())))]);
    let entered = Rc::new(RefCell::new(false));
    let note = Rc::clone(&entered);
    let gate = shared.gate();
    meanwhile::at(Before::List, move || *note.borrow_mut() = is_free_for_flock(&gate));
    assert_eq!(table.attempt_lock(&request(Pid::this()), None, last()).outcome(), Outcome::Done);
    assert!(*entered.borrow());
}

/// A daemon makes the gate at its start: later, the file system may be full.
#[test]
fn a_daemon_makes_its_gate_at_the_start() {
    let shared = Shared::new();
    shared.service().keep_open(10);
    assert!(shared.gate().is_file());
}

/// In a directory that is open to all, another user plants a file with the owner's number. It cannot be removed, and the
/// user's own lock is released all the same.
#[test]
#[ignore = "needs root: tests/run"]
fn a_planted_file_keeps_no_users_lock_from_being_released() {
    let shared = Shared::new();
    let [lock_dir, open_dir] = ["lock", "tmp"].map(|name| shared.0.path().join(name));
    std::fs::create_dir(&open_dir).unwrap();
    let directories = [(shared.0.path(), 0o755), (&lock_dir, 0o777), (&open_dir, 0o1777)];
    for (path, mode) in directories {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let planted = open_dir.join("LCK..ttyS0");
    std::fs::write(&planted, format!("{:>10}\n", Pid::this())).unwrap();
    std::os::unix::fs::chown(&planted, Some(1001), Some(1001)).unwrap();
    let layout = Layout { search_dirs: vec![open_dir], ..shared.layout() };
    let as_user = || {
        let user = rustix::process::Uid::from_raw(1000);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let mut table = Table::new(layout);
        let own = request(Pid::this());
        assert_eq!(table.lock(&own).outcome(), Outcome::Done);
        assert!(shared.lock_file().exists() && shared.records().is_empty());
        table.unlock(&own)
    };
    let answer = std::thread::scope(|scope| scope.spawn(as_user).join().unwrap());
    assert!(!shared.lock_file().exists() && planted.exists(), "{answer:?}");
}

/// Of three names, the second is a stale lock when they are released. The gate cannot be entered again, so it stays. It goes
/// with the holder.
#[test]
fn a_name_that_was_not_released_is_still_watched() {
    let shared = Shared::new();
    symlink("ttyS0", shared.0.path().join("dev/modem2")).unwrap();
    let mut table = shared.service();
    table.keep_open(10);
    let holder = Sleeper::new();
    let own = request(holder.pid());
    symlink("ttyS0", shared.0.path().join("dev/modem")).unwrap();
    assert_eq!(table.lock(&own).outcome(), Outcome::Done);
    let (open, first) = (table.state.open().unwrap(), Name::new("LCK..ttyS0").unwrap());
    let record = table.state.record_at(open.own.file(&first)).unwrap();
    let path = |name: &Name| shared.0.path().join("lock").join(name.as_str());
    let paths: Vec<PathBuf> = record.names.iter().map(path).collect();
    assert_eq!(paths.len(), 3);
    let stand = || paths.iter().map(|path| path.exists()).collect::<Vec<_>>();
    std::fs::remove_file(&paths[1]).unwrap();
    std::fs::write(&paths[1], format!("{:>10}\n", no_process())).unwrap();
    let gate = shared.gate();
    meanwhile::at(Before::Hold, move || shut(&gate));
    let answer = table.attempt_unlock(&own, &mut fresh().last(Instant::now()));
    assert_eq!((answer.outcome(), stand()), (Outcome::Done, vec![false, true, false]));
    std::fs::remove_dir(shared.gate()).unwrap();
    let pid = holder.pid();
    drop(holder);
    table.remove_locks_of_ended(pid);
    assert_eq!(stand(), [false; 3]);
}
