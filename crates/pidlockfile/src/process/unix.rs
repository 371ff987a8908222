//! Unix: asks about processes by pidfd_open(2) and `/proc` on Linux, and by `kill(2)` elsewhere. Reports what
//! it sees and decides nothing: `identity` does.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid as Number, Signal, test_kill_process};

use super::identity::is_one_moment;
use super::stat::{Stat, numbers_in, shift_in};
use super::{ClockShift, Here, Ids, Machine, Pid, ProcessIdentity, Start};

/// The machine's own pid namespace, to which the processes of all others belong as well
/// (`PROC_PID_INIT_INO` in the kernel's proc_ns.h).
const INITIAL_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The machine's own time namespace (`PROC_TIME_INIT_INO` there).
const INITIAL_TIME_NAMESPACE: u64 = 0xEFFF_FFFA;

/// More than the longest `/proc/PID/stat` (52 numbers and a name of 64 bytes at most), and than the part
/// of `/proc/PID/status` that is looked at.
const STAT_BYTES: usize = 2048;

/// What is seen of a process number of this pid namespace. "Not permitted" means that it is there.
pub(super) fn look(pid: Pid) -> Start {
    start_by(pid, stat(pid))
}

fn start_by(pid: Pid, stat: Option<Stat>) -> Start {
    // If the file is missing or shows no end, a descriptor may show one.
    let asks = stat.as_ref().is_none_or(Stat::may_have_ended);
    match stat {
        Some(stat) if stat.has_ended() => Start::Nobody,
        _ if asks && has_ended(pid) == Some(true) => Start::Nobody,
        Some(stat) => Start::At(stat.start),
        None => Start::Unknown,
    }
}

/// A process that was seen, and that can be seen again: never a later one with its number.
#[derive(Debug)]
pub struct Observed {
    who: ProcessIdentity,
    /// `None` where the system has none, or no descriptor is left.
    handle: Option<OwnedFd>,
    /// Its `/proc/PID/status`, if that was asked for.
    status: OnceLock<File>,
}

impl Observed {
    /// The process that has this number now, as [`Machine::identify`] sees it. What is read about that number afterwards is
    /// about this process, unless it [has ended](Self::has_ended) since.
    #[must_use]
    pub fn of(machine: &mut Machine, pid: Pid) -> Self {
        // First: if this process does not end, what is read by its number is about it.
        let handle = handle_if_any(pid);
        Self { who: machine.identify(pid), handle, status: OnceLock::new() }
    }

    /// Which process it is.
    #[must_use]
    pub fn identity(&self) -> &ProcessIdentity {
        &self.who
    }

    /// Its `/proc/PID/status`, which stays open, to be read from the beginning. `None` where that cannot be opened, or `/proc`
    /// counts for another namespace.
    #[must_use]
    pub fn status(&self) -> Option<&File> {
        if self.status.get().is_none() && numbers_are_ours() {
            let _ = self.status.set(open(&format!("/proc/{}/status", self.who.pid)).ok()?);
        }
        self.status.get()
    }

    /// Whether it certainly has not ended, so that it need not be observed anew.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let has_ended = self.handle.as_ref().and_then(handle_has_ended);
        matches!(self.who.start, Start::At(_)) && has_ended == Some(false)
    }

    /// Whether it existed and has ended since, as [`Machine::has_ended`] says.
    pub fn has_ended(&self, machine: &mut Machine) -> bool {
        let handle = self.handle.as_ref().filter(|_| self.who.start != Start::Nobody);
        handle.and_then(handle_has_ended).unwrap_or_else(|| machine.has_ended(&self.who))
    }
}

/// Whether there is no process of this number, or one that has ended and is not waited for yet. `None`:
/// there is one, and its state is hidden.
#[cfg(target_os = "linux")]
fn has_ended(pid: Pid) -> Option<bool> {
    match handle(pid) {
        Ok(process) => handle_has_ended(&process),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Some(true),
        // A kernel before 5.3, the number of a thread, or no descriptor left.
        Err(_) => is_nobodys(pid).then_some(true),
    }
}

#[cfg(not(target_os = "linux"))]
fn has_ended(pid: Pid) -> Option<bool> {
    is_nobodys(pid).then_some(true)
}

#[cfg(target_os = "linux")]
fn handle_if_any(pid: Pid) -> Option<OwnedFd> {
    handle(pid).ok()
}

#[cfg(not(target_os = "linux"))]
fn handle_if_any(_pid: Pid) -> Option<OwnedFd> {
    None
}

/// Whether the process of a handle has ended. `None`: that cannot be seen.
#[cfg(target_os = "linux")]
fn handle_has_ended(process: &OwnedFd) -> Option<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let mut asked = [PollFd::new(process, PollFlags::IN)];
    poll(&mut asked, Some(&Timespec::default())).ok().map(|ready| ready > 0)
}

#[cfg(not(target_os = "linux"))]
fn handle_has_ended(_process: &OwnedFd) -> Option<bool> {
    None
}

