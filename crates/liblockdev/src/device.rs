//! The functions of the library in Rust, each with one connection to the service.

use std::path::Path;

use lfp::client::PATIENCE;
use lfp::{Client, DeviceName, Error, Outcome, Pid};

/// What a call tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Done; or, where one only looked: nobody has it.
    Done,
    /// This process has it.
    HeldBy(Pid),
    /// Something else keeps everybody out: a lock that names no process, as long as its file is being written.
    Busy,
}

/// Why a call fails: a number of errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// The process that has the device.
pub(crate) fn test(device: &[u8]) -> Result<Told, Errno> {
    let device = named(device)?;
    let mut client = reach()?;
    holder(&mut client, &device)
}

/// Takes the device for a process, which may have it already.
pub(crate) fn lock(device: &[u8], pid: Pid) -> Result<Told, Errno> {
    let device = named(device)?;
    take(&mut reach()?, &device, pid)
}

/// Hands the lock of `from`, or of any process, to another process. If nobody has it, that process takes it.
pub(crate) fn relock(device: &[u8], from: Option<Pid>, to: Pid) -> Result<Told, Errno> {
    let device = named(device)?;
    let mut client = reach()?;
    let holder = match holder(&mut client, &device)? {
        Told::Done => return take(&mut client, &device, to),
        Told::HeldBy(holder) if from.is_none_or(|from| from == holder) => holder,
        held @ (Told::HeldBy(_) | Told::Busy) => return Ok(held),
    };
    if holder == to {
        return Ok(Told::Done);
    }
    let outcome = client.pass(&device, holder, to).map_err(errno)?;
    told(&mut client, &device, outcome)
}

/// Releases the device for a process, or for any process.
pub(crate) fn unlock(device: &[u8], pid: Option<Pid>) -> Result<Told, Errno> {
    let device = parsed(device)?;
    let mut client = reach()?;
    let pid = match (pid, holder(&mut client, &device)?) {
        (_, free_or_busy @ (Told::Done | Told::Busy)) => return Ok(free_or_busy),
        (Some(pid), Told::HeldBy(_)) => pid,
        (None, Told::HeldBy(holder)) => holder,
    };
    let outcome = client.unlock(&device, pid).map_err(errno)?;
    told(&mut client, &device, outcome)
}

fn take(client: &mut Client, device: &DeviceName, pid: Pid) -> Result<Told, Errno> {
    let outcome = client.lock(device, pid).map_err(errno)?;
    let told = told(client, device, outcome)?;
    Ok(if told == Told::HeldBy(pid) { Told::Done } else { told })
}

fn reach() -> Result<Client, Errno> {
    Client::usual(PATIENCE).map_err(errno)
}

fn told(client: &mut Client, device: &DeviceName, outcome: Outcome) -> Result<Told, Errno> {
    match outcome {
        Outcome::Done => Ok(Told::Done),
        Outcome::Denied => Err(Errno(libc::EACCES)),
        Outcome::Busy => match holder(client, device)? {
            // Gone in the meantime.
            Told::Done => Ok(Told::Busy),
            held @ (Told::HeldBy(_) | Told::Busy) => Ok(held),
        },
    }
}

/// Whether something keeps others from the device: the first process that has a lock, or else a lock that names none.
/// A program that merely has the port open has none.
fn holder(client: &mut Client, device: &DeviceName) -> Result<Told, Errno> {
    let holders = client.status(Some(device)).map_err(errno)?;
    let mut locks = holders.iter().filter(|holder| holder.keeps_out()).peekable();
    if locks.peek().is_none() {
        return Ok(Told::Done);
    }
    Ok(locks.find_map(|holder| holder.pid).map_or(Told::Busy, Told::HeldBy))
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
        Error::Closed | Error::NotLfp | Error::Unexpected(_) | _ => libc::EPROTO,
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
