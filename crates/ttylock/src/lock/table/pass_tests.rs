//! A PASS whose process is killed between two names, and whoever comes then.

use std::fs::read_dir;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use pidlockfile::{Name, Pid};
use rstest::rstest;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::taking_tests::{Shared, flocked, last, request};
use super::{Answer, Table};
use crate::device::DeviceName;
use crate::lock::meanwhile::{self, Before};
use crate::lock::{Outcome, Pass, Request};
use crate::test_processes::Sleeper;

const NAMES: [&str; 3] = ["LCK..ttyS0", "LCK..gps", "LCK..modem"];

/// A lock of three names, and the processes around it.
struct Machine {
    shared: Shared,
    giver: Option<Sleeper>,
    receiver: Option<Sleeper>,
    _asking: Sleeper,
    pids: [Pid; 3],
}

impl Machine {
    /// The giver has the lock.
    fn new() -> Self {
        let shared = Shared::new();
        for link in ["gps", "modem"] {
            symlink("ttyS0", shared.0.path().join("dev").join(link)).unwrap();
        }
        let [giver, receiver, asking] = [Sleeper::new(), Sleeper::new(), Sleeper::new()];
        let pids = [giver.pid(), receiver.pid(), asking.pid()];
        let (giver, receiver) = (Some(giver), Some(receiver));
        let machine = Self { shared, giver, receiver, _asking: asking, pids };
        assert_eq!(machine.service().lock(&request(pids[0])).outcome(), Outcome::Done);
        machine
    }

    /// The process that passes it is killed there.
    fn killed(before: Before) -> Self {
        let machine = Self::new();
        machine.kill(machine.service(), before);
        machine
    }

    /// This service passes the lock, and is killed there.
    fn kill(&self, mut table: Table, before: Before) {
        let [from, to, _] = self.pids;
        meanwhile::at(before, || panic!("killed"));
        let pass = AssertUnwindSafe(|| table.attempt_pass(&pass(from, to), None, &mut last()));
        assert!(std::panic::catch_unwind(pass).is_err());
        drop(table);
        wait_until_let_go(&self.path("lock"));
        wait_until_let_go(&self.path("state"));
    }

    fn service(&self) -> Table {
        self.shared.service()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.shared.0.path().join(name)
    }

