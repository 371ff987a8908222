//! Many processes take a few ports through every door at once, some are killed at any moment, and
//! a witness shows that each port has one holder at any time.
//!
//! The doors: `lfpd` as a session of its own and under a real inetd, a daemon, WAIT at a daemon, `lfp` with the service and
//! `lfp --direct`, the library `ttylock`, `lockdev`, programs with the preloaded library (one makes its lock file itself,
//! one opens the port), and programs that know nothing of us; and from a pid namespace with a boot_id of its own, as in a
//! container, three of them again, where numbers are given out again soon. Two more containers share less: one only the
//! lock directory, and has a daemon of its own; one only the state directory. The daemon and half of inetd's sessions
//! run as the service's user, the others as root. Some pass their lock to a child, which may be killed with it; some
//! locks are released by FORCE. The killed stay zombies: nobody waits for them while it matters. `lfp clean` runs all
//! the while, the daemon is killed now and then, a process is stopped inside the gate (LFPD_TORTURE_STOP), and processes
//! of a user without rights hold `flock(2)` on every lock file that they see.
//!
//! With LFPD_TORTURE_PROGRAMS=1, one port is also used by minicom, cu, mgetty and pppd. These break the lock of a dead process blindly
//! (SECURITY.md says so), so on that port nobody is killed with a lock.
//!
//! There are two witnesses: a `flock(2)`, and a file made with `O_EXCL` under a record
//! lock. The kernel ends both when their holder is killed; a file that is there without its lock is a killed holder's.
//! A holder outside the namespace also reads its number in the lock file.
//!
//! This program plays all parts; it has its own `main` so that it can start itself again. It makes
//! itself a machine of its own, with the usual directories, so it needs root. It runs for seconds.
//! 200,000 takes, with stops of a minute inside the gate, in an hour and ten minutes at the most; the lock directory may
//! be on another file system, as tests/kinds does it:
//!
//!     LFPD_TORTURE_SECS=3600 LFPD_TORTURE_TAKES=200000 LFPD_TORTURE_STOP=60 LFPD_TORTURE_DIR=/mnt/xfs \
//!         cargo test --release --test torture_locks -- --include-ignored --nocapture

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, Flock, FlockArg, OFlag, fcntl};
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{geteuid, setuid};
use pidlockfile::Pid;
use rustix::fs::FlockOperation;
use testbed::{
    Holder, LIMIT, Lots, comes, listing, make_old, peer, pseudo_terminal, run_tests, until,
};
use ttylock::{DeviceName, Layout, Outcome, Pass, Request, Table};

/// The contested ports. Of these, only the last one exists, so `flock(2)` on a node hardly matters.
const PORTS: u64 = 5;

/// The one that real programs use. It exists.
const WITH_PROGRAMS: u64 = 5;

/// The one that is also used from a container that shares the lock directory alone. Both sides use a daemon that is not
/// killed, because only its `flock(2)` shows the other side that a lock is no stale one.
const WITH_CONTAINER: u64 = 6;

/// Those of the processes in the other pid namespace. A program that knows nothing of us would take their locks for
/// stale, and a service in there its locks.
const PORTS_INSIDE: u64 = 3;

/// The one that exists.
const NODE: u64 = 4;

/// The ways to a lock. Each has takers of its own.
const DOORS: [&str; 21] = [
    "session",
    "inetd",
    "daemon",
    "daemon",
    "daemon",
    "wait",
    "wait",
    "lfp",
    "direct",
    "library",
    "lockdev",
    "file",
    "open",
    "foreign",
    "foreign",
    "calm-inetd",
    "calm-daemon",
    "calm-library",
    "calm-direct",
    "second",
    "second",
];

/// Who uses the port with programs is not killed with a lock.
const CALM: &str = "calm-";

/// Real programs that lock the port, and how they are started.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("minicom", &["-b", "9600", "-D"]),
    ("cu", &["-s", "9600", "-l"]),
    ("mgetty", &["-x", "9"]),
    ("pppd", &["lock", "local", "noauth", "nodetach", "logfd", "2", "connect", "sleep 600"]),
];

/// The doors of programs with the preloaded library, which have no right to the lock directory.
const PRELOADED: [&str; 2] = ["file", "open"];

/// Whose they are. The last number but this one stands for users of whom nothing is known.
const USER: u32 = 65_533;

/// The ways to a lock from another pid namespace. Who has taken a lock through a service inside
/// cannot give it back through one outside, which knows him by another number; so each uses one way.
const DOORS_INSIDE: [&str; 3] = ["session", "daemon", "wait"];

/// The same in the container that shares the lock directory alone, and in the one that shares the state directory alone.
const DOORS_APART: [&str; 2] = ["second", "second"];
const DOORS_WITH_STATE: [&str; 2] = ["session", "library"];

/// Between the change of a stale lock by a program that knows nothing of us, and its check that the lock is still its
/// own. UUCP waits for five seconds.
const FOREIGN_PAUSE: Duration = Duration::from_secs(1);

/// How long another process may have a lock file aside before it gives it back.
const ASIDE: Duration = Duration::from_secs(10);

/// Between two kills there are fewer takes than this, unless there is none at all for so long.
const TAKES_BETWEEN_KILLS: u64 = 20;
const WITHOUT_KILL: Duration = Duration::from_secs(2);

const SOCKET: &str = "/run/lfpd/lfpd.sock";

/// Of the daemon that is not killed; each container has its own.
const SECOND_SOCKET: &str = "/run/second/lfpd.sock";

/// Where inetd starts sessions, as the service's user and as root.
const INETD: [u16; 2] = [50001, 50002];

/// The service's user, `uucp`.
const SERVICE: u32 = 10;

/// Processes that hold lock files without a say in it, and their uid.
const FLOCKERS: u64 = 2;
const OUTSIDER: u32 = 65_534;

/// As many files does each hold at a time.
const FLOCKED: usize = 16;

