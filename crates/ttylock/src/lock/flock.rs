//! Holders without lock files: `flock(2)` on the device node, as the kernel lists it.
//!
//! picocom, tio, pyserial, new microcom and others lock the open port itself. `/proc/locks` shows
//! them by device and inode, so the port need not be opened, which would disturb it.

use std::fs::File;
use std::io::{self, Read};

use pidlockfile::Pid;

use crate::device::node::Node;

/// The kernel's list. It is asked for anew each time.
const LIST: &str = "/proc/locks";

/// How long the list usually is, and as much of it as is read, in bytes.
const LIST_BYTES_USUAL: usize = 16 * 1024;
const LIST_BYTES_MOST: u64 = 16 * 1024 * 1024;

/// Who took a `flock(2)` that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The process that took it. It may be gone: whoever inherited the descriptor holds it now
    /// (`exec 3<>/dev/ttyS0; flock 3` in a shell).
    Process(Pid),
    /// One that has no number here.
    Unseen,
}

/// Whether flocks of other pid namespaces may be held unseen: the kernel lists only those of the
/// asker's namespace and below, so only the first one sees all.
/// Source: `PROC_PID_INIT_INO` in the kernel's `include/linux/proc_ns.h`.
#[must_use]
pub fn sees_all() -> bool {
    const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
    pidlockfile::process::pid_namespace() == Some(FIRST_PID_NAMESPACE)
}

/// Who holds `flock(2)` on a node, in the kernel's order.
///
/// # Errors
/// When the list cannot be read; then nothing is known, and nothing is guessed.
pub fn holders(node: &Node) -> io::Result<Vec<Holder>> {
    Ok(holders_in(&list()?, node))
}

/// The kernel's list, for asking about many nodes at once.
pub(super) fn list() -> io::Result<String> {
    let mut list = String::with_capacity(LIST_BYTES_USUAL);
    // The bound makes the standard library read into the room there is, in one piece: what the
    // kernel says in several pieces may have changed in between.
    File::open(LIST)?.take(LIST_BYTES_MOST).read_to_string(&mut list)?;
    Ok(list)
}

/// Source: proc(5), `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 1234 00:05:1234 0 EOF`, where the
/// numbers before the range are major and minor number in hexadecimal and the inode in decimal. A
/// line with `->` is a process that waits.
pub(super) fn holders_in(list: &str, node: &Node) -> Vec<Holder> {
    let (major, minor) = (node.file_system.major, node.file_system.minor);
    let place = format!("{major:02x}:{minor:02x}:{}", node.inode);
    list.lines().filter_map(|line| holder_in(line, &place)).collect()
}

fn holder_in(line: &str, place: &str) -> Option<Holder> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?;
    (words.next()? == place)
        .then(|| Pid::parse(pid.as_bytes()).map_or(Holder::Unseen, Holder::Process))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::device::node::Numbers;

    const NODE: Node =
        Node { file_system: Numbers { major: 0, minor: 0x16 }, inode: 88, device: None };

    #[rstest]
    #[case::held("1: FLOCK  ADVISORY  WRITE 1234 00:16:88 0 EOF\n", &[1234])]
    #[case::shared("1: FLOCK  ADVISORY  READ 7 00:16:88 0 EOF\n", &[7])]
    #[case::two("1: FLOCK  ADVISORY  READ 7 00:16:88 0 EOF\n2: FLOCK ADVISORY READ 8 00:16:88 0 EOF\n", &[7, 8])]
    #[case::waiting("1: -> FLOCK  ADVISORY  WRITE 1234 00:16:88 0 EOF\n", &[])]
    #[case::posix("1: POSIX  ADVISORY  WRITE 1234 00:16:88 0 EOF\n", &[])]
    #[case::other_inode("1: FLOCK  ADVISORY  WRITE 1234 00:16:880 0 EOF\n", &[])]
    #[case::other_file_system("1: FLOCK  ADVISORY  WRITE 1234 00:17:88 0 EOF\n", &[])]
    #[case::pid_outside_our_namespace("1: FLOCK  ADVISORY  WRITE 0 00:16:88 0 EOF\n", &[0])]
    #[case::no_pid("1: FLOCK  ADVISORY  WRITE -1 00:16:88 0 EOF\n", &[0])]
    #[case::cut_short("1: FLOCK  ADVISORY\n", &[])]
    #[case::empty("", &[])]
    fn reads_the_list(#[case] list: &str, #[case] pids: &[i64]) {
        let holder = |pid: &i64| Pid::new(*pid).map_or(Holder::Unseen, Holder::Process);
        let holders: Vec<_> = pids.iter().map(holder).collect();
        assert_eq!(holders_in(list, &NODE), holders);
    }
}