    fn listed(&self, directory: &str) -> Vec<String> {
        let entries = read_dir(self.path(directory)).unwrap().flatten();
        let mut names: Vec<String> =
            entries.map(|it| it.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Whom each of the lock's names names.
    fn named(&self) -> Vec<Option<String>> {
        let named = |name: &&str| std::fs::read_to_string(self.path("lock").join(name)).ok();
        NAMES.iter().map(|name| named(name).map(|it| it.trim().to_owned())).collect()
    }

    #[track_caller]
    fn assert_is_whole(&self, holder: Pid) {
        assert_eq!(self.named(), vec![Some(holder.to_string()); 3]);
    }

    /// A minute later, a daemon begins.
    fn sweep(&self) {
        let long_ago = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: long_ago, last_modification: long_ago };
        for path in ["lock", "state"].map(|it| read_dir(self.path(it)).unwrap().flatten()) {
            for entry in path {
                let name = entry.file_name().into_string().unwrap();
                if name.ends_with(".tmp") || entry.path().is_symlink() {
                    utimensat(CWD, entry.path(), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
                }
            }
        }
        self.service().keep_open(0);
    }

    #[track_caller]
    fn assert_is_swept(&self) {
        self.sweep();
        assert_eq!((self.listed("lock"), self.listed("state")), (vec![], vec!["gate".to_owned()]));
    }
}

/// A service whose lock directory has no hard links.
fn without_links(shared: &Shared) -> Table {
    let mut table = shared.service();
    table.state.open().unwrap().own.forget_links();
    table
}

/// Where a file has one name, a lock with one name is passed, and the process that does so may be killed before.
#[rstest]
fn a_lock_is_passed_where_no_file_has_a_second_name(
    #[values(None, Some(Before::Decision))] kill: Option<Before>,
) {
    let shared = Shared::new();
    let [giver, receiver, asking] = [(); 3].map(|()| Sleeper::new());
    let (giver, receiver, asking) = (giver.pid(), receiver.pid(), asking.pid());
    let mut table = without_links(&shared);
    done(table.lock(&request(giver)));
    let holder = match kill {
        None => {
            done(table.pass(&pass(giver, receiver)));
            receiver
        }
        Some(before) => {
            meanwhile::at(before, || panic!("killed"));
            let pass =
                AssertUnwindSafe(|| table.attempt_pass(&pass(giver, receiver), None, &mut last()));
            assert!(std::panic::catch_unwind(pass).is_err());
            table = without_links(&shared);
            giver
        }
    };
    for directory in ["lock", "state"] {
        wait_until_let_go(&shared.0.path().join(directory));
    }
    // Its record shows that it is not stale.
    busy(shared.here().attempt_lock(&request(asking), None, last()), holder);
    for other in [giver, receiver, asking].into_iter().filter(|it| *it != holder) {
        busy(table.attempt_unlock(&request(other), &mut last()), holder);
    }
    done(table.unlock(&request(holder)));
    assert!(!shared.lock_file().exists());
}

/// There, a lock with several names has several files, each with its record, and cannot be passed.
#[test]
fn a_lock_of_several_files_is_not_passed() {
    let shared = Shared::new();
    symlink("ttyS0", shared.0.path().join("dev/gps")).unwrap();
    let [giver, receiver] = [(); 2].map(|()| Sleeper::new());
    let mut table = without_links(&shared);
    done(table.lock(&request(giver.pid())));
    let answer = table.attempt_pass(&pass(giver.pid(), receiver.pid()), None, &mut last());
    assert_eq!(answer.outcome(), Outcome::Denied, "{answer:?}");
    let said = |it: &crate::lock::Event| it.text.contains("cannot be passed: it has 2 files");
    assert!(answer.events.iter().any(said), "{answer:?}");
    busy(shared.here().attempt_lock(&request(receiver.pid()), None, last()), giver.pid());
    done(table.unlock(&request(giver.pid())));
    shared.assert_nothing_is_left();
}

fn pass(from: Pid, to: Pid) -> Pass {
    Pass { device: DeviceName::parse(b"ttyS0").unwrap(), from, to }
}

/// Waits for the processes that other tests have started meanwhile: until their programs run, they have the descriptors
/// of this process, and so its `flock(2)`.
fn wait_until_let_go(directory: &Path) {
    for entry in read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            drop(flocked(&path));
        }
    }
}

/// Who comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comer {
    Lock,
    LockElsewhere,
    UnlockOfHolder,
    UnlockByAnotherName,
    UnlockOfTheOther,
    PassOfHolder,
    PassOfTheOther,
    Daemon,
    EndOfHolder,
    EndOfTheOther,
}

/// Until the first name is passed, the whole lock is the giver's, and then the receiver's: whoever comes next finds it so, and
/// finishes what was begun.
#[rstest]
fn a_half_passed_lock_is_whole_for_whoever_comes_next(
    #[values(Before::Decision, Before::End)] killed: Before,
    #[values(
        Comer::Lock,
        Comer::LockElsewhere,
        Comer::UnlockOfHolder,
        Comer::UnlockByAnotherName,
        Comer::UnlockOfTheOther,
        Comer::PassOfHolder,
        Comer::PassOfTheOther,
        Comer::Daemon,
        Comer::EndOfHolder,
        Comer::EndOfTheOther
    )]
    comer: Comer,
) {
    let mut machine = Machine::killed(killed);
    let is_passed = killed == Before::End;
    let [giver, receiver, asking] = machine.pids;
    let (holder, other) = if is_passed { (receiver, giver) } else { (giver, receiver) };
    let mut table = machine.service();
    let ((), mut holders) = match comer {
        Comer::Lock => busy(table.attempt_lock(&request(asking), None, last()), holder),
        Comer::LockElsewhere => {
            busy(machine.shared.here().attempt_lock(&request(asking), None, last()), holder)
        }
        Comer::UnlockOfHolder => (done(table.unlock(&request(holder))), None),
        Comer::UnlockByAnotherName => {
            let device = DeviceName::parse(b"modem").unwrap();
            (done(table.unlock(&Request { device, pid: holder })), None)
        }
        Comer::UnlockOfTheOther => busy(table.attempt_unlock(&request(other), &mut last()), holder),
        Comer::PassOfHolder => (done(table.pass(&pass(holder, asking))), Some(asking)),
        Comer::PassOfTheOther => {
            busy(table.attempt_pass(&pass(other, asking), None, &mut last()), holder)
        }
        Comer::Daemon => {
            table.keep_open(0);
            ((), Some(holder))
        }
        Comer::EndOfHolder => {
            drop(if is_passed { machine.receiver.take() } else { machine.giver.take() });
            (done(table.lock(&request(asking))), Some(asking))
        }
        Comer::EndOfTheOther => {
            drop(if is_passed { machine.giver.take() } else { machine.receiver.take() });
            busy(table.attempt_lock(&request(asking), None, last()), holder)
        }
    };
    if holders == Some(holder) {
        // It has met the first name, and looked no further.
        machine.service().keep_open(0);
    }
    if let Some(holder) = holders.take() {
        machine.assert_is_whole(holder);
        assert_eq!(machine.service().unlock(&request(holder)).outcome(), Outcome::Done);
    }
    assert_eq!(machine.named(), [const { None }; 3]);
    machine.assert_is_swept();
}

