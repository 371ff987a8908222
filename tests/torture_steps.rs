//! A process stands still before one of its system calls, in turn before each, while it takes, releases or passes a lock,
//! or clears up after a dead holder. Meanwhile another process comes. Then the first one goes on, or is killed; or it is
//! killed before the other one comes. Whose the lock is afterwards must follow from the answers of both in some order: no
//! two holders, no lost lock, and nothing is left that no UNLOCK reaches.
//!
//! The other process may also be one in a pid namespace of its own, which must never take the lock of a living holder; a
//! program that keeps no rules and removes, renames, links, exchanges or overwrites a name; or somebody who replaces the
//! gate or the state directory, moves a link of the port to another port that is locked, too, or fills the file system.
//!
//! This program plays all parts; it has its own `main` so that it can start itself again. It stops itself by ptrace(2).
//! A part of all cases runs, always the same one, on one kind of file system after the other. All of them, on the file system
//! of `TMPDIR`, take an hour of processor time; a number runs so many, and the words of a case run it alone:
//!
//!     LFPD_STEPS=all cargo test --release --test torture_steps -- --include-ignored --nocapture
//!     LFPD_STEPS=5000 ...
//!     LFPD_STEPS="Pass LockT Meanwhile Kill 57" ...

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use pidlockfile::Pid;
use pidlockfile::process::lives;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use testbed::{GONE, Holder, LIMIT, Lots, listing, make_old, run_tests, until};
use ttylock::{
    Answer, Backoff, Cause, DeviceName, Dialect, Layout, Outcome, Pass, Request, Stop, Table,
};

/// The port, whose lock has five names; and another one.
const PORT: &str = "ttyS0";
const OTHER_PORT: &str = "ttyS1";
const LINKS: [&str; 4] = ["gps", "modem", "radio", "scale"];
const NAMES: usize = 5;

/// File systems with locks, and how they are made: they differ in which numbers and times a file has, and in what a link can
/// hold.
const KINDS: [(&str, &str); 5] = [
    ("ext4-128", "mkfs.ext4 -q -I 128"),
    ("ext4-256", "mkfs.ext4 -q -I 256"),
    ("xfs", "mkfs.xfs -q"),
    ("btrfs", "mkfs.btrfs -q"),
    ("overlay", ""),
];

/// How many cases run, unless told otherwise.
const CASES: u64 = 150;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--deed", root, deed, ref pids @ ..] => {
            let pids: Vec<u32> = pids.iter().map(|pid| pid.parse().unwrap()).collect();
            println!("ready");
            let mut go = [0];
            std::io::stdin().read_exact(&mut go).unwrap();
            let outcome = do_deed(Path::new(root), deed, &pids);
            println!("{outcome:?}");
            // No destructors: they belong to no deed.
            std::process::exit(0);
        }
        ["--inside", root] => {
            let (mut table, own) = (table(Path::new(root)), std::process::id());
            let outcome = at_once(|backoff| table.attempt_lock(&request(PORT, own), None, backoff));
            if outcome == Outcome::Done {
                assert_eq!(table.unlock(&request(PORT, own)).outcome(), Outcome::Done);
            }
            println!("{outcome:?}");
        }
        _ => {
            let tests: [(&str, fn()); 1] = [(
                "at_every_call_one_holder_and_nothing_left",
                at_every_call_one_holder_and_nothing_left,
            )];
            run_tests(&tests, Some("needs root: tests/run"));
        }
    }
}

fn table(root: &Path) -> Table {
    let mut layout = Layout::of(Dialect::by_name("linux").unwrap());
    layout.dev_dir = root.join("dev");
    layout.lock_dir = root.join("lock");
    layout.search_dirs = vec![root.join("other")];
    layout.state_dir = root.join("state");
    layout.udev_dir = root.join("udev");
    Table::new(layout)
}

fn pid(number: u32) -> Pid {
    Pid::new(number.into()).unwrap()
}

fn device(name: &str) -> DeviceName {
    DeviceName::parse(name.as_bytes()).unwrap()
}

fn request(port: &str, number: u32) -> Request {
    Request { device: device(port), pid: pid(number) }
}

fn passing(from: u32, to: u32) -> Pass {
    Pass { device: device(PORT), from: pid(from), to: pid(to) }
}

/// The answer without waiting for a process that is in the way. Only a reading of the kernel's list is waited for.
fn at_once(mut attempt: impl FnMut(Backoff) -> Answer) -> Outcome {
    let now = Instant::now();
    let answer = until(LIMIT, || {
        let answer = attempt(Backoff::since(now).last(now));
        (answer.result != Err(Stop::NotYet(Cause::Reading))).then_some(answer)
    });
    answer.unwrap().outcome()
}

