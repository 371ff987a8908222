//! Which processes have a device open, as far as `/proc` shows their descriptors to us. Opens no
//! device: the links below `/proc/PID/fd` are looked at, not followed into an opening.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::{Duration, Instant};

use pidlockfile::Pid;

use crate::device::node::{Node, Numbers};
use crate::sys::SHOWS_DESCRIPTORS;

/// As many processes and descriptors as are looked at for people.
const DESCRIPTORS: usize = 1 << 17;

/// The same for a lock: whoever waits for it is not to wait long.
const DESCRIPTORS_AT_ONCE: usize = 4096;
const TIME_MOST: Duration = Duration::from_millis(20);

/// Whether anybody has a device open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Openness {
    /// All processes were looked at, and none has.
    Closed,
    /// This one has.
    Open(Pid),
    /// Not all processes show their descriptors to us, or there are too many.
    Untold,
}

/// Whether anybody but this process has the device open. Takes a bounded time.
pub(super) fn openness(node: &Node, besides: Pid) -> Openness {
    let start = Instant::now();
    let may_look = |looks: usize| looks <= DESCRIPTORS_AT_ONCE || start.elapsed() < TIME_MOST;
    let mut opener = None;
    let complete = look(may_look, |pid, found| {
        if pid != besides && found.is_of(node) {
            opener = Some(pid);
        }
        opener.is_none()
    });
    match (opener, complete) {
        (Some(pid), _) => Openness::Open(pid),
        (None, true) => Openness::Closed,
        (None, false) => Openness::Untold,
    }
}

/// Whether one process has the device open; None where that cannot be seen, or not in time.
pub(super) fn has(pid: Pid, node: &Node) -> Option<bool> {
    let start = Instant::now();
    let mut complete = true;
    if !SHOWS_DESCRIPTORS {
        return None;
    }
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    for (looks, descriptor) in descriptors.enumerate() {
        if looks > DESCRIPTORS_AT_ONCE && start.elapsed() > TIME_MOST {
            return None;
        }
        let opened = descriptor.and_then(|descriptor| fs::metadata(descriptor.path()));
        match opened.map(|opened| Opened::File(opened).is_of(node)) {
            Ok(true) => return Some(true),
            Ok(false) => {}
            Err(error) => complete &= error.kind() == ErrorKind::NotFound,
        }
    }
    complete.then_some(false)
}

/// What a process has open.
pub(super) enum Opened {
    /// By one of its descriptors.
    File(fs::Metadata),
    /// The terminal of the session that it leads. Source: proc_pid_stat(5), `tty_nr`: everybody
    /// may read that of everybody, so gettys and logins are seen by all.
    Terminal(Numbers),
}

impl Opened {
    pub(super) fn is_of(&self, node: &Node) -> bool {
        match (self, node.device) {
            (Self::Terminal(terminal), device) => device == Some(*terminal),
            (Self::File(found), Some(device)) => {
                found.file_type().is_char_device() && Numbers::of(found.rdev()) == device
            }
            (Self::File(found), None) => {
                found.ino() == node.inode && Numbers::of(found.dev()) == node.file_system
            }
        }
    }
}

/// Every process that has a matching file open, as far as its descriptors may be seen, once.
pub(super) fn openers(matches: &dyn Fn(&Opened) -> bool) -> Vec<(Pid, Opened)> {
    let mut found: Vec<(Pid, Opened)> = Vec::new();
    look(
        |looks| looks <= DESCRIPTORS,
        |pid, opened| {
            let known = found.last().is_some_and(|(last, _)| *last == pid);
            if !known && matches(&opened) {
                found.push((pid, opened));
            }
            true
        },
    );
    found
}

/// Shows what every process has open to `visit` until that says stop. Tells whether there
/// was nothing that could not be seen.
fn look(may_look: impl Fn(usize) -> bool, mut visit: impl FnMut(Pid, Opened) -> bool) -> bool {
    let (mut looks, mut complete) = (0_usize, true);
    if !SHOWS_DESCRIPTORS {
        return false;
    }
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| Pid::parse(name.as_bytes()).ok()) else {
            continue;
        };
        let descriptors = match fs::read_dir(process.path().join("fd")) {
            Ok(descriptors) => descriptors,
            Err(error) => {
                complete &= error.kind() == ErrorKind::NotFound;
                let terminal = terminal_led_by(pid).map(Opened::Terminal);
                if terminal.is_some_and(|terminal| !visit(pid, terminal)) {
                    return complete;
                }
                continue;
            }
        };
        for descriptor in descriptors {
            looks = looks.saturating_add(1);
            if !may_look(looks) {
                return false;
            }
            let seen = descriptor.and_then(|descriptor| fs::metadata(descriptor.path()));
            match seen {
                Ok(metadata) => {
                    if !visit(pid, Opened::File(metadata)) {
                        return complete;
                    }
                }
                // It, or the whole process, has gone meanwhile.
                Err(error) => {
                    let gone = error.raw_os_error() == Some(nix::libc::ESRCH);
                    complete &= gone || error.kind() == ErrorKind::NotFound;
                }
            }
        }
    }
    complete
}

/// The controlling terminal of a session's first process.
fn terminal_led_by(pid: Pid) -> Option<Numbers> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    terminal_in(&String::from_utf8_lossy(&stat), pid)
}

/// The name of a program may hold anything, so the fields are counted from the last parenthesis:
/// state, parent, process group, session, `tty_nr`. That has the minor number in bits 31 to 20 and
/// 7 to 0, the major number in bits 15 to 8.
fn terminal_in(stat: &str, pid: Pid) -> Option<Numbers> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_ascii_whitespace();
    let session = fields.nth(3)?;
    let number: u64 = fields.next()?.parse().ok()?;
    let (major, minor) = ((number >> 8) & 0xff, (number & 0xff) | ((number >> 12) & 0xf_ff00));
    (number != 0 && session == pid.to_string()).then_some(Numbers { major, minor })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::getty("12 (agetty) S 1 12 12 1088 12 4194560", Some((4, 64)))]
    #[case::pseudo_terminal("12 (sh) S 1 12 12 34816 12 0", Some((136, 0)))]
    #[case::large_minor("12 (sh) S 1 12 12 1083646 12 0", Some((136, 510)))]
    #[case::odd_name("12 (a) S 1 1) S 1 12 12 1088 12 0", Some((4, 64)))]
    #[case::not_the_leader("12 (sh) S 1 12 11 1088 12 0", None)]
    #[case::no_terminal("12 (cron) S 1 12 12 0 -1 0", None)]
    #[case::cut("12 (cron) S 1", None)]
    fn the_terminal_of_a_session(#[case] stat: &str, #[case] numbers: Option<(u64, u64)>) {
        let expected = numbers.map(|(major, minor)| Numbers { major, minor });
        assert_eq!(terminal_in(stat, Pid::new(12).unwrap()), expected);
    }
}