#[track_caller]
fn done(answer: Answer) {
    assert_eq!(answer.outcome(), Outcome::Done, "{answer:?}");
}

#[track_caller]
fn busy(answer: Answer, holder: Pid) -> ((), Option<Pid>) {
    assert_eq!(answer.outcome(), Outcome::Busy, "{answer:?}");
    ((), Some(holder))
}

/// Another program removes the first name, just after it was passed or later. The receiver keeps the others.
#[rstest]
#[case::later(None)]
#[case::before_the_process_was_killed(Some(Before::End))]
fn a_receiver_keeps_what_is_left_without_the_first_name(#[case] killed: Option<Before>) {
    let machine = killed.map_or_else(Machine::new, Machine::killed);
    let [giver, receiver, asking] = machine.pids;
    let mut table = machine.service();
    if killed.is_none() {
        done(table.pass(&pass(giver, receiver)));
    }
    std::fs::remove_file(machine.shared.lock_file()).unwrap();
    let left = vec![None, Some(receiver.to_string()), Some(receiver.to_string())];
    busy(table.attempt_lock(&request(asking), None, last()), receiver);
    assert_eq!(machine.named(), left);
    table.keep_open(0);
    assert_eq!(machine.named(), left);
    busy(table.attempt_unlock(&request(giver), &mut last()), receiver);
    assert_eq!(machine.named(), left);
    done(table.unlock(&request(receiver)));
    machine.assert_is_swept();
}

/// A lock goes on from one process to the next, each of which is killed at the end of its PASS.
#[test]
fn a_lock_is_passed_from_one_to_the_next() {
    let machine = Machine::killed(Before::End);
    let [giver, receiver, asking] = machine.pids;
    let mut table = machine.service();
    busy(table.attempt_pass(&pass(giver, asking), None, &mut last()), receiver);
    done(table.pass(&pass(receiver, asking)));
    machine.assert_is_whole(asking);
    done(table.pass(&pass(asking, giver)));
    machine.assert_is_whole(giver);
    done(table.unlock(&request(giver)));
    machine.assert_is_swept();
}

/// Another program takes a name just before its turn comes. It keeps the name, and nothing is passed.
#[rstest]
fn a_name_that_another_program_has_taken_is_its_own(#[values(0, 1, 2)] at: usize) {
    let machine = Machine::new();
    let [giver, receiver, asking] = machine.pids;
    let name = machine.path("lock").join(NAMES[at]);
    let mut table = machine.service();
    let theirs = format!("{asking:>10}\n");
    meanwhile::at(Before::Decision, move || {
        std::fs::remove_file(&name).unwrap();
        std::fs::write(&name, theirs).unwrap();
    });
    let answer = table.attempt_pass(&pass(giver, receiver), None, &mut last());
    // If its turn was over, the receiver has the others.
    let holder = if at == 0 { giver } else { receiver };
    let outcome = if at == 0 { Outcome::Busy } else { Outcome::Done };
    assert_eq!(answer.outcome(), outcome, "{answer:?}");
    let mut named = vec![Some(holder.to_string()); 3];
    named[at] = Some(asking.to_string());
    assert_eq!(machine.named(), named);
    assert!(machine.listed("lock").iter().all(|it| !it.ends_with(".tmp")));
}

