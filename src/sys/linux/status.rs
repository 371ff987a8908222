//! Parses `/proc/PID/status`: the user of a process, and its capabilities and groups.

use std::fs::File;
use std::io::Read;

use pidlockfile::Pid;
use pidlockfile::process;

use crate::sys::values::Credentials;

/// More than the status of most processes: it is read in one piece.
const STATUS_BYTES: usize = 4096;

/// `/proc/PID/status` of one process at one time.
#[derive(Debug)]
pub(crate) struct Status(String);

/// The whole file, as it was at one time: the kernel keeps the text until it has been read to its end. A process that
/// has ended has one until somebody takes note.
pub(super) fn read(pid: Pid) -> Option<String> {
    let mut status = Vec::with_capacity(STATUS_BYTES);
    let file = File::open(format!("/proc/{pid}/status")).ok()?;
    // The file has no size that it could be asked for.
    file.take(u64::MAX).read_to_end(&mut status).ok()?;
    // Names of programs may be any bytes.
    Some(String::from_utf8_lossy(&status).into_owned())
}

impl Status {
    /// What is told of the process that has this number now; `None` where nothing is, or it has ended.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let status = process::numbers_are_ours().then(|| read(pid))??;
        Some(status).filter(|it| !it.is_empty() && !process::has_ended_in(it)).map(Self)
    }

    /// The effective user; where that is root, the one who started it: as [`process::owner`], which
    /// asks for the owner of `/proc/PID`.
    pub(crate) fn owner(&self) -> Option<u32> {
        let line = self.0.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let mut users = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (real, effective) = (users.next()?.ok()?, users.next()?.ok()?);
        Some(if effective == 0 { real } else { effective })
    }

    pub(crate) fn credentials(&self) -> Option<Credentials> {
        credentials_in(&self.0)
    }
}

/// The effective user and group stand second in their lines.
fn credentials_in(status: &str) -> Option<Credentials> {
    let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    let second = |key| field(key)?.split_ascii_whitespace().nth(1)?.parse::<u32>().ok();
    let mut groups = vec![second("Gid:")?];
    let more = field("Groups:").unwrap_or_default().split_ascii_whitespace();
    groups.extend(more.filter_map(|group| group.parse::<u32>().ok()));
    Some(Credentials { user: second("Uid:")?, groups })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_effective_ids_count() {
        let status = "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t6\t7\t8\nGroups:\t20 24 \n";
        let expected = Credentials { user: 1001, groups: vec![6, 20, 24] };
        assert_eq!(credentials_in(status), Some(expected));
        assert_eq!(credentials_in("Uid:\t1000\nGid:\t5\t6\n"), None);
        assert_eq!(credentials_in(""), None);
    }

    #[rstest]
    #[case::usual("Uid:\t1000\t1001\t1002\t1003\n", Some(1001))]
    #[case::raised_to_root("Name:\tsu\nUid:\t1000\t0\t0\t0\n", Some(1000))]
    #[case::root("Uid:\t0\t0\t0\t0\n", Some(0))]
    #[case::cut("Uid:\t1000\n", None)]
    #[case::none("", None)]
    fn a_process_is_its_effective_users(#[case] status: &str, #[case] owner: Option<u32>) {
        assert_eq!(Status(status.to_owned()).owner(), owner);
    }
}
