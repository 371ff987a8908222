//! What Linux says of processes, by way of proc(5): whether one lives, since when, who started it,
//! and whether it is the process that another pid namespace calls by some number. Decides nothing.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use nix::unistd::SysconfVar;
use pidlockfile::Pid;
use pidlockfile::process::{Liveness, liveness};

use super::{Abroad, Foreigner, Seen};
use crate::stale::ClockShift;

/// Looks at a process. "Not permitted" means that it lives.
pub(crate) fn look(pid: Pid) -> Seen {
    if liveness(pid) == Liveness::Gone {
        return Seen::Gone;
    }
    match stat(pid) {
        Some(stat) if stat.has_ended() => Seen::Gone,
        stat => Seen::Alive { start_ticks: stat.map(|stat| stat.start_ticks) },
    }
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The command's name, at most 15 bytes; whatever else it holds.
    pub(crate) name: String,
    /// Who started it, or adopted it.
    pub(crate) parent: i64,
    start_ticks: u64,
    state: u8,
    threads: u64,
    /// Where its arguments and its stack begin: chance chooses anew at each execve(2), and fork(2)
    /// keeps it. Zero where that may not be seen.
    pub(crate) image: (u64, u64),
}

impl Stat {
    /// A zombie whose threads have all ended; one whose first thread alone has ended works on.
    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }
}

/// Reads `/proc/PID/stat`. `None` when it cannot be had, or `/proc` counts for another namespace.
pub(crate) fn stat(pid: Pid) -> Option<Stat> {
    if !numbers_are_ours() {
        return None;
    }
    parse_stat(&read_once(&format!("/proc/{pid}/stat")).ok()?)
}

/// More than the longest `/proc/PID/stat`, and than the part of `status` that is looked at.
const STAT_BYTES: usize = 2048;

/// Reads the start of a file of the kernel's, which says that much in one piece.
fn read_once(path: &str) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; STAT_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether `/proc` counts processes as this process does: in a new pid namespace it may still be
/// the old one's (`unshare --pid` without `--mount-proc`). Other systems have another `/proc`.
fn numbers_are_ours() -> bool {
    if cfg!(not(target_os = "linux")) {
        return false;
    }
    let shown = std::fs::read_link("/proc/self").ok();
    shown.as_ref().and_then(|shown| shown.to_str()) == Some(Pid::this().to_string().as_str())
}

/// Source: proc(5). The name in field 2 may hold blanks and parentheses, so fields are counted from
/// its last closing one.
pub(crate) fn parse_stat(text: &[u8]) -> Option<Stat> {
    let text = String::from_utf8_lossy(text);
    let (before, rest) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first field behind the name is number 3.
    let field = |number: usize| fields.get(number.checked_sub(3)?).copied();
    let number = |at: usize| field(at).and_then(crate::record::integer);
    Some(Stat {
        name: name.to_owned(),
        parent: number(4).and_then(|pid| i64::try_from(pid).ok())?,
        start_ticks: number(22)?,
        state: field(3)?.bytes().next()?,
        threads: number(20)?,
        image: (number(28).unwrap_or(0), number(48).unwrap_or(0)),
    })
}

/// The machine's own pid namespace, to which the processes of all others belong as well
/// (`PROC_PID_INIT_INO` in the kernel's proc_ns.h).
const INITIAL_PIDNS: u64 = 0xEFFF_FFFC;

/// Looks for a process of another pid namespace among all that `/proc` shows. `pidns` is ours.
pub(crate) fn look_abroad(who: Foreigner, shift: ClockShift, pidns: Option<u64>) -> Abroad {
    let Some(per_second) = ticks_per_second() else { return Abroad::Unseen };
    if !numbers_are_ours() {
        return Abroad::Unseen;
    }
    let Ok(entries) = std::fs::read_dir("/proc") else { return Abroad::Unseen };
    // With hidepid (proc(5)) only own processes are shown; then the first is hidden too.
    let mut all_seen = pidns == Some(INITIAL_PIDNS) && read_once("/proc/1/stat").is_ok();
    for entry in entries {
        let Ok(entry) = entry else { return Abroad::Unseen };
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(crate::record::integer) else { continue };
        match read_once(&format!("/proc/{pid}/stat")) {
            Ok(text) => {
                let stat = parse_stat(&text).filter(|stat| !stat.has_ended());
                let began = stat.and_then(|stat| shift.undo(stat.start_ticks, per_second));
                let tolerance = u64::from(!shift.is_exact(per_second));
                let same = began.is_some_and(|began| began.abs_diff(who.start) <= tolerance);
                match same.then(|| is_called(pid, who)) {
                    Some(Some(true)) => return Abroad::Alive,
                    Some(None) => all_seen = false,
                    Some(Some(false)) | None => {}
                }
            }
            Err(error) if is_over(&error) => {}
            Err(_) => all_seen = false,
        }
    }
    if all_seen { Abroad::Gone } else { Abroad::Unseen }
}

