//! Every limit of the service: what is limited, in which unit, and what happens at the limit. Each is tested at, below
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

/// Bytes that are read from a connection in one turn. The rest is read in the next turn, after those of other connections.
pub const READ_BYTES: usize = 1024;

/// Requests of a connection that are answered in one turn.
pub const TURN_REQUESTS: usize = 2;

/// Time without a complete command, unless `--idle-timeout` gives another. Then the connection gets 421 and is closed.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// A line in the log, in characters. The rest is left out.
pub const JOURNAL_CHARS: usize = 1024;

/// Time for a stalled syslog to take a line. Then the session goes on without the log.
pub const JOURNAL_WAIT: Duration = Duration::from_millis(250);

/// Log lines about one user in a minute, for as many users at one time. More are counted, and their number is logged
/// later.
pub const LOG_LINES: usize = 1000;

/// Age at which a session of one client opens the lock directories anew, because others may be there by now.
pub const SESSION_REOPEN_EVERY: Duration = Duration::from_secs(1);

/// The longest time in a WAIT and in `--idle-timeout`, in seconds: one day. More is answered with 550, or is a usage
/// error.
pub const WAIT_MAX_SECS: u32 = 86_400;

/// Holders in one answer to STAT. More are counted and not shown.
pub const STATUS_HOLDERS: usize = 64;

/// Waiters in one answer to STAT. More are counted and not shown.
pub const STATUS_WAITERS: usize = 16;

/// Time between two attempts for the waiters of a device without any event: the end of a `flock(2)` causes none.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two attempts for the waiters of a device. Events within it cause one attempt.
pub const LOOK_GAP: Duration = Duration::from_millis(10);

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

/// Connections that a daemon accepts in one turn. More are accepted in the next turn.
pub const ACCEPTED: usize = 64;

/// Users whose first waiter is tried when a device may be free: a lock under a name of his own may refuse the first one
/// alone. Others are tried when the line has moved.
pub const HEADS: usize = 4;

/// Lock files of the processes of one user; root's are not counted. A LOCK beyond them is answered with 550.
pub const FILES_PER_USER: usize = 256;

/// Time in which a daemon accepts no connection after the system had no descriptor or memory left.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Age at which a daemon opens the lock directories anew, because others may be there by now. Time without logging after
/// syslog was absent or stalled, unless another one has taken its place.
pub const REOPEN_EVERY: Duration = Duration::from_secs(30);

/// How long a port is held open without a lock before one is taken for the process that does
/// (`--watch-opens`).
pub const OPEN_FOR: Duration = Duration::from_secs(1);

/// The longest time between two looks at a process that could not have the lock.
pub const OPEN_LOOK_MOST: Duration = Duration::from_secs(30);

/// After the examination of a process with open ports, none of the same user is examined for this many times as long.
pub const EXAMINATION_SHARE: u32 = 9;

/// Delay before `/dev` is searched for ports after a node has come or changed. Further changes within it cause no other
/// search.
pub const PORTS_AFTER: Duration = Duration::from_millis(250);

/// Ports that are watched for processes that open them.
pub const WATCHED_PORTS: usize = 256;

/// Processes that are known to have one port open without a lock.
pub const OPENERS_OF_PORT: usize = 16;

/// Time for one search for the holders that STAT reports. Then the answers say that they are incomplete. A STAT that
/// comes during a search waits for its end, a pause and its own search: less than two seconds.
pub const STATUS_TIME: Duration = Duration::from_millis(900);

/// The longest pause between two searches for holders. A pause is three times as long as the search before it, up to
/// this.
pub const STATUS_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of these tables has 150 bytes, and a connection within this host has two: whose each
    /// is must be found with as many as there may be.
    #[test]
    fn the_tables_of_connections_are_read_whole() {
        let needed = 2 * 150 * CONNECTIONS_MAX;
        assert!((needed..).contains(&ttylock::limits::PROC_NET_BYTES));
    }
}
