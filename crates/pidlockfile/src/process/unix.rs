//! Unix: by `kill(2)`; by `/proc` as Linux has it, where other systems say nothing.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::signal::kill;

use super::{Liveness, Pid};

/// Asks the kernel whether a process exists. "Not permitted" means that it does.
///
/// The number means a process of the caller's own pid namespace.
#[must_use]
pub fn liveness(pid: Pid) -> Liveness {
    match kill(nix::unistd::Pid::from_raw(pid.0), None) {
        Err(Errno::ESRCH) => Liveness::Gone,
        Ok(()) | Err(_) => Liveness::Alive,
    }
}

/// When a process started, in clock ticks since boot: with [`boot_id`] and the pid it names one
/// process for ever, however often the pid is used again. `None` when there is no such process,
/// or `/proc` does not tell, or is that of another pid namespace. Source: proc(5), `/proc/PID/stat` field 22.
#[must_use]
pub fn start_time(pid: Pid) -> Option<u64> {
    if !numbers_are_ours() {
        return None;
    }
    let mut buffer = [0; STAT_BYTES];
    start_time_in(read_once(&format!("/proc/{pid}/stat"), &mut buffer)?)
}

/// A file of the process's own below `/proc`, which can be read as long as that very process exists.
#[derive(Debug)]
pub(super) struct Shown(File);

impl Shown {
    /// With when it started.
    pub(super) fn of(pid: Pid) -> Option<(Self, u64)> {
        if !numbers_are_ours() {
            return None;
        }
        let stat = File::open(format!("/proc/{pid}/stat")).ok()?;
        let mut buffer = [0; STAT_BYTES];
        let length = stat.read_at(&mut buffer, 0).ok()?;
        let start = start_time_in(buffer.get(..length)?)?;
        Some((Self(stat), start))
    }

    pub(super) fn exists(&self) -> bool {
        self.0.read_at(&mut [0], 0).is_ok_and(|length| length > 0)
    }
}

