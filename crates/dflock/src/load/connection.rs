//! One connection of a load run: bytes out, lines in, and the lanes that share it in turn.
//!
//! Owns its socket and nothing else. Does not decide when to stop; it asks the [`Course`].

use super::ledger::Ledger;
use super::plan::{Keys, Plan};
use super::report::Report;
use crate::ServerAddress;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// No answer to a lock command is longer; a server that sends more is not spoken to again.
const MAX_ANSWER_BYTES: usize = 256;
/// How long the answer to `auth` may take.
const AUTH_TIMEOUT: Duration = Duration::from_secs(10);

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn open(server: &ServerAddress) -> io::Result<Self> {
        match server {
            ServerAddress::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            ServerAddress::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(limit),
            Self::Unix(stream) => stream.set_read_timeout(limit),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).read(buffer),
            Self::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).write(bytes),
            Self::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }
}

#[derive(Clone, Copy)]
enum Step {
    Acquire,
    Release,
}

struct Lane {
    key: usize,
    started: Instant,
}

/// The request bytes of every key, made once.
pub(super) struct Requests {
    acquires: Vec<Vec<u8>>,
    release_heads: Vec<Vec<u8>>,
}

impl Requests {
    pub(super) fn new(plan: &Plan) -> Self {
        let lock = plan.limit == 1;
        let (acquire, release) = match (plan.is_shared, lock) {
            (true, _) => ("rl", "r"),
            (false, true) => ("l", "r"),
            (false, false) => ("sl", "sr"),
        };
        let (timeout_s, ttl_s) = plan.times_s();
        let argument = if lock {
            format!("{timeout_s} {ttl_s}")
        } else {
            format!("{timeout_s} {} {ttl_s}", plan.limit)
        };
        let key = |n: u32| format!("{}-{n}", plan.key_prefix);
        let acquires = |n| format!("{acquire}\n{}\n{argument}\n", key(n)).into_bytes();
        let release_heads = |n| format!("{release}\n{}\n", key(n)).into_bytes();
        Self {
            acquires: (0..plan.key_count()).map(acquires).collect(),
            release_heads: (0..plan.key_count()).map(release_heads).collect(),
        }
    }
}

/// What the whole run knows: shared by its connections, which take turns on one thread.
pub(super) struct Course {
    pub(super) requests: Requests,
    pub(super) ledger: Ledger,
    pub(super) report: Report,
    /// Pairs that end from here on count.
    pub(super) measure_from: Instant,
    /// Pairs that may still be started; nothing means as many as fit into the time.
    pub(super) pairs_left: Option<u64>,
    pub(super) stopping: bool,
    pub(super) shared_keys: Option<usize>,
}