/// What the process does that is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// A free port, for the giver.
    Lock,
    /// A port whose lock is stale, for the giver.
    Break,
    /// The giver's.
    Unlock,
    /// The same, also as FORCE does it, where a process that will not let go holds the file by `flock(2)`.
    UnlockHeld,
    /// The giver's, when it has ended and nobody has waited for it.
    UnlockEnded,
    /// From the giver to the receiver.
    Pass,
    /// The same where an earlier PASS from the third process to the giver was killed.
    PassAgain,
    /// `lfp clean`, when the giver has ended with its lock.
    Clean,
    /// A daemon begins, when the giver has ended with its lock.
    Daemon,
    /// A daemon sees the giver end.
    Removal,
}

const DEEDS: [Deed; 10] = [
    Deed::Lock,
    Deed::Break,
    Deed::Unlock,
    Deed::UnlockHeld,
    Deed::Pass,
    Deed::PassAgain,
    Deed::Clean,
    Deed::Daemon,
    Deed::Removal,
    Deed::UnlockEnded,
];

/// What happens while it stands still, or when it has been killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comer {
    Nobody,
    LockT,
    UnlockG,
    UnlockR,
    PassGT,
    PassRT,
    Clean,
    Daemon,
    /// The giver ends, and a daemon begins.
    EndG,
    /// The receiver ends, and a daemon begins.
    EndR,
    /// A daemon has begun, and sees the giver end.
    Removal,
    /// A process of another pid namespace, where no number of ours means anything, takes the lock and gives it back.
    Inside,
    GateReplaced,
    StateReplaced,
    RemoveFirst,
    RemoveLast,
    /// The third process writes its number into the file of the first name, as Taylor's cu does with a stale lock.
    Overwrite,
    /// The same only if the lock is stale. It has the lock then: it looks again a while later, when this is over.
    TakeStale,
    /// The first name becomes that of another port.
    Rename,
    /// The file gets one more name, as any user may give it with fs.protected_hardlinks=0: of no lock, or of another port's.
    Link,
    LinkOfOtherPort,
    /// The first name and one of another file change places.
    Exchange,
    /// From now on until the first process has ended, no file can be made, or no byte be written.
    NoInodes,
    NoBlocks,
    /// A link of the port leads to another one from now on, which the third process has locked.
    MoveLink,
}

const COMERS: [Comer; 25] = [
    Comer::Nobody,
    Comer::LockT,
    Comer::UnlockG,
    Comer::UnlockR,
    Comer::PassGT,
    Comer::PassRT,
    Comer::Clean,
    Comer::Daemon,
    Comer::EndG,
    Comer::EndR,
    Comer::Removal,
    Comer::Inside,
    Comer::GateReplaced,
    Comer::StateReplaced,
    Comer::RemoveFirst,
    Comer::RemoveLast,
    Comer::Overwrite,
    Comer::TakeStale,
    Comer::Rename,
    Comer::Link,
    Comer::LinkOfOtherPort,
    Comer::Exchange,
    Comer::NoInodes,
    Comer::NoBlocks,
    Comer::MoveLink,
];

impl Comer {
    /// Of a program that keeps no rules, or of an administrator: whose the lock is then is nobody's promise, but what is
    /// left can be released.
    fn keeps_no_rules(self) -> bool {
        matches!(
            self,
            Self::RemoveFirst
                | Self::RemoveLast
                | Self::Overwrite
                | Self::Rename
                | Self::LinkOfOtherPort
                | Self::Exchange
                | Self::MoveLink
        )
    }

    fn fills(self) -> bool {
        matches!(self, Self::NoInodes | Self::NoBlocks)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// While the first process stands still.
    Meanwhile,
    /// When it has been killed.
    Afterwards,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    GoesOn,
    Kill,
}

const ORDERS: [(When, Then); 3] = [
    (When::Meanwhile, Then::GoesOn),
    (When::Meanwhile, Then::Kill),
    (When::Afterwards, Then::Kill),
];

#[derive(Clone, Copy, Debug)]
struct Case {
    deed: Deed,
    comer: Comer,
    when: When,
    then: Then,
    /// Before this of its system calls it stands still.
    at: usize,
}

impl Case {
    fn words(&self) -> String {
        let Self { deed, comer, when, then, at } = self;
        format!("{deed:?} {comer:?} {when:?} {then:?} {at}")
    }
}

/// The three who can have the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Giver,
    Receiver,
    Third,
}

/// What a process did, with its answer; `None` if it was killed: then it is done or not.
#[derive(Clone, Copy, Debug)]
enum Did {
    Lock(Who, Option<Outcome>),
    /// The lock was taken from another pid namespace and given back there.
    LockAndUnlock(Outcome),
    Unlock(Who, Option<Outcome>),
    Pass(Who, Who, Option<Outcome>),
    /// Locks of the dead were removed, or some of them.
    Clear,
    End(Who),
}

