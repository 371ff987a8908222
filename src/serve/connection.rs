//! One connection: its session, its unsent replies, and its unread input. Never waits but in [`Connection::wait`], and
//! does a bounded piece of work at a time. A session under inetd is one of these, a daemon has many.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{self, sockopt};

use super::client::Client;
use super::service::Service;
use super::wire::Wire;
use crate::protocol::session::Step;
use ttylock::DeviceName;

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) phase: Phase,
    pub(super) wire: Wire,
    /// It has completed a command, or waits for the answer to one.
    pub(super) spoke: bool,
    /// The client still takes what it is sent.
    pub(super) hears: bool,
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
    /// Other connections have their turns: in the last one, at this moment, it had sent more than is read or answered
    /// in one.
    Pausing(Instant),
    /// The client takes the replies that it has not taken since this moment.
    Sending(Instant),
    /// The client is given the device that it waits for, or an answer without it.
    Waiting,
    /// The holders of this device, or of any, are found.
    Asking(Option<DeviceName>),
    /// This moment comes: the request met a contended lock, and is tried again.
    Retrying(Instant),
    /// It has no other turn, and is to be closed.
    Over,
}

impl Connection {
    pub(super) fn new(wire: Wire, client: Client, now: Instant) -> Self {
        // Interrupts of telnet clients stay where they belong in the stream. Fails on Unix sockets.
        if client.is_on_tcp() {
            let _ = socket::setsockopt(&wire, sockopt::OobInline, &true);
        }
        Self {
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
        self.phase = self.obey(service, &mut &[][..], now).unwrap_or(Phase::Reading);
        self.spoke = false;
    }

    /// One turn: what is left over from the last one, and one reading.
    pub(super) fn turn(&mut self, service: &mut Service, buffer: &mut [u8], now: Instant) {
        self.flush();
        if !self.output.is_empty() {
            return;
        }
        let left = std::mem::take(&mut self.pending);
        let mut input: &[u8] = &left;
        self.phase = match self.obey(service, &mut input, now) {
            Some(phase) => phase,
            None => match self.wire.receive(buffer) {
                Ok(0) => Phase::Over,
                Ok(length) => {
                    input = buffer.get(..length).unwrap_or_default();
                    let is_full = length == buffer.len();
                    let rest = if is_full { Phase::Pausing(now) } else { Phase::Reading };
                    self.obey(service, &mut input, now).unwrap_or(rest)
                }
                Err(Errno::EAGAIN | Errno::EINTR) => Phase::Reading,
                Err(_) => Phase::Over,
            },
        };
        self.pending = input.to_vec();
    }

    /// Does what the bytes say, one request at most; `None` when they are used up.
    fn obey(&mut self, service: &mut Service, input: &mut &[u8], now: Instant) -> Option<Phase> {
        loop {
            match self.client.session.next(input) {
                Step::Receive => return None,
                Step::Close => return Some(Phase::Over),
                Step::Send(line) => {
                    self.say(line.as_bytes());
                    self.served = now;
                    self.spoke = true;
                    if !self.output.is_empty() {
                        return Some(Phase::Sending(now));
                    }
                    if !input.is_empty() {
                        return Some(Phase::Pausing(now));
                    }
                }
                Step::Change(demand) => {
                    let phase = service.change(&mut self.client, demand, now);
                    if phase.is_some() {
                        // A client in a line has made its request, and is not to lose its place to
                        // clients that have not.
                        self.spoke = true;
                        return phase;
                    }
                }
                Step::Status(_) if !self.hears => {
                    self.client.give_up_request();
                }
                Step::Status(device) => return Some(Phase::Asking(device)),
                Step::Http => service.dismiss_a_browser(&mut self.client),
            }
        }
    }

    /// One write, as long as the client takes what it is sent.
    fn say(&mut self, line: &[u8]) {
        let is_behind = !self.output.is_empty();
        self.output.extend_from_slice(line);
        if !is_behind {
            self.flush();
        }
    }

    /// A client that no longer hears is obeyed all the same.
    fn flush(&mut self) {
        if self.output.is_empty() || !self.hears {
            return self.output.clear();
        }
        match self.wire.send(&self.output) {
            Ok(sent) => self.output = self.output.get(sent..).unwrap_or_default().to_vec(),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM) => {}
            Err(_) => self.stop_talking(),
        }
    }

