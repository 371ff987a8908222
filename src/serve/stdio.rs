//! Serves one connection on descriptors 0 and 1, for inetd and similar programs.
//!
//! Writes only the protocol to descriptor 1, and nothing to descriptor 2 if that may be the client.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, MsgFlags, sockopt};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, umask};
use nix::sys::time::{TimeVal, TimeValLike};

use super::{Client, Need, Service};
use crate::limits::{FLUSH_AFTER, READ_BYTES, SESSION_REOPEN_EVERY};
use crate::log::StandardError;
use crate::sys::QUIETLY;

/// The three descriptors, made safe.
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

/// Why one wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Ready,
    TooLong,
}

/// How the next bytes are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// By the reading itself, which ends after [`FLUSH_AFTER`] without any.
    InRead,
    /// Before the reading.
    BeforeRead,
}

/// Whether what is sent still has somewhere to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Up,
    /// The client no longer hears; what it has said is still obeyed.
    Down,
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
    let [input, output, error] =
        [io::stdin().as_fd(), io::stdout().as_fd(), io::stderr().as_fd()].map(|fd| fstat(fd).ok());
    let standard_error = whose(&error, &[&input, &output]);
    if standard_error == StandardError::Clients {
        if let Ok(null) = File::options().write(true).open("/dev/null") {
            // Where this fails, nothing is lost but the last line of defence.
            let _ = nix::unistd::dup2_stderr(null);
        }
    }
    Descriptors { input: kind(&input), output: kind(&output), standard_error }
}

fn kind(stat: &Option<FileStat>) -> Kind {
    match stat {
        Some(stat)
            if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFSOCK =>
        {
            Kind::Socket
        }
        _ => Kind::Other,
    }
}

fn whose(error: &Option<FileStat>, others: &[&Option<FileStat>]) -> StandardError {
    let same = |other: &FileStat| {
        error.is_none_or(|error| error.st_dev == other.st_dev && error.st_ino == other.st_ino)
    };
    let clients =
        kind(error) == Kind::Socket || others.iter().any(|other| other.is_none_or(|o| same(&o)));
    if clients { StandardError::Clients } else { StandardError::Ours }
}

/// Lets `/dev/null` take the place of what was handed over as input, once it is held elsewhere.
pub(crate) fn let_go_of_input() {
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

    /// Tells the caller of the program why it does not serve; nobody where the caller may be a client.
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

    /// The descriptor that tells who the client is: the socket among the two, if there is one.
    fn identity(&self) -> BorrowedFd<'static> {
        match (self.input, self.output) {
            (Kind::Other, Kind::Socket) => output(),
            (Kind::Socket | Kind::Other, _) => input(),
        }
    }
}

/// Serves the one client until it or the service ends the session.
pub(crate) fn serve(service: &mut Service, descriptors: Descriptors, idle_timeout: Duration) {
    // A telnet client sends its interrupts as urgent data; out of its place in the stream it would
    // leave half a sequence behind. Fails on what is no TCP socket.
    if descriptors.input == Kind::Socket {
        let _ = socket::setsockopt(&input(), sockopt::OobInline, &true);
    }
    let mut client = service.welcome(descriptors.identity());
    let mut connection = Connection {
        input: input(),
        output: descriptors.output,
        line: Line::Up,
        waiting: Waiting::BeforeRead,
        idle_timeout,
        deadline: deadline_after(idle_timeout),
        flush_by: None,
        opened: Instant::now(),
    };
    let mut buffer = [0; READ_BYTES];
    let mut arrived: &[u8] = &[];
    let mut prepared = false;
    loop {
        match service.attend(&mut client, &mut arrived) {
            Need::Send(line) => connection.send(service, line.as_bytes()),
            Need::Close => return,
            Need::Status(device) => service.report(&mut client, device.as_ref()),
            // With one client there is nobody to wait among, and WAIT is not offered.
            Need::Wait => return,
            Need::Retry(pause) => std::thread::sleep(pause),
            Need::Receive => {
                if std::mem::replace(&mut prepared, true) {
                    connection.expect_more(descriptors.input);
                } else {
                    service.prepare();
                }
                match connection.receive(service, &mut client, &mut buffer) {
                    Some(bytes) => arrived = bytes,
                    None => return,
                }
            }
        }
    }
}