/// Who has the lock, and who has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    holder: Option<Who>,
    ended: Vec<Who>,
}

impl Model {
    fn is_free(&self) -> bool {
        self.holder.is_none_or(|who| self.ended.contains(&who))
    }

    /// What can be true afterwards: nothing if this answer cannot be.
    fn after(&self, did: Did) -> Vec<Self> {
        let with = |holder| Self { holder, ended: self.ended.clone() };
        let same = self.clone();
        // A refusal may have any reason, and changes nothing.
        let done = |outcome: Option<Outcome>, next: Option<Self>| match outcome {
            Some(Outcome::Done) => next.into_iter().collect(),
            Some(_) => vec![same.clone()],
            None => next.into_iter().chain([same.clone()]).collect(),
        };
        match did {
            Did::Lock(who, outcome) => done(outcome, self.is_free().then(|| with(Some(who)))),
            Did::LockAndUnlock(outcome) => done(Some(outcome), self.is_free().then(|| with(None))),
            Did::Unlock(who, outcome) => {
                let is_ours = self.is_free() || self.holder == Some(who);
                done(outcome, is_ours.then(|| with(None)))
            }
            // Who has it already has it: a client asks again if the answer got lost.
            Did::Pass(from, to, outcome) => {
                let is_from = [Some(from), Some(to)].contains(&self.holder);
                done(outcome, is_from.then(|| with(Some(to))))
            }
            Did::Clear if self.is_free() => vec![with(None), same],
            Did::Clear => vec![same],
            Did::End(who) => {
                let mut next = same;
                next.ended.push(who);
                vec![next]
            }
        }
    }

    /// Whether this can be true at the end, if one process did `first` at any time among what the others did in order.
    fn ends(&self, first: Option<Did>, others: &[Did], end: Option<Who>) -> bool {
        let fits = |it: &Self| match end {
            Some(who) => it.holder == Some(who),
            None => it.is_free(),
        };
        match (first, others) {
            (None, []) => fits(self),
            _ => {
                let now = first.into_iter().flat_map(|did| self.after(did));
                let later = others.first().into_iter().flat_map(|did| self.after(*did));
                now.into_iter().any(|it| it.ends(None, others, end))
                    || later.into_iter().any(|it| it.ends(first, &others[1..], end))
            }
        }
    }
}

/// A private machine: a port with links, another port, three processes and a fourth one.
struct Machine {
    root: tempfile::TempDir,
    giver: Option<Holder>,
    receiver: Option<Holder>,
    _third: Holder,
    stranger: Holder,
    pids: [u32; 3],
    /// Somebody who does not let go of a lock file.
    flocked: Option<Flock<File>>,
    is_mounted: bool,
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.is_mounted {
            umount2(self.root.path(), MntFlags::MNT_DETACH).unwrap();
        }
    }
}

impl Machine {
    fn new() -> Self {
        Self::below(&std::env::temp_dir(), false)
    }

