//! Starts `dflock` as a user would, without the environment of the user that runs the tests, and never lets it
//! outlive the test.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use testbed::dflockd::{Daemon, PATIENCE, until};

/// Longer than any test, for commands that must be stopped.
pub(crate) const LONG: &str = "1000";
/// Where `sh` and its kin are.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// `dflock` towards this server.
pub(crate) fn dflock(daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = bare(arguments);
    command.env("DFLOCK_SERVERS", daemon.address.to_string());
    command
}

/// `dflock` that knows no server.
pub(crate) fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dflock"));
    command.env_clear().env("PATH", PATH).args(arguments).stdin(Stdio::null());
    command
}

/// A shell with `dflock` in its path.
pub(crate) fn shell(daemon: &Daemon, script: &str) -> Command {
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_dflock")).parent().unwrap();
    let mut command = Command::new("sh");
    command.env_clear().env("PATH", format!("{}:{PATH}", own.display()));
    command.env("DFLOCK_SERVERS", daemon.address.to_string());
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

/// How a program ended.
pub(crate) struct End {
    /// The exit code, or minus the signal.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "code {}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr)
    }
}

/// Runs a program to its end, which must come soon.
pub(crate) fn run(command: &mut Command) -> End {
    start(command).end()
}

/// A program that runs. Its whole process group is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    stdout: Arc<Mutex<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

/// Starts a program in a process group of its own, and reads all it says.
pub(crate) fn start(command: &mut Command) -> Running {
    let name = command.get_program().to_owned();
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{name:?}: {error}"));
    let (stdout, stderr) = (Arc::default(), Arc::default());
    let readers = vec![
        collect(child.stdout.take().unwrap(), Arc::clone(&stdout)),
        collect(child.stderr.take().unwrap(), Arc::clone(&stderr)),
    ];
    Running { child, stdout, stderr, readers }
}

fn collect(
    mut source: impl Read + Send + 'static,
    sink: Arc<Mutex<Vec<u8>>>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = source.read(&mut piece) {
            sink.lock().unwrap().extend_from_slice(&piece[..length]);
        }
    })
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        testbed::signal(self.child.id(), signal);
    }

    pub(crate) fn type_in(&mut self, bytes: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub(crate) fn end_input(&mut self) {
        self.child.stdin = None;
    }

    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.stdout.lock().unwrap()).into_owned()
    }

    pub(crate) fn complained(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    /// Waits until standard output has this many whole lines; returns them.
    pub(crate) fn lines(&self, count: usize) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.said();
            let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let lines: Vec<String> = whole.split('\n').map(str::to_owned).collect();
            if !whole.is_empty() && lines.len() >= count {
                return lines;
            }
            let late = Instant::now() > deadline;
            assert!(!late, "{count} lines never came: {said}\n{}", self.complained());
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// The pid that the command prints as its first line.
    pub(crate) fn command(&self) -> Pid {
        Pid::from_raw(self.lines(1)[0].trim().parse().unwrap())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> End {
        let deadline = Instant::now() + PATIENCE;
        while !self.has_ended() {
            let late = Instant::now() > deadline;
            assert!(!late, "it does not end: {}\n{}", self.said(), self.complained());
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let status = self.child.wait().unwrap();
        until("nobody has its output any more", || self.readers.iter().all(|it| it.is_finished()));
        let code = status.code().unwrap_or_else(|| -status.signal().unwrap());
        End { code, stdout: self.said(), stderr: self.complained() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = killpg(self.pid(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Whether a process may still do something: it is there, and is not about to die of KILL, which may take
/// a while where others have the processors.
pub(crate) fn lives(pid: Pid) -> bool {
    const KILL: u64 = 1 << 8;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let pending = |name| u64::from_str_radix(field(name).unwrap_or("0"), 16).unwrap();
    let is_killed = (pending("SigPnd:") | pending("ShdPnd:")) & KILL != 0;
    field("State:").is_some_and(|state| !state.starts_with(['Z', 'X'])) && !is_killed
}

/// Nobody holds or waits for anything.
pub(crate) fn assert_free(daemon: &Daemon) {
    daemon.until_stats("\"locks\":[],\"semaphores\":[]");
}

/// The same command with standard output that takes nothing.
pub(crate) fn into_full(command: &mut Command) -> (i32, String) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}
