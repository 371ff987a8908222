//! One of many connections: its socket, its unsent output, and its unread input. Never waits, and does a
//! bounded piece of work at a time.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{self, MsgFlags, Shutdown, sockopt};

use super::admission::Token;
use super::{Client, Need, Service};
use crate::limits::{LINE_TIME, TURN_COMMANDS};
use ttylock::DeviceName;

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) token: Token,
    pub(super) client: Client,
    pub(super) phase: Phase,
    /// What epoll was asked to tell of it, if anything.
    pub(super) interest: Option<EpollFlags>,
    pub(super) stream: OwnedFd,
    /// Has completed a command, or waits for the answer to one.
    pub(super) spoke: bool,
    hears: bool,
    output: Vec<u8>,
    pending: Vec<u8>,
    /// When it got its last answer.
    served: Instant,
    line_began: Option<Instant>,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Reading, since its last answer.
    Open,
    /// It does not take what it is told, since then.
    Sending(Instant),
    /// In the line for a device.
    Waiting,
    /// In the line of the clients that wait for an answer to STAT.
    Asking,
    /// Its request is tried again a moment later.
    Retrying,
}

/// How one turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// All that was read is done.
    Quiet,
    /// There is more to do with what has been read.
    More,
    /// The client must take its answer first.
    Blocked,
    /// The client waits for a device.
    Waits,
    /// A thread has to find the holders of this.
    Asks(Option<DeviceName>),
    /// The request is to be tried again after this time.
    Retries(Duration),
    /// It is over.
    Over,
}

impl Connection {
    pub(super) fn new(stream: OwnedFd, client: Client, token: Token, now: Instant) -> Self {
        // Interrupts of telnet clients stay where they belong in the stream. Fails on Unix sockets.
        if client.is_on_tcp() {
            let _ = socket::setsockopt(&stream, sockopt::OobInline, &true);
        }
        Self {
            token,
            client,
            phase: Phase::Open,
            interest: None,
            stream,
            spoke: false,
            hears: true,
            output: Vec::new(),
            pending: Vec::new(),
            served: now,
            line_began: None,
        }
    }

    /// Says hello, before anything is read.
    pub(super) fn greet(&mut self, service: &mut Service) -> Turn {
        match service.attend(&mut self.client, &mut &[][..]) {
            Need::Send(line) => self.say(line.as_bytes()),
            Need::Receive | Need::Close | Need::Wait | Need::Status(_) | Need::Retry(_) => {}
        }
        match service.attend(&mut self.client, &mut &[][..]) {
            Need::Close => Turn::Over,
            _ if !self.output.is_empty() => Turn::Blocked,
            Need::Send(_) | Need::Receive | Need::Wait | Need::Status(_) | Need::Retry(_) => {
                Turn::Quiet
            }
        }
    }

    /// One turn: what is left over from the last one, or else one reading; a few commands.
    pub(super) fn turn(&mut self, service: &mut Service, buffer: &mut [u8], now: Instant) -> Turn {
        self.flush();
        if !self.output.is_empty() {
            return Turn::Blocked;
        }
        self.phase = Phase::Open;
        let left = std::mem::take(&mut self.pending);
        let mut input: &[u8] = &left;
        let mut commands = 0;
        let turn = match self.obey(service, &mut input, &mut commands, now) {
            Some(turn) => turn,
            None => match self.receive(buffer) {
                Ok(0) => return Turn::Over,
                Ok(length) => {
                    input = buffer.get(..length).unwrap_or_default();
                    self.obey(service, &mut input, &mut commands, now).unwrap_or(Turn::Quiet)
                }
                Err(Errno::EAGAIN | Errno::EINTR) => Turn::Quiet,
                Err(_) => return Turn::Over,
            },
        };
        self.pending = input.to_vec();
        let within = self.client.is_within_a_line();
        let began = self.line_began.filter(|_| commands == 0).unwrap_or(now);
        self.line_began = within.then_some(began);
        turn
    }

