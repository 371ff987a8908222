//! One `lfpd` that listens, for a test: on a Unix socket of its own and on a TCP port that the
//! test opened and handed over as inetd `wait` does, so that no port has to be guessed.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    reason = "each test program uses its own part of this"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use testbed::{LIMIT, until};

use crate::conversation::{Ground, ended};

/// The last words of the service.
pub const CLOSING: &str = "421 Service not available, closing control connection";

/// The test's own pid, which it may name, being root or not.
pub fn own() -> u32 {
    std::process::id()
}

pub struct Daemon {
    pub ground: Ground,
    pub port: SocketAddr,
    pub socket: PathBuf,
    child: Option<Child>,
    options: Vec<String>,
    limits: Vec<String>,
    door: TcpListener,
}

impl Daemon {
    pub fn start(options: &[&str]) -> Self {
        Self::limited(&[], options)
    }

    /// Under limits, as options of prlimit(1).
    pub fn limited(limits: &[&str], options: &[&str]) -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let ground = Ground::new();
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut daemon = Self {
            port: door.local_addr().unwrap(),
            socket: ground.path("socket"),
            ground,
            child: None,
            options: words(options),
            limits: words(limits),
            door,
        };
        daemon.begin();
        daemon
    }

    /// Starts it, or starts it again.
    pub fn begin(&mut self) {
        let mut command = self.ground.command();
        command.arg("--listen").arg(format!("unix:{}", self.socket.display())).args(&self.options);
        self.begin_with(command);
    }

    fn begin_with(&mut self, mut command: Command) {
        if !self.limits.is_empty() {
            let mut limited = Command::new("prlimit");
            limited.args(&self.limits).arg(command.get_program()).args(command.get_args());
            command = limited;
        }
        let door = OwnedFd::from(self.door.try_clone().unwrap());
        let child = command.stdin(Stdio::from(door)).spawn().expect("lfpd");
        self.child = Some(child);
        let up = until(LIMIT, || UnixStream::connect(&self.socket).ok());
        up.expect("lfpd listens");
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Limits it while it runs, by an option of prlimit(1).
    pub fn limit(&self, limit: &str) {
        let words = [format!("--pid={}", self.pid()), limit.to_owned()];
        let status = Command::new("prlimit").args(words).status();
        assert!(status.expect("prlimit (package util-linux)").success());
    }

    pub fn signal(&self, signal: Signal) {
        testbed::signal(self.pid(), signal);
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits for its end, which must come by itself.
    pub fn end(&mut self) -> ExitStatus {
        ended(self.child.take().unwrap())
    }

    pub fn on_tcp(&self) -> Client {
        let stream = TcpStream::connect(self.port).expect("a connection");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Client::new(stream.into())
    }

    pub fn on_unix(&self) -> Client {
        let stream = UnixStream::connect(&self.socket).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Client::new(stream.into())
    }

    /// A field of `/proc/PID/status` in kilobytes.
    pub fn kilobytes(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
    }

    /// The processor time it has used, in clock ticks.
    pub fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = rest.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A client of the daemon.
pub struct Client {
    pub stream: BufReader<std::fs::File>,
}

impl Client {
    pub fn new(stream: OwnedFd) -> Self {
        Self { stream: BufReader::new(stream.into()) }
    }

    /// Takes the greeting.
    pub fn greeted(mut self) -> Self {
        let greeting = self.line();
        assert!(greeting.starts_with("220 "), "{greeting:?}");
        self
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("a service that listens");
    }

    pub fn say(&mut self, line: &str) {
        self.send(format!("{line}\r\n").as_bytes());
    }

    /// Waits until something can be read, and leaves it.
    pub fn is_spoken_to(&self) {
        let mut readable = [PollFd::new(self.stream.get_ref().as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(LIMIT).expect("less than a month");
        assert_eq!(poll(&mut readable, limit), Ok(1), "a service that speaks");
    }

    /// Whether something can be read now.
    pub fn can_be_read(&self) -> bool {
        let mut readable = [PollFd::new(self.stream.get_ref().as_fd(), PollFlags::POLLIN)];
        poll(&mut readable, PollTimeout::ZERO) == Ok(1)
    }

    /// The next line, or nothing at the end of the connection.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => String::new(),
            Ok(_) => line.strip_suffix("\r\n").expect("CR LF").to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => String::new(),
            Err(error) => panic!("no line in time: {error}"),
        }
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.line()
    }

    /// The first three characters of the answer.
    pub fn code(&mut self, line: &str) -> String {
        let answer = self.ask(line);
        answer.get(..3).unwrap_or_default().to_owned()
    }

    /// All lines of an answer.
    pub fn lines(&mut self, line: &str) -> Vec<String> {
        self.say(line);
        self.rest_of_answer()
    }

    pub fn rest_of_answer(&mut self) -> Vec<String> {
        let mut lines = vec![self.line()];
        let code = lines[0].get(..3).unwrap_or_default().to_owned();
        if lines[0].as_bytes().get(3) == Some(&b'-') {
            while !lines.last().unwrap().starts_with(&format!("{code} ")) {
                let line = self.line();
                assert!(!line.is_empty(), "cut answer: {lines:?}");
                lines.push(line);
            }
        }
        lines
    }

    /// All that still comes until the service closes.
    pub fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        String::from_utf8(rest).unwrap()
    }
}

/// A process that lives until it is dropped, for locks to belong to.
pub struct Holder(Child);

impl Holder {
    pub fn new() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().expect("sleep"))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A moment in which something could go wrong.
pub fn pause(time: Duration) {
    until(time, || None::<()>);
}

/// Another real user, with a number of connections over TCP that say nothing.
pub struct Nobody {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Nobody {
    pub fn with(connections: usize, daemon: &Daemon) -> Self {
        let script = "for i in $(seq $1); do exec {fd}<>/dev/tcp/127.0.0.1/$2 || exit 3; \
                      read -r -u $fd line; echo \"${line:0:3}\"; done; \
                      while read -r command; do printf '%s\\r\\n' \"$command\" >&$fd; \
                      read -r -u $fd line; echo \"$line\"; done";
        let mut child = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", script, "sh"])
            .args([connections.to_string(), daemon.port.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("setpriv (package util-linux)");
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut nobody = Self { child, output };
        for _ in 0..connections {
            assert_eq!(nobody.line(), "220");
        }
        nobody
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Says something on the latest connection whose answer may never come.
    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Asks on the latest connection.
    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.line()
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As many descriptors for this test as it needs for a flood.
pub fn many_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(hard >= 16_384, "a hard limit of {hard} descriptors is too low for a flood");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
}

pub fn flock_is_held(daemon: &Daemon, file: &str) -> bool {
    let path = daemon.ground.path("lock").join(file);
    let status = Command::new("flock").arg("-n").arg(path).arg("true").status();
    !status.expect("flock (package util-linux)").success()
}
