//! The limits of the serial service: what its clients and users can take of it, in which unit, and what happens at the
//! limit. Those of the locks are the crate ttylock's. There are thirty at most, and SECURITY.md lists them all. Pure.
//!
//! Times, sizes and numbers that belong to one mechanism stand beside its code.

use std::time::Duration;

pub use ttylock::limits::*;

/// A line of a client with its end, in bytes. A longer one is skipped to its end and answered with one 500.
pub const LINE_BYTES: usize = 512;

/// Bytes that are read from a connection in one turn. The rest is read in a later turn. A turn answers one request: before
/// the next one of the same bytes, every connection that has just sent something has a turn.
pub const READ_BYTES: usize = 4096;

/// The part of a line that a 500 reply repeats, and the name of a program in the answer to STAT, in characters. The rest
/// is left out.
pub const ECHO_CHARS: usize = 64;

/// A line of a reply with its end is shorter than this, in bytes. A key of STAT without room is left out.
pub const REPLY_BYTES: usize = 512;

/// Time without a complete command, unless `--idle-timeout` gives another. Then the connection gets 421 and is closed.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Connections of a daemon, unless `--max-connections` gives another number. For one more, the oldest silent connection
/// of the user with most of them is closed, or the new one is refused. The last 16 (an eighth, if that is less) are for
/// root and the force group.
pub const CONNECTIONS: usize = 1024;

/// Connections of one user, unless `--max-per-user` gives another number. For one more, the oldest silent one of this
/// user is closed, or the new one is refused.
pub const CONNECTIONS_PER_USER: usize = 256;

/// The largest number for both options. More is a usage error.
pub const CONNECTIONS_MAX: u64 = 10_000;

/// Log lines about one user in a minute, and users that are counted apart. One more line says that the rest is left out.
pub const LOG_LINES: usize = 1000;

/// Holders in one answer to STAT. More are counted and not shown.
pub const STATUS_HOLDERS: usize = 64;

/// Waiters in one answer to STAT. More are counted and not shown.
pub const STATUS_WAITERS: usize = 16;

/// Ports that `--watch-opens` watches for processes that open them. Others are not watched.
pub const WATCHED_PORTS: usize = 256;

/// Processes that are known to have one port open without a lock (`--watch-opens`). Others get no lock.
pub const OPENERS_OF_PORT: usize = 16;
