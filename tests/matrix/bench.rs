//! One program, one `lfpd` and one port in a sandbox: plays the scenes and says what happened.

use std::fs;
use std::os::unix::fs::MetadataExt;

use testbed::{Command, End, LIMIT, Lfp, Process, Sandbox, Service, User, until};

use crate::programs::{Deed, Input, Program, Row};

pub(crate) const PORT: &str = "/dev/ttyW0";
const LOCK: &str = "/var/lock/LCK..ttyW0";

/// A killed program may leave a pseudo-terminal closed to all but root.
const END_EXCLUSIVE: &[&str] =
    &["/usr/bin/python3", "/run/test/programs/end_exclusive.py", "{dev}"];

/// How one sees that a program has the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// By a lock file that is not `lfpd`'s.
    LockFile,
    /// By its flock(2) on the port.
    Flock,
}

/// A sandbox with one port, two other names for it, a port in a directory, and `lfpd`.
pub(crate) fn sandbox() -> Sandbox {
    Sandbox::layout()
        .port("ttyW0")
        .port("pts/3")
        .link("modemW", "ttyW0")
        .link("serial/by-id/usb-X_Y-if00-port0", "../../ttyW0")
        .bring("lfpd", env!("CARGO_BIN_EXE_lfpd"))
        .enter()
}

/// `lfpd` as it is best run on Debian.
pub(crate) fn lfpd(sandbox: &Sandbox) -> Lfp<'_> {
    Service::run_by(User::UucpWithFowner).start(sandbox)
}

/// A process to lock for.
pub(crate) fn somebody(sandbox: &Sandbox) -> Process<'_> {
    sandbox.command("sleep").arg("1000").spawn()
}

/// All four scenes, in the order b, c, a, d, so that each leads to the next.
pub(crate) fn play(program: &Program) -> Row {
    let sandbox = sandbox();
    let bench = Bench { sandbox: &sandbox, program };
    bench.prepare();
    let mut lfpd = lfpd(&sandbox);
    let holder = somebody(&sandbox);
    let pid = holder.pid();

    let (deed, troupe) = bench.attempt(Port::Free);
    assert_eq!(deed, Deed::Starts, "{} with a free port", program.name);
    let program_holds = lfpd.lock(PORT, pid);

    troupe.kill();
    let program_killed = lfpd.lock(PORT, pid);
    if program_killed == 450 {
        // As an administrator would have to.
        let removed = fs::remove_file(sandbox.path(LOCK));
        assert!(removed.is_ok() && lfpd.lock(PORT, pid) == 200, "{}", program.name);
    }

    let ours = bench.lock_file();
    assert_eq!(ours.as_ref().map(|it| &it.content), Some(&format!("{pid:10}\n").into_bytes()));
    let (lfpd_holds, troupe) = bench.attempt(Port::Held);
    if lfpd_holds == Deed::Steals {
        drop(troupe);
        assert_eq!(lfpd.lock(PORT, pid), 200, "{}: the thief is gone", program.name);
    } else {
        assert_eq!(bench.lock_file(), ours, "{} spoilt the lock", program.name);
        assert_eq!(lfpd.lock(PORT, somebody(&sandbox).pid()), 450);
        drop(troupe);
    }

    holder.kill();
    let (mut holder_died, troupe) = bench.attempt(Port::Dead);
    drop(troupe);
    if let Deed::Refuses(code, says) = holder_died {
        assert_eq!(lfpd.unlock(PORT, pid), 200, "{}: clearing", program.name);
        assert_eq!(bench.attempt(Port::Free).0, Deed::Starts, "{} when cleared", program.name);
        holder_died = Deed::RefusesUntilCleared(code, says);
    }
    Row { lfpd_holds, program_holds, program_killed, holder_died }
}

/// How the port stands when the program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Free,
    /// `lfpd` has it for a process that lives.
    Held,
    /// `lfpd` has it for a process that has died.
    Dead,
}

/// The lock file that FHS has every program use.
#[derive(Debug, PartialEq, Eq)]
struct LockFile {
    inode: u64,
    content: Vec<u8>,
}

/// The program at work, and its server where it has one.
struct Troupe<'a> {
    server: Option<Process<'a>>,
    program: Process<'a>,
}

impl Troupe<'_> {
    /// Kills the one that has the port.
    fn kill(self) {
        self.server.unwrap_or(self.program).kill();
    }
}