impl Course {
    fn may_start(&mut self) -> bool {
        if self.stopping {
            return false;
        }
        match &mut self.pairs_left {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    fn refused(&mut self, line: &[u8]) {
        let word = String::from_utf8_lossy(line.split(|&b| b == b' ').next().unwrap_or(line));
        let word = if word.is_empty() { "(empty line)" } else { &*word };
        *self.report.refusals.entry(word.escape_debug().to_string()).or_default() += 1;
    }
}

pub(super) struct Connection {
    socket: Socket,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    written: usize,
    expected: VecDeque<(usize, Step)>,
    lanes: Vec<Lane>,
}

impl Connection {
    /// Connects, and authenticates when the plan has a token. Blocking; afterwards the socket is
    /// not.
    pub(super) fn open(plan: &Plan, number: u32) -> io::Result<Self> {
        let socket = Socket::open(&plan.server)?;
        if let Some(token) = &plan.auth_token {
            authenticate(&socket, token)?;
        }
        socket.set_nonblocking()?;
        let now = Instant::now();
        let first = match plan.keys {
            Keys::Own => number.saturating_mul(plan.depth),
            Keys::Shared(count) => number.checked_rem(count).unwrap_or(0),
        };
        let lane = |n: u32| Lane {
            key: usize::try_from(first.saturating_add(n)).unwrap_or(usize::MAX),
            started: now,
        };
        Ok(Self {
            socket,
            inbox: Vec::new(),
            outbox: Vec::new(),
            written: 0,
            expected: VecDeque::new(),
            lanes: (0..plan.depth).map(lane).collect(),
        })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }

    /// Whether every request has its answer.
    pub(super) fn is_settled(&self) -> bool {
        self.expected.is_empty()
    }

    /// Starts a pair on every lane and sends what fits.
    pub(super) fn start(&mut self, course: &mut Course) -> io::Result<()> {
        let now = Instant::now();
        for lane in 0..self.lanes.len() {
            self.start_pair(lane, now, course);
        }
        self.flush()
    }

    /// Whether bytes wait for the socket to take them.
    pub(super) fn wants_write(&self) -> bool {
        self.written < self.outbox.len()
    }

    /// Reads once, handles every whole line, sends what follows from them.
    pub(super) fn readable(&mut self, buffer: &mut [u8], course: &mut Course) -> io::Result<()> {
        let count = match self.socket.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e),
        };
        let now = Instant::now();
        let mut rest = buffer.get(..count).unwrap_or_default();
        while let Some(end) = rest.iter().position(|&b| b == b'\n') {
            let (line, tail) = rest.split_at(end);
            rest = tail.get(1..).unwrap_or_default();
            if self.inbox.is_empty() {
                self.answer(line, now, course)?;
            } else {
                let mut whole = std::mem::take(&mut self.inbox);
                whole.extend_from_slice(line);
                self.answer(&whole, now, course)?;
            }
        }
        self.inbox.extend_from_slice(rest);
        if self.inbox.len() > MAX_ANSWER_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer without an end"));
        }
        self.flush()
    }

    /// Sends what the socket takes now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.outbox.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        self.outbox.clear();
        self.written = 0;
        Ok(())
    }

    fn answer(&mut self, line: &[u8], now: Instant, course: &mut Course) -> io::Result<()> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some((lane, step)) = self.expected.pop_front() else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer nobody asked for"));
        };
        match step {
            Step::Acquire => self.acquired(lane, line, now, course),
            Step::Release => self.released(lane, line, now, course),
        }
        Ok(())
    }

    fn acquired(&mut self, lane: usize, line: &[u8], now: Instant, course: &mut Course) {
        let Some(Lane { key, started }) = self.lanes.get(lane) else { return };
        let Some(token) = granted_token(line) else {
            course.refused(line);
            self.start_pair(lane, now, course);
            return;
        };
        if now >= course.measure_from {
            course.report.acquire.record(now.saturating_duration_since(*started));
        }
        course.ledger.granted(*key, token);
        course.ledger.releasing(*key);
        if let Some(head) = course.requests.release_heads.get(*key) {
            self.outbox.extend_from_slice(head);
            self.outbox.extend_from_slice(token);
            self.outbox.push(b'\n');
            self.expected.push_back((lane, Step::Release));
        }
    }

    fn released(&mut self, lane: usize, line: &[u8], now: Instant, course: &mut Course) {
        let Some(Lane { started, .. }) = self.lanes.get(lane) else { return };
        if line != b"ok" {
            course.refused(line);
        } else if now >= course.measure_from {
            course.report.pairs += 1;
            course.report.pair.record(now.saturating_duration_since(*started));
        }
        self.start_pair(lane, now, course);
    }

    fn start_pair(&mut self, lane: usize, now: Instant, course: &mut Course) {
        if !course.may_start() {
            return;
        }
        let Some(state) = self.lanes.get_mut(lane) else { return };
        state.started = now;
        if let Some(count) = course.shared_keys {
            state.key = (state.key + 1).checked_rem(count).unwrap_or(0);
        }
        if let Some(request) = course.requests.acquires.get(state.key) {
            self.outbox.extend_from_slice(request);
            self.expected.push_back((lane, Step::Acquire));
        }
    }
}

/// The token of `ok <token> <lease>`.
fn granted_token(line: &[u8]) -> Option<&[u8]> {
    let token = line.strip_prefix(b"ok ")?.split(|&b| b == b' ').next()?;
    if token.is_empty() { None } else { Some(token) }
}

fn authenticate(socket: &Socket, token: &[u8]) -> io::Result<()> {
    socket.set_read_timeout(Some(AUTH_TIMEOUT))?;
    let request = [b"auth\n_\n".as_slice(), token, b"\n"].concat();
    let mut rest = request.as_slice();
    while !rest.is_empty() {
        let count = socket.write(rest)?;
        rest = rest.get(count..).unwrap_or_default();
    }
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\n") && answer.len() < MAX_ANSWER_BYTES && socket.read(&mut byte)? > 0
    {
        answer.extend_from_slice(&byte);
    }
    socket.set_read_timeout(None)?;
    if answer.trim_ascii_end() == b"ok" {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the server refused the auth token"))
}

#[cfg(test)]
mod tests {
    use super::granted_token;
    use rstest::rstest;

    #[rstest]
    #[case(b"ok 0123 33", Some(b"0123".as_slice()))]
    #[case(b"ok 0123", Some(b"0123".as_slice()))]
    #[case(b"ok", None)]
    #[case(b"ok ", None)]
    #[case(b"okay 1 2", None)]
    #[case(b"timeout", None)]
    #[case(b"error_max_locks", None)]
    fn only_a_grant_has_a_token(#[case] line: &[u8], #[case] token: Option<&[u8]>) {
        assert_eq!(granted_token(line), token);
    }
}