/// The giver ends before its first name is passed. Its lock is stale then, and not the receiver's.
#[test]
fn the_lock_of_a_giver_that_ends_meanwhile_is_not_passed() {
    let mut machine = Machine::new();
    let [from, to, asking] = machine.pids;
    let giver = machine.giver.take();
    meanwhile::at(Before::Decision, move || drop(giver));
    let mut table = machine.service();
    let answer = table.attempt_pass(&pass(from, to), None, &mut last());
    assert_eq!(answer.outcome(), Outcome::Busy, "{answer:?}");
    machine.assert_is_whole(from);
    done(table.lock(&request(asking)));
    done(table.unlock(&request(asking)));
    machine.assert_is_swept();
}

/// The device has got a further link since it was locked. The receiver gets that name, too.
#[test]
fn the_receiver_gets_further_names_of_the_device() {
    let machine = Machine::new();
    let [giver, receiver, _] = machine.pids;
    symlink("ttyS0", machine.path("dev/radio")).unwrap();
    let mut table = machine.service();
    done(table.pass(&pass(giver, receiver)));
    machine.assert_is_whole(receiver);
    let further = std::fs::read_to_string(machine.path("lock/LCK..radio")).unwrap();
    assert_eq!(further.trim(), receiver.to_string());
    done(table.unlock(&request(receiver)));
    machine.assert_is_swept();
}

/// A process of another pid namespace sees the lock of a living process at each step, and so do those that are killed there.
#[rstest]
fn a_lock_that_is_passed_elsewhere_is_never_stale(
    #[values(Before::Decision, Before::End)] step: Before,
) {
    let machine = Machine::new();
    let [giver, receiver, asking] = machine.pids;
    let mut here = machine.service();
    let mut elsewhere = machine.shared.here();
    let device = DeviceName::parse(b"modem").unwrap();
    meanwhile::at(step, move || {
        let modem = Request { device, pid: asking };
        for request in [request(asking), modem] {
            let answer = elsewhere.attempt_lock(&request, None, last());
            assert_ne!(answer.outcome(), Outcome::Done, "{answer:?}");
        }
    });
    done(here.pass(&pass(giver, receiver)));
    machine.assert_is_whole(receiver);
}

/// The service after a PASS to the receiver, or the next one after that was killed at this step.
fn passed_or_killed(machine: &Machine, mut table: Table, killed: Option<Before>) -> Table {
    let [giver, receiver, _] = machine.pids;
    match killed {
        None => done(table.pass(&pass(giver, receiver))),
        Some(step) => {
            machine.kill(table, step);
            table = machine.service();
        }
    }
    table
}

/// A link of the device has come from another port that the giver has locked, too. That lock stays on record.
#[rstest]
fn another_lock_of_the_giver_stays_on_record(
    #[values(None, Some(Before::End))] kill: Option<Before>,
) {
    let machine = Machine::new();
    let [giver, receiver, asking] = machine.pids;
    std::fs::write(machine.path("dev/ttyS1"), "").unwrap();
    symlink("ttyS1", machine.path("dev/radio")).unwrap();
    let other = |pid| Request { device: DeviceName::parse(b"ttyS1").unwrap(), pid };
    let mut table = machine.service();
    done(table.lock(&other(giver)));
    std::fs::remove_file(machine.path("dev/radio")).unwrap();
    symlink("ttyS0", machine.path("dev/radio")).unwrap();
    let mut table = passed_or_killed(&machine, table, kill);
    if kill.is_some() {
        table.keep_open(0);
    }
    let records = machine.listed("state").into_iter().filter(|it| it.starts_with("held."));
    assert_eq!(records.count(), 2);
    let named = std::fs::read_to_string(machine.path("lock/LCK..radio")).unwrap();
    assert_eq!(named.trim(), giver.to_string());
    busy(table.attempt_lock(&other(asking), None, last()), giver);
    done(table.unlock(&other(giver)));
    assert!(!machine.path("lock/LCK..ttyS1").exists());
    assert!(!machine.path("lock/LCK..radio").exists());
    machine.assert_is_whole(receiver);
    done(table.unlock(&request(receiver)));
    machine.assert_is_swept();
}