/// So many of the killed takers of each pid namespace are not waited for before the end.
const ZOMBIES: usize = 64;

/// What the boot is called in the other pid namespace.
const OTHER_BOOT: &str = "01234567-89ab-4cde-8f01-23456789abcd\n";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The takers of the other pid namespace have seeds from here on.
const FIRST_INSIDE: u64 = 1 << 32;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--taker", root, door, seed] => Taker::new(root, door, seed).play(),
        ["--receiver", root, door, seed, port] => Taker::new(root, door, seed).receive(port),
        ["--flocker", root, seed] => {
            hold_every_lock_file(Path::new(root), Lots(seed.parse().unwrap()))
        }
        ["--programs", root, seed] => Taker::new(root, "calm-programs", seed).run_programs(),
        ["--stopper", root] => stop_in_the_gate(Path::new(root)),
        ["--inside", root, what] if std::process::id() == 1 => be_the_first(root, what),
        ["--inside", root, what] => {
            let (doors, ports): (&[&str], _) = match what {
                "lock" => (&DOORS_APART, WITH_CONTAINER..WITH_CONTAINER + 1),
                "state" => (&DOORS_WITH_STATE, 0..PORTS_INSIDE),
                _ => (&DOORS_INSIDE, 0..PORTS_INSIDE),
            };
            let daemon = (what == "lock").then(|| start_daemon(SECOND_SOCKET, 0));
            File::create(Path::new(root).join(format!("begun-{what}"))).unwrap();
            let zombies = keep_takers(Path::new(root), doors, FIRST_INSIDE, |lots| {
                if lots.below(8) == 0 {
                    // The next processes have numbers that others had a moment ago.
                    let _ = fs::write("/proc/sys/kernel/ns_last_pid", "2");
                }
            });
            // From here on, the lock directory is cleared as if nobody used it. In here, a lock of the outside looks dead
            // without a record or `flock(2)`.
            wait_for(&Path::new(root).join("over"));
            // Nobody else removes the records of the killed.
            let mut table = assert_all_is_free(ports);
            a_minute_passes(&format!("held.{}.", fs::metadata("/run/lock").unwrap().dev()));
            table.keep_open(0);
            table.clean_records();
            drop((zombies, daemon));
        }
        _ => {
            let tests: [(&str, fn()); 1] =
                [("one_holder_through_all_doors", one_holder_through_all_doors)];
            run_tests(&tests, Some("needs root: tests/run"));
        }
    }
}

fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// A machine of its own, as far as locks are concerned. Two ports are these terminals.
fn enter_own_machine(terminals: [&OwnedFd; 2]) {
    assert!(geteuid().is_root(), "torture_locks makes mount namespaces: run it as root");
    // Asked before: afterwards nobody may be left in the namespace in which they have a path.
    let terminals =
        terminals.map(|it| fs::read_link(format!("/proc/self/fd/{}", it.as_raw_fd())).unwrap());
    let below = std::env::var_os("LFPD_TORTURE_DIR");
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).unwrap();
    let script = "
        ip link set lo up
        mount --make-rprivate /
        mount -t tmpfs -o mode=755 none /run
        mount -t tmpfs none /var/log
        mkdir -m 755 /run/lock /run/lfpd /run/second /run/dev /run/dev/pts /var/log/mgetty
        if [ -n \"$3\" ]; then
            mkdir -p \"$3/lock\" \"$3/state\"
            mount --bind \"$3/lock\" /run/lock
            mount --bind \"$3/state\" /run/lfpd
        fi
        chown uucp: /run/lock /run/lfpd
        mount --rbind /dev/pts /run/dev/pts
        ln -s pts/ptmx /run/dev/ptmx
        for node in null zero full random urandom tty; do
            : >/run/dev/$node
            mount --bind /dev/$node /run/dev/$node
        done
        # Enough of it for pppd to come as far as its lock.
        : >/run/dev/ppp
        mount --bind /dev/null /run/dev/ppp
        : >/run/dev/ttyTorture4 >/run/dev/ttyTorture5
        mount --bind $1 /run/dev/ttyTorture4
        mount --bind $2 /run/dev/ttyTorture5
        chmod 666 /run/dev/ttyTorture4 /run/dev/ttyTorture5
        # Its lock has several names.
        ln -s ttyTorture4 /run/dev/radio
        ln -s ttyTorture4 /run/dev/scale
        mount --rbind /run/dev /dev";
    let mut shell = Command::new("sh");
    shell.args(["-ec", script, "sh"]).args(terminals).arg(below.unwrap_or_default());
    let status = shell.status().unwrap();
    assert!(status.success());
}

fn port_of(number: u64) -> String {
    format!("ttyTorture{number}")
}

fn lock_file(port: &str) -> PathBuf {
    PathBuf::from(format!("/run/lock/LCK..{port}"))
}

/// The records of locks that have this name.
fn records_with(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/run/lfpd").into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    texts.filter(|text| text.to_string_lossy().contains(name)).collect()
}

