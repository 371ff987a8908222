//! Parses `/proc/PID/status`: the user of a process, and its capabilities and groups.

use std::fs::File;
use std::io::{self, Read};

use pidlockfile::Pid;
use pidlockfile::process::{self, Ids};

use crate::sys::values::Credentials;

/// More than the status of most processes: it is read in one piece.
const STATUS_BYTES: usize = 4096;

/// `/proc/PID/status` of one process at one time.
#[derive(Debug)]
pub(crate) struct Status(String);

/// The whole file, as it was at one time: the kernel keeps the text until it has been read to its end. A process that
/// has ended has one until somebody takes note.
pub(super) fn read(pid: Pid) -> Option<String> {
    let status = read_all(File::open(format!("/proc/{pid}/status")).ok()?).ok()?;
    // Names of programs may be any bytes.
    Some(String::from_utf8_lossy(&status).into_owned())
}

/// The kernel gives as much of the text as there is room for. So a piece that leaves room is the last one.
fn read_all(mut file: impl Read) -> io::Result<Vec<u8>> {
    let (mut status, mut length) = (vec![0; STATUS_BYTES], 0_usize);
    loop {
        match file.read(status.get_mut(length..).unwrap_or_default()) {
            Ok(read) => length = length.saturating_add(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if length < status.len() {
            status.truncate(length);
            return Ok(status);
        }
        status.resize(length.saturating_mul(2), 0);
    }
}

impl Status {
    /// What is told of the process that has this number now; `None` where nothing is, or it has ended.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let status = process::numbers_are_ours().then(|| read(pid))??;
        Some(status).filter(|it| !it.is_empty() && !process::has_ended_in(it)).map(Self)
    }

    /// Its users.
    pub(crate) fn users(&self) -> Option<Ids> {
        Ids::in_status(&self.0, "Uid:")
    }

    /// Its users and groups.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        credentials_in(&self.0)
    }
}

fn field<'s>(status: &'s str, key: &str) -> Option<&'s str> {
    status.lines().find_map(|line| line.strip_prefix(key))
}

fn credentials_in(status: &str) -> Option<Credentials> {
    let more = field(status, "Groups:").unwrap_or_default().split_ascii_whitespace();
    let more_groups = more.filter_map(|group| group.parse::<u32>().ok()).collect();
    let (users, groups) = (Ids::in_status(status, "Uid:")?, Ids::in_status(status, "Gid:")?);
    Some(Credentials { users, groups, more_groups })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn reads_the_ids() {
        let status = "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t6\t7\t8\nGroups:\t20 24 \n";
        let expected = Credentials {
            users: Ids { real: 1000, effective: 1001, saved: 1002 },
            groups: Ids { real: 5, effective: 6, saved: 7 },
            more_groups: vec![20, 24],
        };
        assert_eq!(credentials_in(status), Some(expected));
    }

    /// The kernel keeps a text of any length, such as that of a process in many groups.
    #[rstest]
    #[case::none(0)]
    #[case::usual(1400)]
    #[case::one_byte_of_room(STATUS_BYTES - 1)]
    #[case::exactly_one_piece(STATUS_BYTES)]
    #[case::one_byte_more(STATUS_BYTES + 1)]
    #[case::many_pieces(5 * STATUS_BYTES)]
    fn the_whole_status_is_read(#[case] length: usize) {
        let text: Vec<u8> = (b'a'..=b'w').cycle().take(length).collect();
        assert_eq!(read_all(text.as_slice()).unwrap(), text);
    }

    #[rstest]
    #[case::one_id("Uid:\t1000\nGid:\t5\t6\t7\t8\n")]
    #[case::two_ids("Uid:\t1000\t1001\nGid:\t5\t6\t7\t8\n")]
    #[case::no_group("Uid:\t1000\t1001\t1002\t1003\n")]
    #[case::no_number("Uid:\t1000\tx\t1002\t1003\nGid:\t5\t6\t7\t8\n")]
    #[case::empty("")]
    fn no_ids_are_made_up(#[case] status: &str) {
        assert_eq!(credentials_in(status), None);
    }
}
