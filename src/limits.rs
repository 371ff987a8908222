//! Limits of the service: what is limited, in which unit, and what happens at the limit. Each is tested at, below
//! and above. Pure.
//!
//! The longest device name is [`ttylock::NAME_BYTES`].

use std::time::Duration;

/// A line of a client with its end, in bytes. A longer one is skipped to its end and answered with one 500.
pub const LINE_BYTES: usize = 512;

/// The part of a line that a 500 reply repeats, and the name of a program in the answer to STAT, in characters. The rest
/// is left out.
pub const ECHO_CHARS: usize = 64;

/// A line of a reply with its end is shorter than this, in bytes. A key of STAT without room is left out.
pub const REPLY_BYTES: usize = 512;

/// The host's name in replies, in characters (Linux allows 64). The rest is left out.
pub const HOST_CHARS: usize = 255;

/// The text of `--banner-version`, in characters. A longer one is a usage error.
pub const VERSION_CHARS: usize = 64;

/// Bytes that are read from a connection in one turn. The rest is read in a later turn. A turn answers one request: before
/// the next one of the same bytes, every connection that has just sent something has a turn.
pub const READ_BYTES: usize = 4096;

/// Time without a complete command, unless `--idle-timeout` gives another. Then the connection gets 421 and is closed.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// A line in the log, in characters. The rest is left out.
pub const JOURNAL_CHARS: usize = 1024;

/// Time for a stalled syslog to take a line. Then the session goes on without the log.
pub const JOURNAL_WAIT: Duration = Duration::from_millis(250);

/// Locks that one user has asked for in the names of processes that do not exist; root's are not counted. A LOCK beyond
/// them is answered with 550. Those of processes that exist are limited by the lock table.
pub const FORESEEN_PER_USER: usize = 256;

/// Log lines about one user in a minute; so many users are told apart. One more line says that the rest is left out.
pub const LOG_LINES: usize = 1000;

/// The longest time in a WAIT and in `--idle-timeout`, in seconds: one day. More is answered with 550, or is a usage
/// error.
pub const WAIT_MAX_SECS: u32 = 86_400;

/// Holders in one answer to STAT. More are counted and not shown.
pub const STATUS_HOLDERS: usize = 64;

/// Waiters in one answer to STAT. More are counted and not shown.
pub const STATUS_WAITERS: usize = 16;

/// Interval of checks that no event causes: for the waiters of a device (the end of a `flock(2)` is no event), for ended
/// holders that the kernel does not report, for lock directories that came during a session of one client, and for new
/// connections after the system had no descriptor or memory left.
pub const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two attempts for the waiters of a device. Events within it cause one attempt.
pub const CHECK_GAP: Duration = Duration::from_millis(10);

/// Connections of a daemon, unless `--max-connections` gives another number. For one more, the oldest silent connection
/// of the user with most of them is closed, or the new one is refused.
pub const CONNECTIONS: usize = 1024;

/// Connections of one user, unless `--max-per-user` gives another number. For one more, the oldest silent one of this
/// user is closed, or the new one is refused.
pub const CONNECTIONS_PER_USER: usize = 256;

/// The largest number for both options. More is a usage error.
pub const CONNECTIONS_MAX: u64 = 10_000;

/// Processes whose end the kernel reports to a daemon. The ends of others are looked for once a second.
pub const WATCHED_PROCESSES: usize = 512;

/// Users whose first waiter is tried when a device may be free: a lock under a name of his own may refuse the first one
/// alone. Others are tried when the line has moved.
pub const HEADS: usize = 4;

/// Age at which a daemon opens the lock directories anew, because others may be there by now. Time after syslog has
/// stalled in which no line waits for it: those that it does not take at once are lost.
pub const REOPEN_EVERY: Duration = Duration::from_secs(30);

/// Ancestors, and descendants, of a peer in another pid namespace that are examined to learn which process it means by a
/// number. It cannot name others.
pub const RELATIVES: usize = 64;

/// How long a port is held open without a lock before one is taken for the process that does
/// (`--watch-opens`).
pub const OPEN_FOR: Duration = Duration::from_secs(1);

/// Time after which a process that could not have the lock of its open port is examined again, if no lock ends before.
pub const OPEN_CHECK_EVERY: Duration = Duration::from_secs(10);

/// Delay before `/dev` is searched for ports after a node has come or changed. Further changes within it cause no other
/// search.
pub const PORTS_AFTER: Duration = Duration::from_millis(250);

/// Ports that are watched for processes that open them.
pub const WATCHED_PORTS: usize = 256;

/// Processes that are known to have one port open without a lock.
pub const OPENERS_OF_PORT: usize = 16;

/// The longest pause between two searches for holders. A pause is three times as long as the search before it, up to
/// this.
pub const STATUS_PAUSE: Duration = Duration::from_millis(100);

/// The kernel's tables of connections must be read whole, to find the user of each connection. A line has 150 bytes,
/// and a connection within this host has two lines.
const _: () = assert!(2 * 150 * CONNECTIONS_MAX <= ttylock::limits::PROC_NET_BYTES);
