//! The limits of the locks: what clients and users can take of them, in which unit, and what happens at the limit.
//! SECURITY.md lists them. Pure.

use std::time::Duration;

/// The longest time in a WAIT and in `--idle-timeout`, in seconds: one day. More is answered with 550, or is a usage
/// error.
pub const WAIT_MAX_SECS: u32 = 86_400;

/// A device name of a client, in bytes, with its `/dev/` if it has one. A longer one is answered with 550.
pub const NAME_BYTES: usize = 255;

/// Locks for the processes of one user; root may have any number. A daemon allows each user as many again for processes
/// that do not exist. Without a daemon all users share those. One more LOCK is answered with 550. A lock may have many
/// names: an adapter has four to nine.
pub const LOCKS_OF_A_USER: usize = 256;

/// Names that are written for one lock. Under further names a lock is looked for and not written.
pub const NAMES_OF_A_LOCK: usize = 16;

/// Bytes of their names, because a record with all of them fits into the 4,095 bytes of a symbolic link. Under further
/// names a lock is looked for and not written.
pub const NAME_BYTES_OF_A_LOCK: usize = 3000;

/// Names of locks in a lock directory. If there are more, names without a device are answered with 550, and of the files
/// each owner has the same share of those that are looked at.
pub const LOCKS_FOR_INVENTED: usize = 1024;

/// Lock files that a daemon keeps open. Others are not protected from programs that ask for `flock(2)` alone.
pub const KEPT_FILES: usize = 256;

/// Files of names without a device that a daemon keeps open, because users can invent names. Others are not kept open.
pub const KEPT_WITHOUT_DEVICE: usize = 128;

/// Names of locks that a daemon lists when it starts, and removes when their holders end. Others stay until the next LOCK.
pub const WATCHED_FILES: usize = 16_384;

/// The same for the names of one user: as many as all locks of a user have at most. Root may have any number of them.
pub const WATCHED_FILES_OF_A_USER: usize = 4096;

/// Parts of all the links on the way to a device. A name behind more is answered with 550.
pub const LINK_PARTS: usize = 256;

/// Descriptors of other processes' openings that threads of their own are closing (`--exclusive`). Until one of them ends,
/// no other port is made exclusive.
pub const CLOSINGS: usize = 32;

/// The same for the descriptors of one user's processes.
pub const CLOSINGS_OF_A_USER: usize = 4;

/// Descriptors of one process that are examined. Whether a process with more has a port open is not known.
pub const DESCRIPTORS_OF_A_PROCESS: usize = 65_536;

/// Time to read the kernel's list of locks for a LOCK. The client waits ten seconds. Afterwards the list is incomplete, and
/// a port that a process has open is busy.
pub const LOCK_SEARCH: Duration = Duration::from_secs(4);

/// Time for one search for the holders that STAT reports. Then the answers say that they are incomplete. A STAT that
/// comes during a search waits for its end, a pause and its own search: less than two seconds.
pub const STATUS_SEARCH: Duration = Duration::from_millis(900);

#[cfg(test)]
mod tests {
    use super::*;

    /// A LOCK ends in the ten seconds of a client.
    #[test]
    fn searches_end_before_their_callers_give_up() {
        const { assert!(2 * LOCK_SEARCH.as_millis() < 10_000) };
    }

    /// If one user has taken all that one user can, there is room for others.
    #[test]
    fn no_user_has_everything() {
        const { assert!(CLOSINGS_OF_A_USER > 0 && CLOSINGS_OF_A_USER < CLOSINGS) };
        const { assert!(4 * WATCHED_FILES_OF_A_USER <= WATCHED_FILES) };
    }

    /// A daemon removes every name of every lock of a user.
    #[test]
    fn all_locks_of_a_user_are_watched() {
        const { assert!(LOCKS_OF_A_USER * NAMES_OF_A_LOCK <= WATCHED_FILES_OF_A_USER) };
    }

    /// However many names a user invents, the same number of files is kept open for devices.
    #[test]
    fn invented_names_leave_room_for_devices() {
        assert_eq!(2 * KEPT_WITHOUT_DEVICE, KEPT_FILES);
    }
}
