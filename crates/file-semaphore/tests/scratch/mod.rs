//! Runs the real programs in a fresh directory, with a hard time limit.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Longer than any of these programs should take, however busy the machine is.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A number no process has: above the largest the kernel gives out (proc(5), pid_max).
pub(crate) const NOBODY: u32 = 4_194_305;

pub(crate) struct Scratch {
    directory: tempfile::TempDir,
}

/// How a program ended and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// As a shell tells it: 128 and the number of a signal.
    pub(crate) fn shell_code(&self) -> i32 {
        let signal = std::os::unix::process::ExitStatusExt::signal(&self.status);
        signal.map_or_else(|| self.code(), |number| 128 + number)
    }

    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal: {self:?}"))
    }
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.at(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap()
    }

    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A program in this directory, with nothing to read.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null());
        command.env("PATH", path_with_ours()).env_remove("SEMA_SLOT");
        command
    }

    /// `sema`, whose caller is this test process.
    pub(crate) fn sema(&self, words: &[&str]) -> Ran {
        finish(self.command(SEMA).args(words))
    }

    pub(crate) fn semats(&self, words: &[&str]) -> Ran {
        finish(self.command(SEMATS).args(words))
    }

    /// A shell script; `sema` and `semats` are found in its PATH.
    pub(crate) fn sh(&self, script: &str) -> Ran {
        finish(self.command("sh").args(["-eu", "-c", script]))
    }

    /// A copy of `sema` in here, for users who may not reach the other one. Made by another process: one that
    /// a test of another thread starts would have it open for writing for a moment, and then nobody can run it.
    pub(crate) fn bring_sema(&self) {
        let copied = finish(self.command("cp").args([SEMA, "sema"]));
        assert_eq!(copied.code(), 0, "{copied:?}");
    }

    /// Waits until there is a file of that name with something in it, and gives its text.
    pub(crate) fn wait_for(&self, name: &str) -> String {
        until(&format!("file {name}"), || {
            fs::read_to_string(self.at(name)).ok().filter(|text| text.ends_with('\n'))
        })
    }
}

pub(crate) const SEMA: &str = env!("CARGO_BIN_EXE_sema");
pub(crate) const SEMATS: &str = env!("CARGO_BIN_EXE_semats");

fn path_with_ours() -> String {
    let ours = Path::new(SEMA).parent().unwrap().display();
    format!("{ours}:{}", std::env::var("PATH").unwrap())
}

/// Waits for a condition, looking every few milliseconds.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begin.elapsed() < LIMIT, "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Runs a program to its end, and kills it should it not come to one.
pub(crate) fn finish(command: &mut Command) -> Ran {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    gather(child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")))
}

/// The same for one that was started already, with both outputs piped.
pub(crate) fn gather(mut child: Child) -> Ran {
    let pid = pid_of(&child);
    let (done, ended) = channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if ended.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = kill(pid, Signal::SIGKILL);
        }
    });
    let (mut out, mut err) = (String::new(), String::new());
    let errors = child.stderr.take();
    let reader = std::thread::spawn(move || {
        errors.map(|mut pipe| pipe.read_to_string(&mut err)).transpose().unwrap();
        err
    });
    child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut out)).transpose().unwrap();
    let status = child.wait().unwrap();
    drop(done);
    watchdog.join().unwrap();
    Ran { status, out, err: reader.join().unwrap() }
}

pub(crate) fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

pub(crate) fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("a clock after 1970").as_secs()
}