/// A descriptor for exactly one process, never for a later one with its number (pidfd_open(2)). Readable once the
/// process has ended.
///
/// # Errors
/// `ESRCH` where there is no such process; otherwise the system's reason.
#[cfg(target_os = "linux")]
pub fn handle(pid: Pid) -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, pidfd_open};

    Ok(pidfd_open(number(pid)?, PidfdFlags::empty())?)
}

/// The same number in the form of the library of system calls.
fn number(pid: Pid) -> Result<Number, Errno> {
    Number::from_raw(pid.as_raw()).ok_or(Errno::SRCH)
}

/// Whether no process has this number here. One that has ended has it until its parent waits for it.
fn is_nobodys(pid: Pid) -> bool {
    number(pid).and_then(test_kill_process) == Err(Errno::SRCH)
}

/// Whether there is a process of this number here that has not ended.
#[must_use]
pub fn lives(pid: Pid) -> bool {
    has_ended(pid).map_or_else(|| look(pid) != Start::Nobody, |ended| !ended)
}

/// Sends a signal to that very process, and to none that has its number by now.
///
/// # Errors
/// `ESRCH` when it has ended or cannot be distinguished from another here; otherwise the system's reason.
#[cfg(target_os = "linux")]
pub fn signal(who: &ProcessIdentity, number: i32) -> io::Result<()> {
    let name = Signal::from_named_raw(number).ok_or(Errno::INVAL)?;
    let process = handle(who.pid)?;
    // A process that is the same now was so when it was opened, or the descriptor is of one that has ended.
    is_surely(who)?;
    Ok(rustix::process::pidfd_send_signal(process, name)?)
}

/// Sends a signal to that process, as far as this system distinguishes it from others.
///
/// # Errors
/// `ESRCH` when it has ended; otherwise the system's reason.
#[cfg(not(target_os = "linux"))]
pub fn signal(who: &ProcessIdentity, number: i32) -> io::Result<()> {
    let name = Signal::from_named_raw(number).ok_or(Errno::INVAL)?;
    is_surely(who)?;
    Ok(rustix::process::kill_process(self::number(who.pid)?, name)?)
}

fn is_surely(who: &ProcessIdentity) -> Result<(), Errno> {
    let mut machine = Machine::default();
    let is_here = !who.is_elsewhere(machine.here());
    let same = is_here && machine.fate(who) == super::Fate::Same;
    if same { Ok(()) } else { Err(Errno::SRCH) }
}

/// Reads `/proc/PID/stat`. `None` when it cannot be had, or `/proc` counts for another namespace.
#[must_use]
pub fn stat(pid: Pid) -> Option<Stat> {
    if !numbers_are_ours() {
        return None;
    }
    Stat::parse(read(&format!("/proc/{pid}/stat")).ok()?.as_bytes())
}

/// The process that started this one, or has adopted it. `None` as for [`stat`], and for the first process.
#[must_use]
pub fn parent(pid: Pid) -> Option<Pid> {
    Pid::new(stat(pid)?.parent)
}

/// Looks for a process of another pid namespace among all that `/proc` shows. `None`: not all could be seen.
pub(super) fn look_abroad(who: &ProcessIdentity, here: &Here) -> Option<Start> {
    if here.namespace != Some(INITIAL_NAMESPACE) || !numbers_are_ours() || hides_processes() {
        return None;
    }
    let mut all_seen = true;
    for entry in std::fs::read_dir("/proc").ok()? {
        let name = entry.ok()?.file_name();
        let Ok(pid) = Pid::parse(name.as_encoded_bytes()) else { continue };
        match read(&format!("/proc/{pid}/stat")) {
            Ok(text) => {
                let stat = Stat::parse(text.as_bytes()).filter(|stat| !stat.has_ended());
                let same = stat.filter(|stat| may_be_its_start(who, here, stat.start));
                match same.map(|stat| (is_called(pid, who), stat.start)) {
                    Some((Some(true), start)) => return Some(Start::At(start)),
                    Some((None, _)) => all_seen = false,
                    Some((Some(false), _)) | None => {}
                }
            }
            Err(error) if is_over(&error) => {}
            Err(_) => all_seen = false,
        }
    }
    all_seen.then_some(Start::Nobody)
}

fn may_be_its_start(who: &ProcessIdentity, here: &Here, ticks: u64) -> bool {
    match who.start {
        Start::Nobody => false,
        Start::Unknown => true,
        Start::At(start) => is_one_moment((start, who.here.shift), (ticks, here.shift)),
    }
}