    /// In a directory; or with a small file system of its own.
    fn below(directory: &Path, is_small: bool) -> Self {
        let root = tempfile::tempdir_in(directory).unwrap();
        if is_small {
            let room = Some("size=256k,nr_inodes=128,mode=0755");
            mount(Some("t"), root.path(), Some("tmpfs"), MsFlags::empty(), room).unwrap();
        }
        for directory in ["dev", "lock", "other", "state"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        for port in [PORT, OTHER_PORT] {
            fs::write(root.path().join("dev").join(port), "").unwrap();
        }
        for link in LINKS {
            symlink(PORT, root.path().join("dev").join(link)).unwrap();
        }
        let [giver, receiver, third, stranger] = [(); 4].map(|()| Holder::new());
        let pids = [giver.pid(), receiver.pid(), third.pid()];
        let (giver, receiver) = (Some(giver), Some(receiver));
        let (flocked, is_mounted) = (None, is_small);
        Self { root, giver, receiver, _third: third, stranger, pids, flocked, is_mounted }
    }

    /// Until no file can be made any more, or no byte be written.
    fn fill(&self, comer: Comer) {
        fs::create_dir(self.path("fill")).unwrap();
        let mut file = File::create(self.path("fill/bytes")).unwrap();
        let mut more = |number: u32| match comer == Comer::NoInodes {
            true => File::create(self.path("fill").join(number.to_string())).map(drop),
            false => file.write_all(&[0; 512]),
        };
        let error = (0..).find_map(|number| more(number).err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }

    fn make_room(&self) {
        let _ = fs::remove_dir_all(self.path("fill"));
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path("lock").join(format!("LCK..{name}"))
    }

    fn table(&self) -> Table {
        table(self.root.path())
    }

    fn number(&self, who: Who) -> u32 {
        self.pids[who as usize]
    }

    /// Is killed and waited for.
    fn end(&mut self, who: Who) {
        match who {
            Who::Giver => drop(self.giver.take()),
            Who::Receiver => drop(self.receiver.take()),
            Who::Third => panic!("it stays"),
        }
    }

    /// Before anybody else comes.
    fn has_locked(&self, number: u32) {
        let answer = self.table().lock(&request(PORT, number));
        assert_eq!(answer.outcome(), Outcome::Done, "{answer:?}");
    }

    fn lock(&self, port: &str, number: u32) -> Outcome {
        let mut table = self.table();
        at_once(|backoff| table.attempt_lock(&request(port, number), None, backoff))
    }

    fn unlock(&self, port: &str, number: u32) -> Outcome {
        let mut table = self.table();
        at_once(|mut backoff| table.attempt_unlock(&request(port, number), &mut backoff))
    }

    fn pass(&self, from: u32, to: u32) -> Outcome {
        let mut table = self.table();
        at_once(|mut backoff| table.attempt_pass(&passing(from, to), None, &mut backoff))
    }

    /// The lock files, without what a killed process has left unnamed.
    fn locks(&self) -> Vec<String> {
        let mut names = listing(&self.path("lock"));
        names.retain(|name| name.starts_with("LCK.."));
        names
    }

    /// Links in the state directory.
    fn records(&self) -> Vec<String> {
        let mut names = listing(&self.path("state"));
        names.retain(|name| self.path("state").join(name).is_symlink());
        names
    }

    /// The numbers in the lock files.
    fn owners(&self) -> Vec<u32> {
        let number = |name: &String| {
            let text = fs::read_to_string(self.path("lock").join(name)).unwrap();
            text.trim().parse().unwrap_or_else(|_| panic!("{name}: {text:?}"))
        };
        self.locks().iter().map(number).collect()
    }

    /// Before the deed.
    fn prepare(&mut self, deed: Deed) -> Vec<Model> {
        let [giver, _, third] = self.pids;
        let with = |holder| vec![Model { holder, ended: Vec::new() }];
        match deed {
            Deed::Lock => with(None),
            Deed::Break => {
                for name in LINKS.iter().chain([&PORT]) {
                    fs::write(self.file(name), format!("{GONE:>10}\n")).unwrap();
                }
                with(None)
            }
            Deed::Unlock | Deed::UnlockHeld | Deed::Pass | Deed::Removal => {
                self.has_locked(giver);
                if deed == Deed::UnlockHeld {
                    let file = File::open(self.file(PORT)).unwrap();
                    self.flocked = Some(Flock::lock(file, FlockArg::LockExclusive).unwrap());
                }
                with(Some(Who::Giver))
            }
            Deed::PassAgain => {
                self.has_locked(third);
                let mut earlier = Stepped::start(self, "pass", &[third, giver]);
                // Its first steps change nothing.
                earlier.advance(60 + Lots(u64::from(giver)).index(120));
                earlier.end(Then::Kill);
                [with(Some(Who::Third)), with(Some(Who::Giver))].concat()
            }
            Deed::Clean | Deed::Daemon | Deed::UnlockEnded => {
                self.has_locked(giver);
                kill(giver);
                if deed != Deed::UnlockEnded {
                    self.end(Who::Giver);
                }
                vec![Model { holder: Some(Who::Giver), ended: vec![Who::Giver] }]
            }
        }
    }

    /// What the other process does, and its answers.
    fn come(&mut self, comer: Comer) -> Vec<Did> {
        let [giver, receiver, third] = self.pids;
        let begin = |machine: &Self| machine.table().keep_open(0);
        match comer {
            Comer::Nobody => return Vec::new(),
            Comer::LockT => return vec![Did::Lock(Who::Third, Some(self.lock(PORT, third)))],
            Comer::UnlockG => return vec![Did::Unlock(Who::Giver, Some(self.unlock(PORT, giver)))],
            Comer::UnlockR => {
                return vec![Did::Unlock(Who::Receiver, Some(self.unlock(PORT, receiver)))];
            }
            Comer::PassGT => {
                return vec![Did::Pass(Who::Giver, Who::Third, Some(self.pass(giver, third)))];
            }
            Comer::PassRT => {
                return vec![Did::Pass(
                    Who::Receiver,
                    Who::Third,
                    Some(self.pass(receiver, third)),
                )];
            }
            Comer::Clean => clean(&mut self.table()),
            Comer::Daemon => begin(self),
            Comer::EndG | Comer::EndR => {
                let who = if comer == Comer::EndG { Who::Giver } else { Who::Receiver };
                self.end(who);
                begin(self);
                return vec![Did::End(who), Did::Clear];
            }
            Comer::Removal => {
                let mut table = self.table();
                table.keep_open(16);
                self.end(Who::Giver);
                remove_locks_of_ended(&mut table);
                return vec![Did::Clear, Did::End(Who::Giver), Did::Clear];
            }
            Comer::Inside => return vec![Did::LockAndUnlock(self.answer_inside())],
            Comer::GateReplaced => drop(fs::remove_file(self.path("state/gate"))),
            Comer::StateReplaced => {
                fs::rename(self.path("state"), self.path("old")).unwrap();
                fs::create_dir(self.path("state")).unwrap();
            }
            Comer::RemoveFirst => drop(fs::remove_file(self.file(PORT))),
            Comer::RemoveLast => drop(fs::remove_file(self.file("scale"))),
            Comer::Overwrite => self.overwrite(third),
            Comer::TakeStale => {
                if !lives(pid(giver)) {
                    // Now such a program sees that it has ended.
                    self.end(Who::Giver);
                }
                let is_stale = self.owners_of(PORT).is_some_and(|holder| !lives(pid(holder)));
                if is_stale {
                    self.overwrite(third);
                }
                let said = if is_stale { Outcome::Done } else { Outcome::Busy };
                return vec![Did::Lock(Who::Third, Some(said))];
            }
            Comer::Rename => drop(fs::rename(self.file(PORT), self.file(OTHER_PORT))),
            Comer::Link => drop(fs::hard_link(self.file(PORT), self.path("lock/x"))),
            Comer::LinkOfOtherPort => {
                drop(fs::hard_link(self.file(PORT), self.file(OTHER_PORT)));
            }
            Comer::Exchange => self.exchange(third),
            Comer::NoInodes | Comer::NoBlocks => {
                self.fill(comer);
                return Vec::new();
            }
            Comer::MoveLink => {
                fs::remove_file(self.path("dev/gps")).unwrap();
                symlink(OTHER_PORT, self.path("dev/gps")).unwrap();
            }
        }
        vec![Did::Clear]
    }

    fn overwrite(&self, number: u32) {
        if let Ok(mut file) = fs::OpenOptions::new().write(true).open(self.file(PORT)) {
            file.write_all(format!("{number:>10}\n").as_bytes()).unwrap();
        }
    }

    /// As a program does that breaks a lock by an exchange.
    fn exchange(&self, number: u32) {
        let (own, file) = (self.path("lock/own"), self.file(PORT));
        fs::write(&own, format!("{number:>10}\n")).unwrap();
        let _ = renameat_with(CWD, &own, CWD, &file, RenameFlags::EXCHANGE);
        fs::remove_file(&own).unwrap();
    }

    /// The answer to a LOCK from another pid namespace.
    fn answer_inside(&self) -> Outcome {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(std::env::current_exe().unwrap()).arg("--inside").arg(self.root.path());
        let said = command.output().unwrap();
        outcome(&String::from_utf8_lossy(&said.stdout)).unwrap_or_else(|| panic!("{said:?}"))
    }
}

/// `lfp clean`.
fn clean(table: &mut Table) {
    for holder in table.holders(None, LIMIT).holders {
        let _ = table.remove_stale(&holder);
    }
    table.clean_records();
}

/// A daemon is told that processes have ended.
fn remove_locks_of_ended(table: &mut Table) {
    for ended in table.ended_holders(Instant::now()) {
        table.remove_locks_of_ended(ended);
    }
}

/// What the process does that is stopped, and its answer.
fn do_deed(root: &Path, deed: &str, pids: &[u32]) -> Outcome {
    let mut table = table(root);
    match deed {
        "lock" => table.lock(&request(PORT, pids[0])).outcome(),
        "unlock" => table.unlock(&request(PORT, pids[0])).outcome(),
        "pass" => table.pass(&passing(pids[0], pids[1])).outcome(),
        "clean" => {
            clean(&mut table);
            Outcome::Done
        }
        "removal" => {
            table.keep_open(16);
            kill(pids[0]);
            remove_locks_of_ended(&mut table);
            Outcome::Done
        }
        _ => {
            table.keep_open(16);
            Outcome::Done
        }
    }
}

/// Ends a process, if nobody else has done that, and leaves it to its parent to wait for it.
fn kill(number: u32) {
    let process = nix::unistd::Pid::from_raw(number.try_into().unwrap());
    let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL);
    let _ = until(LIMIT, || (!lives(pid(number))).then_some(()));
}

fn outcome(said: &str) -> Option<Outcome> {
    [Outcome::Done, Outcome::Busy, Outcome::Denied]
        .into_iter()
        .find(|outcome| said.lines().last() == Some(&format!("{outcome:?}")))
}

/// A process that does a deed, stopped before one of its system calls.
struct Stepped {
    child: Child,
    answers: BufReader<ChildStdout>,
    /// The calls that it has begun since it was let go.
    begun: usize,
    is_traced: bool,
}

impl Stepped {
    fn start(machine: &Machine, deed: &str, pids: &[u32]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--deed").arg(machine.root.path()).arg(deed);
        command.args(pids.iter().map(u32::to_string));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        answers.read_line(&mut ready).unwrap();
        let mut stepped = Self { child, answers, begun: 0, is_traced: true };
        let options = ptrace::Options::PTRACE_O_TRACESYSGOOD | ptrace::Options::PTRACE_O_EXITKILL;
        ptrace::seize(stepped.pid(), options).unwrap();
        ptrace::interrupt(stepped.pid()).unwrap();
        stepped.wait();
        // It reads this byte, and its deed begins.
        stepped.child.stdin.take().unwrap().write_all(b"!").unwrap();
        stepped
    }

    fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap())
    }

    fn wait(&self) -> WaitStatus {
        waitpid(self.pid(), Some(WaitPidFlag::__WALL)).unwrap()
    }

    /// Goes on to where a system call begins or ends; false if the process ends instead.
    fn next_stop(&mut self) -> bool {
        let mut signal = None;
        loop {
            ptrace::syscall(self.pid(), signal.take()).unwrap();
            match self.wait() {
                WaitStatus::PtraceSyscall(_) => return true,
                WaitStatus::Stopped(_, it) => signal = Some(it),
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => {
                    self.is_traced = false;
                    return false;
                }
                WaitStatus::PtraceEvent(..) | WaitStatus::Continued(_) | WaitStatus::StillAlive => {
                }
            }
        }
    }

    /// Goes on to where its deed is about to make call number `at`; false if the process ends instead.
    fn advance(&mut self, at: usize) -> bool {
        let reads = format!("{} 0x0 ", libc::SYS_read);
        while self.begun < at {
            if !self.next_stop() {
                return false;
            }
            let is_entered =
                ptrace::syscall_info(self.pid()).unwrap().op == libc::PTRACE_SYSCALL_INFO_ENTRY;
            let call = || fs::read_to_string(format!("/proc/{}/syscall", self.child.id())).unwrap();
            // It still reads its standard input.
            if is_entered && !call().starts_with(&reads) {
                self.begun += 1;
            }
        }
        true
    }

    /// Goes on to its end, or is killed: its answer.
    fn end(mut self, then: Then) -> Option<Outcome> {
        if self.is_traced {
            match then {
                Then::GoesOn => ptrace::detach(self.pid(), None).unwrap(),
                Then::Kill => self.child.kill().unwrap(),
            }
        }
        let mut said = String::new();
        self.answers.read_to_string(&mut said).unwrap();
        if self.is_traced {
            self.child.wait().unwrap();
        }
        outcome(&said)
    }
}