    /// Does what the bytes say; `None` when they are used up.
    fn obey(
        &mut self,
        service: &mut Service,
        input: &mut &[u8],
        commands: &mut usize,
        now: Instant,
    ) -> Option<Turn> {
        loop {
            match service.attend(&mut self.client, input) {
                Need::Receive => return None,
                Need::Wait => {
                    // A client in a line has made its request, and is not to lose its place to
                    // clients that have not.
                    self.spoke = true;
                    return Some(Turn::Waits);
                }
                Need::Status(_) if !self.hears => {
                    self.client.give_up_request();
                }
                Need::Status(device) => return Some(Turn::Asks(device)),
                Need::Retry(pause) => {
                    self.spoke = true;
                    return Some(Turn::Retries(pause));
                }
                Need::Close => return Some(Turn::Over),
                Need::Send(line) => {
                    self.say(line.as_bytes());
                    self.served = now;
                    self.spoke = true;
                    *commands = commands.saturating_add(1);
                    if !self.output.is_empty() {
                        return Some(Turn::Blocked);
                    }
                    if *commands >= TURN_COMMANDS {
                        return Some(Turn::More);
                    }
                }
            }
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        socket::recv(self.stream.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)
    }

    /// One write, as long as the client takes what it is told.
    fn say(&mut self, line: &[u8]) {
        if !self.output.is_empty() {
            self.output.extend_from_slice(line);
            return;
        }
        let sent = self.send(line);
        self.output.extend_from_slice(line.get(sent..).unwrap_or_default());
    }

    fn flush(&mut self) {
        if !self.output.is_empty() {
            let output = std::mem::take(&mut self.output);
            let sent = self.send(&output);
            self.output = output.get(sent..).unwrap_or_default().to_vec();
        }
    }

    /// How much of it is done with: sent, or for nobody. A client that no longer hears is
    /// obeyed all the same.
    fn send(&mut self, bytes: &[u8]) -> usize {
        if !self.hears {
            return bytes.len();
        }
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match socket::send(self.stream.as_raw_fd(), bytes, flags) {
            Ok(sent) => sent,
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM) => 0,
            Err(_) => {
                self.hears = false;
                bytes.len()
            }
        }
    }

    /// It has not taken its answers for too long: they go nowhere from now on.
    pub(super) fn stop_talking(&mut self) {
        self.hears = false;
        self.output = Vec::new();
    }

    /// Whether the client still takes what it is told.
    pub(super) fn hears(&self) -> bool {
        self.hears
    }

    /// The client is gone while its request was being answered. A STAT and a LOCK are for nobody: they are given up, and
    /// what arrived behind them is obeyed. False for other requests: these go on.
    pub(super) fn hang_up(&mut self) -> bool {
        self.stop_talking();
        let gives_up = self.client.give_up_request();
        if gives_up {
            self.phase = Phase::Open;
        }
        gives_up
    }

    /// When its time is over, if it goes on as it does.
    pub(super) fn deadline(&self, idle_timeout: Duration) -> Option<Instant> {
        match self.phase {
            Phase::Waiting | Phase::Asking | Phase::Retrying => None,
            Phase::Sending(since) => since.checked_add(idle_timeout),
            Phase::Open => {
                let idle = self.served.checked_add(idle_timeout);
                let line = self.line_began.and_then(|began| began.checked_add(LINE_TIME));
                idle.into_iter().chain(line).min()
            }
        }
    }

    /// Says goodbye, if the client is listening, and closes.
    pub(super) fn end(mut self, farewell: &str) {
        self.flush();
        if self.output.is_empty() && self.hears {
            self.send(farewell.as_bytes());
        }
        close(&self.stream);
    }
}

