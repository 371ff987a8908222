//! One program, one `lfpd` and one port in a sandbox: starts the program and sees what comes.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

use testbed::{Command, End, LFP, LIMIT, Layout, Process, Sandbox, Session, User, comes, until};

use crate::programs::{Input, Program};

/// The port that most tests use.
pub(crate) const PORT: &str = "/dev/ttyW0";
const LOCK_DIR: &str = "/var/lock";

/// A killed program may leave a pseudo-terminal closed to all but root.
const END_EXCLUSIVE: &str = "/usr/bin/python3 /run/test/programs/end_exclusive.py {dev}";

/// How one sees that a program has the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// By a lock file that was not there before.
    LockFile,
    /// By its flock(2) on the port.
    Flock,
    /// By its having the port open: it does without any lock.
    Open,
}

/// A sandbox with one port, two other names for it, a port in a directory, and `lfpd`.
pub(crate) fn sandbox() -> Sandbox {
    let layout = Sandbox::with_lfpd()
        .port("ttyW0")
        .port("pts/3")
        .link("modemW", "ttyW0")
        .link("serial/by-id/usb-X_Y-if00", "../../ttyW0");
    bring_programs(layout).enter()
}

/// Adds the programs and libraries that Debian does not have.
pub(crate) fn bring_programs(layout: Layout) -> Layout {
    layout
        .bring("hold-serialport", testbed::peer("serialport", "debug/hold-serialport"))
        .bring("node_modules", testbed::peer("node-serialport", "node_modules"))
        .bring("serialx", testbed::peer("serialx-1.15.1", ""))
        .bring("python-tools", testbed::peer("python-tools", ""))
        .bring("esptool", testbed::peer("esptool", ""))
}

/// `lfpd` as it is best run on Debian.
pub(crate) fn lfpd(sandbox: &Sandbox) -> Session<'_> {
    Session::start(sandbox, User::UucpWithFowner, &[], User::Root)
}

/// A lock file of any convention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockFile {
    pub(crate) name: String,
    pub(crate) inode: u64,
    pub(crate) content: Vec<u8>,
}

/// The program at work, and its server where it has one.
pub(crate) struct Troupe<'a> {
    server: Option<Process<'a>>,
    program: Process<'a>,
}

impl Troupe<'_> {
    /// Kills the one that has the port.
    pub(crate) fn kill(self) {
        self.server.unwrap_or(self.program).kill();
    }
}

/// What came of starting a program.
#[derive(Debug)]
pub(crate) enum Came {
    /// It has the port.
    Has,
    /// It ended without.
    Ended(End),
    /// It waits, and says this in its log.
    Waits(&'static str),
}

/// A program, and the port that it is to use.
pub(crate) struct Bench<'a> {
    sandbox: &'a Sandbox,
    program: Program,
    dev: &'a str,
    wrapper: &'static str,
}

impl<'a> Bench<'a> {
    /// Puts the program's files in place.
    pub(crate) fn new(sandbox: &'a Sandbox, program: &Program, dev: &'a str) -> Self {
        let bench = Self { sandbox, program: *program, dev, wrapper: "" };
        for (path, content) in program.files {
            sandbox.write(path, content.replace("{dev}", dev), 0o644);
        }
        if let Some((file, command)) = program.compiled {
            bench.compile(file, command);
        }
        bench
    }

    /// Once for all sandboxes.
    fn compile(&self, file: &'static str, command: &str) {
        static COMPILED: Mutex<BTreeMap<&str, Vec<u8>>> = Mutex::new(BTreeMap::new());
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(content) = compiled.get(file) {
            self.sandbox.write("/tmp/compiled", content, 0o755);
            // A program that another test starts has what we write open for a moment, and then it cannot be executed.
            self.sandbox.command("cp").args(["/tmp/compiled", file]).run().expect(0);
        } else {
            self.words(command).run().expect(0);
            compiled.insert(file, self.sandbox.read(file).unwrap_or_default());
        }
    }

    /// The same with the program's command behind another.
    pub(crate) fn behind(self, wrapper: &'static str) -> Self {
        Self { wrapper, ..self }
    }

    /// The port's FHS lock file.
    pub(crate) fn lock(&self) -> String {
        format!("{LOCK_DIR}/LCK..{}", self.dev.rsplit('/').next().unwrap_or_default())
    }