/// The words of a deed for the process that does it.
fn words_of(deed: Deed, machine: &Machine) -> (&'static str, Vec<u32>) {
    let [giver, receiver, _] = machine.pids;
    match deed {
        Deed::Lock | Deed::Break => ("lock", vec![giver]),
        Deed::Unlock | Deed::UnlockHeld | Deed::UnlockEnded => ("unlock", vec![giver]),
        Deed::Pass | Deed::PassAgain => ("pass", vec![giver, receiver]),
        Deed::Clean => ("clean", vec![]),
        Deed::Daemon => ("daemon", vec![]),
        Deed::Removal => ("removal", vec![giver]),
    }
}

fn what(deed: Deed, outcome: Option<Outcome>) -> Did {
    match deed {
        Deed::Lock | Deed::Break => Did::Lock(Who::Giver, outcome),
        Deed::Unlock | Deed::UnlockHeld | Deed::UnlockEnded => Did::Unlock(Who::Giver, outcome),
        Deed::Pass | Deed::PassAgain => Did::Pass(Who::Giver, Who::Receiver, outcome),
        Deed::Clean | Deed::Daemon | Deed::Removal => Did::Clear,
    }
}

/// Runs a case in a directory. What is wrong, if anything is; or whether the deed makes so many calls.
fn run(case: Case, directory: &Path) -> Result<bool, String> {
    let Case { deed, comer, when, then, at } = case;
    let mut machine = Machine::below(directory, comer.fills());
    let begins = machine.prepare(deed);
    let third = machine.number(Who::Third);
    if comer == Comer::MoveLink && machine.lock(OTHER_PORT, third) != Outcome::Done {
        return Err("the other port is not free".to_owned());
    }
    let (word, pids) = words_of(deed, &machine);
    let mut stepped = Stepped::start(&machine, word, &pids);
    let is_there = stepped.advance(at);
    let (mut others, said);
    if when == When::Meanwhile {
        others = machine.come(comer);
        said = stepped.end(then);
    } else {
        said = stepped.end(then);
        others = machine.come(comer);
    }
    if deed == Deed::Removal {
        // It has ended at its time, or not.
        others.insert(0, Did::End(Who::Giver));
        machine.end(Who::Giver);
    }
    if comer.fills() {
        machine.make_room();
        let is_unlock = matches!(deed, Deed::Unlock | Deed::UnlockHeld | Deed::UnlockEnded);
        if is_unlock && then == Then::GoesOn && said != Some(Outcome::Done) {
            return Err(format!("{said:?}: an UNLOCK needs no room"));
        }
    }
    machine.flocked = None;
    let _ = fs::remove_file(machine.path("lock/x"));
    let first = what(deed, said);
    let story = format!("{said:?}, then {others:?}");
    if comer == Comer::MoveLink && machine.owners_of(OTHER_PORT) != Some(third) {
        return Err(format!("{story}: the lock of the other port is gone"));
    }
    // The next daemon finishes what was begun.
    machine.table().keep_open(0);
    // Without the state directory, nobody knows any more what was half done.
    let is_half_done = then == Then::Kill || deed == Deed::PassAgain;
    let is_forgotten = comer == Comer::StateReplaced && is_half_done;
    if comer.keeps_no_rules() || is_forgotten {
        machine.release_all().map_err(|wrong| format!("{story}: {wrong}"))?;
        return Ok(is_there);
    }
    let is_whole = matches!(first, Did::Lock(_, Some(Outcome::Done)) | Did::Pass(..));
    let end = machine.end_of(is_whole).map_err(|wrong| format!("{story}: {wrong}"))?;
    if !begins.iter().any(|begin| begin.ends(Some(first), &others, end)) {
        return Err(format!("{story}: in the end it is {end:?}'s"));
    }
    Ok(is_there)
}

