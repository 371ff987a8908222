//! `liblockdev.so.1`: the interface of the old library for the locks of serial devices, over the
//! Lock File Protocol service. Its programs need no right to write the lock directory, no group
//! and no setgid helper.
//!
//! Here are the functions of the library in Rust, each with one connection to the service. `c` faces C, and `program` is
//! the program `lockdev`.

pub mod c;
pub mod program;

use std::path::Path;

use lfp::client::PATIENCE;
use lfp::{Client, DeviceName, Error, Holder, Outcome, Pid};

/// What a call gives: the process that has the device, or none where it is free or the call is done.
pub(crate) type CallResult = Result<Option<Pid>, Errno>;

/// Why a call fails: a number of errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// Something else keeps everybody out: a lock that names no process, as long as its file is being written.
pub(crate) const BUSY: Errno = Errno(libc::EBUSY);

/// The process that has the device.
pub(crate) fn test(device: &[u8]) -> CallResult {
    let device = named(device)?;
    holder(&mut reach()?, &device)
}

/// Takes the device for a process, which may have it already.
pub(crate) fn lock(device: &[u8], pid: Pid) -> CallResult {
    let device = named(device)?;
    take(&mut reach()?, &device, pid)
}

/// Hands the lock of `from`, or of any process, to another process. If nobody has it, that process takes it.
pub(crate) fn relock(device: &[u8], from: Option<Pid>, to: Pid) -> CallResult {
    let device = named(device)?;
    let mut client = reach()?;
    let holder = match holder(&mut client, &device)? {
        None => return take(&mut client, &device, to),
        Some(holder) if from.is_some_and(|from| from != holder) => return Ok(Some(holder)),
        Some(holder) if holder == to => return Ok(None),
        Some(holder) => holder,
    };
    let outcome = client.pass(&device, holder, to).map_err(errno)?;
    answer(&mut client, &device, outcome)
}

/// Releases the device for a process, or for any process.
pub(crate) fn unlock(device: &[u8], pid: Option<Pid>) -> CallResult {
    let device = parsed(device)?;
    let mut client = reach()?;
    let Some(holder) = holder(&mut client, &device)? else { return Ok(None) };
    let outcome = client.unlock(&device, pid.unwrap_or(holder)).map_err(errno)?;
    answer(&mut client, &device, outcome)
}

fn take(client: &mut Client, device: &DeviceName, pid: Pid) -> CallResult {
    let outcome = client.lock(device, pid).map_err(errno)?;
    Ok(answer(client, device, outcome)?.filter(|holder| *holder != pid))
}

fn reach() -> Result<Client, Errno> {
    Client::usual(PATIENCE).map_err(errno)
}

fn answer(client: &mut Client, device: &DeviceName, outcome: Outcome) -> CallResult {
    match outcome {
        Outcome::Done => Ok(None),
        Outcome::Denied => Err(Errno(libc::EACCES)),
        // The holder may be gone in the meantime.
        Outcome::Busy => holder(client, device)?.map(Some).ok_or(BUSY),
    }
}

/// Whether something keeps others from the device: the first process that has a lock, or else a lock that names none.
/// A program that merely has the port open has none.
fn holder(client: &mut Client, device: &DeviceName) -> CallResult {
    let mut locks = client.status(Some(device)).map_err(errno)?;
    locks.retain(Holder::keeps_out);
    if locks.is_empty() {
        return Ok(None);
    }
    locks.iter().find_map(|holder| holder.pid).map(Some).ok_or(BUSY)
}

/// The device, which must be there, as the old library wants it.
fn named(device: &[u8]) -> Result<DeviceName, Errno> {
    let name = parsed(device)?;
    match Path::new("/dev").join(name.as_str()).metadata() {
        Ok(_) => Ok(name),
        Err(error) => Err(Errno(error.raw_os_error().unwrap_or(libc::ENOENT))),
    }
}

fn parsed(device: &[u8]) -> Result<DeviceName, Errno> {
    const NAME_BYTES: usize = 255;
    let refusal = if device.len() > NAME_BYTES { libc::ENAMETOOLONG } else { libc::EINVAL };
    DeviceName::parse(device).map_err(|_| Errno(refusal))
}

fn errno(error: Error) -> Errno {
    let number = match error {
        // Whatever connect(2) says: ENOENT would be taken for a missing device.
        Error::Unreachable(_) => libc::ECONNREFUSED,
        Error::Broken(error) => error.raw_os_error().unwrap_or(libc::EIO),
        Error::TimedOut => libc::ETIMEDOUT,
        Error::Refused => libc::EACCES,
        Error::Dismissed => libc::EAGAIN,
        Error::Unsupported => libc::ENOSYS,
        Error::Closed | Error::Protocol | Error::Unexpected(_) | _ => libc::EPROTO,
    };
    Errno(number)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::absolute(b"/dev/null".to_vec(), None)]
    #[case::bare(b"null".to_vec(), None)]
    #[case::missing(b"/dev/no-such-port".to_vec(), Some(libc::ENOENT))]
    #[case::not_a_directory(b"/dev/null/x".to_vec(), Some(libc::ENOTDIR))]
    #[case::elsewhere(b"/etc/passwd".to_vec(), Some(libc::EINVAL))]
    #[case::climbs(b"/dev/../etc/passwd".to_vec(), Some(libc::EINVAL))]
    #[case::empty(Vec::new(), Some(libc::EINVAL))]
    #[case::too_long(vec![b'x'; 256], Some(libc::ENAMETOOLONG))]
    fn device_names_are_parsed_or_refused_with_an_errno(
        #[case] text: Vec<u8>,
        #[case] expected: Option<i32>,
    ) {
        assert_eq!(named(&text).err().map(|errno| errno.0), expected);
    }
}
