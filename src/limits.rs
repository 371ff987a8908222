//! Every limit of the service in one place; each is tested at, below and above.
//!
//! The longest device name is [`crate::device::name::NAME_BYTES`].

use std::time::Duration;

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

/// A line in the journal, in characters.
pub const JOURNAL_CHARS: usize = 1024;

/// How long a stalled syslog may hold up a session before it goes on without.
pub const JOURNAL_WAIT: Duration = Duration::from_millis(250);

/// What is read of `/proc/net/tcp` and `/proc/net/tcp6` each, in bytes.
pub const PROC_NET_BYTES: u64 = 64 << 20;

/// The longest time a WAIT may name, in seconds: one day.
pub const WAIT_MAX_SECS: u32 = 86_400;

/// Holders that one STAT tells of; there may be more.
pub const STATUS_HOLDERS: usize = 64;

/// A program's name in the answer to STAT, in characters.
pub const COMMAND_CHARS: usize = 64;

/// How often a device that somebody waits for is looked at when nothing has told of a change:
/// the end of a `flock(2)` tells nobody.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The least time between two looks at one device, whatever has been told.
pub const LOOK_GAP: Duration = Duration::from_millis(10);