impl Machine {
    /// Whose number is in the first file of a port.
    fn owners_of(&self, port: &str) -> Option<u32> {
        fs::read_to_string(self.file(port)).ok()?.trim().parse().ok()
    }

    /// Who has the lock. Afterwards nothing is left.
    fn end_of(&mut self, is_whole: bool) -> Result<Option<Who>, String> {
        let (mut owners, locks) = (self.owners(), self.locks());
        let number = owners.len();
        owners.dedup();
        if self.owners_of(PORT) == Some(self.number(Who::Third)) {
            // A program that takes a stale lock by one name leaves the other names as they were.
            owners.retain(|owner| lives(pid(*owner)));
        }
        if owners.len() > 1 {
            return Err(format!("of several: {locks:?} {owners:?}"));
        }
        let whose = [Who::Giver, Who::Receiver, Who::Third]
            .into_iter()
            .find(|who| owners.first() == Some(&self.number(*who)));
        let stranger = self.stranger.pid();
        let lives = match whose {
            Some(Who::Giver) => self.giver.is_some(),
            Some(Who::Receiver) => self.receiver.is_some(),
            Some(Who::Third) => true,
            None => false,
        };
        let outcome = self.lock(PORT, stranger);
        let whose = whose.filter(|_| lives);
        let owner = match whose {
            Some(_) if outcome == Outcome::Done => {
                return Err("a living one's was broken".to_owned());
            }
            Some(_) if is_whole && number != NAMES => return Err(format!("not whole: {locks:?}")),
            Some(who) => self.number(who),
            None if outcome != Outcome::Done => {
                return Err(format!(
                    "{outcome:?}: nobody's, and not to be had: {locks:?} {owners:?}"
                ));
            }
            None if self.owners() != [stranger; NAMES] || self.records().is_empty() => {
                return Err(format!("taken, {:?} {:?}", self.locks(), self.records()));
            }
            None => stranger,
        };
        match self.unlock(PORT, owner) {
            Outcome::Done => self.is_empty().map(|()| whose),
            other @ (Outcome::Busy | Outcome::Denied) => {
                Err(format!("{other:?}: its holder cannot release it"))
            }
        }
    }

    /// Everybody releases both ports, and nothing is left.
    fn release_all(&self) -> Result<(), String> {
        let [giver, receiver, third] = self.pids;
        let mut said = Vec::new();
        // Twice: as long as a file has a name of the other port, its lock may be aside for a moment.
        for port in [PORT, OTHER_PORT, PORT] {
            for number in [giver, receiver, third] {
                said.push(self.unlock(port, number));
            }
        }
        self.is_empty().map_err(|left| format!("{left} after {said:?}"))
    }