struct Connection<'i> {
    input: BorrowedFd<'i>,
    output: Kind,
    line: Line,
    waiting: Waiting,
    idle_timeout: Duration,
    /// When the client has been idle too long: counted from the last line it got an answer for,
    /// so that single bytes do not keep a session.
    deadline: Option<Instant>,
    /// When what no client waits for must be done, whatever else there is to do.
    flush_by: Option<Instant>,
    /// When the lock directories were opened.
    opened: Instant,
}

impl Connection<'_> {
    /// Brings what arrives next; nothing when the session was dismissed; `None` at the end.
    fn receive<'b>(
        &mut self,
        service: &mut Service,
        client: &mut Client,
        buffer: &'b mut [u8],
    ) -> Option<&'b [u8]> {
        let mut waiting = self.waiting;
        loop {
            if service.has_deferred_work() {
                self.flush_by = self.flush_by.or_else(|| deadline_after(FLUSH_AFTER));
            }
            let is_past = |end: Option<Instant>| end.is_some_and(|end| end <= Instant::now());
            let is_due = is_past(self.flush_by) || is_past(self.deadline);
            if (waiting == Waiting::BeforeRead || is_due) && self.wait(service) == Wait::TooLong {
                client.dismiss();
                return Some(&[]);
            }
            if self.opened.elapsed() >= SESSION_REOPEN_EVERY {
                service.reopen();
                self.opened = Instant::now();
            }
            match nix::unistd::read(self.input, buffer) {
                Ok(0) => return None,
                Ok(length) => return buffer.get(..length),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => waiting = Waiting::BeforeRead,
                Err(_) => return None,
            }
        }
    }

    /// Until there is something to be read, with what is put off done meanwhile.
    fn wait(&mut self, service: &mut Service) -> Wait {
        let flush_by = self.flush_by.filter(|_| service.has_deferred_work());
        if flush_by.is_some() && wait(self.input, PollFlags::POLLIN, flush_by) == Wait::Ready {
            return Wait::Ready;
        }
        self.flush(service);
        wait(self.input, PollFlags::POLLIN, self.deadline)
    }

    /// A client that has sent something may go on at once: that is read without waiting for it first.
    fn expect_more(&mut self, input_is: Kind) {
        if input_is == Kind::Other || self.waiting == Waiting::InRead {
            return;
        }
        let moment = TimeVal::milliseconds(i64::try_from(FLUSH_AFTER.as_millis()).unwrap_or(1));
        if socket::setsockopt(&self.input, sockopt::ReceiveTimeout, &moment).is_ok() {
            self.waiting = Waiting::InRead;
        }
    }

    fn flush(&mut self, service: &mut Service) {
        self.flush_by = None;
        if service.has_deferred_work() {
            service.flush();
        }
    }

    fn send(&mut self, service: &mut Service, line: &[u8]) {
        if self.line == Line::Up {
            self.line = self.write_all(service, line);
        }
        self.deadline = deadline_after(self.idle_timeout);
    }

    /// One write as a rule; a client that does not read is waited for as long as one that does
    /// not write. The log does not wait for it.
    fn write_all(&mut self, service: &mut Service, mut rest: &[u8]) -> Line {
        let deadline = deadline_after(self.idle_timeout);
        if self.output == Kind::Other {
            // This write may wait.
            self.flush(service);
        }
        while !rest.is_empty() {
            match self.write(rest) {
                Ok(length) => rest = rest.get(length..).unwrap_or_default(),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.flush(service);
                    if wait(output(), PollFlags::POLLOUT, deadline) == Wait::TooLong {
                        return Line::Down;
                    }
                }
                Err(_) => return Line::Down,
            }
        }
        Line::Up
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.output {
            Kind::Socket => {
                let flags = MsgFlags::MSG_DONTWAIT | QUIETLY;
                socket::send(output().as_raw_fd(), bytes, flags)
            }
            Kind::Other => nix::unistd::write(output(), bytes),
        }
    }
}

