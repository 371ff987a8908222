//! One connection of many: its socket, what has not been sent yet, what has not been looked at
//! yet. Never waits, and does a bounded piece of work at a time.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{self, MsgFlags, Shutdown, sockopt};

use super::crowd::Token;
use super::{Client, Need, Service};
use crate::device::name::DeviceName;
use crate::limits::{LINE_TIME, TURN_COMMANDS};

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) token: Token,
    pub(super) client: Client,
    pub(super) phase: Phase,
    /// What epoll was asked to tell of it, if anything.
    pub(super) interest: Option<EpollFlags>,
    pub(super) stream: OwnedFd,
    /// Has completed a command.
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
    /// In the line of those who ask who holds what.
    Surveying,
}

/// How one turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// All that had arrived is done.
    Quiet,
    /// As much had arrived as is read at once.
    Hungry,
    /// There is more to do with what has been read.
    More,
    /// The client must take its answer first.
    Blocked,
    /// The client waits for a device.
    Waits,
    /// Somebody has to look who holds this.
    Asks(Option<DeviceName>),
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
            Need::Receive | Need::Close | Need::Patience | Need::Survey(_) => {}
        }
        match service.attend(&mut self.client, &mut &[][..]) {
            Need::Close => Turn::Over,
            _ if !self.output.is_empty() => Turn::Blocked,
            Need::Send(_) | Need::Receive | Need::Patience | Need::Survey(_) => Turn::Quiet,
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
                    let rest = if length == buffer.len() { Turn::Hungry } else { Turn::Quiet };
                    input = buffer.get(..length).unwrap_or_default();
                    self.obey(service, &mut input, &mut commands, now).unwrap_or(rest)
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
                Need::Patience => return Some(Turn::Waits),
                Need::Survey(device) => return Some(Turn::Asks(device)),
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

    /// When its time is over, if it goes on as it does.
    pub(super) fn deadline(&self, idle_timeout: Duration) -> Option<Instant> {
        match self.phase {
            Phase::Waiting | Phase::Surveying => None,
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