    /// Waits for what the next turn needs of the client. False if that has not come by then.
    pub(super) fn wait(&self, until: Option<Instant>) -> bool {
        let is_sending = matches!(self.phase, Phase::Sending(_));
        self.wire.wait(if is_sending { PollFlags::POLLOUT } else { PollFlags::POLLIN }, until)
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

    /// The client is gone while its request was being answered. A STAT and a LOCK are for nobody: they are given up, and
    /// what arrived behind them is obeyed. False for other requests: these go on.
    pub(super) fn hang_up(&mut self) -> bool {
        self.stop_talking();
        self.client.give_up_request()
    }

    /// Whether it has another turn although its client does nothing.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self.phase, Phase::Pausing(_) | Phase::Retrying(_))
    }

    /// Whether it sends without end, and no request is complete before its time is over.
    pub(super) fn is_endless(&self, idle_timeout: Duration, now: Instant) -> bool {
        matches!(self.phase, Phase::Pausing(_))
            && self.pending.is_empty()
            && now.saturating_duration_since(self.served) >= idle_timeout
    }

    /// When it needs another turn, or its time is over, if its client does nothing.
    pub(super) fn moment(&self, idle_timeout: Duration) -> Option<Instant> {
        match self.phase {
            Phase::Waiting | Phase::Asking(_) | Phase::Over => None,
            Phase::Retrying(moment) | Phase::Pausing(moment) => Some(moment),
            Phase::Sending(since) => since.checked_add(idle_timeout),
            Phase::Reading => self.served.checked_add(idle_timeout),
        }
    }

    /// Says goodbye, if the client is listening, and closes.
    pub(super) fn end(mut self, farewell: &str) {
        self.flush();
        if self.output.is_empty() {
            self.say(farewell.as_bytes());
        }
        self.wire.close();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::limits::{LINE_BYTES, READ_BYTES};
    use crate::serve::queue::WaiterId;

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
            let mut service = Service::without_devices(root.path());
            let (client, stream) = UnixStream::pair().unwrap();
            client.set_nonblocking(true).unwrap();
            let now = Instant::now();
            let welcome = service.welcome(stream.as_fd(), Some(WaiterId(1)));
            let mut connection = Connection::new(Wire::Socket(stream.into()), welcome, now);
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
            self.connection.moment(IDLE).unwrap() - self.now
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
    fn a_turn_answers_one_request_of_a_reading() {
        let mut scene = Scene::new();
        let answers = |scene: &mut Scene| {
            let mut said = [0; 65536];
            let length = scene.client.read(&mut said).unwrap_or(0);
            said[..length].iter().filter(|byte| **byte == b'\n').count()
        };
        assert_eq!(answers(&mut scene), 1);
        let requests = READ_BYTES / 5 + 2;
        assert_eq!(scene.send(&b"noop\n".repeat(requests)), Phase::Pausing(scene.now));
        assert_eq!(answers(&mut scene), 1);
        let mut turns = vec![1];
        while turns.iter().sum::<usize>() < requests {
            scene.turn();
            turns.push(answers(&mut scene));
        }
        // The last request of one reading, and the first one of the next.
        assert!(turns.iter().all(|count| (1..=2).contains(count)), "{turns:?}");
        assert_eq!(scene.turn(), Phase::Reading);
    }

    /// A client that sends a line without end has its turns after all others, and no longer than one that is silent.
    #[test]
    fn an_endless_line_is_read_in_turns_for_a_while() {
        let mut scene = Scene::new();
        let pausing = Phase::Pausing(scene.now);
        assert_eq!(scene.send(&[b'x'; 3 * READ_BYTES]), pausing);
        assert_eq!(
            (scene.turn(), scene.turn(), scene.turn()),
            (pausing.clone(), pausing, Phase::Reading)
        );
        assert!(scene.connection.pending.capacity() <= READ_BYTES);
        for (seconds, is_endless) in [(0, false), (IDLE.as_secs() - 1, false), (1, true)] {
            scene.pass(seconds);
            assert_eq!(scene.send(&[b'x'; READ_BYTES]), Phase::Pausing(scene.now));
            assert_eq!(scene.connection.is_endless(IDLE, scene.now), is_endless);
            assert_eq!(scene.turn(), Phase::Reading);
        }
    }

    /// A daemon may be stopped for long between two turns.
    #[test]
    fn requests_that_were_read_are_not_endless() {
        let mut scene = Scene::new();
        scene.send(&b"noop\n".repeat(3));
        scene.pass(2 * IDLE.as_secs());
        assert!(!scene.connection.is_endless(IDLE, scene.now));
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
        while matches!(scene.turn(), Phase::Pausing(_)) {}
        assert_eq!(scene.connection.phase, Phase::Reading);
        assert!(scene.connection.output.is_empty());
    }

    #[test]
    fn a_connection_ends_when_its_client_closes_it() {
        let mut scene = Scene::new();
        scene.client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(scene.turn(), Phase::Over);
    }
}
