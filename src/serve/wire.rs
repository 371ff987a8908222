//! The descriptors of a connection: one socket, or descriptors 0 and 1 as inetd and similar programs pass them.
//! Reading and writing never wait for the client.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, MsgFlags, Shutdown};
use nix::sys::stat::{Mode, umask};
use rustix::fs::{FileType, OFlags, Stat, fstat};
use rustix::stdio::{stderr, stdin, stdout};

use crate::log::StandardError;
use crate::sys::QUIETLY;

/// The descriptors of one connection.
#[derive(Debug)]
pub(super) enum Wire {
    /// A socket of this process's own.
    Socket(OwnedFd),
    /// Descriptors 0 and 1.
    Standard(Descriptors),
}

/// The three standard descriptors, made safe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    input: Kind,
    output: Kind,
    /// Where descriptor 2 led before it was made safe.
    pub standard_error: StandardError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Socket,
    Other,
}

impl Wire {
    /// Brings what has arrived; nothing at the end of the input.
    ///
    /// # Errors
    /// The system's; [`Errno::EAGAIN`] if nothing has arrived.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self.input() {
            (input, Kind::Socket) => {
                socket::recv(input.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)
            }
            (input, Kind::Other) if wait(input, PollFlags::POLLIN, PollTimeout::ZERO) => {
                nix::unistd::read(input, buffer)
            }
            (_, Kind::Other) => Err(Errno::EAGAIN),
        }
    }

    /// One write. Returns how many bytes were taken.
    ///
    /// # Errors
    /// The system's; [`Errno::EAGAIN`] if the client must read first.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.output() {
            (output, Kind::Socket) => {
                socket::send(output.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | QUIETLY)
            }
            // A pipe that can be written to has room for so much, but perhaps not for an answer to STAT.
            (output, Kind::Other) if wait(output, PollFlags::POLLOUT, PollTimeout::ZERO) => {
                nix::unistd::write(output, bytes.get(..nix::libc::PIPE_BUF).unwrap_or(bytes))
            }
            (_, Kind::Other) => Err(Errno::EAGAIN),
        }
    }

    /// Waits for this event, or until the connection has ended. False if neither has happened by then.
    pub(super) fn wait(&self, event: PollFlags, until: Option<Instant>) -> bool {
        let is_output = event.contains(PollFlags::POLLOUT);
        let (descriptor, _) = if is_output { self.output() } else { self.input() };
        wait(descriptor, event, timeout_until(until))
    }

    /// Says that nothing more will be sent. A socket that is closed with unread bytes is reset, and a reset overtakes
    /// what was sent last, so these bytes are read.
    pub(super) fn close(&self) {
        let _ = socket::shutdown(self.output().0.as_raw_fd(), Shutdown::Write);
        let mut rest = [0; 4096];
        let _ = socket::recv(self.input().0.as_raw_fd(), &mut rest, MsgFlags::MSG_DONTWAIT);
    }

    fn input(&self) -> (BorrowedFd<'_>, Kind) {
        match self {
            Self::Socket(socket) => (socket.as_fd(), Kind::Socket),
            Self::Standard(descriptors) => (stdin(), descriptors.input),
        }
    }

    fn output(&self) -> (BorrowedFd<'_>, Kind) {
        match self {
            Self::Socket(socket) => (socket.as_fd(), Kind::Socket),
            Self::Standard(descriptors) => (stdout(), descriptors.output),
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(socket) => socket.as_fd(),
            Self::Standard(descriptors) => descriptors.identity(),
        }
    }
}

/// An event that cannot be waited for shows in the read or write that follows.
fn wait(descriptor: BorrowedFd<'_>, event: PollFlags, timeout: PollTimeout) -> bool {
    poll(&mut [PollFd::new(descriptor, event)], timeout) != Ok(0)
}

/// Until that moment, rounded up: otherwise the caller would be busy for the last part of a millisecond.
pub(super) fn timeout_until(moment: Option<Instant>) -> PollTimeout {
    let Some(moment) = moment else { return PollTimeout::NONE };
    let millis = moment.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}

/// Makes the process safe before it reads its first byte.
///
/// The standard library has done two things before `main`: opened `/dev/null` on those of the
/// descriptors 0, 1 and 2 that were closed, so that no lock file can ever get one of these
/// numbers, and ignored SIGPIPE. Here: lock files are readable by all whatever umask inetd had,
/// and where descriptor 2 leads to the client, it leads to `/dev/null` from now on, so that not
/// even the C library's last words reach the client.
#[must_use]
pub(crate) fn make_safe() -> Descriptors {
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    let [input, output, error] = [stdin(), stdout(), stderr()].map(|fd| fstat(fd).ok());
    let standard_error = leads_to(&error, &[&input, &output]);
    if standard_error == StandardError::Clients {
        // By the kernel's call: musl's `open` makes another one for the flag.
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        if let Ok(null) = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()) {
            // Where this fails, nothing is lost but the last line of defence.
            let _ = nix::unistd::dup2_stderr(null);
        }
    }
    Descriptors { input: kind(&input), output: kind(&output), standard_error }
}

fn kind(stat: &Option<Stat>) -> Kind {
    let kind = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
    if kind == Some(FileType::Socket) { Kind::Socket } else { Kind::Other }
}

fn leads_to(error: &Option<Stat>, others: &[&Option<Stat>]) -> StandardError {
    let same = |other: &Stat| {
        error.is_none_or(|error| error.st_dev == other.st_dev && error.st_ino == other.st_ino)
    };
    let clients =
        kind(error) == Kind::Socket || others.iter().any(|other| other.is_none_or(|o| same(&o)));
    if clients { StandardError::Clients } else { StandardError::Ours }
}

/// Lets `/dev/null` take the place of what was handed over as input, once it is held elsewhere.
pub(crate) fn close_input() {
    if let Ok(null) = File::open("/dev/null") {
        // Where this fails, a listening socket stays open a second time, and closes with us.
        let _ = nix::unistd::dup2_stdin(null);
    }
}

impl Descriptors {
    /// Whether anything that is printed may reach a client.
    #[must_use]
    pub(crate) fn lead_to_a_client(&self) -> bool {
        self.input == Kind::Socket || self.output == Kind::Socket
    }

    /// Explains to the caller of the program why it does not serve. Says nothing where the caller may be a client.
    /// Only for before anything is said on these descriptors: where descriptor 2 was the same as
    /// 1, as on a terminal or behind `2>&1`, it has been taken away, and 1 is as good.
    pub(crate) fn explain(&self, why: &str) {
        // Where even the complaint cannot be written, the exit code says it.
        let _ = match self.standard_error {
            StandardError::Ours => io::stderr().write_all(why.as_bytes()),
            StandardError::Clients if self.lead_to_a_client() => Ok(()),
            StandardError::Clients => io::stdout().write_all(why.as_bytes()),
        };
    }

    /// The descriptor that shows the client's user: the socket among the two, if there is one.
    fn identity(&self) -> BorrowedFd<'static> {
        match (self.input, self.output) {
            (Kind::Other, Kind::Socket) => stdout(),
            (Kind::Socket | Kind::Other, _) => stdin(),
        }
    }
}
