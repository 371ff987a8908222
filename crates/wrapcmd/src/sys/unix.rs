//! Other systems than Linux, by functions that most of them have. Type-checked, never run so far.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};

use super::{Arrived, Sender, hand_on_path};

/// Signals that are held off, readable: a thread waits for them (sigwait(2)) and passes them on.
#[derive(Debug)]
pub(crate) struct Caught(UnixStream);

impl Caught {
    /// Makes signals readable that are held off already.
    pub(crate) fn these(set: &SigSet) -> nix::Result<Self> {
        // What is ignored never comes, and the end of a child is ignored where nobody handles it.
        let unused = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(Signal::SIGCHLD as i32, unused).map_err(errno)?;
        let (read, mut write) = UnixStream::pair().map_err(errno)?;
        read.set_nonblocking(true).map_err(errno)?;
        let set = *set;
        let pass_on = move || {
            loop {
                let signal = match set.wait() {
                    Ok(signal) => signal,
                    Err(Errno::EINTR) => continue,
                    Err(_) => return,
                };
                let number = u8::try_from(signal as i32).unwrap_or_default();
                if write.write_all(&[number]).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().spawn(pass_on).map_err(errno)?;
        Ok(Self(read))
    }

    /// The next one that has arrived. Does not wait. The system does not say from where: the terminal's signals
    /// too count as a process's, so that a command may get one twice, and never misses one.
    pub(crate) fn next(&self) -> Option<Arrived> {
        let mut number = [0];
        (&self.0).read_exact(&mut number).ok()?;
        let signal = Signal::try_from(i32::from(number[0])).ok()?;
        Some(Arrived { signal, sender: Sender::Process })
    }
}

impl AsFd for Caught {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// That cannot be seen. What is ignored never comes when it is held off and waited for, so nothing
/// is lost by it.
pub(crate) fn ignored() -> u64 {
    0
}

/// This very program, to be started; the real PATH is handed on.
pub(crate) fn itself() -> io::Result<Command> {
    let mut command = std::env::current_exe().map(Command::new)?;
    hand_on_path(&mut command);
    Ok(command)
}

fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
