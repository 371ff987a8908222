//! One connection: its session, its unsent replies, and its unread input. Never waits but in [`Connection::wait`], and
//! does a bounded piece of work at a time. A session under inetd is one of these, a daemon has many.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{self, sockopt};

use super::admission::Token;
use super::wire::Wire;
use super::{Client, Need, Service};
use crate::limits::TURN_COMMANDS;
use ttylock::DeviceName;

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) token: Token,
    pub(super) client: Client,
    pub(super) phase: Phase,
    pub(super) wire: Wire,
    /// It has completed a command, or waits for the answer to one.
    pub(super) spoke: bool,
    hears: bool,
    output: Vec<u8>,
    pending: Vec<u8>,
    /// When it got its last reply.
    served: Instant,
}

/// What a connection needs before its next turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The client sends something.
    Reading,
    /// Nothing: there is more to do with what was read.
    Unfinished,
    /// The client takes the replies that it has not taken since this moment.
    Sending(Instant),
    /// The client is given the device that it waits for, or an answer without it.
    Waiting,
    /// The holders of this device, or of any, are found.
    Asking(Option<DeviceName>),
    /// This time passes: the request met a contended lock.
    Retrying(Duration),
    /// It has no other turn, and is to be closed.
    Over,
}

impl Connection {
    pub(super) fn new(wire: Wire, client: Client, token: Token, now: Instant) -> Self {
        // Interrupts of telnet clients stay where they belong in the stream. Fails on Unix sockets.
        if client.is_on_tcp() {
            let _ = socket::setsockopt(&wire, sockopt::OobInline, &true);
        }
        Self {
            token,
            client,
            phase: Phase::Reading,
            wire,
            spoke: false,
            hears: true,
            output: Vec::new(),
            pending: Vec::new(),
            served: now,
        }
    }

    /// Says hello, before anything is read.
    pub(super) fn greet(&mut self, service: &mut Service, now: Instant) {
        match service.attend(&mut self.client, &mut &[][..]) {
            Need::Send(line) => self.say(line.as_bytes()),
            Need::Receive | Need::Close | Need::Wait | Need::Status(_) | Need::Retry(_) => {}
        }
        self.phase = match service.attend(&mut self.client, &mut &[][..]) {
            Need::Close => Phase::Over,
            _ if !self.output.is_empty() => Phase::Sending(now),
            Need::Send(_) | Need::Receive | Need::Wait | Need::Status(_) | Need::Retry(_) => {
                Phase::Reading
            }
        };
    }

    /// One turn: what is left over from the last one, or else one reading; a few commands.
    pub(super) fn turn(&mut self, service: &mut Service, buffer: &mut [u8], now: Instant) {
        self.flush();
        if !self.output.is_empty() {
            return;
        }
        let left = std::mem::take(&mut self.pending);
        let mut input: &[u8] = &left;
        let mut commands = 0;
        self.phase = match self.obey(service, &mut input, &mut commands, now) {
            Some(phase) => phase,
            None => match self.wire.receive(buffer) {
                Ok(0) => Phase::Over,
                Ok(length) => {
                    input = buffer.get(..length).unwrap_or_default();
                    self.obey(service, &mut input, &mut commands, now).unwrap_or(Phase::Reading)
                }
                Err(Errno::EAGAIN | Errno::EINTR) => Phase::Reading,
                Err(_) => Phase::Over,
            },
        };
        self.pending = input.to_vec();
    }

    /// Does what the bytes say; `None` when they are used up.
    fn obey(
        &mut self,
        service: &mut Service,
        input: &mut &[u8],
        commands: &mut usize,
        now: Instant,
    ) -> Option<Phase> {
        loop {
            match service.attend(&mut self.client, input) {
                Need::Receive => return None,
                Need::Wait => {
                    // A client in a line has made its request, and is not to lose its place to
                    // clients that have not.
                    self.spoke = true;
                    return Some(Phase::Waiting);
                }
                Need::Status(_) if !self.hears => {
                    self.client.give_up_request();
                }
                Need::Status(device) => return Some(Phase::Asking(device)),
                Need::Retry(pause) => {
                    self.spoke = true;
                    return Some(Phase::Retrying(pause));
                }
                Need::Close => return Some(Phase::Over),
                Need::Send(line) => {
                    self.say(line.as_bytes());
                    self.served = now;
                    self.spoke = true;
                    *commands = commands.saturating_add(1);
                    if !self.output.is_empty() {
                        return Some(Phase::Sending(now));
                    }
                    if *commands >= TURN_COMMANDS {
                        return Some(Phase::Unfinished);
                    }
                }
            }
        }
    }

    /// One write, as long as the client takes what it is sent.
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

