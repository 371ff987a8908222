//! The rule by a table, and the system's own answers.

#[cfg(unix)]
use std::process::{Child, Command};
#[cfg(unix)]
use std::time::{Duration, Instant};

use rstest::rstest;

use super::*;
#[cfg(unix)]
use crate::process::{Machine, lives, real_user};

const BOOT: &str = "b-1";

fn here(boot: &str, namespace: u64, nanoseconds: i128) -> Here {
    let shift = ClockShift { nanoseconds };
    Here { boot: Some(boot.to_owned()), namespace: Some(namespace), shift }
}

fn holder(start: Start, here: Here) -> ProcessIdentity {
    ProcessIdentity { pid: Pid::new(77).unwrap(), start, here: Arc::new(here) }
}

const fn at(ticks: u64) -> Option<Start> {
    Some(Start::At(ticks))
}

const HIDDEN: Option<Start> = Some(Start::Unknown);

#[rstest]
#[case::same_process(Start::At(9), BOOT, 5, at(9), Fate::Same)]
#[case::another_start(Start::At(9), BOOT, 5, at(10), Fate::Replaced)]
#[case::start_is_hidden(Start::At(9), BOOT, 5, HIDDEN, Fate::Same)]
#[case::start_was_hidden(Start::Unknown, BOOT, 5, at(10), Fate::Same)]
#[case::nobody_has_the_number(Start::At(9), BOOT, 5, Some(Start::Nobody), Fate::Gone)]
#[case::was_nobody_then(Start::Nobody, BOOT, 5, at(10), Fate::Replaced)]
#[case::was_nobody_and_is_none(Start::Nobody, BOOT, 5, Some(Start::Nobody), Fate::Gone)]
#[case::another_boot(Start::At(9), "b-2", 5, at(9), Fate::Gone)]
#[case::another_namespace(Start::At(9), BOOT, 6, None, Fate::Elsewhere)]
#[case::another_namespace_alive(Start::At(9), BOOT, 6, at(9), Fate::Same)]
#[case::another_namespace_ended(Start::At(9), BOOT, 6, Some(Start::Nobody), Fate::Gone)]
#[case::another_namespace_and_boot(Start::At(9), "b-2", 6, None, Fate::Elsewhere)]
#[case::another_namespace_and_boot_alive(Start::At(9), "b-2", 6, at(9), Fate::Same)]
#[case::nobody_of_another_namespace(Start::Nobody, BOOT, 6, Some(Start::Nobody), Fate::Gone)]
fn the_fate_of_a_process_by_its_identity(
    #[case] start: Start,
    #[case] boot: &str,
    #[case] namespace: u64,
    #[case] seen: Option<Start>,
    #[case] fate: Fate,
) {
    let who = holder(start, here(boot, namespace, 0));
    assert_eq!(who.compare(&here(BOOT, 5, 0), seen), fate);
}

#[rstest]
#[case::the_same_shift(5_000_000, 5_000_000, 4242, Fate::Same)]
#[case::the_same_shift_beside_it(5_000_000, 5_000_000, 4243, Fate::Replaced)]
#[case::ahead(100_000_000_000, 0, 14_242, Fate::Same)]
#[case::ahead_another(100_000_000_000, 0, 14_243, Fate::Replaced)]
#[case::behind(-10_000_000_000, 0, 3242, Fate::Same)]
#[case::as_read_here_by_chance(100_000_000_000, 0, 4242, Fate::Replaced)]
#[case::between_two_ticks(5_000_000, 0, 4243, Fate::Same)]
#[case::between_two_ticks_another(5_000_000, 0, 4244, Fate::Replaced)]
#[cfg(unix)]
fn a_shifted_start_is_the_same_start(
    #[case] ours: i128,
    #[case] theirs: i128,
    #[case] seen: u64,
    #[case] fate: Fate,
) {
    // By the usual hundred ticks a second.
    assert_eq!(crate::process::ticks_per_second(), Some(100));
    let who = holder(Start::At(4242), here(BOOT, 5, theirs));
    assert_eq!(who.compare(&here(BOOT, 5, ours), at(seen)), fate);
}

#[rstest]
#[case::nothing(0, 4242, Some(4242), true)]
#[case::whole_seconds(100_000_000_000_000, 10_004_242, Some(4242), true)]
#[case::behind(-42_420_000_000, 0, Some(4242), true)]
#[case::between_two_ticks(5_000_000, 4242, Some(4242), false)]
#[case::from_before_the_start(100_000_000_000_000, 1, None, true)]
fn the_clock_shift_of_a_time_namespace_is_undone(
    #[case] nanoseconds: i128,
    #[case] seen: u64,
    #[case] start: Option<u64>,
    #[case] exact: bool,
) {
    let shift = ClockShift { nanoseconds };
    assert_eq!((shift.undo(seen, 100), shift.is_exact(100)), (start, exact));
}

#[cfg(unix)]
fn sleeper() -> (Child, Pid) {
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = Pid::new(i64::from(child.id())).unwrap();
    (child, pid)
}

