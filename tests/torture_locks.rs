//! Many processes take one port through every door at once, some are killed at any moment, and a
//! witness shows that there is one holder at any time; and a port that is held by `flock(2)` stays
//! busy while hundreds of locks of a stranger come and go.
//!
//! This program plays all parts; it has its own `main` so that it can start itself again. It runs
//! for seconds; `LFPD_TORTURE_SECS` and `LFPD_TORTURE_LOCKS` make it longer.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use pidlockfile::{Directory, Found, Name, Pid};
use testbed::until;
use ttylock::device::name::DeviceName;
use ttylock::device::os::by_name;
use ttylock::lock::record::READ_LIMIT;
use ttylock::lock::table::{Places, Table};
use ttylock::lock::who::Standing;
use ttylock::lock::{Outcome, Request};

const PORT: &str = "ttyS1";

/// The ways to a lock. Each has takers of its own.
const DOORS: [&str; 4] = ["session", "daemon", "wait", "directly"];

const TAKERS_OF_A_DOOR: usize = 2;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--taker", root, door, seed] => Taker::new(root, door, seed).play(),
        ["--list", ..] => println!("one_holder: test\na_flock_is_never_missed: test"),
        _ => {
            one_holder_at_any_time();
            a_flock_is_never_missed();
            println!("test result: ok. one_holder_at_any_time, a_flock_is_never_missed");
        }
    }
}

fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn places(root: &Path) -> Places {
    Places {
        system: by_name("linux").unwrap(),
        dev_dir: PathBuf::from("/dev"),
        lock_dir: root.join("lock"),
        search_dirs: vec![root.join("other")],
        state_dir: root.join("state"),
        udev_dir: root.join("udev"),
    }
}

fn request(pid: u32) -> Request {
    let device = DeviceName::parse(PORT.as_bytes()).unwrap();
    Request { device, pid: Pid::new(pid.into()).unwrap() }
}

fn lfpd(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lfpd"));
    command.arg("--lock-dir").arg(root.join("lock")).arg("--search-dir").arg(root.join("other"));
    command.arg("--state-dir").arg(root.join("state"));
    command
}

/// Numbers from a seed.
struct Lots(u64);

impl Lots {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

struct Taker {
    root: PathBuf,
    door: String,
    lots: Lots,
    table: Table,
}

/// What a service said, if it lived to say it.
type Said = Option<bool>;

impl Taker {
    fn new(root: &str, door: &str, seed: &str) -> Self {
        let root = PathBuf::from(root);
        let table = Table::new(places(&root));
        Self { root, door: door.to_owned(), lots: Lots(seed.parse().unwrap()), table }
    }

    fn play(&mut self) {
        while !self.root.join("stop").exists() {
            match self.take() {
                Some(true) => self.hold(),
                Some(false) => {}
                // Whether it has the lock is not known, so it lets go.
                None => {
                    let _ = self.let_go("session");
                }
            }
        }
    }