/// Closes so that what was said last arrives: what is closed with unread bytes is reset, and a
/// reset overtakes what was said.
pub(super) fn close(stream: &OwnedFd) {
    let _ = socket::shutdown(stream.as_raw_fd(), Shutdown::Write);
    let mut rest = [0; 4096];
    let _ = socket::recv(stream.as_raw_fd(), &mut rest, MsgFlags::MSG_DONTWAIT);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;

    use syslog::Facility;

    use super::*;
    use crate::limits::{LINE_BYTES, TURN_BYTES};
    use crate::log::{Destination, Log, Severity};
    use crate::peer::{Access, Rule};
    use crate::protocol::queue::WaiterId;
    use crate::protocol::reply::Version;
    use crate::serve::authority::Authority;
    use ttylock::{Dialect, Layout, Table};

    const IDLE: Duration = Duration::from_secs(300);

    /// A service without devices, and a connection to it.
    struct Scene {
        service: Service,
        client: UnixStream,
        connection: Connection,
        now: Instant,
        _root: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let path = |name: &str| -> PathBuf { root.path().join(name) };
            let layout = Layout {
                dialect: Dialect::native(),
                dev_dir: path("dev"),
                udev_dir: path("udev"),
                lock_dir: path("lock"),
                search_dirs: Vec::new(),
                state_dir: path("state"),
            };
            let log = Log::new(Destination::Syslog(Facility::Daemon), Severity::Error);
            let table = Table::new(layout);
            let authority = Authority {
                rule: Rule::Own,
                access: Access::OfDevice,
                dev_dir: path("dev"),
                force_group: None,
            };
            let mut service = Service::new(Version::original(), authority, table, log);
            let (client, stream) = UnixStream::pair().unwrap();
            client.set_nonblocking(true).unwrap();
            let now = Instant::now();
            let welcome = service.welcome_to_wait(stream.as_fd(), WaiterId(1));
            let mut connection = Connection::new(stream.into(), welcome, 1, now);
            assert_eq!(connection.greet(&mut service), Turn::Quiet);
            Self { service, client, connection, now, _root: root }
        }

        fn send(&mut self, bytes: &[u8]) -> Turn {
            self.client.write_all(bytes).unwrap();
            self.turn()
        }

        fn turn(&mut self) -> Turn {
            let mut buffer = [0; TURN_BYTES];
            self.connection.turn(&mut self.service, &mut buffer, self.now)
        }

        fn left(&self) -> Duration {
            self.connection.deadline(IDLE).unwrap() - self.now
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }
    }

    #[test]
    fn a_line_has_its_time_from_its_first_byte() {
        let mut scene = Scene::new();
        assert_eq!(scene.left(), IDLE);
        scene.pass(10);
        assert_eq!(scene.send(b"no"), Turn::Quiet);
        assert_eq!(scene.left(), LINE_TIME);
        scene.pass(20);
        scene.send(b"o");
        assert_eq!(scene.left(), LINE_TIME - Duration::from_secs(20));
        scene.send(b"p\r\n");
        assert_eq!(scene.left(), IDLE);
        // The next line has a time of its own.
        scene.pass(50);
        scene.send(b"noop\nno");
        assert_eq!(scene.left(), LINE_TIME);
    }

    #[test]
    fn the_idle_time_counts_from_the_last_answer() {
        let mut scene = Scene::new();
        scene.pass(100);
        assert_eq!(scene.left(), IDLE - Duration::from_secs(100));
        scene.send(b"noop\n");
        assert_eq!(scene.left(), IDLE);
    }

    #[test]
    fn a_turn_serves_one_read_and_a_few_commands() {
        let mut scene = Scene::new();
        let answers = |scene: &mut Scene| {
            let mut said = [0; 65536];
            let length = scene.client.read(&mut said).unwrap_or(0);
            said[..length].iter().filter(|byte| **byte == b'\n').count()
        };
        assert_eq!(answers(&mut scene), 1);
        assert_eq!(scene.send(&b"noop\n".repeat(2 * TURN_COMMANDS + 1)), Turn::More);
        assert_eq!(answers(&mut scene), TURN_COMMANDS);
        assert_eq!(scene.turn(), Turn::More);
        assert_eq!(answers(&mut scene), TURN_COMMANDS);
        assert_eq!(scene.turn(), Turn::Quiet);
        assert_eq!(answers(&mut scene), 1);
        assert_eq!(scene.send(&vec![b'x'; 3 * TURN_BYTES]), Turn::Quiet);
        assert!(scene.connection.pending.capacity() <= TURN_BYTES);
    }

    /// What is held of a connection that sends without end, and never takes its answers.
    #[test]
    fn memory_is_bounded() {
        let mut scene = Scene::new();
        scene.client.set_nonblocking(true).unwrap();
        let mut blocked = false;
        for _ in 0..100_000 {
            let _ = scene.client.write(&b"help\n".repeat(50));
            blocked = scene.turn() == Turn::Blocked;
            let held = scene.connection.output.len() + scene.connection.pending.len();
            assert!(held <= TURN_BYTES + LINE_BYTES, "{held}");
            if blocked {
                break;
            }
        }
        assert!(blocked);
        scene.connection.stop_talking();
        assert_eq!(scene.turn(), Turn::More);
        assert!(scene.connection.output.is_empty());
    }

    #[test]
    fn a_connection_ends_when_its_client_closes_it() {
        let mut scene = Scene::new();
        scene.client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(scene.turn(), Turn::Over);
    }
}
