//! Every limit of the service. Each is tested at, below and above. Pure.
//!
//! The longest device name is [`ttylock::NAME_BYTES`].

use std::time::Duration;

use ttylock::limits::{CLOSINGS, DEFERRED_MOST};

/// A line with its end, in bytes. A longer one is skipped to its end and answered once.
pub const LINE_BYTES: usize = 512;

/// What a 500 reply repeats of the line, in characters.
pub const ECHO_CHARS: usize = 64;

/// A reply with its end is shorter than this, in bytes.
pub const REPLY_BYTES: usize = 512;

/// What replies say of the host's name, in characters (Linux allows 64).
pub const HOST_CHARS: usize = 255;

/// What `--banner-version` may say, in characters.
pub const VERSION_CHARS: usize = 64;

/// Bytes taken from a connection at once.
pub const READ_BYTES: usize = 4096;

/// How long a connection may be idle unless `--idle-timeout` says otherwise.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// The longest `--idle-timeout`, in seconds: one day.
pub const IDLE_TIMEOUT_MAX_SECS: u64 = 86_400;

/// A line in the log, in characters.
pub const JOURNAL_CHARS: usize = 1024;

/// How long a stalled syslog may hold up a session before it goes on without.
pub const JOURNAL_WAIT: Duration = Duration::from_millis(250);

/// How long nothing is logged after a syslog that was not there or has stalled, unless another one
/// has taken its place: a service that lives long must find it again when it is back.
pub const JOURNAL_REST: Duration = Duration::from_secs(30);

/// Log lines that one user may cause within [`LOG_WINDOW`].
pub const LOG_LINES: u32 = 1000;

/// For so long a user's log lines are counted together.
pub const LOG_WINDOW: Duration = Duration::from_secs(60);

/// Users with log lines that are counted at one time.
pub const LOG_USERS: usize = 1024;

/// What is read of `/proc/net/tcp` and `/proc/net/tcp6` each, in bytes.
pub const PROC_NET_BYTES: u64 = 64 << 20;

/// How long what no client need wait for is put off, while there may be more to do for clients:
/// closing files, records in the state directory, the log.
pub const FLUSH_AFTER: Duration = Duration::from_millis(10);

/// How often a session of one client opens the lock directories anew: others may be there by now.
pub const SESSION_REOPEN_EVERY: Duration = Duration::from_secs(1);

/// The longest time a WAIT may name, in seconds: one day.
pub const WAIT_MAX_SECS: u32 = 86_400;

/// Holders that one STAT tells of; there may be more.
pub const STATUS_HOLDERS: usize = 64;

/// Waiters that one STAT tells of.
pub const STATUS_WAITERS: usize = 16;

/// A program's name in the answer to STAT, in characters.
pub const COMMAND_CHARS: usize = 64;

/// How often a device that somebody waits for is looked at when nothing has told of a change:
/// the end of a `flock(2)` tells nobody.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The least time between two looks at one device, whatever has been told.
pub const LOOK_GAP: Duration = Duration::from_millis(10);

/// Connections of a daemon in all, unless `--max-connections` says otherwise.
pub const CONNECTIONS: usize = 1024;

/// Connections of one user, unless `--max-per-user` says otherwise.
pub const CONNECTIONS_PER_USER: usize = 256;

/// The largest of both.
pub const CONNECTIONS_MAX: u64 = 10_000;

/// Connections that the kernel holds ready for a daemon that is busy.
pub const LISTEN_BACKLOG: i32 = 4096;

/// How long a line may take from its first byte to its end.
pub const LINE_TIME: Duration = Duration::from_secs(30);

/// Processes whose end a daemon waits for.
pub const WATCHED_PROCESSES: usize = 512;

/// Descriptors that a daemon needs besides connections and directories: the files of one request, those of
/// the thread that answers STAT, sockets for a moment; and files that are not closed yet.
pub const IN_PASSING: usize = 10 + DEFERRED_MOST;

/// Descriptors that a daemon has when it begins, where `/proc` does not tell how many.
pub const BEGUN_WITH: usize = 10;

/// Bytes that are to be had before a connection is taken, or a daemon begins.
pub const SPARE_MEMORY: usize = 1 << 20;

/// Bytes a daemon takes from one of its connections in one turn.
pub const TURN_BYTES: usize = 1024;

/// Commands a daemon does for one of its connections in one turn.
pub const TURN_COMMANDS: usize = 8;

/// New connections that a daemon takes in one turn.
pub const ACCEPTED: usize = 64;

/// Waiters that a daemon tries in one turn.
pub const ATTEMPTED: usize = 8;

/// Users whose first waiter is tried at one look at a device: names of his own may keep it busy
/// for one of them, and are nothing to the others.
pub const HEADS: usize = 4;

/// Lock files of one user's processes that a daemon takes; root's are not counted.
pub const FILES_PER_USER: usize = 256;

/// How long a daemon takes no connections when the system has no descriptors left.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How often a daemon looks for connections whose time is over.
pub const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// How often a daemon opens the lock directories anew.
pub const REOPEN_EVERY: Duration = Duration::from_secs(30);

/// How long a port is held open without a lock before one is taken for the process that does
/// (`--watch-opens`).
pub const OPEN_FOR: Duration = Duration::from_secs(1);

/// The longest time between two looks at a process that could not have the lock.
pub const OPEN_LOOK_MOST: Duration = Duration::from_secs(30);

/// After the examination of a process with open ports, none of the same user is examined for this many times as long.
pub const EXAMINATION_SHARE: u32 = 9;

/// Bytes of the kernel's reports on opened ports that are read at once.
pub const OPEN_EVENT_BYTES: usize = 4096;

/// Ports that are watched for processes that open them.
pub const WATCHED_PORTS: usize = 256;

/// Processes that are known to have one port open without a lock.
pub const OPENERS_OF_PORT: usize = 16;

/// Descriptors of the thread of `--exclusive`, besides its lock directories: its events, a search, and the duplicates
/// that are being closed.
pub const EXCLUSIVE_DESCRIPTORS: usize = 16 + CLOSINGS;

/// So long after a lock was taken, its record is on the disk: from then on a lock without a record has ended.
pub const EXCLUSIVE_RECORD_AFTER: Duration = Duration::from_millis(500);

/// How long one search for the holders that STAT reports may take. Then its answers say that they are incomplete. A
/// STAT that comes during a search waits for its end, a pause and its own search: less than two seconds.
pub const STATUS_TIME: Duration = Duration::from_millis(900);

/// Searches for holders take at most one part in so many of the time, as long as they are short.
pub const STATUS_SHARE: u32 = 4;

/// The longest pause between two searches for holders.
pub const STATUS_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of these tables has 150 bytes, and a connection within this host has two: whose each
    /// is must be found with as many as there may be.
    #[test]
    fn the_tables_of_connections_are_read_whole() {
        let needed = 2 * 150 * CONNECTIONS_MAX;
        assert!((needed..).contains(&PROC_NET_BYTES));
    }
}