/// The process that a lock file names, by its number here.
fn named(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn request(port: &str, pid: u32) -> Request {
    let device = DeviceName::parse(port.as_bytes()).unwrap();
    Request { device, pid: Pid::new(pid.into()).unwrap() }
}

/// A program under test.
fn program(root: &Path, name: &str) -> Command {
    Command::new(fs::read_to_string(root.join(name)).unwrap())
}

struct Taker {
    root: PathBuf,
    door: String,
    lots: Lots,
    table: Table,
    connection: Option<BufReader<UnixStream>>,
    /// Others must not be left with the lock of a dead process.
    is_calm: bool,
    /// The port, if it is locked by being open.
    opened: Option<File>,
    port: String,
    is_inside: bool,
    /// Those who have got a lock of ours, or were killed before it. They are not waited for as long as
    /// we live.
    children: Vec<Child>,
}

fn exclusive(root: &Path, port: &str) -> PathBuf {
    root.join(format!("exclusive-{port}"))
}

/// What only one holder of a port can have at a time.
struct Witnesses {
    _flock: Flock<File>,
    exclusive: PathBuf,
    /// With a record lock as long as it is open.
    _record: File,
}

impl Witnesses {
    /// None while a living process has them.
    fn of(root: &Path, port: &str) -> Option<Self> {
        let exclusive = exclusive(root, port);
        let flock = || {
            let file = File::create(root.join(format!("witness-{port}"))).unwrap();
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(flock) => Some(Some(flock)),
                // A killed one's child has it until it is a program of its own. Nobody inherits a record lock.
                Err(_) if is_of_the_living(&exclusive) => Some(None),
                Err(_) => None,
            }
        };
        let flock = until(Duration::from_secs(60), flock)??;
        for _ in 0..2 {
            let mut how = OpenOptions::new();
            how.write(true);
            let made = how.clone().create_new(true).open(&exclusive);
            if let Ok(record) = made {
                rustix::fs::fcntl_lock(&record, FlockOperation::NonBlockingLockExclusive).ok()?;
                return Some(Self { _flock: flock, exclusive, _record: record });
            }
            // A killed one's has no lock any more.
            let there = how.open(&exclusive).ok()?;
            rustix::fs::fcntl_lock(&there, FlockOperation::NonBlockingLockExclusive).ok()?;
            fs::remove_file(&exclusive).unwrap();
        }
        None
    }
}

/// Whether somebody has a record lock on the file. It is not taken for a moment, either.
fn is_of_the_living(exclusive: &Path) -> bool {
    let Ok(there) = OpenOptions::new().write(true).open(exclusive) else { return false };
    let [l_type, l_whence] = [libc::F_WRLCK, libc::SEEK_SET].map(|it| it.try_into().unwrap());
    let mut lock = libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(&there, FcntlArg::F_GETLK(&mut lock)).unwrap();
    i32::from(lock.l_type) != libc::F_UNLCK
}

impl Drop for Witnesses {
    fn drop(&mut self) {
        fs::remove_file(&self.exclusive).unwrap();
    }
}

/// Tries every file in the lock directory, and keeps what it gets for a while.
fn hold_every_lock_file(root: &Path, mut lots: Lots) {
    setuid(OUTSIDER.into()).unwrap();
    let mut held = Vec::new();
    while !root.join("stop").exists() {
        for entry in fs::read_dir("/run/lock").unwrap().flatten() {
            let Ok(file) = File::open(entry.path()) else { continue };
            held.extend(Flock::lock(file, FlockArg::LockExclusiveNonblock).ok());
        }
        if held.len() >= FLOCKED {
            held.drain(..FLOCKED / 2);
        }
        std::thread::sleep(Duration::from_micros(lots.below(2000)));
    }
    println!("an outsider ends with {} files held", held.len());
}

/// What a service said, if it lived to say it.
type Said = Option<bool>;

impl Taker {
    fn new(root: &str, door: &str, seed: &str) -> Self {
        let root = PathBuf::from(root);
        let seed: u64 = seed.parse().unwrap();
        // All make witnesses, and not all are root's.
        umask(Mode::empty());
        let table = Table::new(Layout::native());
        let (connection, opened, port) = (None, None, String::new());
        let (is_calm, door) = (door.starts_with(CALM), door.trim_start_matches(CALM).to_owned());
        Self {
            root,
            door,
            lots: Lots(seed),
            table,
            connection,
            is_calm,
            opened,
            port,
            is_inside: seed >= FIRST_INSIDE,
            children: Vec::new(),
        }
    }

    fn play(&mut self) {
        if self.is_preloaded() {
            setuid(USER.into()).unwrap();
        }
        while !self.root.join("stop").exists() {
            self.port = port_of(match self.door.as_str() {
                _ if self.is_calm => WITH_PROGRAMS,
                "second" => WITH_CONTAINER,
                "lockdev" | "file" | "open" => NODE,
                "foreign" => PORTS_INSIDE + self.lots.below(PORTS - PORTS_INSIDE),
                _ if self.is_inside => self.lots.below(PORTS_INSIDE),
                _ => self.lots.below(PORTS),
            });
            match self.take() {
                Some(true) => {
                    self.hold();
                    if self.door == "foreign" {
                        // It is faster than all others.
                        std::thread::sleep(Duration::from_millis(self.lots.below(500)));
                    }
                }
                // A client that asks again and again takes the time of the holders.
                Some(false) => std::thread::sleep(Duration::from_micros(self.lots.below(2000))),
                // Whether it has the lock is not known, so it lets go.
                None => {
                    let _ = self.let_go(&self.other_door());
                }
            }
            // On a busy machine, a door that is slow comes to nothing beside the others.
            if self.root.join("late").exists() && times(&self.root, &taken_by(&self.door)) > 0 {
                std::thread::sleep(Duration::from_millis(self.lots.below(1000)));
            }
        }
        for child in &mut self.children {
            child.wait().unwrap();
        }
    }

    fn is_preloaded(&self) -> bool {
        PRELOADED.contains(&self.door.as_str())
    }

    /// One that answers. The preloaded library releases by itself what it has taken.
    fn other_door(&self) -> String {
        let is_alone = self.is_inside || self.is_preloaded() || self.door == "second";
        if is_alone { self.door.clone() } else { "session".to_owned() }
    }

