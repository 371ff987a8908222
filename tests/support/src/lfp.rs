//! A session with `lfpd`, started as inetd would: the connection on descriptors 0 and 1.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::process::{Process, User};
use crate::sandbox::Sandbox;
use crate::until::LIMIT;

/// How `lfpd` is to be started. The program must have been brought as `lfpd`:
/// `Sandbox::layout().bring("lfpd", env!("CARGO_BIN_EXE_lfpd"))`.
#[derive(Clone, Debug)]
pub struct Service {
    /// Who it runs as.
    pub user: User,
    /// Its options.
    pub options: Vec<String>,
}

impl Service {
    /// Without options.
    #[must_use]
    pub fn run_by(user: User) -> Self {
        Self { user, options: Vec::new() }
    }

    /// With one more word on its command line.
    #[must_use]
    pub fn option(mut self, word: &str) -> Self {
        self.options.push(word.to_owned());
        self
    }

    /// Starts it on a Unix socket whose other end is the test's (so the client is root), and
    /// takes its greeting.
    #[must_use]
    pub fn start<'a>(&self, sandbox: &'a Sandbox) -> Lfp<'a> {
        let (ours, theirs) = UnixStream::pair().expect("a connection");
        let mut lfp = self.serve(sandbox, ours, theirs.into());
        let greeting = lfp.reply();
        assert!(greeting.starts_with("220 "), "greeting: {greeting:?}");
        lfp
    }

    /// Starts it on a connection that the test made; the greeting is not taken.
    #[must_use]
    pub fn serve<'a>(&self, sandbox: &'a Sandbox, ours: UnixStream, theirs: OwnedFd) -> Lfp<'a> {
        ours.set_read_timeout(Some(LIMIT)).expect("a time limit");
        ours.set_write_timeout(Some(LIMIT)).expect("a time limit");
        let process = sandbox
            .command("/run/test/lfpd")
            .args(&self.options)
            .user(self.user)
            .on_connection(theirs)
            .spawn();
        Lfp { stream: BufReader::new(ours), process }
    }
}

/// A conversation with `lfpd`.
#[derive(Debug)]
pub struct Lfp<'a> {
    stream: BufReader<UnixStream>,
    process: Process<'a>,
}

impl Lfp<'_> {
    /// Says one line and returns the answer, without line ends.
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.reply()
    }

    /// Says one line, and leaves the answer for [`Lfp::reply`].
    pub fn say(&mut self, line: &str) {
        write!(self.stream.get_mut(), "{line}\r\n").expect("lfpd listens");
    }

    /// LOCK: the reply code.
    pub fn lock(&mut self, device: &str, pid: u32) -> u32 {
        code(&self.ask(&format!("LOCK {device} {pid}")))
    }

    /// UNLOCK: the reply code.
    pub fn unlock(&mut self, device: &str, pid: u32) -> u32 {
        code(&self.ask(&format!("UNLOCK {device} {pid}")))
    }

    /// The next line from the service.
    ///
    /// # Panics
    /// When none comes within the time limit, or the connection ends.
    pub fn reply(&mut self) -> String {
        let mut line = String::new();
        let length = self.stream.read_line(&mut line).expect("a reply in time");
        assert!(length > 0, "lfpd closed the connection: {}", self.process.output());
        line.trim_end_matches(['\r', '\n']).to_owned()
    }

    /// The service's process.
    #[must_use]
    pub fn process(&self) -> &Process<'_> {
        &self.process
    }
}

fn code(reply: &str) -> u32 {
    reply.get(..3).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("reply {reply:?}"))
}
