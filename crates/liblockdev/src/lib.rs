//! `liblockdev.so.1`: the interface of the old library for the locks of serial devices, over the
//! Lock File Protocol service. Its programs need no right to write the lock directory, no group
//! and no setgid helper.
//!
//! Here are the functions of the library in Rust, each with one connection to the service. `c` faces C, and `program` is
//! the program `lockdev`.

pub mod c;
pub mod program;

use std::path::Path;
use std::{fmt, io};

use lfp::client::PATIENCE;
use lfp::{Client, DeviceName, Error, Holder, Outcome, Pid};
use pidlockfile::words_of;

/// What a call returns: the process that has the device; `None` if nobody has it, or if the call is done.
pub(crate) type CallResult = Result<Option<Pid>, Failure>;

/// Why a call fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A lock that names no process keeps everybody out, as long as its file is being written.
    Busy,
    /// A number of errno(3).
    Number(i32),
    /// The service did not answer as it should.
    Service(Error),
}

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
    let outcome = client.pass(&device, holder, to)?;
    answer(&mut client, &device, outcome)
}

/// Releases the device for a process, or for any process.
pub(crate) fn unlock(device: &[u8], pid: Option<Pid>) -> CallResult {
    let device = parsed(device)?;
    let mut client = reach()?;
    let Some(holder) = holder(&mut client, &device)? else { return Ok(None) };
    let outcome = client.unlock(&device, pid.unwrap_or(holder))?;
    answer(&mut client, &device, outcome)
}

fn take(client: &mut Client, device: &DeviceName, pid: Pid) -> CallResult {
    let outcome = client.lock(device, pid)?;
    Ok(answer(client, device, outcome)?.filter(|holder| *holder != pid))
}

fn reach() -> Result<Client, Failure> {
    Ok(Client::usual(PATIENCE)?)
}

impl Failure {
    /// The number of errno(3) for C.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            Self::Busy => libc::EBUSY,
            Self::Number(number) => *number,
            // Whatever connect(2) says: ENOENT would be taken for a missing device.
            Self::Service(Error::Unreachable(_)) => libc::ECONNREFUSED,
            Self::Service(Error::Broken(error)) => error.raw_os_error().unwrap_or(libc::EIO),
            Self::Service(Error::TimedOut) => libc::ETIMEDOUT,
            Self::Service(Error::Refused) => libc::EACCES,
            Self::Service(Error::Dismissed) => libc::EAGAIN,
            Self::Service(Error::Unsupported) => libc::ENOSYS,
            Self::Service(Error::Closed | Error::Protocol | Error::Unexpected(_) | _) => {
                libc::EPROTO
            }
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Service(error)
    }
}

/// For people.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(error) => error.fmt(f),
            Self::Busy | Self::Number(_) => {
                f.write_str(&words_of(&io::Error::from_raw_os_error(self.errno())))
            }
        }
    }
}

fn answer(client: &mut Client, device: &DeviceName, outcome: Outcome) -> CallResult {
    match outcome {
        Outcome::Done => Ok(None),
        Outcome::Denied => Err(Failure::Number(libc::EACCES)),
        // The holder may be gone in the meantime.
        Outcome::Busy => holder(client, device)?.map(Some).ok_or(Failure::Busy),
    }
}

/// Whether something keeps others from the device: the first process that has a lock, or else a lock that names none.
/// A program that merely has the port open has none.
fn holder(client: &mut Client, device: &DeviceName) -> CallResult {
    let mut locks = client.status(Some(device))?;
    locks.retain(Holder::keeps_out);
    if locks.is_empty() {
        return Ok(None);
    }
    locks.iter().find_map(|holder| holder.pid).map(Some).ok_or(Failure::Busy)
}

/// The device, which must be there, as the old library wants it.
fn named(device: &[u8]) -> Result<DeviceName, Failure> {
    let name = parsed(device)?;
    match Path::new("/dev").join(name.as_str()).metadata() {
        Ok(_) => Ok(name),
        Err(error) => Err(Failure::Number(error.raw_os_error().unwrap_or(libc::ENOENT))),
    }
}

fn parsed(device: &[u8]) -> Result<DeviceName, Failure> {
    const NAME_BYTES: usize = 255;
    let refusal = if device.len() > NAME_BYTES { libc::ENAMETOOLONG } else { libc::EINVAL };
    DeviceName::parse(device).map_err(|_| Failure::Number(refusal))
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
        assert_eq!(named(&text).err().map(|failure| failure.errno()), expected);
    }
}
