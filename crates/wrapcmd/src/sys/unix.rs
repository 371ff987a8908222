//! Other systems than Linux, by functions that most of them have. Type-checked, never run so far.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{MsgFlags, recv, send};
#[cfg(any(target_os = "netbsd", target_os = "openbsd"))]
use nix::unistd::Pid;

use super::{Arrived, Sender, WORD_BYTES, hand_on_path};

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

    /// The next one that has arrived. Does not wait. Nobody tells from where: the terminal's signals
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

/// By which signal a child was stopped cannot be seen, so the wrapper never stops with it: the child
/// waits to be continued, and the wrapper waits on.
#[cfg(any(target_os = "netbsd", target_os = "openbsd"))]
pub(crate) fn was_stopped(_child: Pid) -> bool {
    false
}

/// Whether a child has ended, without taking note of it: it stays a zombie, its number its own. Here
/// the kernel is asked to tell of the end (kqueue(2)), and there is none that it could still tell.
#[cfg(target_os = "openbsd")]
pub(crate) fn has_ended(child: Pid) -> bool {
    use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};

    let Ok(number) = usize::try_from(child.as_raw()) else { return true };
    let (flags, fflags) = (EvFlags::EV_ADD | EvFlags::EV_RECEIPT, FilterFlag::NOTE_EXIT);
    let change = KEvent::new(number, EventFilter::EVFILT_PROC, flags, fflags, 0, 0);
    let mut told = [change];
    let no_time = nix::libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let Ok(queue) = Kqueue::new() else { return false };
    match queue.kevent(&[change], &mut told, Some(no_time)) {
        Err(errno) => errno == Errno::ESRCH,
        Ok(count) => {
            let refused = |event: &KEvent| i32::try_from(event.data()) == Ok(Errno::ESRCH as i32);
            told.iter().take(count).any(refused)
        }
    }
}

/// What passes the word: the end that a child reads, and the other. A socket, which can be read by
/// its number.
pub(crate) fn line() -> io::Result<(OwnedFd, OwnedFd)> {
    let (listen, tell) = UnixStream::pair()?;
    Ok((listen.into(), tell.into()))
}

/// In the child: all that comes through an inherited descriptor, which is closed.
pub(crate) fn hear(number: i32) -> Option<String> {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match recv(number, &mut piece, MsgFlags::empty()) {
            Ok(0) => break,
            Ok(length) => text.extend_from_slice(piece.get(..length)?),
            Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
        if u64::try_from(text.len()).ok()? >= WORD_BYTES {
            break;
        }
    }
    nix::unistd::close(number).ok()?;
    String::from_utf8(text).ok()
}

/// What tells a waiting caller that the command begins: one byte, by an inherited descriptor.
#[derive(Debug)]
#[must_use]
pub struct Began(i32);

impl Began {
    pub(crate) fn by(number: i32) -> Option<Self> {
        Some(Self(number))
    }

    /// Tells it.
    ///
    /// # Errors
    /// The caller that was to be told is gone.
    pub fn tell(self) -> io::Result<()> {
        send(self.0, b"1", MsgFlags::empty())?;
        Ok(nix::unistd::close(self.0)?)
    }
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