/// The giver has only the lock of the other port.
#[test]
fn the_lock_of_another_port_is_not_passed_by_a_link_that_has_moved() {
    let machine = Machine::new();
    let [giver, receiver, _] = machine.pids;
    let mut table = machine.service();
    done(table.unlock(&request(giver)));
    std::fs::write(machine.path("dev/ttyS1"), "").unwrap();
    symlink("ttyS1", machine.path("dev/radio")).unwrap();
    let other = Request { device: DeviceName::parse(b"ttyS1").unwrap(), pid: giver };
    done(table.lock(&other));
    std::fs::remove_file(machine.path("dev/radio")).unwrap();
    symlink("ttyS0", machine.path("dev/radio")).unwrap();
    let answer = table.attempt_pass(&pass(giver, receiver), None, &mut last());
    assert_eq!(answer.outcome(), Outcome::Busy, "{answer:?}");
    assert_eq!(machine.listed("lock"), ["LCK..radio", "LCK..ttyS1"]);
    done(table.unlock(&other));
    machine.assert_is_swept();
}

/// Another program has removed the first name, so the receiver's lock begins with the next one. It is released all the same,
/// also if the name that it got further is removed again.
#[rstest]
fn a_lock_without_its_first_name_is_passed_and_released(
    #[values(None, Some(Before::End))] killed: Option<Before>,
    #[values(b"ttyS0" as &[u8], b"modem")] by: &[u8],
) {
    let machine = Machine::new();
    let [_, receiver, asking] = machine.pids;
    let table = machine.service();
    std::fs::remove_file(machine.shared.lock_file()).unwrap();
    let mut table = passed_or_killed(&machine, table, killed);
    machine.assert_is_whole(receiver);
    std::fs::remove_file(machine.shared.lock_file()).unwrap();
    busy(table.attempt_lock(&request(asking), None, last()), receiver);
    let device = DeviceName::parse(by).unwrap();
    done(table.attempt_unlock(&Request { device, pid: receiver }, &mut last()));
    assert_eq!(machine.named(), [const { None }; 3]);
    machine.assert_is_swept();
}

/// Any user may put a file at a private name if the lock directory is open to all. It gets no name of the lock.
#[rstest]
#[ignore = "needs root: tests/run"]
fn a_file_that_a_user_puts_at_a_private_name_gets_no_other(#[values(0, 1, 2)] at: usize) {
    let machine = Machine::new();
    let [giver, receiver, asking] = machine.pids;
    let locks = machine.path("lock");
    std::fs::set_permissions(&locks, PermissionsExt::from_mode(0o1777)).unwrap();
    let mut table = machine.service();
    let (dir, theirs) = (locks.clone(), format!("{asking:>10}\n"));
    meanwhile::at(Before::Decision, move || {
        let mut drafts: Vec<String> = read_dir(&dir)
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .filter(|it| it.ends_with(".tmp"))
            .collect();
        drafts.sort();
        let private = Name::new(drafts[0].clone()).unwrap().further_temporary(at).unwrap();
        let path = dir.join(private.as_str());
        // Its exchange is over, so the name is taken; a sweeper has removed it.
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, theirs).unwrap();
        chown(&path, Some(1003), None).unwrap();
    });
    let answer = table.attempt_pass(&pass(giver, receiver), None, &mut last());
    if at == 0 {
        assert_eq!(answer.outcome(), Outcome::Denied, "{answer:?}");
        machine.assert_is_whole(giver);
        done(table.unlock(&request(giver)));
    } else {
        done(answer);
        machine.assert_is_whole(receiver);
        done(table.unlock(&request(receiver)));
    }
    machine.assert_is_swept();
}

/// A service in another pid namespace that shares the lock directory alone takes the private links to the giver's file, which
/// may be old, for drafts of a killed process. The giver keeps all names.
#[test]
fn a_giver_keeps_its_names_although_the_private_links_were_swept() {
    let machine = Machine::killed(Before::Decision);
    let private = machine.listed("lock").into_iter().filter(|name| name.ends_with(".tmp"));
    private.for_each(|name| std::fs::remove_file(machine.path("lock").join(name)).unwrap());
    machine.service().keep_open(0);
    let giver = machine.pids[0];
    machine.assert_is_whole(giver);
    done(machine.service().unlock(&request(giver)));
    machine.assert_is_swept();
}
