//! Starts `dflockd` on a port of its own, talks to it, reads its log, ends it.

pub mod etcd;
pub mod history;
mod over_http;

pub use crate::until::LIMIT as PATIENCE;
pub use over_http::HttpTalker;

use crate::many_descriptors;
use crate::tcp::TcpSocket;
use crate::until::comes;
use nix::sys::signal::Signal;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What keeps the locks of the program under test.
#[derive(Default)]
pub struct Store {
    /// What the program is told; nothing for the one in memory.
    pub environment: Vec<(&'static str, String)>,
}

/// Where the tests of this run keep their locks, as `DFLOCKD_TEST_STORE` in the environment says.
enum Place {
    Memory,
    /// `state-dir`
    Directory,
    /// `etcd`
    Etcd,
}

fn place() -> Place {
    match std::env::var("DFLOCKD_TEST_STORE").as_deref() {
        Ok("etcd") => Place::Etcd,
        Ok("state-dir") => Place::Directory,
        Ok("") | Err(_) => Place::Memory,
        Ok(other) => panic!("DFLOCKD_TEST_STORE is {other:?}, neither etcd nor state-dir"),
    }
}

/// Whether the tests of this run are to keep their locks in etcd.
pub fn is_on_etcd() -> bool {
    matches!(place(), Place::Etcd)
}

/// The store of this run: one of its own in memory or in a directory, or a service of its own on three members that all
/// tests share.
pub fn store() -> Store {
    match place() {
        Place::Memory => Store::default(),
        Place::Directory => Store { environment: vec![("DFLOCKD_STATE_DIR", state_directory())] },
        Place::Etcd => etcd::shared(),
    }
}

/// A directory of its own, which is removed when the test has ended: each test has a thread.
fn state_directory() -> String {
    thread_local!(static OF_THIS_TEST: RefCell<Vec<TempDir>> = const { RefCell::new(Vec::new()) });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap().to_owned();
    OF_THIS_TEST.with_borrow_mut(|all| all.push(directory));
    path
}

#[derive(Default)]
struct Log {
    lines: Mutex<(Vec<String>, bool)>,
    grown: Condvar,
}

/// A server. It is killed when this is dropped.
pub struct Daemon {
    child: Child,
    log: Arc<Log>,
    /// Where it listens.
    pub address: SocketAddr,
    /// The server that leads, if the one under test is to pass its clients on.
    leader: Option<Box<Daemon>>,
}

/// The program with a store of its own, without any setting of the user that runs the tests.
pub fn program() -> Command {
    program_on(&store())
}

/// The program with this store, which outlives it if it is one that does. On a busy machine a test takes longer than a
/// client may be silent by default, so it may be silent for longer.
pub fn program_on(store: &Store) -> Command {
    let mut command = Command::new(crate::program("dflockd", "dflockd", &[]));
    command.env_clear().stdin(Stdio::null()).envs(store.environment.clone());
    command.env("DFLOCKD_READ_TIMEOUT_S", "600");
    command
}

/// A shell script that becomes the program, its `$0`, without any setting of the user that runs the tests.
pub fn in_shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.env_clear().args(["-c", script]).arg(crate::program("dflockd", "dflockd", &[]));
    command.stdin(Stdio::null());
    command
}

/// A server in memory from this program, with room for every benchmark, and with these variables in its environment.
pub fn roomy(program: &str, settings: &[(&str, &str)]) -> Daemon {
    let mut command = Command::new(program);
    command.env_clear().args(["--port", "0", "--max-locks", "4000000", "--read-timeout", "3600"]);
    Daemon::run(command.envs(settings.iter().copied()).stdin(Stdio::null()))
}

/// The same server on a port of its own.
fn leader_like(command: &Command) -> Command {
    let mut leader = Command::new(command.get_program());
    leader.env_clear().stdin(Stdio::null());
    leader.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut words = command.get_args();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--port" | "--http-port" | "--host" | "--http-host" | "--unix-socket") => {
                _ = words.next()
            }
            _ => _ = leader.arg(word),
        }
    }
    leader.args(["--port", "0"]);
    leader
}

impl Daemon {
    /// With these options.
    pub fn start(arguments: &[&str]) -> Self {
        Self::run(program().args(["--port", "0"]).args(arguments))
    }

    /// With these options; it passes no clients on.
    pub fn start_leader(arguments: &[&str]) -> Self {
        Self::run_one(program().args(["--port", "0"]).args(arguments))
    }

