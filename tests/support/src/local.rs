//! Programs on this machine itself, outside any sandbox: in a fresh directory, with a time limit, and killed with the
//! test.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::until::LIMIT;

/// A number no process has: above the largest the kernel gives out (proc(5), pid_max).
pub const NOBODY: u32 = 4_194_305;

/// A fresh directory, and programs in it.
#[derive(Debug)]
pub struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A file in it.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.at(name), text).unwrap();
    }

    /// The text of a file.
    #[must_use]
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap()
    }

    /// The names in it, in order.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        crate::listing(self.path())
    }

    /// A program in this directory, with nothing to read; the programs under test are found in its PATH.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let test = std::env::current_exe().unwrap();
        let ours = test.ancestors().nth(2).unwrap().display();
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null());
        command.env("PATH", format!("{ours}:{}", std::env::var("PATH").unwrap()));
        command.env_remove("SEMA_SLOT");
        command
    }

    /// `sema`, whose caller is this test process.
    pub fn sema(&self, words: &[&str]) -> End {
        run(self.command("sema").args(words))
    }

    /// `semats`, likewise.
    pub fn semats(&self, words: &[&str]) -> End {
        run(self.command("semats").args(words))
    }

    /// A shell script that ends with the first command that fails.
    pub fn sh(&self, script: &str) -> End {
        run(self.command("sh").args(["-eu", "-c", script]))
    }

    /// Waits until there is a file of that name with a whole line in it, and gives its text.
    pub fn wait_for(&self, name: &str) -> String {
        until(&format!("file {name}"), || {
            fs::read_to_string(self.at(name)).ok().filter(|text| text.ends_with('\n'))
        })
    }
}

/// Waits for a condition.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    crate::until(LIMIT, look).unwrap_or_else(|| panic!("waited too long for: {what}"))
}

/// How a program ended.
pub struct End {
    /// The exit code, or minus the signal.
    pub code: i32,
    /// What it said.
    pub out: String,
    /// What it complained about.
    pub err: String,
}

impl End {
    /// As a shell tells it: 128 and the number of a signal.
    #[must_use]
    pub fn shell_code(&self) -> i32 {
        if self.code < 0 { 128 - self.code } else { self.code }
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "code {}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.out, self.err)
    }
}

/// Runs a program to its end, which must come soon.
pub fn run(command: &mut Command) -> End {
    start(command).end()
}

/// A program that runs. Its whole process group is killed when this is dropped before its end.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Arc<Mutex<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

/// Starts a program in a process group of its own, and reads all it says.
pub fn start(command: &mut Command) -> Running {
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

fn collect(mut source: impl Read + Send + 'static, sink: Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = source.read(&mut piece) {
            sink.lock().unwrap().extend_from_slice(&piece[..length]);
        }
    })
}

impl Running {
    /// Its number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        pid_of(&self.child)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        crate::signal(self.child.id(), signal);
    }

    /// Writes to its input, which must be a pipe.
    pub fn type_in(&mut self, bytes: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        self.child.stdin = None;
    }

    /// What it has said so far.
    #[must_use]
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.stdout.lock().unwrap()).into_owned()
    }

    /// What it has complained about so far.
    #[must_use]
    pub fn complained(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    /// Waits until standard output has this many whole lines; returns them.
    pub fn lines(&self, count: usize) -> Vec<String> {
        let lines = crate::until(LIMIT, || {
            let said = self.said();
            let lines: Vec<String> =
                said.rsplit_once('\n')?.0.split('\n').map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        });
        let all = || panic!("{count} lines never came: {}\n{}", self.said(), self.complained());
        lines.unwrap_or_else(all)
    }

    /// The process whose number the command prints as its first line.
    #[must_use]
    pub fn command(&self) -> Met {
        Met::now(Pid::from_raw(self.lines(1)[0].trim().parse().unwrap()))
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end, whoever still has its output open; the exit code, or minus the signal.
    pub fn code(&mut self) -> i32 {
        self.code_in(LIMIT)
    }

    fn code_in(&mut self, limit: Duration) -> i32 {
        let status = crate::until(limit, || self.child.try_wait().unwrap());
        let late = || panic!("it does not end: {}\n{}", self.said(), self.complained());
        let status = status.unwrap_or_else(late);
        status.code().unwrap_or_else(|| -status.signal().unwrap())
    }

    /// Waits for the end, and for that of its output.
    pub fn end(self) -> End {
        self.end_in(LIMIT)
    }

    /// The same of a program that starts very many others, for so long.
    pub fn end_in(mut self, limit: Duration) -> End {
        let code = self.code_in(limit);
        until("nobody has its output any more", || {
            self.readers.iter().all(JoinHandle::is_finished).then_some(())
        });
        // What it has left in the background is not ours.
        self.readers.clear();
        End { code, out: self.said(), err: self.complained() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.readers.is_empty() {
            let _ = killpg(self.pid(), Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// The number of a child.
#[must_use]
pub fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

/// A process that a test has met. A later one with its number began at another time.
#[derive(Clone, Copy, Debug)]
pub struct Met {
    /// Its number.
    pub pid: Pid,
    begun: Option<u64>,
}

impl Met {
    /// The process that has this number now.
    fn now(pid: Pid) -> Self {
        Self { pid, begun: begun(pid) }
    }

    /// Whether it may still do something: it is there, and is not about to die of KILL, which may take a while where
    /// others have the processors.
    #[must_use]
    pub fn lives(self) -> bool {
        const KILL: u64 = 1 << 8;
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let pending = |name| u64::from_str_radix(field(name).unwrap_or("0"), 16).unwrap();
        let is_killed = (pending("SigPnd:") | pending("ShdPnd:")) & KILL != 0;
        let is_there = field("State:").is_some_and(|state| !state.starts_with(['Z', 'X']));
        is_there && !is_killed && self.begun.is_some() && begun(self.pid) == self.begun
    }
}

/// When the process of this number began: proc_pid_stat(5), behind its name, which may have any characters.
fn begun(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs()
}

/// What a process blocks, ignores and catches, as lines of its status. `SigQ`, the number of all
/// signals queued for its user, changes with whatever else the machine does.
pub const SIGNAL_MASKS: &str = "^Sig[BIC]";

/// The lines, masks without signals 32 and 33: those are the C library's own, which it ignores in
/// what it starts.
#[must_use]
pub fn masks(text: &str) -> Vec<String> {
    const C_LIBRARY: u64 = 0b11 << 31;
    let line = |line: &str| match line.split_once(":\t") {
        Some((name, mask)) => {
            format!("{name} {:x}", u64::from_str_radix(mask, 16).unwrap() & !C_LIBRARY)
        }
        None => line.to_owned(),
    };
    text.lines().map(line).collect()
}