#[test]
#[cfg(unix)]
fn a_process_is_the_same_until_it_ends() {
    let mut machine = Machine::default();
    let (mut child, pid) = sleeper();
    assert!(lives(pid), "nothing is known of it yet");
    let who = machine.identify(pid);
    for pid in [Pid::this(), pid, pid] {
        let who = machine.identify(pid);
        assert!(matches!(who.start, Start::At(_)));
        assert_eq!((who.pid, machine.fate(&who)), (pid, Fate::Same));
    }
    let later = ProcessIdentity { start: Start::At(1), ..who.clone() };
    assert_eq!(machine.fate(&later), Fate::Replaced);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(machine.fate(&who), Fate::Gone);
    assert_eq!(machine.identify(pid).start, Start::Nobody);
    assert_eq!(
        (machine.fate(&ProcessIdentity::bare(pid)), lives(pid), real_user(pid)),
        (Fate::Gone, false, None)
    );
}

/// A parent that has not waited for its child keeps the number, and nothing else.
#[test]
#[cfg(unix)]
fn a_zombie_is_gone() {
    let mut machine = Machine::default();
    let (mut child, pid) = sleeper();
    let who = machine.identify(pid);
    child.kill().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while machine.fate(&who) != Fate::Gone {
        assert!(Instant::now() < deadline, "never seen to end");
        std::thread::yield_now();
    }
    assert_eq!(nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.as_raw()), None), Ok(()));
    assert!(!lives(pid));
    assert_eq!(machine.identify(pid).start, Start::Nobody);
    assert_eq!(Machine::default().fate(&who), Fate::Gone);
    child.wait().unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_reaches_that_very_process_or_none() {
    use rustix::io::Errno;
    use rustix::process::Signal;

    use crate::process::signal;

    let sent = |who: &ProcessIdentity| {
        signal(who, Signal::KILL.as_raw()).map_err(|it| Errno::from_io_error(&it).unwrap())
    };
    let mut machine = Machine::default();
    let (mut child, pid) = sleeper();
    let who = machine.identify(pid);
    let others = [
        ProcessIdentity { start: Start::At(1), ..who.clone() },
        ProcessIdentity { start: Start::Nobody, ..who.clone() },
        ProcessIdentity {
            here: Arc::new(Here { namespace: Some(1), ..(*who.here).clone() }),
            ..who.clone()
        },
    ];
    for other in others {
        assert_eq!(sent(&other), Err(Errno::SRCH));
    }
    assert!(child.try_wait().unwrap().is_none());
    sent(&who).unwrap();
    child.wait().unwrap();
    assert_eq!(sent(&who), Err(Errno::SRCH));
}

#[test]
#[cfg(target_os = "linux")]
fn an_observed_process_has_ended_when_it_has() {
    use std::io::Read;

    use crate::process::Observed;

    let mut machine = Machine::default();
    let (mut child, pid) = sleeper();
    let observed = Observed::of(&mut machine, pid);
    assert_eq!(*observed.identity(), machine.identify(pid));
    assert!(!observed.has_ended(&mut machine) && observed.is_there());
    let mut status = String::new();
    observed.status().unwrap().read_to_string(&mut status).unwrap();
    assert!(status.contains(&format!("\nPid:\t{pid}\n")), "{status}");
    child.kill().unwrap();
    let begin = Instant::now();
    while machine.identify(pid).start != Start::Nobody {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not end");
    }
    assert!(observed.has_ended(&mut machine) && !observed.is_there(), "a zombie");
    let of_a_zombie = Observed::of(&mut machine, pid);
    child.wait().unwrap();
    assert!(observed.has_ended(&mut machine) && !observed.is_there());
    // None of these was there at all.
    let nobody = Observed::of(&mut machine, pid);
    for never in [of_a_zombie, nobody] {
        assert_eq!(never.identity().start, Start::Nobody);
        assert!(!never.has_ended(&mut machine) && !never.is_there());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_machine_has_a_boot_and_a_namespace() {
    let mut machine = Machine::default();
    let here = machine.here();
    assert_eq!(here.boot.as_ref().map(String::len), Some(36));
    assert!(here.namespace.is_some());
}

/// The process that runs this very test executes itself from the test's thread, which is not its first.
#[cfg(target_os = "linux")]
const EXECUTES_ITSELF: &str = "PIDLOCKFILE_TEST_EXECUTES_ITSELF";

#[test]
#[cfg(target_os = "linux")]
fn a_process_whose_thread_executes_a_program_has_not_ended() {
    use std::os::unix::process::CommandExt;

    let this = "process::identity::tests::a_process_whose_thread_executes_a_program_has_not_ended";
    let mut itself = Command::new(std::env::current_exe().unwrap());
    itself.args([this, "--exact"]).env(EXECUTES_ITSELF, "").stdout(std::process::Stdio::null());
    if std::env::var_os(EXECUTES_ITSELF).is_some() {
        panic!("{}", itself.exec());
    }
    let mut child = itself.spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    let end = Instant::now() + Duration::from_secs(3);
    let (mut looks, mut ends) = (0_u64, 0_u64);
    while Instant::now() < end {
        looks += 1;
        let text = std::fs::read(&stat).unwrap();
        ends += u64::from(crate::process::Stat::parse(&text).unwrap().has_ended());
    }
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ends, 0, "of {looks} looks");
}

/// Whatever user the other process has. (The first one is root's, and this test is also run by ordinary users.)
#[test]
#[cfg(target_os = "linux")]
fn all_processes_here_are_in_our_pid_namespace() {
    let first = Pid::new(1).unwrap();
    assert!([first, Pid::this()].map(crate::process::is_in_our_namespace).iter().all(|it| *it));
}