/// Reads a file of the kernel's that is shorter than the buffer: it says all in one piece.
fn read_once<'b>(path: &str, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let mut file = File::open(path).ok()?;
    loop {
        match file.read(buffer) {
            Ok(length) => return buffer.get(..length),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Whether `/proc` counts processes as this process does. In a new pid namespace it may still be
/// the old one's (`unshare --pid` without `--mount-proc`): a number means another process there,
/// so nothing may be read by it. Where it does, it does for good: neither a process nor what it
/// forks changes its own namespace. Other systems have another `/proc`, or none.
fn numbers_are_ours() -> bool {
    if cfg!(not(target_os = "linux")) {
        return false;
    }
    static KNOWN: AtomicBool = AtomicBool::new(false);
    if KNOWN.load(Ordering::Relaxed) {
        return true;
    }
    let ours = shows_our_number();
    KNOWN.store(ours, Ordering::Relaxed);
    ours
}

fn shows_our_number() -> bool {
    let shown = std::fs::read_link("/proc/self").ok();
    let shown = shown.as_ref().and_then(|shown| shown.to_str());
    shown.and_then(|number| Pid::parse(number.as_bytes()).ok()) == Some(Pid::this())
}

/// More than the longest `/proc/PID/stat`: 52 numbers and a name of 64 bytes at most.
const STAT_BYTES: usize = 2048;

/// The line of the user is among the first of `/proc/PID/status`.
const STATUS_BYTES: usize = 1024;

/// More than a boot id with its newline.
const BOOT_ID_BYTES: usize = 64;

/// The command name in field 2 may hold blanks and parentheses, so fields are counted from its
/// last closing one.
pub(crate) fn start_time_in(stat: &[u8]) -> Option<u64> {
    let end_of_name = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(stat.get(end_of_name + 1..)?).ok()?;
    // The first field behind the name is number 3.
    number(rest.split_ascii_whitespace().nth(19)?)
}

/// Digits and nothing else; the standard library would also take a plus.
fn number<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The kernel's random name for the current boot, 36 characters. `None` without `/proc`.
#[must_use]
pub fn boot_id() -> Option<String> {
    let mut buffer = [0; BOOT_ID_BYTES];
    let text = read_once("/proc/sys/kernel/random/boot_id", &mut buffer)?;
    let id = std::str::from_utf8(text).ok()?.trim_end();
    Some(id.to_owned()).filter(|id| !id.is_empty())
}

/// The caller's pid namespace, as the inode number of `/proc/self/ns/pid`. `None` without it.
#[must_use]
pub fn pid_namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/pid").ok().map(|data| data.ino())
}

/// The user a process belongs to, as a uid. `None` when there is no such process, or
/// it is hidden, or `/proc` is that of another pid namespace.
///
/// That is the owner of `/proc/PID`; where the kernel shows root there, because the process
/// changed its rights, it is the real uid. Source: proc(5), `/proc/PID` and `/proc/PID/status`.
#[must_use]
pub fn owner(pid: Pid) -> Option<u32> {
    if !numbers_are_ours() {
        return None;
    }
    match std::fs::metadata(format!("/proc/{pid}")).ok()?.uid() {
        0 => {
            let mut buffer = [0; STATUS_BYTES];
            let status = read_once(&format!("/proc/{pid}/status"), &mut buffer)?;
            real_uid_in(&String::from_utf8_lossy(status))
        }
        uid => Some(uid),
    }
}

pub(crate) fn real_uid_in(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    number(line.split_ascii_whitespace().next()?)
}

/// The process that started this one.
#[must_use]
pub fn parent() -> Option<Pid> {
    Pid::new(i64::from(nix::unistd::getppid().as_raw()))
}

/// The largest pid the kernel gives out, as it says itself; otherwise the largest it could.
#[must_use]
pub fn largest() -> i32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/pid_max").ok();
    text.and_then(|text| number(text.trim_end())).unwrap_or(4_194_304)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::Witness;
    use super::*;

    #[test]
    fn this_process_lives_and_has_started() {
        assert_eq!(liveness(Pid::this()), Liveness::Alive);
        assert_eq!(start_time(Pid::this()), start_time(Pid::this()));
        assert!(start_time(Pid::this()).is_some_and(|ticks| ticks > 0));
        let own = std::fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(owner(Pid::this()), Some(own));
    }

    #[test]
    fn a_reaped_child_is_gone_and_has_not_started() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::new(i64::from(child.id())).unwrap();
        child.wait().unwrap();
        assert_eq!(liveness(pid), Liveness::Gone);
        assert_eq!(start_time(pid), None);
        assert_eq!(owner(pid), None);
    }

    #[test]
    fn a_witness_knows_its_own_process_only() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::new(i64::from(child.id())).unwrap();
        let witness = Witness::of(pid).unwrap();
        assert_eq!((witness.pid(), Some(witness.start())), (pid, start_time(pid)));
        assert!(witness.exists());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!witness.exists());
        assert!(Witness::of(pid).is_none());
    }

    #[test]
    fn a_zombie_still_exists() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::new(i64::from(child.id())).unwrap();
        // The pipe-less child ends by itself; until it is waited for the kernel keeps the pid.
        assert_eq!(liveness(pid), Liveness::Alive);
        child.wait().unwrap();
    }

    #[rstest]
    #[case::usual("7 (sh) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9", Some(4242))]
    #[case::hostile_name("7 (a) b (c)) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 77 9", Some(77))]
    #[case::a_plus("7 (sh) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 +42 9 9", None)]
    #[case::too_short("7 (sh) S 1 7", None)]
    #[case::no_name("7 sh S", None)]
    #[case::empty("", None)]
    fn finds_the_start_time(#[case] stat: &str, #[case] ticks: Option<u64>) {
        assert_eq!(start_time_in(stat.as_bytes()), ticks);
    }

    #[rstest]
    #[case::four_uids("Name:\tsh\nUid:\t1000\t0\t0\t0\nGid:\t7\t7\t7\t7\n", Some(1000))]
    #[case::absent("Name:\tsh\nGid:\t7\n", None)]
    #[case::empty("", None)]
    fn finds_the_real_uid(#[case] status: &str, #[case] uid: Option<u32>) {
        assert_eq!(real_uid_in(status), uid);
    }

    #[test]
    fn the_machine_has_a_boot_and_a_namespace() {
        assert_eq!(boot_id().map(|id| id.len()), Some(36));
        assert!(pid_namespace().is_some());
        assert!(largest() >= 32_768);
    }
}
