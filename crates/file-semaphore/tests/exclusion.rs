//! Two hundred real processes at one lock: the library, `sema`, `sema run`, `semats` and shells
//! that create the file exclusively, with cleaners among them, and SIGKILL and SIGSTOP at random points.
//!
//! Starts itself again in every part. What proves that nobody met another inside: everyone leaves
//! a mark and counts the marks of the living, and a counter in a plain file, read and written
//! without any lock of its own, loses no step. More takes, the time for them, fewer processes, which
//! take more often, and some in containers, which root alone can make:
//!
//!     SEMA_TORTURE_TAKES=50000 SEMA_TORTURE_SECS=3600 SEMA_TORTURE_PROCESSES=30 SEMA_TORTURE_CONTAINERS=5 \
//!         cargo test -p file-semaphore --features cli --test exclusion -- --nocapture
//!
//! The script `kinds` beside this file does it on several kinds of file system and namespace.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test program")]
#![expect(clippy::indexing_slicing, reason = "a test program")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use file_semaphore::{Config, Durability, Semaphore, Slots};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use testbed::local::{NOBODY, Scratch, pid_of};
use testbed::{LIMIT, Lots, run_tests};

const SEMA: &str = env!("CARGO_BIN_EXE_sema");
const SEMATS: &str = env!("CARGO_BIN_EXE_semats");

/// The test ends when so many were inside, of whom one in five or so was killed, or when the time is over.
const ENOUGH_INSIDE: usize = 300;
const TAKES_A_KILL: usize = 5;
const SECONDS: usize = 40;
const ALL: usize = 200;
/// How long a process stands still that was stopped, and how often one is: so many kills come to one stop.
const PAUSE: Duration = Duration::from_millis(150);
const KILLS_A_PAUSE: usize = 2;
/// Fewer would be no test.
const AT_LEAST_INSIDE: usize = 100;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, part, way, directory, slots] = &words[..] {
        if part == "part" {
            return part_of(way, Path::new(directory), slots.parse().unwrap());
        }
    }
    // A killed process leaves orphans. A zombie counts as alive, and another adopter may take long to reap them, so
    // this process adopts them.
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let tests: [(&str, fn()); 2] = [
        ("one_lock", || contend("one lock", 1, &LOCK)),
        ("three_slots", || contend("three slots", 3, &SLOTS)),
    ];
    run_tests(&tests, None);
}

/// How many processes of each kind: 200 together.
const LOCK: [(&str, usize); 6] =
    [("library", 60), ("sema", 40), ("run", 40), ("semats", 25), ("shell", 25), ("clean", 10)];
const SLOTS: [(&str, usize); 5] =
    [("library", 80), ("sema", 40), ("run", 40), ("shell", 30), ("clean", 10)];

struct Member {
    way: &'static str,
    child: Child,
}