    fn hold(&mut self) {
        let Some(witnesses) = Witnesses::of(&self.root, &self.port) else {
            return self.complain("double", &self.door);
        };
        self.tell("taken");
        if self.lots.below(50) == 0 && !self.is_calm {
            let _ = kill(nix::unistd::Pid::this(), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_micros(self.lots.below(300)));
        if !self.is_inside && !self.is_named() {
            return self.complain("lost", &self.door);
        }
        // A service that is killed may have passed it to a child that is killed, too.
        let passes = !self.is_preloaded() && (!self.is_calm || self.door == "library");
        if passes && self.lots.below(10) == 0 {
            return self.pass_on(witnesses);
        }
        drop(witnesses);
        self.give_up();
    }

    /// Whether the lock file has our number. It does not for a moment, while another process has it aside.
    fn is_named(&self) -> bool {
        until(aside(), || self.is_named_now().then_some(())).is_some()
    }

    fn is_named_now(&self) -> bool {
        // The library shows a program no lock of its own; it leaves a path alone that climbs.
        let file = Path::new("/run/lock/../lock").join(format!("LCK..{}", self.port));
        named(&file) == Some(std::process::id())
    }

    fn complain(&self, what: &str, door: &str) {
        let name = format!("LCK..{}", self.port);
        let complaint = format!(
            "{what}: {name} inside {} pid {} via {door}: file {:?} record {:?}\n",
            self.is_inside,
            std::process::id(),
            fs::read_to_string(format!("/run/lock/../lock/{name}")),
            records_with(&name),
        );
        // Standard error of some is nobody's.
        let mut how = OpenOptions::new();
        let mut file = how.append(true).create(true).open(self.root.join("complaints")).unwrap();
        file.write_all(complaint.as_bytes()).unwrap();
        self.tell(what);
    }

    fn give_up(&mut self) {
        let door = match self.lots.below(50) {
            0 => self.other_door(),
            1 if !self.is_inside && !self.is_preloaded() && self.door != "second" => {
                "force".to_owned()
            }
            _ => self.door.clone(),
        };
        let mut said = self.let_go(&door);
        let begin = Instant::now();
        // A lock that the service outside has taken for a process inside has its number there.
        let may_be_ours = |taker: &Self| taker.is_inside || taker.is_named_now();
        while said == Some(false) && begin.elapsed() < refused() && may_be_ours(self) {
            std::thread::sleep(Duration::from_micros(self.lots.below(20_000)));
            said = self.let_go(&door);
        }
        if said.is_none() {
            // It may have been done, and the answer lost.
            said = self.let_go(&self.other_door()).map(|_| true);
        }
        if said == Some(false) {
            // One that still stands was not lost: its UNLOCK was refused for all that time.
            let what = if self.is_named_now() { "not released" } else { "lost" };
            self.complain(what, &door);
        }
    }

    /// A child gets the lock, unless that fails; whether it did is not known when the service was killed.
    fn pass_on(&mut self, witnesses: Witnesses) {
        let seed = if self.is_inside { FIRST_INSIDE } else { 0 } + self.lots.below(1 << 30);
        let calm = if self.is_calm { CALM } else { "" };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("--receiver")
            .arg(&self.root)
            .args([&format!("{calm}{}", self.door), &seed.to_string(), &self.port])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // The moment at which both have it is the child's: it is told when ours are gone.
        let (pid, port) = (std::process::id(), self.port.clone());
        let said = match self.door.as_str() {
            "session" => self.in_session(&format!("PASS {port} {pid} {}", child.id())),
            "inetd" => self.at_inetd(&format!("PASS {port} {pid} {}", child.id())),
            "daemon" | "wait" | "second" => {
                self.at_daemon(&format!("PASS {port} {pid} {}", child.id()))
            }
            _ => {
                let Request { device, pid: from } = request(&port, pid);
                let to = Pid::new(child.id().into()).unwrap();
                Some(self.table.pass(&Pass { device, from, to }).outcome() == Outcome::Done)
            }
        };
        drop(witnesses);
        match said {
            Some(true) => {
                self.tell("passed");
                let _ = child.stdin.take().unwrap().write_all(b"it is yours\n");
                self.children.push(child);
            }
            Some(false) => {
                drop(child.stdin.take());
                let _ = child.wait();
                self.give_up();
            }
            None => {
                let _ = child.kill();
                self.children.push(child);
                let _ = self.let_go(&self.other_door());
            }
        }
    }

    /// The child's part.
    fn receive(&mut self, port: &str) {
        self.port = port.to_owned();
        let mut word = String::new();
        if std::io::stdin().read_line(&mut word).unwrap_or_default() == 0 {
            return;
        }
        self.hold();
    }

    /// One letter at the end of a file of its own is written whole or not at all.
    fn tell(&self, what: &str) {
        for what in [what.to_owned(), format!("{what} by {}", self.door)] {
            let path = self.root.join("told").join(what);
            let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
            file.write_all(b".").unwrap();
        }
        if self.is_inside && what == "taken" {
            self.tell("taken inside");
        }
    }

    fn take(&mut self) -> Said {
        let (pid, port) = (std::process::id(), self.port.clone());
        match self.door.as_str() {
            "session" => self.in_session(&format!("LOCK {port} {pid}")),
            "inetd" => self.at_inetd(&format!("LOCK {port} {pid}")),
            "daemon" | "second" => self.at_daemon(&format!("LOCK {port} {pid}")),
            "wait" => self.at_daemon(&format!("WAIT {port} {pid} 1")),
            "lfp" => self.by_lfp(&["--server", SOCKET, "lock"]),
            "direct" => self.by_lfp(&["--direct", "lock"]),
            "lockdev" => self.by_lockdev("-l"),
            "file" => self.make_file(),
            "open" => self.open_port(),
            "foreign" => Some(foreign::take(&self.port)),
            _ => Some(self.table.lock(&request(&port, pid)).outcome() == Outcome::Done),
        }
    }

    fn let_go(&mut self, door: &str) -> Said {
        let (pid, port) = (std::process::id(), self.port.clone());
        match door {
            "session" => self.in_session(&format!("UNLOCK {port} {pid}")),
            "inetd" => self.at_inetd(&format!("UNLOCK {port} {pid}")),
            "daemon" | "wait" | "second" => self.at_daemon(&format!("UNLOCK {port} {pid}")),
            "lfp" => self.by_lfp(&["--server", SOCKET, "unlock"]),
            "direct" => self.by_lfp(&["--direct", "unlock"]),
            "lockdev" => self.by_lockdev("-u"),
            "file" => Some(fs::remove_file(lock_file(&port)).is_ok()),
            "open" => Some(self.opened.take().is_some()),
            "foreign" => Some(foreign::release(&port)),
            "force" => self.at_daemon(&format!("FORCE {port} {pid}")),
            _ => Some(self.table.unlock(&request(&port, pid)).outcome() == Outcome::Done),
        }
    }

    /// As minicom does: the library asks the service, because this user may not write there.
    fn make_file(&self) -> Said {
        let file = lock_file(&self.port);
        let made = OpenOptions::new().write(true).create_new(true).open(&file);
        if made.is_err() {
            // The lock of a dead process goes when a program looks at it.
            let _ = fs::metadata(&file);
        }
        Some(made.is_ok())
    }

    /// As a program does that knows no locks.
    fn open_port(&mut self) -> Said {
        let flags = OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(flags.bits());
        self.opened = how.open(Path::new("/dev").join(&self.port)).ok();
        Some(self.opened.is_some())
    }

    fn in_session(&mut self, line: &str) -> Said {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lfpd"))
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

    fn at_inetd(&mut self, line: &str) -> Said {
        let mut stream = TcpStream::connect(("127.0.0.1", INETD[self.lots.index(2)])).ok()?;
        writeln!(stream, "{line}").ok()?;
        let mut lines = BufReader::new(stream).lines();
        let said = lines.nth(1)?.ok()?;
        Some(said.starts_with("200 "))
    }

    /// One of them at a time. It is killed only now and then, and then its lock is cleared at once.
    fn run_programs(&mut self) {
        self.port = port_of(WITH_PROGRAMS);
        while !self.root.join("stop").exists() {
            let (name, words) = PROGRAMS[self.lots.index(PROGRAMS.len())];
            let terminal = pseudo_terminal();
            let stream = || Stdio::from(terminal.slave.try_clone().unwrap());
            let mut command = Command::new(name);
            let device = format!("/dev/{}", self.port);
            // pppd's comes first.
            match name {
                "pppd" => command.arg(device).args(words),
                _ => command.args(words).arg(device),
            };
            command.env("TERM", "vt100").stdin(stream()).stdout(stream()).stderr(stream());
            let mut program = command.spawn().unwrap();
            self.door = name.to_owned();
            self.watch_program(&mut program);
            let _ = program.kill();
            let _ = program.wait();
            // The lock of one that was killed. Nobody else has its number.
            let dead = request(&self.port, program.id());
            let mut answer = None;
            let released = || {
                if named(&lock_file(&self.port)) != Some(program.id()) {
                    return Some(());
                }
                answer = Some(self.table.unlock(&dead));
                answer.iter().any(|it| it.outcome() == Outcome::Done).then_some(())
            };
            let is_released = until(refused(), released).is_some();
            assert!(is_released, "the lock of {name} stays: {answer:?}");
        }
    }

    /// While it has the lock, nobody else does.
    fn watch_program(&mut self, program: &mut Child) {
        let file = lock_file(&self.port);
        let has_lock = || named(&file) == Some(program.id());
        let locked = until(Duration::from_secs(4), || {
            let has_lock = has_lock();
            (has_lock || has_ended(program)).then_some(has_lock)
        });
        if locked == Some(true) && !has_ended(program) {
            // It does not release its lock while it is watched.
            send(program.id(), Signal::SIGSTOP);
        }
        let is_stopped = || (has_ended(program) || is_stopped(program)).then_some(());
        if locked != Some(true) || until(aside(), is_stopped).is_none() || !has_lock() {
            return self.tell("kept out");
        }
        let Some(witnesses) = Witnesses::of(&self.root, &self.port) else {
            return self.complain("double", &self.door);
        };
        self.tell("taken");
        std::thread::sleep(Duration::from_micros(self.lots.below(20_000)));
        if until(aside(), || has_lock().then_some(())).is_none() {
            return self.complain("lost", &self.door);
        }
        drop(witnesses);
        if self.lots.below(4) > 0 {
            send(program.id(), Signal::SIGCONT);
            send(program.id(), Signal::SIGTERM);
            let _ = until(Duration::from_secs(4), || has_ended(program).then_some(()));
        }
    }

    fn by_lfp(&mut self, words: &[&str]) -> Said {
        let mut command = program(&self.root, "lfp");
        command.args(words).args([&self.port, "--pid", &std::process::id().to_string()]);
        self.by(&mut command)
    }

    fn by_lockdev(&mut self, what: &str) -> Said {
        let mut command = program(&self.root, "lockdev");
        self.by(command.args([what, &self.port]))
    }

    /// The answer of a program that may be killed meanwhile.
    fn by(&mut self, command: &mut Command) -> Said {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        if self.lots.below(20) == 0 {
            let _ = child.kill();
        }
        match child.wait().unwrap().code() {
            Some(0) => Some(true),
            Some(1) => Some(false),
            // It was killed, or the service was.
            _ => None,
        }
    }

    fn at_daemon(&mut self, line: &str) -> Said {
        let said = self.asked(line);
        if said.is_none() {
            self.connection = None;
        }
        said
    }

    fn asked(&mut self, line: &str) -> Said {
        if self.connection.is_none() {
            let socket = if self.door == "second" { SECOND_SOCKET } else { SOCKET };
            let stream = UnixStream::connect(socket).ok()?;
            let mut reader = BufReader::new(stream);
            next_line(&mut reader)?;
            self.connection = Some(reader);
        }
        let reader = self.connection.as_mut()?;
        writeln!(reader.get_mut(), "{line}").ok()?;
        Some(next_line(reader)?.starts_with("200 "))
    }
}

fn next_line(reader: &mut BufReader<UnixStream>) -> Option<String> {
    let mut line = String::new();
    (reader.read_line(&mut line).ok()? > 0).then_some(line)
}

/// A program that knows nothing of us, as UUCP is one.
mod foreign {
    use std::fs::{self, OpenOptions};
    use std::io::ErrorKind;
    use std::os::unix::fs::FileExt;

    use nix::sys::signal::kill;
    use nix::unistd::Pid;

    use super::{FOREIGN_PAUSE, lock_file, named};

    /// Links a complete file to the name. Writes its number into the lock of a process that is gone, and checks a while
    /// later whether it is still there: so do all others that found the same.
    pub(crate) fn take(port: &str) -> bool {
        let (own, file) = (std::process::id(), lock_file(port));
        let temporary = format!("/run/lock/LTMP.{own}");
        let content = format!("{own:>10}\n");
        fs::write(&temporary, &content).unwrap();
        let linked = fs::hard_link(&temporary, &file);
        fs::remove_file(&temporary).unwrap();
        match linked {
            Ok(()) => return true,
            Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists),
        }
        let Ok(stale) = OpenOptions::new().write(true).open(&file) else { return false };
        match named(&file) {
            Some(holder) if holder == own => return true,
            Some(holder) if is_gone(holder) => stale.write_all_at(content.as_bytes(), 0).unwrap(),
            _ => return false,
        }
        drop(stale);
        std::thread::sleep(FOREIGN_PAUSE);
        named(&file) == Some(own)
    }

    fn is_gone(holder: u32) -> bool {
        kill(Pid::from_raw(holder.try_into().unwrap()), None).is_err()
    }

    pub(crate) fn release(port: &str) -> bool {
        let file = lock_file(port);
        named(&file) == Some(std::process::id()) && fs::remove_file(file).is_ok()
    }
}

/// Another part of this program says so by this file.
fn wait_for(file: &Path) {
    assert!(
        until(10 * LIMIT, || file.exists().then_some(())).is_some(),
        "never: {}",
        file.display()
    );
}

/// It has looked at all locks when it greets.
fn start_daemon(socket: &str, user: u32) -> Holder {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lfpd"));
    command.arg("--listen").arg(format!("unix:{socket}")).uid(user).gid(user);
    let daemon = Holder::of(command.stderr(Stdio::null()));
    let greeting = || next_line(&mut BufReader::new(UnixStream::connect(socket).ok()?));
    assert!(until(Duration::from_secs(60), greeting).is_some(), "no daemon");
    daemon
}

fn start_inetd(root: &Path) -> Holder {
    let lfpd = env!("CARGO_BIN_EXE_lfpd");
    let line = |(port, user): (u16, &str)| {
        format!("127.0.0.1:{port} stream tcp nowait.1000000 {user} {lfpd} lfpd\n")
    };
    let configuration = root.join("inetd.conf");
    fs::write(
        &configuration,
        INETD.into_iter().zip(["uucp", "root"]).map(line).collect::<String>(),
    )
    .unwrap();
    let mut command = Command::new(peer("openbsd-inetd", "usr/sbin/inetd"));
    command.args(["-i", "-R", "1000000"]).arg(configuration);
    let inetd = Holder::of(command.stderr(Stdio::null()));
    let up = until(Duration::from_secs(60), || TcpStream::connect(("127.0.0.1", INETD[1])).ok());
    assert!(up.is_some(), "no inetd");
    inetd
}

/// How long another process may have a lock file aside, or keep it from being released.
fn aside() -> Duration {
    ASIDE + Duration::from_secs(number("LFPD_TORTURE_STOP", 0))
}

/// How long an UNLOCK may be refused. While a process stands still in the gate, nothing is released, and on a busy machine
/// an UNLOCK may find the gate occupied for seconds, several times.
fn refused() -> Duration {
    6 * aside()
}

/// Stops a process that is in the gate, and lets it go on later: nobody goes past it meanwhile.
fn stop_in_the_gate(root: &Path) {
    let pause = Duration::from_secs(number("LFPD_TORTURE_STOP", 0));
    let mut lots = Lots(7);
    while !pause.is_zero() && !root.join("stop").exists() {
        let waits = Duration::from_millis(lots.below(20));
        if let Some(pid) = occupant() {
            send(pid, Signal::SIGSTOP);
            if occupant() == Some(pid) {
                let mut how = OpenOptions::new();
                let path = root.join("told/stopped in the gate");
                how.append(true).create(true).open(path).unwrap().write_all(b".").unwrap();
                let _ = until(pause, || root.join("stop").exists().then_some(()));
                send(pid, Signal::SIGCONT);
                // Others need more time than this takes from them.
                let _ = until(4 * pause, || root.join("stop").exists().then_some(()));
            }
            send(pid, Signal::SIGCONT);
        }
        std::thread::sleep(waits);
    }
}

/// To a process that may have ended.
fn send(pid: u32, signal: Signal) {
    let _ = kill(nix::unistd::Pid::from_raw(pid.try_into().unwrap()), signal);
}

/// The process of this machine that is in the gate. Its number there may be one of another pid namespace: then another
/// machine has it, or nobody.
fn occupant() -> Option<u32> {
    let gate = OpenOptions::new().read(true).write(true).open("/run/lfpd/gate").ok()?;
    let mut text = String::new();
    (&gate).read_to_string(&mut text).ok()?;
    let pid: u32 = text.split(' ').next()?.parse().ok()?;
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let is_here = of(&pid.to_string())? == of("self")?;
    let is_inside = Flock::lock(gate, FlockArg::LockExclusiveNonblock).is_err();
    (is_here && is_inside).then_some(pid)
}

/// The killed who are not waited for, as long as this is kept.
#[must_use]
struct Zombies(Vec<Child>);

impl Drop for Zombies {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.wait()));
    }
}

