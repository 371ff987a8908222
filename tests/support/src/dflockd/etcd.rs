//! Three members of etcd, by `etc/etcd-three`: started in seconds, ended with the tests.

use super::{PATIENCE, Store};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// The members. They end when this is dropped.
pub struct Cluster {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Where they listen, separated by commas.
    pub endpoints: String,
}

/// A member, 1 to 3.
pub type Member = u8;

/// What `etcd-three` ends with where there is no etcd.
const NO_ETCD: i32 = 69;

/// Ends the test program: every test in it needs etcd. What it shares with others cannot be marked as ignored for
/// this one alone. `tests/run` looks whether etcd is there before it begins.
fn leave_out() -> ! {
    let said = "test result: ok. 0 passed; 0 failed; 1 ignored; (this program needs programs: tests/run)\n";
    // Past the harness, which keeps what a test prints.
    let _ = std::io::stderr().write_all(said.as_bytes());
    std::process::exit(0)
}

impl Cluster {
    /// Three members, started by `etc/etcd-three` with these options.
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../crates/dflockd/etc/etcd-three"
        ))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("etcd-three starts");
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut cluster = Self { child, commands, answers, endpoints: String::new() };
        let line = cluster.line();
        if line.is_empty() && cluster.child.wait().unwrap().code() == Some(NO_ETCD) {
            leave_out();
        }
        let endpoints = line.strip_prefix("endpoints ").expect("etcd starts");
        cluster.endpoints = endpoints.to_owned();
        cluster
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn obey(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").expect("etcd-three lives");
        self.line()
    }

    /// SIGKILL.
    pub fn kill(&mut self, member: Member) {
        assert_eq!(self.obey(&format!("kill {member}")), format!("kill {member}"));
    }

    /// SIGSTOP.
    pub fn stop(&mut self, member: Member) {
        assert_eq!(self.obey(&format!("stop {member}")), format!("stop {member}"));
    }

    /// SIGCONT.
    pub fn go_on(&mut self, member: Member) {
        assert_eq!(self.obey(&format!("cont {member}")), format!("cont {member}"));
    }

    /// Again, after [`Self::kill`].
    pub fn restart(&mut self, member: Member) {
        assert_eq!(self.obey(&format!("start {member}")), format!("start {member}"));
    }

    /// The leader, when there is one.
    pub fn leader(&mut self) -> Member {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line = self.obey("leader");
            match line.strip_prefix("leader ").and_then(|member| member.parse().ok()) {
                Some(member @ 1..=3) => return member,
                _ => assert!(Instant::now() < deadline, "no leader: {line}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What etcdctl says.
    pub fn control(&mut self, words: &str) -> Vec<String> {
        self.try_control(words).unwrap_or_else(|lines| panic!("{lines:#?}"))
    }

    /// The same, which may fail.
    pub fn try_control(&mut self, words: &str) -> Result<Vec<String>, Vec<String>> {
        let mut lines = vec![self.obey(&format!("ctl {words}"))];
        while !lines.last().is_some_and(|line| line.starts_with("done ")) {
            lines.push(self.line());
        }
        if lines.pop().as_deref() == Some("done 0") { Ok(lines) } else { Err(lines) }
    }

    /// A service of its own on these members.
    pub fn store(&self) -> Store {
        Store { environment: environment(&self.endpoints) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let group = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _ = killpg(group, Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A prefix nobody else has.
pub fn prefix() -> String {
    format!("test-{}/", NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn environment(endpoints: &str) -> Vec<(&'static str, String)> {
    vec![
        ("DFLOCKD_STORE", "etcd".to_owned()),
        ("DFLOCKD_ETCD_ENDPOINTS", endpoints.to_owned()),
        ("DFLOCKD_ETCD_PREFIX", prefix()),
    ]
}

/// A service of its own on members that all tests of this process share. They end when their
/// standard input does, with the process.
pub fn shared() -> Store {
    shared_cluster().store()
}

/// The same members, which a test must not stop.
pub fn shared_cluster() -> MutexGuard<'static, Cluster> {
    static SHARED: OnceLock<Mutex<Cluster>> = OnceLock::new();
    SHARED.get_or_init(|| Mutex::new(Cluster::start(&[]))).lock().unwrap()
}