    /// As this command says, and waits until it serves.
    pub fn run(command: &mut Command) -> Self {
        let is_shared =
            command.get_envs().any(|(name, store)| name == "DFLOCKD_STORE" && store.is_some());
        let wants_leader = is_shared && std::env::var_os("DFLOCKD_TEST_STANDBY").is_some();
        let leader = wants_leader.then(|| Box::new(Self::run_one(&mut leader_like(command))));
        let mut daemon = Self::run_one(command);
        if leader.is_some() {
            // It leads itself where the one that led until now goes at this moment.
            let is_ready = |line: &String| {
                line.contains("linked to the leader") || line.contains("this server leads")
            };
            until("it is linked, or leads", || daemon.log().iter().any(is_ready));
        }
        daemon.leader = leader;
        daemon
    }

    fn run_one(command: &mut Command) -> Self {
        // Tests make thousands of clients, and several tests run at a time.
        many_descriptors();
        let mut child = command.stderr(Stdio::piped()).spawn().expect("dflockd starts");
        let stderr = child.stderr.take().expect("stderr is piped");
        let log = Arc::new(Log::default());
        let writer = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                writer.lines.lock().unwrap().0.push(line);
                writer.grown.notify_all();
            }
            writer.lines.lock().unwrap().1 = true;
            writer.grown.notify_all();
        });
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut daemon = Self { child, log, address, leader: None };
        let line = daemon.logged("msg=listening");
        let address = line.split("addr=").nth(1).unwrap().trim();
        if let Ok(address) = address.parse() {
            daemon.address = address;
        }
        if command.get_envs().any(|(name, store)| name == "DFLOCKD_STORE" && store.is_some()) {
            daemon.logged("server leads");
        }
        daemon
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The first log line with this text; waits for it. What a standby passes on is in the log of the leader.
    pub fn logged(&self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let pause = if self.leader.is_some() { Duration::from_millis(10) } else { PATIENCE };
        let mut guard = self.log.lines.lock().unwrap();
        loop {
            let passed_on = self.leader.as_ref().map(|leader| leader.log()).unwrap_or_default();
            if let Some(line) = guard.0.iter().chain(&passed_on).find(|line| line.contains(text)) {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let is_over = left.is_zero() || guard.1;
            assert!(!is_over, "no {text:?} in the log: {:#?}, {passed_on:#?}", guard.0);
            guard = self.log.grown.wait_timeout(guard, left.min(pause)).unwrap().0;
        }
    }

    /// All that it has said, and then what its leader has said.
    pub fn log(&self) -> Vec<String> {
        let mut lines = self.log.lines.lock().unwrap().0.clone();
        lines.extend(self.leader.iter().flat_map(|leader| leader.log()));
        lines
    }

    /// Sends it a signal. A hang-up goes to all servers of a service, first to the one that checks secrets; all
    /// of them have read their files when this returns.
    pub fn signal(&self, signal: Signal) {
        if signal != Signal::SIGHUP {
            return crate::signal(self.child.id(), signal);
        }
        for server in self.leader.as_deref().into_iter().chain([self]) {
            let before = server.readings();
            crate::signal(server.child.id(), signal);
            until("a server reads its files", || server.readings() > before);
        }
    }

    /// How often it has read its files again, or tried to.
    fn readings(&self) -> usize {
        let tells =
            |line: &&String| line.contains("read again") || line.contains("nothing is changed");
        self.log.lines.lock().unwrap().0.iter().filter(tells).count()
    }

    /// Waits for the end.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the server ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// A new client.
    pub fn talk(&self) -> Talker {
        Talker::connect(self.address)
    }

    /// Where its own HTTP port is.
    pub fn http_address(&self) -> SocketAddr {
        let line = self.logged("msg=\"HTTP listening\"");
        line.split("addr=").nth(1).unwrap().trim().parse().expect("an address")
    }

    /// What it answers to `stats`.
    pub fn stats(&self) -> String {
        self.talk().ask("stats", "_", "_")
    }

    /// Waits until `stats` contains this text.
    pub fn until_stats(&self, text: &str) {
        let mut last = String::new();
        let is_so = comes(|| {
            last = self.stats();
            last.contains(text)
        });
        assert!(is_so, "never {text:?} in the stats: {last}, {:#?}", self.log());
    }

    /// How many descriptors it has.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// User and system time so far, in clock ticks, with that of the leader if this server passes requests on to it.
    pub fn cpu_ticks(&self) -> u64 {
        let of_leader = self.leader.as_ref().map_or(0, |leader| leader.cpu_ticks());
        of_leader + crate::cpu_ticks(self.pid())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition, which must come.
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(comes(condition), "never: {what}");
}

/// One client.
pub struct Talker {
    stream: BufReader<TcpStream>,
}

impl Talker {
    /// A client of the server at this address.
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("connect"))
    }

    /// A client of a server that may be gone.
    pub fn try_connect(address: SocketAddr) -> Option<Self> {
        TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok().map(Self::over)
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Sends bytes as they are.
    pub fn say(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("send");
    }

    /// Sends what the other side may not want any more.
    pub fn try_say(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// The next line without its end; empty at the end of the connection.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line) {
            Ok(_) => {}
            Err(err) if err.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(err) => panic!("no reply: {err}"),
        }
        let text = String::from_utf8(line).expect("replies are text");
        text.strip_suffix('\n').unwrap_or_default().to_owned()
    }

    /// One request and its answer.
    pub fn ask(&mut self, command: &str, key: &str, arg: &str) -> String {
        self.say(format!("{command}\n{key}\n{arg}\n").as_bytes());
        self.line()
    }

    /// The same of a server that may be gone: nothing if no whole answer comes.
    pub fn try_ask(&mut self, command: &str, key: &str, arg: &str) -> Option<String> {
        let mut line = String::new();
        let is_sent = self.try_say(format!("{command}\n{key}\n{arg}\n").as_bytes());
        is_sent.then(|| self.stream.read_line(&mut line))?.ok()?;
        line.strip_suffix('\n').map(str::to_owned)
    }

    /// The token that is granted to a request.
    pub fn token(&mut self, command: &str, key: &str, arg: &str) -> String {
        let reply = self.ask(command, key, arg);
        token_of(&reply).expect(&reply).to_owned()
    }

    /// Acquires at once and returns the token.
    pub fn take(&mut self, key: &str, arg: &str) -> String {
        self.token("l", key, arg)
    }

    /// Acquires these keys with a lease of so many seconds.
    pub fn take_many(&mut self, names: impl IntoIterator<Item = String>, lease_s: u32) {
        let frames = names.into_iter().map(|name| format!("l\n{name}\n0 {lease_s}\n"));
        for frames in frames.collect::<Vec<_>>().chunks(500) {
            self.say(frames.concat().as_bytes());
            for _ in frames {
                let line = self.line();
                assert!(line.starts_with("ok "), "{line}");
            }
        }
    }

    /// True when the server has ended the connection, without another byte.
    pub fn is_closed(&mut self) -> bool {
        match crate::uninterrupted(|| self.stream.read(&mut [0])) {
            Ok(count) => count == 0,
            Err(err) => err.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// Ends the sending side.
    pub fn half_close(&self) {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    /// The connection.
    pub const fn socket(&self) -> &BufReader<TcpStream> {
        &self.stream
    }
}

/// The token of a reply that grants something.
pub fn token_of(reply: &str) -> Option<&str> {
    reply.strip_prefix("ok ")?.split(' ').next()
}

/// The slot in a reply that grants one, to a client that asked for slots.
pub fn slot_of(reply: &str) -> Option<u32> {
    reply.split(' ').nth(3)?.parse().ok()
}

/// The number of the grant, which is the first half of its token.
pub fn fence(token: &str) -> u64 {
    u64::from_str_radix(&token[..16], 16).expect("a token")
}

/// Head and body of the answer to an HTTP request. The lines are given without the blank line at the end.
pub fn http(server: SocketAddr, lines: &str) -> String {
    let mut stream = TcpStream::connect(server).expect("connect");
    let head = format!("{lines}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("send");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

/// Where a file of the certificates is that servers use in tests.
pub fn pem(name: &str) -> String {
    format!("{}/../../crates/dflockd/tests/server/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A port that is named: for HTTP, where 0 means none, for a server that is to come back where it was, and for one that
/// nobody listens on. It is below those the system gives out by itself, also to those who connect. This program keeps the
/// UDP port of the same number until it ends, so no test program beside it takes the number. Nothing is bound to look
/// whether the port is free: a child that another test starts in that moment would have the socket for a while, too.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static KEPT: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    loop {
        let next = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(20_000 + next % 12_000).unwrap();
        let Ok(kept) = UdpSocket::bind(("0.0.0.0", port)) else { continue };
        KEPT.lock().unwrap().push(kept);
        if !TcpSocket::all().iter().any(|it| it.port == port) {
            return port;
        }
    }
}

/// Somebody who listens on such a port of this address.
pub fn listen_on_free_port(address: &str) -> TcpListener {
    TcpListener::bind((address, free_port())).expect("a port that nobody has")
}