/// Whether it has ended. It stays a zombie.
fn has_ended(child: &Child) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    waitid(Id::Pid(pid), flags).unwrap() != WaitStatus::StillAlive
}

/// Whether it has been stopped by a signal.
fn is_stopped(child: &Child) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Starts takers, kills some, and starts others for those that have ended, until it is over. The first
/// who were killed are not waited for: a port that one of them keeps is not free in the end.
fn keep_takers(
    root: &Path,
    doors: &[&'static str],
    seed: u64,
    mut besides: impl FnMut(&mut Lots),
) -> Zombies {
    let own = std::env::current_exe().unwrap();
    let (mut seeds, mut lots, mut killed) = (seed, Lots(seed), 0);
    // On a busy machine, takers that are killed all the time never come to anything. Nobody is killed by us any more when
    // it is late.
    let (mut next_kill, mut last_kill) = (0, Instant::now());
    let mut start = |door: &str| {
        seeds += 1;
        let mut command = Command::new(&own);
        if PRELOADED.contains(&door) {
            command.env("LD_PRELOAD", fs::read_to_string(root.join("library")).unwrap());
            command.env("LFP_PORTS", format!("must:/dev/{}", port_of(NODE)));
            // The library says so when it has no service to ask.
            command.stderr(Stdio::null());
        }
        command.arg("--taker").arg(root).args([door, &seeds.to_string()]).spawn().unwrap()
    };
    let mut takers: Vec<(&str, Child)> = doors.iter().map(|door| (*door, start(door))).collect();
    let mut zombies = Zombies(Vec::new());
    while !root.join("stop").exists() {
        let mut one = lots.index(takers.len());
        while takers[one].0.starts_with(CALM) {
            one = lots.index(takers.len());
        }
        let taken = times(root, "taken");
        let is_time = taken >= next_kill || last_kill.elapsed() >= WITHOUT_KILL;
        if is_time && !root.join("late").exists() {
            let _ = takers[one].1.kill();
            (next_kill, last_kill) = (taken + lots.below(TAKES_BETWEEN_KILLS), Instant::now());
        }
        for (door, taker) in &mut takers {
            if has_ended(taker) {
                killed += 1;
                let mut dead = std::mem::replace(taker, start(door));
                if zombies.0.len() < ZOMBIES {
                    zombies.0.push(dead);
                } else {
                    dead.wait().unwrap();
                }
            }
        }
        besides(&mut lots);
        std::thread::sleep(Duration::from_millis(lots.below(40)));
    }
    for (_, mut taker) in takers {
        taker.wait().unwrap();
    }
    println!("{killed} takers killed (of {doors:?}), {} zombies", zombies.0.len());
    zombies
}

/// The first process of a pid namespace gets those whose parents were killed. Its boot has a name of its
/// own, as nspawn and LXC do it.
#[expect(clippy::zombie_processes, reason = "it waits for everybody")]
fn be_the_first(root: &str, what: &str) {
    let (own, none) = (Path::new(root).join("boot_id"), None::<&str>);
    fs::write(&own, OTHER_BOOT).unwrap();
    mount(Some(&own), BOOT_ID, none, MsFlags::MS_BIND, none).unwrap();
    assert_eq!(fs::read_to_string(BOOT_ID).unwrap(), OTHER_BOOT);
    let own = std::env::current_exe().unwrap();
    let inside = Command::new(own).args(["--inside", root, what]).spawn().unwrap();
    let inside = nix::unistd::Pid::from_raw(inside.id().try_into().unwrap());
    loop {
        let status = nix::sys::wait::wait().unwrap();
        if status.pid() == Some(inside) {
            std::process::exit(i32::from(status != WaitStatus::Exited(inside, 0)));
        }
    }
}

/// Checks that each port can be locked. Only in its own pid namespace is a killed holder known to be dead.
fn assert_all_is_free(ports: impl IntoIterator<Item = u64>) -> Table {
    let mut table = Table::new(Layout::native());
    for port in ports {
        let request = request(&port_of(port), std::process::id());
        // The receiver of a lock from a killed process may not have ended yet, and others are in the gate.
        let free = || (table.lock(&request).outcome() == Outcome::Done).then_some(());
        assert_eq!(until(Duration::from_secs(60), free), Some(()), "{request:?} stays taken");
        let released = || (table.unlock(&request).outcome() == Outcome::Done).then_some(());
        assert_eq!(until(Duration::from_secs(60), released), Some(()), "{request:?} stays locked");
    }
    table
}

/// What a taker tells that has taken a lock by this door.
fn taken_by(door: &str) -> String {
    format!("taken by {}", door.trim_start_matches(CALM))
}

/// How often this has happened.
fn times(root: &Path, what: &str) -> u64 {
    fs::metadata(root.join("told").join(what)).map_or(0, |told| told.len())
}

fn told(root: &Path) -> BTreeMap<String, u64> {
    fs::read_dir(root.join("told"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .collect()
}

/// The programs under test, and the library. They are built where the compiler finds all that it needs.
fn programs() -> [(&'static str, PathBuf); 3] {
    [
        ("lfp", testbed::program("lfp-cli", "lfp", &[])),
        ("lockdev", testbed::program("liblockdev", "lockdev", &[])),
        ("library", testbed::library("lfp-preload", "liblfp_preload")),
    ]
}

fn one_holder_through_all_doors() {
    let (programs, terminals) = (programs(), [pseudo_terminal(), pseudo_terminal()]);
    enter_own_machine([&terminals[0].slave, &terminals[1].slave]);
    let (seconds, takes) = (number("LFPD_TORTURE_SECS", 20), number("LFPD_TORTURE_TAKES", 10_000));
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    let with_state = root.join("with-state");
    fs::create_dir(&with_state).unwrap();
    for root in [root, &with_state] {
        fs::set_permissions(root, Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(root.join("told")).unwrap();
        fs::set_permissions(root.join("told"), Permissions::from_mode(0o777)).unwrap();
        for (name, path) in &programs {
            fs::write(root.join(name), path.to_str().unwrap()).unwrap();
        }
    }
    let mut daemon = Some(start_daemon(SOCKET, SERVICE));
    let _second = start_daemon(SECOND_SOCKET, 0);
    let _inetd = start_inetd(root);
    let own = std::env::current_exe().unwrap();
    let inside = |root: &Path, what: &str, apart: &str| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "sh", "-ec"]);
        command.arg(format!("{apart}\nexec \"$@\"")).arg("sh").arg(&own).arg("--inside").arg(root);
        command.arg(what).spawn().unwrap()
    };
    let empty = |directory: &str| format!("mount -t tmpfs -o mode=755 none {directory}");
    let mut containers = [
        inside(root, "both", ""),
        inside(root, "lock", &format!("{}; {}", empty("/run/lfpd"), empty("/run/second"))),
        inside(&with_state, "state", &empty("/run/lock")),
    ];
    // A daemon that begins in a container takes locks of the outside without `flock(2)` for dead.
    wait_for(&root.join("begun-lock"));
    let flocker = |seed: u64| {
        let mut command = Command::new(&own);
        command.arg("--flocker").arg(root).arg(seed.to_string()).spawn().unwrap()
    };
    let flockers: Vec<Child> = (0..FLOCKERS).map(flocker).collect();
    let part = |name: &str, words: &[&str]| {
        Command::new(&own).arg(name).arg(root).args(words).spawn().unwrap()
    };
    let mut others = vec![part("--stopper", &[])];
    if number("LFPD_TORTURE_PROGRAMS", 0) > 0 {
        others.push(part("--programs", &["5"]));
    }
    let mut cleaner: Option<Child> = None;
    let (mut cleans, mut restarts) = (0, 0);
    let mut wanted: Vec<String> = DOORS.map(taken_by).into();
    wanted.extend(["taken inside", "passed"].map(str::to_owned));
    if !aside().saturating_sub(ASIDE).is_zero() {
        wanted.push("stopped in the gate".to_owned());
    }
    let begin = Instant::now();
    let zombies = keep_takers(root, &DOORS, 0, |lots| {
        if lots.below(200) == 0 {
            drop(daemon.take());
            restarts += 1;
            let user = if restarts % 2 == 0 { SERVICE } else { 0 };
            daemon = Some(start_daemon(SOCKET, user));
        }
        if cleaner.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some()) {
            let mut command = program(root, "lfp");
            command.args(["--direct", "clean"]).stdout(Stdio::null()).stderr(Stdio::null());
            cleaner = Some(command.spawn().unwrap());
            cleans += 1;
        }
        let is_over =
            begin.elapsed() >= Duration::from_secs(seconds) || times(root, "taken") >= takes;
        let is_late = begin.elapsed() >= Duration::from_secs(seconds) * 10;
        if is_over && wanted.iter().all(|what| times(root, what) > 0) || is_late {
            File::create(root.join("stop")).unwrap();
            File::create(with_state.join("stop")).unwrap();
        } else if is_over {
            File::create(root.join("late")).unwrap();
        }
    });
    // Receivers of killed takers may still have a lock.
    let is_held = |port| is_of_the_living(&exclusive(root, &port_of(port)));
    assert!(comes(|| !(0..=WITH_CONTAINER).any(is_held)), "somebody has a lock without an end");
    for root in [root, &with_state] {
        File::create(root.join("over")).unwrap();
    }
    // Those who were killed out here last are known to be dead here alone, and nobody else asks any more.
    let cleared = until(Duration::from_secs(600), || {
        program(root, "lfp")
            .args(["--direct", "clean"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        let ended = containers.each_mut().map(|it| it.try_wait().unwrap());
        ended.iter().all(Option::is_some).then_some(ended)
    });
    assert!(cleared.is_some_and(|ended| ended.iter().flatten().all(ExitStatus::success)));
    for mut other in flockers.into_iter().chain(others) {
        assert!(other.wait().unwrap().success());
    }
    cleaner.iter_mut().for_each(|child| assert!(child.wait().is_ok()));
    let (mut told, spent) = (told(root), begin.elapsed().as_secs());
    let beside = self::told(&with_state);
    println!("{told:?}, with the state directory alone: {beside:?}");
    println!("{cleans} cleanings, {restarts} daemons killed, {spent} s");
    for what in ["double", "lost", "not released"] {
        if let Some(times) = beside.get(what) {
            *told.entry(what.to_owned()).or_default() += times;
        }
    }
    let complaints: String = [root, &with_state]
        .iter()
        .filter_map(|root| fs::read_to_string(root.join("complaints")).ok())
        .collect();
    let faults = ["double", "lost", "not released"].map(|what| told.get(what));
    assert_eq!(faults, [None; 3], "{complaints}");
    for what in wanted {
        assert!(told.contains_key(&what), "never {what}: {told:?}");
    }
    assert_nothing_is_left(root);
    drop(zombies);
}

/// Drafts, and records with names that begin so, are older than a lock may take to be made: younger ones are not swept.
fn a_minute_passes(beginning: &str) {
    for entry in
        ["/run/lock", "/run/lfpd"].iter().flat_map(|it| fs::read_dir(it).unwrap().flatten())
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".tmp") || name.starts_with(beginning) && entry.path().is_symlink() {
            // Another process may remove it.
            let _ = make_old(&entry.path());
        }
    }
}

/// Everybody is gone: each port is free, and what is left besides are drafts of the killed.
fn assert_nothing_is_left(root: &Path) {
    // What a service does when it begins: of hand-overs that were cut short notes are left.
    let mut table = assert_all_is_free(0..=WITH_CONTAINER);
    a_minute_passes("held.");
    table.keep_open(16);
    program(root, "lfp").args(["--direct", "clean"]).stdout(Stdio::null()).status().unwrap();
    let mut locks = listing(Path::new("/run/lock"));
    // UUCP's own.
    locks.retain(|name| !name.starts_with("LTMP."));
    assert!(locks.iter().all(|name| name.ends_with(".tmp")), "{locks:?}");
    let mut records = listing(Path::new("/run/lfpd"));
    let is_litter = |name: &String| !name.starts_with("gate") && name != "lfpd.sock";
    records.retain(|name| is_litter(name) && !name.ends_with(".tmp"));
    assert_eq!(records, [""; 0]);
    println!("{} drafts of the killed", locks.len());
}
