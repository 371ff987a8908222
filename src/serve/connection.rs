//! One connection: its session, its unsent replies, and its unread input. Never waits but in [`Connection::wait`], and
//! does a bounded piece of work at a time. A session under inetd is one of these, on descriptors 0 and 1 (`serve_stdio`);
//! a daemon has many.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{self, sockopt};

use super::admission::Activity;
use super::client::{Client, Phase};
use super::queue::CHECK_EVERY;
use super::service::Service;
use super::wire::{Descriptors, Wire};
use crate::limits::READ_BYTES;
use crate::peer::Peer;
use crate::protocol::Step;
use crate::protocol::command::Command;

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) phase: Phase,
    pub(super) wire: Wire,
    /// It has completed a command, or waits for the answer to one.
    pub(super) spoke: bool,
    /// When it came, or made its last request: LOCK, STAT and so on, but not NOOP, HELP or what is no command.
    asked: Instant,
    /// The client still takes what it is sent.
    pub(super) hears: bool,
    output: Vec<u8>,
    pending: Vec<u8>,
    /// When it got its last reply.
    served: Instant,
}

impl Connection {
    pub(super) fn new(wire: Wire, client: Client, now: Instant) -> Self {
        // Interrupts of telnet clients stay where they belong in the stream. Fails on Unix sockets.
        if client.peer.as_ref().is_some_and(Peer::is_on_tcp) {
            let _ = socket::setsockopt(&wire, sockopt::OobInline, &true);
        }
        Self {
            client,
            phase: Phase::Reading,
            wire,
            spoke: false,
            asked: now,
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

    /// One turn. First the client takes what is left of its replies. Then the bytes are obeyed that the last turn has
    /// left. If they are used up, more are read, once.
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
                Step::Ask(Command::Status(_)) if !self.hears => {
                    self.client.cancel_request();
                }
                Step::Ask(command) => {
                    self.asked = now;
                    let phase = service.answer(&mut self.client, command, now);
                    if phase.is_some() {
                        // A client in a line has made its request, and is not to lose its place to
                        // clients that have not.
                        self.spoke = true;
                        return phase;
                    }
                }
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
            Err(_) => self.forget_output(),
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
            self.forget_output();
        }
        drops
    }

    fn forget_output(&mut self) {
        self.hears = false;
        self.output = Vec::new();
    }

    /// The client is gone while its request was being answered. A STAT and a LOCK are for nobody: they are cancelled, and
    /// what arrived behind them is obeyed. False for other requests: these go on.
    pub(super) fn client_gone(&mut self) -> bool {
        self.forget_output();
        self.client.cancel_request()
    }

    /// What it has done, for the limits of connections. One that waits for the answer to a request works.
    pub(super) fn activity(&self, now: Instant) -> Activity {
        match self.phase {
            Phase::Waiting | Phase::Searching(_) | Phase::Retrying(_) => Activity::Working,
            Phase::Reading | Phase::Pausing(_) | Phase::Sending(_) | Phase::Over => {
                Activity::since(self.spoke, now.saturating_duration_since(self.asked))
            }
        }
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
            Phase::Waiting | Phase::Searching(_) | Phase::Over => None,
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

/// Serves the one client until it or the service ends the session.
pub(crate) fn serve_stdio(service: &mut Service, descriptors: Descriptors, idle_timeout: Duration) {
    let mut opened = Instant::now();
    let wire = Wire::Standard(descriptors);
    let client = service.welcome(wire.as_fd(), 0);
    let mut connection = Connection::new(wire, client, opened);
    connection.greet(service, opened);
    let mut buffer = [0; READ_BYTES];
    loop {
        match &connection.phase {
            Phase::Reading | Phase::Sending(_) => {
                if !wait(&connection, idle_timeout) && !connection.drop_replies() {
                    return connection.end(&service.farewell());
                }
            }
            Phase::Searching(device) => {
                let survey = service.survey(device.as_ref());
                service.report(&mut connection.client, survey);
            }
            Phase::Retrying(moment) => {
                std::thread::sleep(moment.saturating_duration_since(Instant::now()));
            }
            Phase::Pausing(_) if connection.is_endless(idle_timeout, Instant::now()) => {
                return connection.end(&service.farewell());
            }
            Phase::Pausing(_) => {}
            // With one client there is nobody to wait among, and WAIT is not offered.
            Phase::Waiting | Phase::Over => return connection.wire.close(),
        }
        let now = Instant::now();
        if now.saturating_duration_since(opened) >= CHECK_EVERY {
            service.table.reopen();
            opened = now;
        }
        connection.turn(service, &mut buffer, now);
    }
}

/// Waits for the client. False if it has been idle too long.
fn wait(connection: &Connection, idle_timeout: Duration) -> bool {
    let deadline = connection.moment(idle_timeout);
    // Checked before each read: single bytes do not keep a session.
    deadline.is_none_or(|deadline| Instant::now() < deadline) && connection.wait(deadline)
}
