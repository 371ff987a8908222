//! What a wrapper asks of the operating system: one file for each kind of system.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus, waitid};

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "unix.rs")]
mod own;

pub(crate) use own::{Caught, ignored, itself};

/// Where a process that was started by [`itself`] finds the PATH that is not its own.
pub(crate) const REAL_PATH: &str = "WRAPCMD_PATH";

/// Whether this process is one that goes on as a wrapper.
static PATH_IS_HANDED_ON: AtomicBool = AtomicBool::new(false);

/// This process was started by [`itself`], and starts others.
pub(crate) fn path_is_handed_on() {
    PATH_IS_HANDED_ON.store(true, Ordering::Relaxed);
}

/// Gives a process the PATH that its command is to have.
fn hand_on_path(process: &mut Command) {
    let handed_on = PATH_IS_HANDED_ON.load(Ordering::Relaxed);
    match std::env::var_os(if handed_on { REAL_PATH } else { "PATH" }) {
        Some(path) => process.env(REAL_PATH, path),
        None => process.env_remove(REAL_PATH),
    };
}

/// One signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Which.
    pub(crate) signal: Signal,
    /// From where.
    pub(crate) sender: Sender,
}

/// Where a signal comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The kernel; for the signals here a terminal, which signals its whole process group.
    Kernel,
    /// A process. On systems other than Linux, which do not show the sender, any.
    Process,
}

/// The most bytes that are read of a message from the wrapper to the process that stands by. It is more than execve(2)
/// takes of one variable (`MAX_ARG_STRLEN`, 128 KiB), so execve(2) refuses what is too long, and says so.
const WORD_BYTES: usize = 1 << 18;

/// Two connected sockets for the word: the one that a child inherits, and the other. A socket can be read by its number.
pub(crate) fn line() -> io::Result<(OwnedFd, OwnedFd)> {
    UnixStream::pair().map(|(inherited, other)| (inherited.into(), other.into()))
}

/// In the child: all that comes through an inherited descriptor, which is closed.
pub(crate) fn hear(number: i32) -> Option<String> {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    while text.len() < WORD_BYTES {
        match recv(number, &mut piece, MsgFlags::empty()) {
            Ok(0) => break,
            Ok(length) => text.extend_from_slice(piece.get(..length)?),
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
    nix::unistd::close(number).ok()?;
    String::from_utf8(text).ok()
}

/// Whether a terminal, or a program that acts like one, has stopped a child since this was asked last. SIGSTOP is not a
/// request to stop the wrapper as well.
pub(crate) fn was_stopped(child: Pid) -> bool {
    let status = status(child, WaitIdOptions::STOPPED).ok().flatten();
    let signal = status.and_then(|status| Signal::try_from(status.stopping_signal()?).ok());
    signal.is_some_and(|it| matches!(it, Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU))
}

/// Whether a child has ended. Does not reap it: it stays a zombie, and keeps its number.
pub(crate) fn has_ended(child: Pid) -> bool {
    let status = status(child, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    !matches!(status, Ok(None) | Err(Errno::INTR))
}

fn status(child: Pid, news: WaitIdOptions) -> Result<Option<WaitIdStatus>, Errno> {
    let child = rustix::process::Pid::from_raw(child.as_raw()).ok_or(Errno::CHILD)?;
    waitid(WaitId::Pid(child), news | WaitIdOptions::NOHANG)
}
