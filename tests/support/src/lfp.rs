//! A session with `lfpd`, started as inetd would: the connection on descriptors 0 and 1.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::sched::{CloneFlags, setns};

use crate::process::{Process, User};
use crate::sandbox::Sandbox;
use crate::until::LIMIT;

/// How `lfpd` is to be started. The program must have been brought as `lfpd`:
/// `Sandbox::layout().bring("lfpd", env!("CARGO_BIN_EXE_lfpd"))`.
#[derive(Clone, Debug)]
pub struct Service {
    /// The user it runs as.
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

    /// Starts it on a TCP connection inside the sandbox whose other end is the test's (so the
    /// client is root), and takes its greeting. On a Unix socket it could not tell what the test,
    /// outside its pid namespace, means by a number.
    #[must_use]
    pub fn start<'a>(&self, sandbox: &'a Sandbox) -> Lfp<'a> {
        let (ours, theirs) = connection(sandbox.path("/proc/1/ns/net"));
        let mut lfp = self.serve(sandbox, ours, theirs);
        let greeting = lfp.reply();
        assert!(greeting.starts_with("220 "), "greeting: {greeting:?}");
        lfp
    }

    /// Starts it on a connection that the test made; the greeting is not taken.
    fn serve<'a>(&self, sandbox: &'a Sandbox, ours: TcpStream, theirs: OwnedFd) -> Lfp<'a> {
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

/// Both ends of a connection in another network.
fn connection(network: PathBuf) -> (TcpStream, OwnedFd) {
    let thread = std::thread::spawn(move || {
        let network = File::open(network).expect("the sandbox's network");
        setns(network, CloneFlags::CLONE_NEWNET).expect("entering it");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let ours = TcpStream::connect(listener.local_addr().expect("it")).expect("a connection");
        ours.set_nodelay(true).expect("no delay");
        (ours, listener.accept().expect("a connection").0.into())
    });
    thread.join().expect("a connection in the sandbox")
}

/// A conversation with `lfpd`.
#[derive(Debug)]
pub struct Lfp<'a> {
    stream: BufReader<TcpStream>,
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