struct Bench<'a> {
    sandbox: &'a Sandbox,
    program: &'a Program,
}

impl<'a> Bench<'a> {
    fn prepare(&self) {
        for (path, content) in self.program.files {
            self.sandbox.write(path, content, 0o644);
        }
        for command in self.program.before {
            let end = self.words(command).run();
            assert_eq!(end.code(), 0, "{end}");
        }
    }

    fn words(&self, words: &[&str]) -> Command<'a> {
        let mut words = words.iter().map(|it| it.replace("{dev}", PORT).replace("{lock}", LOCK));
        self.sandbox.command(&words.next().unwrap_or_default()).args(words)
    }

    fn begin(&self) -> Troupe<'a> {
        let server = (!self.program.server.is_empty()).then(|| self.serve());
        let command = self.words(self.program.command).user(self.program.user);
        let program = match self.program.input {
            Input::Pipe => command.spawn(),
            Input::Terminal => command.on_terminal().spawn(),
        };
        Troupe { server, program }
    }

    fn serve(&self) -> Process<'a> {
        let server = self.words(self.program.server).spawn();
        let ready = until(LIMIT, || {
            self.words(&["ss", "-Hltn"]).run().said("127.0.0.1:3000").then_some(())
        });
        assert!(ready.is_some(), "a server that listens: {}", server.output());
        server
    }

    /// Starts the program and waits until it is clear what it does about the port.
    fn attempt(&self, port: Port) -> (Deed, Troupe<'a>) {
        if self.program.user != User::Root {
            let end = self.words(END_EXCLUSIVE).run();
            assert_eq!(end.code(), 0, "{end}");
        }
        let before = self.lock_file();
        let mut troupe = self.begin();
        let deed = until(LIMIT, || {
            let end = troupe.program.ended();
            if self.has_port(&troupe, &before) {
                return Some(match port {
                    Port::Free | Port::Dead => Deed::Starts,
                    Port::Held if self.lock_file() == before => Deed::StartsBesides,
                    Port::Held => Deed::Steals,
                });
            }
            let waits = self.program.waits.filter(|_| port == Port::Held);
            waits.and_then(|it| self.waiting(it)).or_else(|| end.map(|it| self.refusal(&it)))
        });
        let output = troupe.program.output();
        assert!(deed.is_some(), "{} neither starts nor ends:\n{output}", self.program.name);
        (deed.unwrap_or(Deed::Starts), troupe)
    }

    fn has_port(&self, troupe: &Troupe<'a>, before: &Option<LockFile>) -> bool {
        match self.program.mark {
            Mark::LockFile => self.lock_file().is_some_and(|now| {
                !now.content.is_empty() && before.as_ref().is_none_or(|it| *it != now)
            }),
            Mark::Flock => self.flocked(troupe.program.pid()),
        }
    }

    fn lock_file(&self) -> Option<LockFile> {
        let inode = fs::symlink_metadata(self.sandbox.path(LOCK)).ok()?.ino();
        Some(LockFile { inode, content: self.sandbox.read(LOCK)? })
    }

    /// Whether /proc/locks has an flock of this process on the port's inode.
    fn flocked(&self, pid: u32) -> bool {
        let Ok(port) = fs::metadata(self.sandbox.path(PORT)) else { return false };
        let locks = self.sandbox.read("/proc/locks").unwrap_or_default();
        String::from_utf8_lossy(&locks).lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let inode = words.get(5).and_then(|it| it.rsplit(':').next());
            words.get(1) == Some(&"FLOCK")
                && words.get(4) == Some(&pid.to_string().as_str())
                && inode == Some(port.ino().to_string().as_str())
        })
    }

    fn waiting(&self, (log, says): (&str, &'static str)) -> Option<Deed> {
        let log = self.sandbox.read(log)?;
        String::from_utf8_lossy(&log).contains(says).then_some(Deed::Waits(says))
    }

    /// The refusal as the program's row words it.
    fn refusal(&self, end: &End) -> Deed {
        let row = &self.program.row;
        let says = [row.lfpd_holds, row.holder_died]
            .into_iter()
            .filter_map(Deed::says)
            .find(|says| end.said(says));
        assert!(says.is_some(), "refused in other words than expected: {end}");
        let says = says.unwrap_or_default();
        if self.program.server.is_empty() {
            Deed::Refuses(end.code(), says)
        } else {
            Deed::TellsClient(says)
        }
    }
}