/// Whether a process bears that number in that pid namespace (`NSpid` in proc(5): its numbers from
/// our namespace to its own). `None` when it does not say.
fn is_called(pid: u64, who: Foreigner) -> Option<bool> {
    let text = match read_once(&format!("/proc/{pid}/status")) {
        Ok(text) => text,
        Err(error) if is_over(&error) => return Some(false),
        Err(_) => return None,
    };
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut numbers = line.split_ascii_whitespace().filter_map(crate::record::integer);
    let own = numbers.next_back()?;
    // Whose namespace may not be seen may be the one.
    let namespace = || std::fs::metadata(format!("/proc/{pid}/ns/pid")).map(|data| data.ino());
    let there = own == who.number && namespace().map_or(true, |inode| inode == who.pidns);
    Some(there || numbers.any(|number| number == who.number))
}

/// The process ended before or while it was looked at.
fn is_over(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32)
}

/// What this process's time namespace adds to start times (time_namespaces(7)): nothing where
/// there are none.
pub(crate) fn clock_shift() -> ClockShift {
    let text = read_once("/proc/self/timens_offsets").unwrap_or_default();
    parse_shift(&String::from_utf8_lossy(&text))
}

fn parse_shift(text: &str) -> ClockShift {
    let line = text.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut words = line.unwrap_or_default().split_ascii_whitespace();
    let mut number = || words.next().and_then(|word| word.parse::<i64>().ok()).unwrap_or(0);
    let (seconds, nanoseconds) = (number(), number());
    ClockShift { nanoseconds: i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds) }
}

/// The machine's name.
pub(crate) fn host_name() -> Option<OsString> {
    nix::unistd::gethostname().ok()
}

/// The clock (since boot) by which start times are told.
#[cfg(target_os = "linux")]
pub(crate) fn since_clock_began() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};

    clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Duration::from)
}

/// No start times are told.
#[cfg(not(target_os = "linux"))]
pub(crate) fn since_clock_began() -> Option<Duration> {
    None
}

/// In what start times are counted.
pub(crate) fn ticks_per_second() -> Option<u64> {
    let ticks = nix::unistd::sysconf(SysconfVar::CLK_TCK).ok()??;
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const REST: &str =
        "4 5 6 7 8 20 0 1 0 4242 9 9 9 9 9 7777 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 8888 9";

    #[rstest]
    #[case::usual("7 (sh) S 1 7 7 0 -1 0 1 2 3", "sh", b'S')]
    #[case::hostile_name("7 (a) Z (b)) R 1 7 7 0 -1 0 1 2 3", "a) Z (b)", b'R')]
    fn finds_the_fields(#[case] start: &str, #[case] name: &str, #[case] state: u8) {
        let stat = parse_stat(format!("{start} {REST}").as_bytes()).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), (name, state, 1));
        assert_eq!((stat.threads, stat.start_ticks, stat.image), (1, 4242, (7777, 8888)));
    }

    #[rstest]
    #[case::too_short("7 (sh) S 1 7")]
    #[case::no_name("7 sh S")]
    #[case::empty("")]
    fn half_a_line_says_nothing(#[case] text: &str) {
        assert_eq!(parse_stat(text.as_bytes()), None);
    }

    #[test]
    fn a_zombie_is_gone_and_its_parent_is_not() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::new(i64::from(child.id())).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while look(pid) != Seen::Gone {
            assert!(std::time::Instant::now() < deadline, "never seen to end");
            std::thread::yield_now();
        }
        assert_eq!(liveness(pid), Liveness::Alive, "its number is still its own");
        assert!(matches!(look(Pid::this()), Seen::Alive { start_ticks: Some(_) }));
        child.wait().unwrap();
    }

    #[rstest]
    #[case::none("monotonic           0         0\nboottime            0         0\n", 0)]
    #[case::ahead("monotonic 5 5\nboottime       100000         7\n", 100_000_000_000_007)]
    #[case::behind("boottime -2 500000000\n", -1_500_000_000)]
    #[case::no_time_namespaces("", 0)]
    fn reads_the_shift_of_a_time_namespace(#[case] text: &str, #[case] nanoseconds: i128) {
        assert_eq!(parse_shift(text), ClockShift { nanoseconds });
    }

    #[rstest]
    #[case::nothing(0, 4242, Some(4242), true)]
    #[case::whole_seconds(100_000_000_000_000, 10_004_242, Some(4242), true)]
    #[case::behind(-42_420_000_000, 0, Some(4242), true)]
    #[case::between_two_ticks(5_000_000, 4242, Some(4242), false)]
    #[case::from_before_the_start(100_000_000_000_000, 1, None, true)]
    fn a_shift_is_undone(
        #[case] nanoseconds: i128,
        #[case] seen: u64,
        #[case] start: Option<u64>,
        #[case] exact: bool,
    ) {
        let shift = ClockShift { nanoseconds };
        assert_eq!((shift.undo(seen, 100), shift.is_exact(100)), (start, exact));
    }
}