    /// Nothing is left; when a minute has passed, neither are drafts and records of the killed.
    fn is_empty(&self) -> Result<(), String> {
        let locks = self.locks();
        let is_free = locks.is_empty();
        self.a_minute_passes();
        self.table().keep_open(0);
        let left = [locks, listing(&self.path("lock")), self.records()].concat();
        if is_free && left.is_empty() { Ok(()) } else { Err(format!("{left:?} are left")) }
    }

    /// What lies in the directories is older than a lock may take to be made.
    fn a_minute_passes(&self) {
        for directory in ["lock", "state"] {
            for name in listing(&self.path(directory)) {
                make_old(&self.path(directory).join(name)).unwrap();
            }
        }
    }
}

/// How many calls a deed makes, alone. It makes more while it waits for the kernel's list on a busy machine.
fn calls_of(deed: Deed) -> usize {
    let count = || {
        let mut machine = Machine::new();
        machine.prepare(deed);
        let (word, pids) = words_of(deed, &machine);
        let mut stepped = Stepped::start(&machine, word, &pids);
        assert!(!stepped.advance(usize::MAX), "it ends");
        let calls = stepped.begun;
        assert!(stepped.end(Then::GoesOn).is_some(), "{deed:?}");
        calls
    };
    let counts = [(); 3].map(|()| count());
    // After a PASS that was killed, sometimes nothing is to be passed.
    counts.into_iter().map(|it| if it > 1000 { 0 } else { it }).max().unwrap().max(100)
}

/// Makes a file system of each kind in a directory in memory, until the mount namespace of this process ends. Where mkfs(8)
/// or loop devices are missing, a kind is left out.
fn file_systems(place: &Path) -> Vec<PathBuf> {
    mount(Some("t"), place, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    let make = |(kind, make): &(&str, &str)| {
        let mount = match *kind {
            "overlay" => "mkdir lower upper work; \
                mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay overlay"
                .to_owned(),
            _ => format!(
                "truncate -s 512M {kind}.img; {make} {kind}.img; mount -o loop {kind}.img {kind}"
            ),
        };
        let mut command = Command::new("sh");
        command.args(["-ec", &format!("mkdir {kind}; {mount}")]).current_dir(place);
        let said = command.output().unwrap();
        match said.status.success() {
            true => Some(place.join(kind)),
            false => {
                println!("without {kind}: {}", String::from_utf8_lossy(&said.stderr).trim());
                None
            }
        }
    };
    KINDS.iter().filter_map(make).collect()
}

fn at_every_call_one_holder_and_nothing_left() {
    // Some cases have a file system of their own.
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    mount(none, "/", none, private, none).unwrap();
    let wanted = std::env::var("LFPD_STEPS").unwrap_or_default();
    let mut cases = Vec::new();
    for deed in DEEDS {
        let calls = calls_of(deed);
        println!("{deed:?}: {calls} calls");
        for comer in COMERS {
            for (when, then) in ORDERS {
                cases.extend((1..=calls).map(|at| Case { deed, comer, when, then, at }));
            }
        }
    }
    match wanted.as_str() {
        "all" => {}
        number if number.is_empty() || number.parse::<u64>().is_ok() => {
            let number = number.parse().unwrap_or(CASES);
            // The same ones each time.
            let mut lots = Lots(number);
            cases = (0..number).map(|_| cases[lots.index(cases.len())]).collect();
        }
        words => cases.retain(|case| case.words().starts_with(words)),
    }
    assert!(!cases.is_empty(), "no such case: {wanted}");
    let (begin, mut ran) = (Instant::now(), 0);
    let mut wrong = Vec::new();
    let place = tempfile::tempdir().unwrap();
    let mut places = vec![std::env::temp_dir()];
    if wanted.is_empty() {
        places.extend(file_systems(place.path()));
    }
    for (number, case) in cases.iter().enumerate() {
        let place = &places[number % places.len()];
        match run(*case, place) {
            Ok(is_there) => ran += usize::from(is_there),
            Err(why) => {
                println!("{} in {}: {why}", case.words(), place.display());
                wrong.push(case.words());
            }
        }
    }
    println!("{ran} of {} cases, {} wrong, {:?}", cases.len(), wrong.len(), begin.elapsed());
    // The directory in which they are cannot be removed before they are gone.
    umount2(place.path(), MntFlags::MNT_DETACH).unwrap_or_default();
    assert_eq!(wrong, [""; 0]);
    assert!(ran * 10 > cases.len() * 9, "too few");
}