    fn hold(&mut self) {
        let witness = File::open(self.root.join("witness")).unwrap();
        let Ok(witness) = Flock::lock(witness, FlockArg::LockExclusiveNonblock) else {
            return self.tell("double");
        };
        self.tell("taken");
        if self.lots.below(20) == 0 {
            let _ = kill(nix::unistd::Pid::this(), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_micros(self.lots.below(2000)));
        drop(witness);
        let door = if self.lots.below(4) == 0 { "session".to_owned() } else { self.door.clone() };
        let mut said = self.let_go(&door);
        if said.is_none() {
            // It may have been done, and the answer lost.
            said = self.let_go("session").map(|_| true);
        }
        if said == Some(false) {
            self.tell("lost");
        }
    }

    /// One letter at the end of a file of its own is written whole or not at all.
    fn tell(&self, what: &str) {
        let path = self.root.join("told").join(what);
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(b".").unwrap();
    }

    fn take(&mut self) -> Said {
        let pid = std::process::id();
        match self.door.as_str() {
            "session" => self.in_session(&format!("LOCK {PORT} {pid}")),
            "daemon" => self.at_daemon(&format!("LOCK {PORT} {pid}")),
            "wait" => self.at_daemon(&format!("WAIT {PORT} {pid} 1")),
            _ => Some(self.table.lock(&request(pid)).outcome == Outcome::Done),
        }
    }

    fn let_go(&mut self, door: &str) -> Said {
        let pid = std::process::id();
        match door {
            "session" => self.in_session(&format!("UNLOCK {PORT} {pid}")),
            "daemon" | "wait" => self.at_daemon(&format!("UNLOCK {PORT} {pid}")),
            _ => Some(self.table.unlock(&request(pid)).outcome == Outcome::Done),
        }
    }

    fn in_session(&mut self, line: &str) -> Said {
        let mut child = lfpd(&self.root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let sent = writeln!(child.stdin.take().unwrap(), "{line}");
        if self.lots.below(20) == 0 {
            let _ = child.kill();
        }
        let mut said = String::new();
        let _ = child.stdout.take().unwrap().read_to_string(&mut said);
        child.wait().unwrap();
        sent.ok()?;
        said.lines().nth(1).map(|reply| reply.starts_with("200 "))
    }

    fn at_daemon(&self, line: &str) -> Said {
        let stream = UnixStream::connect(self.root.join("socket")).ok()?;
        writeln!(&stream, "{line}").ok()?;
        let mut lines = BufReader::new(&stream).lines();
        lines.next()?.ok()?;
        Some(lines.next()?.ok()?.starts_with("200 "))
    }
}

fn start_daemon(root: &Path) -> Child {
    let socket = root.join("socket");
    let mut command = lfpd(root);
    command.arg("--listen").arg(format!("unix:{}", socket.display()));
    let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let up = until(Duration::from_secs(60), || UnixStream::connect(&socket).ok());
    assert!(up.is_some(), "no daemon");
    child
}

/// What `lfp clean` does: the very file that was judged stale, and only by the rules.
fn clean(root: &Path) {
    for holder in Table::new(places(root)).all_holders() {
        let Some(file) = holder.scheme.file().filter(|_| holder.standing == Standing::Stale) else {
            continue;
        };
        let directory = Directory::open(file.parent().unwrap()).unwrap();
        let name = Name::new(file.file_name().unwrap().to_str().unwrap()).unwrap();
        if let Ok(Found::File(judged)) = directory.read(&name, READ_LIMIT) {
            if Some(judged.modified()) == holder.since {
                let _ = directory.try_release(&name, judged);
            }
        }
    }
}

fn one_holder_at_any_time() {
    let seconds = number("LFPD_TORTURE_SECS", 8);
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    for dir in ["lock", "other", "state", "told"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    File::create(root.join("witness")).unwrap();
    let mut seeds = 0_u64;
    let mut start = |door: &str| {
        seeds += 1;
        let root = root.to_str().unwrap();
        let own = std::env::current_exe().unwrap();
        Command::new(own).args(["--taker", root, door, &seeds.to_string()]).spawn().unwrap()
    };
    let mut daemon = start_daemon(root);
    let mut takers: Vec<(&str, Child)> = DOORS
        .iter()
        .flat_map(|door| [*door; TAKERS_OF_A_DOOR])
        .map(|door| (door, start(door)))
        .collect();
    let (mut lots, mut kills, mut cleans, mut restarts) = (Lots(7), 0, 0, 0);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let one = usize::try_from(lots.below(takers.len() as u64)).unwrap();
        if lots.below(4) == 0 {
            let _ = takers[one].1.kill();
        }
        if lots.below(40) == 0 {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
            daemon = start_daemon(root);
            restarts += 1;
        }
        for (door, taker) in &mut takers {
            if taker.try_wait().unwrap().is_some() {
                kills += 1;
                *taker = start(door);
            }
        }
        clean(root);
        cleans += 1;
        std::thread::sleep(Duration::from_millis(lots.below(20)));
    }
    File::create(root.join("stop")).unwrap();
    for (_, mut taker) in takers {
        taker.wait().unwrap();
    }
    let told: BTreeMap<String, u64> = fs::read_dir(root.join("told"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .collect();
    println!(
        "{told:?}, {kills} killed, {cleans} cleanings, {restarts} daemons killed, {seconds} s"
    );
    assert!(told.get("taken").is_some_and(|taken| *taken > 0), "nobody took it: {told:?}");
    assert_eq!((told.get("double"), told.get("lost")), (None, None), "{told:?}");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_nothing_is_left(root);
}

/// Everybody is gone: the port is free, and what is left besides are drafts of the killed.
fn assert_nothing_is_left(root: &Path) {
    let own = std::process::id();
    let mut table = Table::new(places(root));
    assert_eq!(table.lock(&request(own)).outcome, Outcome::Done);
    assert_eq!(table.unlock(&request(own)).outcome, Outcome::Done);
    drop(table);
    let left = |dir: &str| -> Vec<String> {
        let entries = fs::read_dir(root.join(dir)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let locks = left("lock");
    assert!(locks.iter().all(|name| name.ends_with(".tmp")), "{locks:?}");
    assert!(left("state").is_empty() && left("other").is_empty(), "{:?}", left("state"));
    println!("{} drafts of the killed", locks.len());
}

/// Locks of a stranger that come and go: each on a file of its own.
fn come_and_go(root: &Path, done: &AtomicBool) {
    const AT_ONCE: usize = 300;
    let mut held = Vec::new();
    let mut number = 0_usize;
    while !done.load(Ordering::Relaxed) {
        number = number.wrapping_add(1);
        let file = File::create(root.join(format!("stranger{}", number % (2 * AT_ONCE)))).unwrap();
        held.extend(Flock::lock(file, FlockArg::LockExclusiveNonblock).ok());
        if held.len() >= AT_ONCE {
            held.drain(..AT_ONCE * 2 / 3);
        }
    }
}

fn a_flock_is_never_missed() {
    let attempts = number("LFPD_TORTURE_LOCKS", 300);
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    for dir in ["lock", "other", "state", "dev"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    let node = File::create(root.join("dev").join(PORT)).unwrap();
    let holder = Flock::lock(node, FlockArg::LockExclusive).unwrap();
    let mut table = Table::new(Places { dev_dir: root.join("dev"), ..places(root) });
    let done = AtomicBool::new(false);
    let mut others = Command::new("sleep").arg("1000").spawn().unwrap();
    let free = std::thread::scope(|scope| {
        scope.spawn(|| come_and_go(root, &done));
        let free = (0..attempts)
            .filter(|_| table.lock(&request(others.id())).outcome != Outcome::Busy)
            .count();
        done.store(true, Ordering::Relaxed);
        free
    });
    others.kill().unwrap();
    others.wait().unwrap();
    drop(holder);
    println!("{attempts} LOCKs of a port held by flock, {free} of them 200");
    assert_eq!(free, 0);
}
