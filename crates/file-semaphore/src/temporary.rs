//! The names of what lies beside a lock: temporary files and their makers; the ticket of the last in line; the
//! directory of readers. Names are bytes. Pure.

use std::ffi::OsString;

use pidlockfile::{Name, Pid};

use crate::record::integer;

/// What follows the lock's name in that of the last ticket.
pub(crate) const QUEUE: &str = ".queue";

/// What follows the lock's name in that of the directory with its readers.
pub(crate) const READERS: &str = ".shared";

/// The name that begins with another.
pub(crate) fn beside(lock: &Name, rest: &str) -> Option<Name> {
    let mut name = lock.as_os_str().to_owned();
    name.push(rest);
    Name::new(name)
}

/// The process that made a temporary file of this lock: `LOCK.PID.RANDOM.tmp`.
pub(crate) fn maker(name: &[u8], lock: &Name) -> Option<Pid> {
    made_by(name.strip_prefix(lock.as_os_str().as_encoded_bytes())?.strip_prefix(b".")?)
}

/// The part behind the lock's name: `PID.RANDOM.tmp`, as both this crate and the original
/// TypeScript tool write it.
fn made_by(rest: &[u8]) -> Option<Pid> {
    let (pid, random) = std::str::from_utf8(rest).ok()?.strip_suffix(".tmp")?.split_once('.')?;
    let good =
        (1..=64).contains(&random.len()) && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let number = integer(pid).filter(|_| good)?;
    Pid::new(i64::try_from(number).ok()?)
}

/// The lock to which a temporary file belongs, if it is one.
pub(crate) fn temporary_of(name: &Name) -> Option<OsString> {
    let bytes = name.as_os_str().as_encoded_bytes();
    // From behind: "tmp", what is random, the number.
    let (at, _) = bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'.').nth(2)?;
    let (lock, rest) = bytes.split_at_checked(at)?;
    made_by(rest.get(1..)?)?;
    beginning(lock)
}

/// The lock beside which something of this name would be: its last ticket ([`QUEUE`]), or the directory with its
/// readers ([`READERS`]).
pub(crate) fn lock_before(rest: &str, name: &Name) -> Option<OsString> {
    beginning(name.as_os_str().as_encoded_bytes().strip_suffix(rest.as_bytes())?)
}

#[cfg(unix)]
fn beginning(bytes: &[u8]) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt;
    (!bytes.is_empty()).then(|| OsString::from_vec(bytes.to_owned()))
}

/// Of a name that is no text nothing can be cut off here.
#[cfg(not(unix))]
fn beginning(bytes: &[u8]) -> Option<OsString> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty()).map(OsString::from)
}