/// Whether a process bears that number in that pid namespace. `None` when it does not say.
fn is_called(pid: Pid, who: &ProcessIdentity) -> Option<bool> {
    let text = match read(&format!("/proc/{pid}/status")) {
        Ok(text) => text,
        Err(error) if is_over(&error) => return Some(false),
        Err(_) => return None,
    };
    let numbers = numbers_in(&text)?;
    // The first is ours. A process with a namespace that cannot be seen may be the one.
    let (own, between) = numbers.get(1..).unwrap_or_default().split_last().unzip();
    let theirs = || namespace(&pid.to_string(), "pid");
    let there = own == Some(&who.pid.as_raw())
        && theirs().is_none_or(|inode| Some(inode) == who.here.namespace);
    Some(there || between.unwrap_or_default().contains(&who.pid.as_raw()))
}

/// The process ended before or while it was looked at.
fn is_over(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// Opens a file to be read. By the kernel's call: musl's `open` makes another one for the flag.
fn open(path: &str) -> Result<File, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(File::from)
}

/// Reads the beginning of a file of `/proc`. One `read(2)` returns all of it, and no signal interrupts it.
fn read(path: &str) -> io::Result<String> {
    let mut buffer = [0; STAT_BYTES];
    let length = open(path)?.read(&mut buffer)?;
    Ok(String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned())
}

/// Whether `/proc` counts processes as this process does. In a new pid namespace it may still be
/// the old one's (`unshare --pid` without `--mount-proc`): a number means another process there,
/// so nothing may be read by it. Where it does, it does for good: neither a process nor what it
/// forks changes its own namespace. Other systems have another `/proc`, or none.
#[must_use]
pub fn numbers_are_ours() -> bool {
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
    shown.and_then(|shown| Pid::parse(shown.as_os_str().as_encoded_bytes()).ok())
        == Some(Pid::this())
}

/// Where this process is: `/proc/sys/kernel/random/boot_id`, `/proc/self/ns/pid`, `/proc/self/ns/time` and
/// `/proc/self/timens_offsets`.
pub(super) fn here() -> Here {
    Here { boot: boot_id(), namespace: namespace("self", "pid"), shift: clock_shift() }
}

/// How far the clock since boot is ahead in this time namespace. In the machine's own it is not, nor before Linux 5.6, which
/// has no others. To read the link takes one call, and to read the offsets three.
fn clock_shift() -> ClockShift {
    if namespace("self", "time") == Some(INITIAL_TIME_NAMESPACE) {
        return ClockShift::default();
    }
    let offsets = read("/proc/self/timens_offsets").unwrap_or_default();
    ClockShift { nanoseconds: shift_in(&offsets) }
}

/// The kernel's random name for the current boot, 36 characters. `None` without `/proc`.
fn boot_id() -> Option<String> {
    let id = read("/proc/sys/kernel/random/boot_id").ok()?.trim_end().to_owned();
    Some(id).filter(|id| !id.is_empty())
}

/// The namespace of this kind of a process, as the inode number of `/proc/PID/ns/KIND`. `None` without it, and if it may not
/// be seen.
///
/// By the text of the link (namespaces(7)): to look at the file itself takes twice as long.
fn namespace(process: &str, kind: &str) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/{process}/ns/{kind}")).ok()?;
    let number = link.to_str()?.strip_prefix(kind)?.strip_prefix(":[")?;
    number.strip_suffix(']')?.parse().ok()
}

/// Whether a process is certainly in the caller's pid namespace, so that its numbers mean the same.
#[must_use]
pub fn is_in_our_namespace(pid: Pid) -> bool {
    // One number in each namespace from that of `/proc` on. Any user may read it, unlike `/proc/PID/ns`.
    let numbers = read(&format!("/proc/{pid}/status")).ok().and_then(|status| numbers_in(&status));
    numbers_are_ours() && numbers.is_some_and(|numbers| numbers.len() == 1)
}

/// Whether this is the machine's own pid namespace, from which all processes can be seen.
#[must_use]
pub fn is_in_first_namespace() -> bool {
    namespace("self", "pid") == Some(INITIAL_NAMESPACE)
}

/// Whether `/proc` hides the processes of other users from this one (`hidepid`, proc(5)). Then it hides the first one, too.
fn hides_processes() -> bool {
    read("/proc/1/stat").is_err()
}

/// In what start times are counted.
#[must_use]
pub fn ticks_per_second() -> Option<u64> {
    Some(rustix::param::clock_ticks_per_second()).filter(|ticks| *ticks > 0)
}

/// The users of a process. `None` when there is no such process, or it is hidden, or `/proc` is that of another pid
/// namespace.
///
/// Where only its status is hidden (`hidepid=1`, proc(5)), they are the owner of `/proc/PID`, unless that is root: the kernel
/// shows root there also if a process has changed its rights.
#[must_use]
pub fn users(pid: Pid) -> Option<Ids> {
    if !numbers_are_ours() {
        return None;
    }
    let path = format!("/proc/{pid}");
    let status = read(&format!("{path}/status")).ok();
    status.and_then(|status| Ids::in_status(&status, "Uid:")).or_else(|| {
        let owner = std::fs::metadata(path).ok()?.uid();
        (owner != 0).then(|| Ids::all(owner))
    })
}
