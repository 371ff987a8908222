//! One `lfpd` that listens on this machine: on a Unix socket of its own and on a TCP port that the
//! test opened and handed over as inetd `wait` does, so that no port has to be guessed.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::Signal;

use crate::client::Client;
use crate::ground::{Ground, ended};
use crate::network::as_user;
use crate::tcp::TcpSocket;
use crate::until::{LIMIT, until};

/// The last words of the service.
pub const CLOSING: &str = "421 Service not available, closing control connection";

/// An ordinary user of this machine.
const NOBODY_UID: u32 = 65_534;

/// The test's own pid, which it may name, being root or not.
#[must_use]
pub fn own() -> u32 {
    std::process::id()
}

/// The service, and how it was started. Killed when this is dropped.
#[derive(Debug)]
pub struct Daemon {
    /// Its directories.
    pub ground: Ground,
    /// Its address on TCP.
    pub port: SocketAddr,
    /// Its Unix socket.
    pub socket: PathBuf,
    child: Option<Child>,
    options: Vec<String>,
    door: TcpListener,
}

impl Daemon {
    /// With these options besides those for its directories and sockets.
    ///
    /// # Panics
    /// It cannot be started, or does not listen.
    #[must_use]
    pub fn start(options: &[&str]) -> Self {
        let ground = Ground::new();
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut daemon = Self {
            port: door.local_addr().unwrap(),
            socket: ground.path("socket"),
            ground,
            child: None,
            options: options.iter().map(|word| (*word).to_owned()).collect(),
            door,
        };
        daemon.begin();
        daemon
    }

    /// Starts it, or starts it again.
    ///
    /// # Panics
    /// See [`Daemon::start`].
    pub fn begin(&mut self) {
        let mut command = self.ground.listening("socket");
        command.args(&self.options);
        let door = OwnedFd::from(self.door.try_clone().unwrap());
        let child = command.stdin(Stdio::from(door)).spawn().expect("lfpd");
        self.child = Some(child);
        let up = until(LIMIT, || UnixStream::connect(&self.socket).ok());
        up.expect("lfpd listens");
    }

    /// Its process.
    ///
    /// # Panics
    /// It was ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Limits it while it runs, by an option of prlimit(1).
    ///
    /// # Panics
    /// It cannot be limited.
    pub fn limit(&self, limit: &str) {
        let words = [format!("--pid={}", self.pid()), limit.to_owned()];
        let status = Command::new("prlimit").args(words).status();
        assert!(status.expect("prlimit (package util-linux)").success());
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        crate::signal(self.pid(), signal);
    }

    /// Kills it.
    ///
    /// # Panics
    /// It has ended.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits for its end, which must come by itself.
    pub fn end(&mut self) -> ExitStatus {
        ended(self.child.take().unwrap())
    }

    /// A connection over TCP; the greeting is not taken.
    #[must_use]
    pub fn on_tcp(&self) -> Client {
        let stream = TcpStream::connect(self.port).expect("a connection");
        stream.set_nodelay(true).unwrap();
        Client::new(stream)
    }

    /// The same for another user than the test's.
    #[must_use]
    pub fn on_tcp_by_another(&self) -> Client {
        as_user(NOBODY_UID, || self.on_tcp())
    }

    /// Waits until it can see that all its TCP clients have closed their ends: the kernel may hand on the end of a
    /// connection later than the call that ends it.
    ///
    /// # Panics
    /// A client stays for [`LIMIT`].
    pub fn until_tcp_clients_left(&self) {
        let port = self.port.port();
        let is_open = |it: &TcpSocket| it.port == port && it.state == TcpSocket::ESTABLISHED;
        let left = until(LIMIT, || (!TcpSocket::all().iter().any(is_open)).then_some(()));
        left.expect("clients that leave");
    }

    /// A connection on the Unix socket; the greeting is not taken.
    #[must_use]
    pub fn on_unix(&self) -> Client {
        Client::new(UnixStream::connect(&self.socket).expect("a connection"))
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

/// A process that lives until it is dropped, for locks to belong to.
#[derive(Debug)]
pub struct Holder(Child);

impl Holder {
    /// Starts it.
    #[must_use]
    pub fn new() -> Self {
        Self::of(Command::new("sleep").arg("1000"))
    }

    /// Another program.
    #[must_use]
    pub fn of(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).spawn().expect("a program that is installed");
        until_it_shows_its_words(&child);
        Self(child)
    }

    /// Another program, after it has printed its first line. Its input stays open until this is dropped.
    ///
    /// # Panics
    /// If it ends before.
    #[must_use]
    pub fn speaking(command: &mut Command) -> Self {
        let (holder, said) = Self::saying(command);
        assert!(!said.is_empty(), "it has ended");
        holder
    }

    /// The same with the line.
    ///
    /// # Panics
    /// If it is no text.
    #[must_use]
    pub fn saying(command: &mut Command) -> (Self, String) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a program that is installed");
        let (output, mut said) = (child.stdout.as_mut().expect("its output"), String::new());
        BufReader::new(output).read_line(&mut said).expect("a line");
        (Self(child), said)
    }

    /// A process of this user that holds `flock(2)` on a file.
    #[must_use]
    pub fn flocking(file: &Path, uid: u32) -> Self {
        Self::flocking_as(file, uid, &["sh", "-c", "echo held; exec sleep 1000"])
    }

    /// The same of a process that then becomes this program, which prints a line.
    #[must_use]
    pub fn flocking_as(file: &Path, uid: u32, program: &[&str]) -> Self {
        let mut flock = Command::new("flock");
        flock.arg("--no-fork").arg(file).args(program);
        Self::speaking(flock.uid(uid))
    }

    /// Its number.
    #[must_use]
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

/// Waits until `/proc` shows the command line of a child. It shows none for an instant of execve(2), and that may be
/// after the call that has started the child.
fn until_it_shows_its_words(child: &Child) {
    let line = format!("/proc/{}/cmdline", child.id());
    let shows = || std::fs::read(&line).is_ok_and(|words| !words.is_empty()).then_some(());
    until(LIMIT, shows).expect("a command line");
}

/// A moment in which something could go wrong.
pub fn pause(time: Duration) {
    until(time, || None::<()>);
}

const MANY: rlim_t = 16_384;

/// As many descriptors as a test needs that makes thousands of clients. By default, an ordinary user has 1,024.
///
/// # Panics
/// The system does not allow that many.
pub fn many_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(hard >= MANY, "a hard limit of {hard} descriptors is too low for a flood");
    // What other tests of this program start has the limit as well, and some programs close that many.
    setrlimit(Resource::RLIMIT_NOFILE, MANY, hard).unwrap();
}

/// Whether somebody holds a file of the lock directory by `flock(2)`.
#[must_use]
pub fn flock_is_held(daemon: &Daemon, file: &str) -> bool {
    let path = daemon.ground.path("lock").join(file);
    let status = Command::new("flock").arg("-n").arg(path).arg("true").status();
    !status.expect("flock (package util-linux)").success()
}
