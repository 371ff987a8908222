//! Limits and defaults of this crate; their tests are at, below and above each.
//!
//! Pure.

use std::time::Duration;

/// The longest lock file, in bytes; a longer one does not parse.
pub const LONGEST_FILE: usize = 64 * 1024;

/// The longest tag, in characters; what is longer is cut.
pub const LONGEST_TAG: usize = 10_000;

/// The longest other word in a lock file (`boot=`, `host=`), in characters.
pub const LONGEST_WORD: usize = 255;

/// A lock is old when its time stamp is further back than this (both original tools: one hour).
pub const STALE_TIMEOUT: Duration = Duration::from_secs(3600);

/// The pause between two checks of a waiter to which nothing was reported: network file systems report nothing, and the
/// death of a holder is reported only if it had its lock file open.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The pause between two checks of the first in line where the kernel reports nothing (inotify(7) has few instances for
/// each user). Nobody else checks there.
pub const UNREPORTED_INTERVAL: Duration = Duration::from_millis(10);

/// The pause between two checks of a waiter in line, whether the lock is free and nobody takes it.
pub const LINE_INTERVAL: Duration = Duration::from_millis(250);

/// The pause between two checks of a process that does not stand in line, whether a waiter takes what is free; for
/// [`LINE_INTERVAL`] at most.
pub const BESIDE_INTERVAL: Duration = Duration::from_millis(2);

/// An empty or cut file may be one that is being written, until it is this old. An attempt waits for that at most this long.
pub const WRITING_TIME: Duration = Duration::from_secs(2);

/// The shortest pause between two checks of a stale lock that only another user may remove.
pub const LEFT_INTERVAL: Duration = Duration::from_secs(1);

/// After this many checks in a row that find the lock free, the first waiter has had its turn: it is stopped, or stands
/// there to stop others. The lock is free for the next process that asks.
pub const MOST_TURNS_MISSED: u32 = 3;

/// The permission bits of a published lock.
pub const MODE: u32 = 0o644;

/// The bits a lock's mode may have: `pidlockfile` marks stand-ins with the others.
pub const MODE_BITS: u32 = 0o666;

/// The most holders one counting semaphore can have.
pub const MOST_SLOTS: u32 = 1024;

/// The longest name of a lock file, in bytes: with `.PID.RANDOM.tmp` behind it, it is a file name
/// still.
pub const LONGEST_NAME: usize = 255 - ".2147483647.0123456789abcdef.tmp".len();

/// Symbolic links followed before giving up, as in the kernel.
pub const MOST_LINKS: usize = 40;

/// How often a lock is read again because the file changed meanwhile. Each repetition means that somebody else made
/// progress.
pub const MOST_READINGS: usize = 64;

/// Stands in `pidns=` for Windows, which knows no pid namespaces: on Linux they are counted from
/// 0xF0000000, so that no process there takes a process number of Windows for one of its own. Start times are tenths
/// of microseconds since 1601 there, over all boots.
pub const WINDOWS_NAMESPACE: u64 = 0x0057_494E;