    fn words(&self, line: &str) -> Command<'a> {
        let line = line.replace("{dev}", self.dev).replace("{lock}", &self.lock());
        let line = line.replace("{lfp}", LFP);
        let mut words = line.split('\'').enumerate().flat_map(|(part, text)| {
            let is_quoted = part % 2 == 1;
            if is_quoted { vec![text] } else { text.split_whitespace().collect() }
        });
        self.sandbox.command(words.next().unwrap_or_default()).args(words)
    }

    fn begin(&self) -> Troupe<'a> {
        let server = (!self.program.server.is_empty()).then(|| self.serve());
        let line = format!("{} {}", self.wrapper, self.program.command);
        let command = self.words(&line).user(self.program.user);
        let program = match self.program.input {
            Input::Pipe => command.spawn(),
            Input::Terminal => command.on_terminal().spawn(),
        };
        Troupe { server, program }
    }

    fn serve(&self) -> Process<'a> {
        let server = self.words(self.program.server).spawn();
        let listens = || self.words("ss -Hltn").run().said("127.0.0.1:3000");
        assert!(comes(listens), "a server that listens: {}", server.output());
        server
    }

    /// Starts the program on a port that somebody else has open, and waits for its end.
    pub(crate) fn attempt_in_vain(&self) -> End {
        let troupe = self.begin();
        troupe.program.wait(LIMIT)
    }

    /// Starts the program and waits until it is clear what it does about the port.
    pub(crate) fn attempt(&self) -> (Came, Troupe<'a>) {
        if self.program.user != User::Root {
            self.words(END_EXCLUSIVE).run().expect(0);
        }
        let before = self.lock_files();
        let logged = self.logged();
        let mut troupe = self.begin();
        let came = until(LIMIT, || {
            let end = troupe.program.ended();
            if self.has_port(&troupe, &before) {
                return Some(Came::Has);
            }
            let waits = self.program.waits.filter(|_| self.logged() > logged);
            waits.map(|(_, says)| Came::Waits(says)).or(end.map(Came::Ended))
        });
        let Some(came) = came else {
            unreachable!(
                "{} neither starts nor ends:\n{}",
                self.program.name,
                troupe.program.output()
            )
        };
        (came, troupe)
    }

    /// Starts the program, which gets the port.
    pub(crate) fn take(&self) -> Troupe<'a> {
        let (came, troupe) = self.attempt();
        assert!(matches!(came, Came::Has), "{}: {came:?}", self.program.name);
        troupe
    }

    fn has_port(&self, troupe: &Troupe<'a>, before: &[LockFile]) -> bool {
        if !self.program.says.is_none_or(|says| troupe.program.output().contains(says)) {
            return false;
        }
        match self.program.mark {
            Mark::Flock => self.flocked(troupe.program.pid()),
            Mark::Open => self.user().is_some(),
            Mark::LockFile => self
                .lock_files()
                .iter()
                .any(|file| !file.content.is_empty() && !before.contains(file)),
        }
    }

    /// The lock files of all names; not what mgetty, Qt and socat make on the way to one, with an ending of its own.
    pub(crate) fn lock_files(&self) -> Vec<LockFile> {
        let is_under_way =
            |it: &str| it.strip_prefix("LCK..").is_some_and(|name| name.contains('.'));
        let is_lock = |it: &str| it.starts_with("LCK") && !is_under_way(it);
        let read = |name: String| {
            let path = format!("{LOCK_DIR}/{name}");
            let inode = fs::symlink_metadata(self.sandbox.path(&path)).ok()?.ino();
            Some(LockFile { content: self.sandbox.read(&path)?, name, inode })
        };
        self.sandbox.locks().into_iter().filter(|it| is_lock(it)).filter_map(read).collect()
    }

    /// Whether a process has an flock on the port's inode, by /proc/locks.
    fn flocked(&self, pid: u32) -> bool {
        let Ok(port) = fs::metadata(self.sandbox.path(self.dev)) else { return false };
        let (pid, inode) = (pid.to_string(), format!(":{}", port.ino()));
        self.sandbox.text("/proc/locks").lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(1) == Some(&"FLOCK")
                && words.get(4) == Some(&pid.as_str())
                && words.get(5).is_some_and(|file| file.ends_with(&inode))
        })
    }

    /// A process that has the port open. The service sometimes has its node by `O_PATH`, which opens no port.
    pub(crate) fn user(&self) -> Option<u32> {
        let port = fs::metadata(self.sandbox.path(self.dev)).ok()?;
        let is_of_port = |fd: &DirEntry| {
            let seen = fs::metadata(fd.path());
            seen.is_ok_and(|it| (it.dev(), it.ino()) == (port.dev(), port.ino()))
        };
        let is_open = |pid: &u32| {
            let process = self.sandbox.path(&format!("/proc/{pid}"));
            let all = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
            all.filter(is_of_port).any(|fd| {
                let facts = fs::read_to_string(process.join("fdinfo").join(fd.file_name()));
                facts.is_ok_and(|facts| !is_path_only(&facts))
            })
        };
        let all = fs::read_dir(self.sandbox.path("/proc")).ok()?;
        all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).find(is_open)
    }

    /// How often the program has logged that it waits.
    fn logged(&self) -> usize {
        let Some((log, says)) = self.program.waits else { return 0 };
        let name = self.dev.trim_start_matches("/dev/").replace('/', "-");
        self.sandbox.text(&log.replace("{name}", &name)).matches(says).count()
    }
}

/// Whether a descriptor was opened with `O_PATH`, by the flags that the kernel tells in octal digits.
fn is_path_only(facts: &str) -> bool {
    let flags = facts.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|digits| i32::from_str_radix(digits.trim(), 8).ok());
    flags.is_some_and(|flags| flags & nix::libc::O_PATH != 0)
}
