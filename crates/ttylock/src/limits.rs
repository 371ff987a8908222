//! Limits of the locks. Each is tested at, below and above. Pure.
//!
//! The longest device name is [`crate::NAME_BYTES`].

use std::time::Duration;

/// Lock files that a daemon keeps open.
pub const KEPT_FILES: usize = 256;

/// Of these, the files of names without a device, because users can invent names.
pub const KEPT_WITHOUT_DEVICE: usize = KEPT_FILES / 2;

/// Lock files that a daemon removes when their holders end.
pub(crate) const WATCHED_FILES: usize = 4096;

/// Of these, those of one user, root's apart.
pub(crate) const WATCHED_FILES_OF_A_USER: usize = WATCHED_FILES / 4;

/// Lock files of one lock.
pub const NAMES_OF_A_LOCK: usize = 16;

/// Bytes of their names: a record tells all of them, and fits into the 4,095 bytes of a symbolic
/// link.
pub(crate) const NAME_BYTES_OF_A_LOCK: usize = 3000;

/// Parts of all the links on the way to a device. The longest name that can be locked has 250 bytes.
pub(crate) const LINK_PARTS: usize = 256;

/// Bytes of all these links.
pub(crate) const LINK_BYTES: usize = 2048;

/// Locks of one user, root's apart; those for processes that are gone count as one user's. A lock may have many files: an
/// adapter has some ten.
pub const LOCKS_OF_A_USER: usize = 256;

/// With this many lock files in the lock directory, names without a device are not locked any more.
pub const LOCKS_FOR_INVENTED: usize = 1024;

/// Bytes of a thread's stack: nothing that a daemon has a thread for goes deep.
pub const THREAD_STACK: usize = 256 << 10;

/// Descriptors of other processes' openings that are being closed by threads of their own.
pub const CLOSINGS: usize = 32;

/// Of these, those of one user.
pub(crate) const CLOSINGS_OF_A_USER: usize = 4;

/// The least pause between two examinations of a port, and between two readings of its events.
#[cfg(target_os = "linux")]
pub(crate) const PORT_EXAMINATION_GAP: Duration = Duration::from_millis(10);

/// After the examination of a port, or of a process that has one open, there is none for this many times as long.
pub const PORT_EXAMINATION_SHARE: u32 = 9;

/// Interval of the examinations without an event, and the longest rest.
pub const PORT_SCAN_EVERY: Duration = Duration::from_secs(1);

/// Time to read the kernel's list of locks for a LOCK. The client waits ten seconds. Afterwards the list is incomplete.
pub(crate) const LOCK_SEARCH: Duration = Duration::from_secs(4);

/// Time for one search for the holders that STAT reports. Then the answers say that they are incomplete. A STAT that
/// comes during a search waits for its end, a pause and its own search: less than two seconds.
pub const STATUS_SEARCH: Duration = Duration::from_millis(900);

/// Time for a search for holders that a command shows or removes, and for locks of its own ancestors.
pub const COMMAND_SEARCH: Duration = Duration::from_secs(2);

/// The same for the names of holders in a complaint.
pub const COMPLAINT_SEARCH: Duration = Duration::from_millis(500);

/// Bytes read of `/proc/net/tcp` and of `/proc/net/tcp6`. A connection that is listed behind them has no known user.
pub const PROC_NET_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A command waits for what STAT finds, and a LOCK ends in the ten seconds of a client.
    #[test]
    fn searches_end_before_their_callers_give_up() {
        const { assert!(COMPLAINT_SEARCH.as_millis() < STATUS_SEARCH.as_millis()) };
        const { assert!(2 * STATUS_SEARCH.as_millis() < COMMAND_SEARCH.as_millis()) };
        const { assert!(2 * LOCK_SEARCH.as_millis() < 10_000) };
    }

    /// If the closes of one user never end, there is room for those of others.
    #[test]
    fn no_user_has_all_the_closings() {
        const { assert!(CLOSINGS_OF_A_USER > 0 && CLOSINGS_OF_A_USER < CLOSINGS) };
    }

    /// However many names a user invents, the same number of files is kept open for devices.
    #[test]
    fn invented_names_leave_room_for_devices() {
        assert_eq!(2 * KEPT_WITHOUT_DEVICE, KEPT_FILES);
    }
}