fn contend(title: &str, slots: u32, crowd: &[(&'static str, usize)]) {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("inside")).unwrap();
    fs::create_dir(scratch.at("locks")).unwrap();
    scratch.write("counter", "0");
    // They all begin at a stale lock (or three) and break it at once.
    for name in lock_names(slots) {
        scratch.write(&format!("locks/{name}"), format!("pid={NOBODY}\ntimestamp=1\n"));
    }
    let Measure { takes: enough_inside, time, processes, containers } = measure();
    let part = |count: usize| (count * processes).div_ceil(ALL);
    let mut members: Vec<Member> = crowd
        .iter()
        .flat_map(|(way, count)| (0..part(*count)).map(|_| *way))
        .chain((0..containers).map(|_| "container"))
        .map(|way| start(&scratch, way, slots))
        .collect();

    let begin = Instant::now();
    let enough_killed = enough_inside / TAKES_A_KILL;
    let mut chance = Lots(0x9e37_79b9_7f4a_7c15 ^ u64::from(slots));
    let (mut killed, mut pauses) = (0, Pauses::default());
    let mut rush: Option<usize> = None;
    while begin.elapsed() < time {
        assert!(!scratch.at("violation").exists(), "{}", scratch.read("violation"));
        let inside = lines(&scratch.at("done"));
        if inside >= enough_inside && killed >= enough_killed {
            break;
        }
        // One in a few times, after a little progress, any process.
        if rush.is_none_or(|before| inside > before) && killed < 3 * enough_killed {
            rush = Some(inside);
            let index = chance.index(members.len());
            // The originals' locks name nobody who lives; killing their users would only leave
            // locks that count as held for an hour, as documented.
            if pauses.count < killed / KILLS_A_PAUSE {
                pauses.begin(&members[index]);
            } else if ["library", "sema", "run", "container"].contains(&members[index].way) {
                let lot = chance.index(3);
                murder(&mut members[index], lot, &scratch);
                killed += 1;
                let way = members[index].way;
                members[index] = start(&scratch, way, slots);
            }
        }
        // A zombie counts as alive, so a process killed inside must be waited for.
        for member in &mut members {
            if let Some(ended) = member.child.try_wait().unwrap() {
                assert_eq!(ended.signal(), Some(9), "{}: {ended}", member.way);
                *member = start(&scratch, member.way, slots);
            }
        }
        bury_orphans(&members);
        pauses.end(PAUSE);
        std::thread::sleep(Duration::from_millis(5));
    }
    pauses.end(Duration::ZERO);
    scratch.write("stop", "");
    for mut member in members {
        let ended = testbed::until(LIMIT, || member.child.try_wait().unwrap());
        let ended = ended.unwrap_or_else(|| panic!("does not end: {}", all_of(&member)));
        assert!(ended.success() || ended.signal() == Some(9), "{}: {ended}", member.way);
    }
    judge(title, &scratch, slots, (killed, pauses.count), begin.elapsed());
}

/// What it is, and every process that it has started, with the place in the kernel where each waits.
fn all_of(member: &Member) -> String {
    let group = pid_of(&member.child).to_string();
    let shown = Command::new("ps").args(["-eo", "pgid,pid,ppid,stat,wchan:30,args"]).output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    let members = shown.lines().filter(|line| line.split_whitespace().next() == Some(&group));
    std::iter::once(member.way).chain(members).collect::<Vec<_>>().join("\n")
}

/// One member at a time stands still, with all that it has started.
#[derive(Default)]
struct Pauses {
    count: usize,
    now: Option<(Pid, Instant)>,
}

impl Pauses {
    fn begin(&mut self, member: &Member) {
        if self.now.is_none() {
            let group = pid_of(&member.child);
            killpg(group, Signal::SIGSTOP).unwrap();
            self.now = Some((group, Instant::now()));
            self.count += 1;
        }
    }

    /// A process that was killed meanwhile is no longer there.
    fn end(&mut self, after: Duration) {
        if let Some((group, _)) = self.now.take_if(|(_, since)| since.elapsed() >= after) {
            let _ = killpg(group, Signal::SIGCONT);
        }
    }
}

/// How many takes are enough, how long it may last, how many take part, and how many more of them in
/// containers.
struct Measure {
    takes: usize,
    time: Duration,
    processes: usize,
    containers: usize,
}

fn measure() -> Measure {
    let number = |variable: &str, usual: usize| {
        std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let seconds = number("SEMA_TORTURE_SECS", SECONDS);
    Measure {
        takes: number("SEMA_TORTURE_TAKES", ENOUGH_INSIDE),
        time: Duration::from_secs(u64::try_from(seconds).unwrap()),
        processes: number("SEMA_TORTURE_PROCESSES", ALL),
        containers: number("SEMA_TORTURE_CONTAINERS", 0),
    }
}

/// Waits for adopted children that have ended, and leaves the members to those who hold them.
fn bury_orphans(members: &[Member]) {
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    while let Ok(status) = waitid(Id::All, ended | WaitPidFlag::WNOWAIT) {
        match status.pid() {
            Some(pid) if members.iter().all(|member| pid_of(&member.child) != pid) => {
                let _ = waitid(Id::Pid(pid), ended);
            }
            Some(_) | None => return,
        }
    }
}

/// The process alone, its whole group (with the `sema` it may have started), or the process that is inside in its
/// name.
fn murder(member: &mut Member, lot: usize, scratch: &Scratch) {
    let pid = pid_of(&member.child);
    match lot {
        0 => kill(pid, Signal::SIGKILL).unwrap(),
        1 => killpg(pid, Signal::SIGKILL).unwrap(),
        _ => {
            let marks = fs::read_dir(scratch.at("inside")).unwrap();
            let inside = marks.filter_map(|mark| mark_of(&mark.ok()?.path()));
            let safe = inside.filter(|mark| mark.may_be_killed).map(|mark| mark.pid);
            if let Some(victim) = safe.last() {
                let _ = kill(victim, Signal::SIGKILL);
            }
            killpg(pid, Signal::SIGKILL).unwrap();
        }
    }
    member.child.wait().unwrap();
}

fn judge(
    title: &str,
    scratch: &Scratch,
    slots: u32,
    (killed, paused): (usize, usize),
    time: Duration,
) {
    assert!(!scratch.at("violation").exists(), "{}", scratch.read("violation"));
    let done = scratch.read("done");
    let inside = done.lines().count();
    let seconds = time.as_secs_f64();
    println!("{title}: {inside} times inside, {killed} killed, {paused} paused, {seconds:.1} s");
    assert!(inside >= AT_LEAST_INSIDE, "only {inside} got in");
    assert!(killed >= AT_LEAST_INSIDE / TAKES_A_KILL, "only {killed} were killed");
    if slots == 1 {
        let mut steps: Vec<u64> = done.lines().map(|line| line.parse().unwrap()).collect();
        steps.sort_unstable();
        let count = steps.len();
        steps.dedup();
        assert_eq!(steps.len(), count, "a step of the counter was made twice: two were inside");
    }
    only_sweepable_is_left(scratch, slots);
}

fn only_sweepable_is_left(scratch: &Scratch, slots: u32) {
    let count = slots.to_string();
    let names = lock_names(slots);
    for name in files(&scratch.at("locks")) {
        // A ticket of the queue is named after the semaphore, whatever slot it will get, and the last
        // one is its queue: of a waiter who was killed.
        let ticket = name == "a.queue" || (name.starts_with("a.") && name.ends_with(".tmp"));
        assert!(ticket || names.contains(&name), "left behind: {name}");
    }
    // Orphaned `sema` processes may still be about to take a lock for a dead caller.
    let begin = Instant::now();
    loop {
        bury_orphans(&[]);
        let ran = scratch.sema(&["clean", "locks/a", "--slots", &count]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let left = files(&scratch.at("locks"));
        if left.is_empty() {
            return;
        }
        let words: Vec<_> =
            left.iter().map(|name| fs::read_to_string(scratch.at("locks").join(name))).collect();
        assert!(begin.elapsed() < LIMIT, "not swept: {left:?} {words:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn lock_names(slots: u32) -> Vec<String> {
    if slots == 1 {
        vec!["a".to_owned()]
    } else {
        (1..=slots).map(|slot| format!("a.{slot}")).collect()
    }
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

fn start(scratch: &Scratch, way: &'static str, slots: u32) -> Member {
    let us = std::env::current_exe().unwrap();
    let mut command = if way == "container" {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--time"]);
        command.args(["--boottime", "86400"]).arg(us);
        command
    } else {
        Command::new(us)
    };
    command.args(["part", way]).arg(scratch.path()).arg(slots.to_string());
    let child = command.process_group(0).stdin(Stdio::null()).spawn().unwrap();
    Member { way, child }
}

// The parts: each takes the lock in its own way until the file `stop` is there.

fn part_of(way: &str, directory: &Path, slots: u32) {
    if way == "once" {
        return inside(directory, slots, true);
    }
    let begin = Instant::now();
    while !directory.join("stop").exists() && begin.elapsed() < measure().time * 2 {
        match way {
            "library" | "container" => library(directory, slots),
            "sema" => sema_script(directory, slots),
            "run" => sema_run(directory, slots),
            "semats" => semats(directory),
            "shell" => shell(directory, slots),
            "clean" => clean(directory, slots),
            _ => panic!("no such part: {way}"),
        }
    }
}

fn library(directory: &Path, slots: u32) {
    let mut config = Config::default();
    config.slots = Slots::new(slots).unwrap();
    config.acquire_timeout = Some(Duration::from_secs(1));
    config.durability = Durability::Memory;
    let semaphore = Semaphore::with_config(directory.join("locks/a"), config).unwrap();
    match semaphore.acquire(Some("library")) {
        Ok(guard) => {
            inside(directory, slots, true);
            guard.release().expect("nobody may take a live lock away");
        }
        Err(file_semaphore::Error::TimedOut { .. }) => {}
        // A shell stood still for two seconds between making its file and writing it.
        Err(file_semaphore::Error::Parse { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn call(program: &str, directory: &Path, words: &[&str]) -> i32 {
    let mut command = Command::new(program);
    command.current_dir(directory).args(words).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.stderr(Stdio::null()).status().unwrap();
    status.code().or_else(|| status.signal().map(|number| 128 + number)).unwrap_or(-1)
}

fn sema_script(directory: &Path, slots: u32) {
    let slots_word = slots.to_string();
    // By number: were it killed before that looks who called, it would be its heir's.
    let own = std::process::id().to_string();
    let take = ["acquire", "locks/a", "--timeout", "1", "--tag", "sema", "--pid", &own];
    let take: Vec<&str> = take.into_iter().chain(["--slots", &slots_word]).collect();
    if call(SEMA, directory, &take) == 0 {
        inside(directory, slots, true);
        let released = call(SEMA, directory, &["release", "locks/a", "--slots", &slots_word]);
        assert_eq!(released, 0, "nobody may take a live lock away");
    }
}

fn sema_run(directory: &Path, slots: u32) {
    let (us, slots) = (std::env::current_exe().unwrap(), slots.to_string());
    let (us, here) = (us.to_str().unwrap(), directory.to_str().unwrap());
    let words = [
        "run",
        "locks/a",
        "--timeout",
        "1",
        "--slots",
        &slots,
        "--",
        us,
        "part",
        "once",
        here,
        &slots,
    ];
    let code = call(SEMA, directory, &words);
    assert!([0, 1, 137].contains(&code), "sema run: {code}");
}

fn semats(directory: &Path) {
    if call(SEMATS, directory, &["acquire", "locks/a", "--timeout", "500"]) == 0 {
        inside(directory, 1, false);
        assert_eq!(call(SEMATS, directory, &["release", "-f", "locks/a"]), 0);
    }
}

/// As a shell script of the first document's kind: exclusive creation, words, removal.
fn shell(directory: &Path, slots: u32) {
    let names = lock_names(slots);
    let pick = usize::try_from(std::process::id()).unwrap() % names.len();
    let take = format!(
        "set -C; printf 'pid=%s\\ntimestamp={}\\n' $PPID >locks/{}",
        testbed::local::now(),
        names[pick]
    );
    if call("sh", directory, &["-c", &take]) == 0 {
        inside(directory, slots, false);
        fs::remove_file(directory.join("locks").join(&names[pick])).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
}

fn clean(directory: &Path, slots: u32) {
    let slots = slots.to_string();
    call(SEMA, directory, &["clean", "locks/a", "--slots", &slots]);
    call(SEMATS, directory, &["clean", "locks/a"]);
    std::thread::sleep(Duration::from_millis(60));
}

// Inside.

struct Mark {
    pid: Pid,
    may_be_killed: bool,
}

/// A mark is named `PID.STARTTIME.MAYBEKILLED`.
fn mark_of(path: &Path) -> Option<Mark> {
    let name = path.file_name()?.to_str()?;
    let mut parts = name.split('.');
    let pid: i32 = parts.next()?.parse().ok()?;
    let start: u64 = parts.next()?.parse().ok()?;
    let may_be_killed = parts.next()? == "1";
    // In a container the number means another process.
    let same = started(file_semaphore::Pid::new(pid.into())?) == Some(start);
    same.then_some(Mark { pid: Pid::from_raw(pid), may_be_killed })
}

fn started(pid: file_semaphore::Pid) -> Option<u64> {
    pidlockfile::process::stat(pid).map(|stat| stat.start)
}

/// The process inside has a flock(2) on its mark, which every namespace sees, and which ends with its process.
fn lives(mark: &Path) -> bool {
    let Ok(file) = File::open(mark) else { return false };
    Flock::lock(file, FlockArg::LockSharedNonblock).is_err()
}

fn inside(directory: &Path, slots: u32, may_be_killed: bool) {
    let us = file_semaphore::Pid::this();
    let start = started(us).unwrap();
    let mark = directory.join(format!("inside/{us}.{start}.{}", u8::from(may_be_killed)));
    let file = File::create(&mark).unwrap();
    let _living = Flock::lock(file, FlockArg::LockExclusive).unwrap();
    count_marks(directory, slots);
    if slots == 1 {
        step(directory);
    } else {
        append(&directory.join("done"), "1\n");
    }
    count_marks(directory, slots);
    // Dead ones' marks stay: nobody may sweep another's.
    fs::remove_file(&mark).unwrap();
}

fn count_marks(directory: &Path, slots: u32) {
    let marks = fs::read_dir(directory.join("inside")).unwrap();
    let living: Vec<PathBuf> = marks
        .filter_map(|mark| mark.ok().map(|mark| mark.path()))
        .filter(|path| lives(path))
        .collect();
    if living.len() > usize::try_from(slots).unwrap() {
        append(&directory.join("violation"), &format!("inside at once: {living:?}\n"));
    }
}

/// One step of the counter, in three acts that any second process inside would disturb. A killed
/// one may leave a step undone, never one done twice.
fn step(directory: &Path) {
    let counter = directory.join("counter");
    let next = fs::read_to_string(&counter).unwrap().parse::<u64>().unwrap() + 1;
    std::thread::yield_now();
    let fresh = directory.join(format!("counter.{}", std::process::id()));
    fs::write(&fresh, next.to_string()).unwrap();
    fs::rename(&fresh, &counter).unwrap();
    append(&directory.join("done"), &format!("{next}\n"));
}

fn append(path: &Path, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