    /// How many bytes are done with: sent, or dropped. A client that no longer hears is obeyed all the same.
    fn send(&mut self, bytes: &[u8]) -> usize {
        if !self.hears {
            return bytes.len();
        }
        match self.wire.send(bytes) {
            Ok(sent) => sent,
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM) => 0,
            Err(_) => {
                self.hears = false;
                bytes.len()
            }
        }
    }

    /// Waits for what the next turn needs of the client. False if that has not come by then.
    pub(super) fn wait(&self, until: Option<Instant>) -> bool {
        if matches!(self.phase, Phase::Sending(_)) {
            self.wire.wait_for_room(until)
        } else {
            self.wire.wait_for_input(until)
        }
    }

    /// The time of a client that does not take its replies is over: they are dropped from now on, and what it has sent
    /// is still obeyed, as if it had gone. False if there are no replies: then the session is over.
    pub(super) fn drop_replies(&mut self) -> bool {
        let drops = matches!(self.phase, Phase::Sending(_));
        if drops {
            self.stop_talking();
        }
        drops
    }

    fn stop_talking(&mut self) {
        self.hears = false;
        self.output = Vec::new();
    }

    /// Whether the client still takes what it is sent.
    pub(super) fn hears(&self) -> bool {
        self.hears
    }

    /// The client is gone while its request was being answered. A STAT and a LOCK are for nobody: they are given up, and
    /// what arrived behind them is obeyed. False for other requests: these go on.
    pub(super) fn hang_up(&mut self) -> bool {
        self.stop_talking();
        self.client.give_up_request()
    }

    /// When its time is over, if it goes on as it does.
    pub(super) fn deadline(&self, idle_timeout: Duration) -> Option<Instant> {
        match self.phase {
            Phase::Waiting | Phase::Asking(_) | Phase::Retrying(_) | Phase::Over => None,
            Phase::Sending(since) => since.checked_add(idle_timeout),
            Phase::Reading | Phase::Unfinished => self.served.checked_add(idle_timeout),
        }
    }

    /// Says goodbye, if the client is listening, and closes.
    pub(super) fn end(mut self, farewell: &str) {
        self.flush();
        if self.output.is_empty() && self.hears {
            self.send(farewell.as_bytes());
        }
        self.close();
    }

    /// Closes so that the last reply arrives.
    pub(super) fn close(self) {
        self.wire.close();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;

    use syslog::Facility;

    use super::*;
    use crate::limits::{LINE_BYTES, READ_BYTES};
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
            let mut connection = Connection::new(Wire::Socket(stream.into()), welcome, 1, now);
            connection.greet(&mut service, now);
            assert_eq!(connection.phase, Phase::Reading);
            Self { service, client, connection, now, _root: root }
        }

        fn send(&mut self, bytes: &[u8]) -> Phase {
            self.client.write_all(bytes).unwrap();
            self.turn()
        }

        fn turn(&mut self) -> Phase {
            let mut buffer = [0; READ_BYTES];
            self.connection.turn(&mut self.service, &mut buffer, self.now);
            self.connection.phase.clone()
        }

        fn left(&self) -> Duration {
            self.connection.deadline(IDLE).unwrap() - self.now
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }
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
        assert_eq!(scene.send(&b"noop\n".repeat(2 * TURN_COMMANDS + 1)), Phase::Unfinished);
        assert_eq!(answers(&mut scene), TURN_COMMANDS);
        assert_eq!(scene.turn(), Phase::Unfinished);
        assert_eq!(answers(&mut scene), TURN_COMMANDS);
        assert_eq!(scene.turn(), Phase::Reading);
        assert_eq!(answers(&mut scene), 1);
        assert_eq!(scene.send(&vec![b'x'; 3 * READ_BYTES]), Phase::Reading);
        assert!(scene.connection.pending.capacity() <= READ_BYTES);
    }

    /// What is held of a connection that sends without end, and never takes its answers.
    #[test]
    fn memory_is_bounded() {
        let mut scene = Scene::new();
        scene.client.set_nonblocking(true).unwrap();
        let mut blocked = false;
        for _ in 0..100_000 {
            let _ = scene.client.write(&b"help\n".repeat(50));
            blocked = matches!(scene.turn(), Phase::Sending(_));
            let held = scene.connection.output.len() + scene.connection.pending.len();
            assert!(held <= READ_BYTES + LINE_BYTES, "{held}");
            if blocked {
                break;
            }
        }
        assert!(blocked);
        scene.connection.stop_talking();
        assert_eq!(scene.turn(), Phase::Unfinished);
        assert!(scene.connection.output.is_empty());
    }

    #[test]
    fn a_connection_ends_when_its_client_closes_it() {
        let mut scene = Scene::new();
        scene.client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(scene.turn(), Phase::Over);
    }
}