/// `None` is a moment that never comes.
fn deadline_after(time: Duration) -> Option<Instant> {
    Instant::now().checked_add(time)
}

fn wait(descriptor: BorrowedFd<'_>, event: PollFlags, deadline: Option<Instant>) -> Wait {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Wait::TooLong;
        }
        // A moment more than is left, lest the last millisecond be spent in turning round.
        let left = left.map(|left| left.saturating_add(Duration::from_millis(1)));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut [PollFd::new(descriptor, event)], timeout) {
            // An event that cannot be waited for shows in the read or write that follows.
            Ok(1..) => return Wait::Ready,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return Wait::Ready,
        }
    }
}

fn input() -> BorrowedFd<'static> {
    static INPUT: std::sync::LazyLock<io::Stdin> = std::sync::LazyLock::new(io::stdin);
    INPUT.as_fd()
}

fn output() -> BorrowedFd<'static> {
    static OUTPUT: std::sync::LazyLock<io::Stdout> = std::sync::LazyLock::new(io::stdout);
    OUTPUT.as_fd()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use rstest::rstest;
    use ttylock::{Layout, Table};

    use super::*;
    use crate::log::{Destination, Log, Severity};
    use crate::peer::{Access, Rule};
    use crate::protocol::reply::Version;
    use crate::serve::authority::Authority;

    /// A service that has nothing, for a client that says nothing it would have to do.
    fn service(root: &std::path::Path) -> Service {
        let (dev_dir, lock_dir) = (root.join("dev"), root.join("lock"));
        let layout = Layout { dev_dir: dev_dir.clone(), lock_dir, ..Layout::native() };
        let authority =
            Authority { rule: Rule::Own, access: Access::OfDevice, dev_dir, force_group: None };
        let log = Log::new(Destination::Syslog(syslog::Facility::Daemon), Severity::Error);
        Service::new(Version::original(), authority, Table::new(layout), log)
    }

    /// A client that never stops sending is sent away as well: the time is checked before each read.
    #[rstest]
    #[case::waits_in_the_reading(Waiting::InRead, Duration::ZERO, "")]
    #[case::waits_before_the_reading(Waiting::BeforeRead, Duration::ZERO, "")]
    #[case::in_time(Waiting::InRead, Duration::from_secs(600), "n")]
    #[case::in_time_and_waits_before_the_reading(
        Waiting::BeforeRead,
        Duration::from_secs(600),
        "n"
    )]
    fn bytes_keep_a_session_no_longer_than_silence(
        #[case] waiting: Waiting,
        #[case] left: Duration,
        #[case] expected: &str,
    ) {
        let root = tempfile::tempdir().unwrap();
        let mut service = service(root.path());
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let mut client = service.welcome(ours.as_fd());
        theirs.write_all(b"n").unwrap();
        let now = Instant::now();
        let mut connection = Connection {
            input: ours.as_fd(),
            output: Kind::Socket,
            line: Line::Up,
            waiting,
            idle_timeout: left,
            deadline: now.checked_add(left),
            flush_by: None,
            opened: now,
        };
        let mut buffer = [0; READ_BYTES];
        let received = connection.receive(&mut service, &mut client, &mut buffer);
        assert_eq!(received, Some(expected.as_bytes()));
        // What came too late was not read.
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let mut unread = String::new();
        ours.read_to_string(&mut unread).unwrap();
        assert_eq!(unread.is_empty(), !expected.is_empty());
    }
}
