//! A hundred real processes racing for one lock: publishing, breaking, releasing, being killed.
//!
//! This program plays all parts; it has its own `main` so that it can start itself again.
//!
//! * Rounds: everybody is let go at once at a free or a stale lock. One wins.
//! * Brawl: everybody takes and releases one lock for a while; some kill themselves while they
//!   hold it, the parent kills others wherever they are. A witness, a file that each holder locks
//!   with `flock(2)`, and a journal show that there is one holder at any time; watchers read the
//!   lock all the time and must always find it whole.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use pidlockfile::process::lives;
use pidlockfile::{Attempt, Directory, Found, Name, NewFile, OpenFile, Pid, Published};
use testbed::{Lots, run_tests};

const RACERS: usize = 104;
const WATCHERS: usize = 3;
const ROUNDS: usize = 12;
const KILLS: usize = 60;
const LIMIT: Duration = Duration::from_secs(120);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--racer", dir] => race(Path::new(dir)),
        ["--brawler", dir, seed] => brawl(Path::new(dir), Lots(seed.parse().unwrap())),
        ["--watcher", dir] => watch(Path::new(dir)),
        _ => run_tests(
            &[
                ("one_winner_each_round", one_winner_each_round),
                ("one_holder_at_any_time", one_holder_at_any_time),
            ],
            None,
        ),
    }
}

// What every process does with the lock.

fn words(pid: Pid) -> String {
    // Twice, so that half a file cannot pass for a whole one.
    format!("{pid:>10} {pid:>10}\n")
}

fn holder(content: &[u8]) -> Option<Pid> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('\n')?;
    if text.len() != 21 || !text.is_ascii() {
        return None;
    }
    let (first, second) = text.split_at(10);
    (first.trim() == second.trim()).then(|| Pid::parse(first.trim().as_bytes()).ok())?
}

fn claim(content: &str) -> NewFile<'_> {
    NewFile::new(content.as_bytes(), "race")
}

fn look(directory: &Directory, name: &Name) -> Option<OpenFile> {
    match directory.read(name, 64).unwrap() {
        Found::File(opened) => Some(opened),
        Found::Nothing => None,
        Found::Obstacle(obstacle) => panic!("{obstacle:?}"),
    }
}

/// Takes the lock, or finds somebody alive holding or breaking it.
fn take(directory: &Directory, name: &Name) -> Option<Published> {
    let own = words(Pid::this());
    loop {
        let Some(opened) = look(directory, name) else {
            match directory.publish(name, &claim(&own)).unwrap() {
                Some(published) => return Some(published),
                None => continue,
            }
        };
        let Some(pid) = holder(opened.content()) else {
            panic!("not whole: {:?}", opened.content());
        };
        if lives(pid) {
            return None;
        }
        match directory.replace(name, opened, &claim(&own)).unwrap() {
            Attempt::Done(published) => return Some(published),
            Attempt::Changed => {}
            Attempt::Contended => return None,
        }
    }
}

fn release(directory: &Directory, name: &Name, published: Published, how: u64) {
    let removal = match how {
        0 => directory.withdraw(name, &published).unwrap(),
        1 => directory.try_release(name, look(directory, name).unwrap()).unwrap(),
        _ => directory.release(name, look(directory, name).unwrap(), "race").unwrap(),
    };
    assert_eq!(removal, Attempt::Done(()), "a holder's lock is its to release");
}

// Rounds.

fn one_winner_each_round() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    let racers: Vec<Child> = (0..RACERS).map(|_| start("--racer", scratch.path(), &[])).collect();
    let mut racers: Vec<(Child, ChildStdin, _)> = racers
        .into_iter()
        .map(|mut child| {
            let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            (child, stdin, BufReader::new(stdout).lines())
        })
        .collect();
    for round in 0..ROUNDS {
        let name = format!("round{round}");
        if round % 2 == 0 {
            let content = words(gone());
            directory.publish(&Name::new(&name).unwrap(), &claim(&content)).unwrap();
        }
        for (_, stdin, _) in &mut racers {
            writeln!(stdin, "{name}").unwrap();
        }
        let answers: Vec<String> =
            racers.iter_mut().map(|(_, _, lines)| lines.next().unwrap().unwrap()).collect();
        let winners = answers.iter().filter(|answer| *answer == "won").count();
        assert_eq!(winners, 1, "round {round}: {answers:?}");
        let losers = answers.iter().filter(|answer| *answer == "lost").count();
        assert_eq!(losers, RACERS - 1, "round {round}: {answers:?}");
    }
    for (mut child, stdin, _) in racers {
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }
    assert_no_litter(scratch.path());
    println!("{ROUNDS} rounds of {RACERS} processes, one winner each");
}

fn race(dir: &Path) {
    let directory = Directory::open(dir).unwrap();
    let mut held = Vec::new();
    for line in std::io::stdin().lines() {
        let taken = take(&directory, &Name::new(line.unwrap()).unwrap());
        println!("{}", if taken.is_some() { "won" } else { "lost" });
        held.extend(taken);
    }
}

// Brawl.

fn one_holder_at_any_time() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut lots = Lots(seed);
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let directory = Directory::open(dir).unwrap();
    let stale = words(gone());
    directory.publish(&lock_name(), &claim(&stale)).unwrap();
    for file in ["witness", "journal"] {
        File::create(dir.join(file)).unwrap();
    }
    let mut watchers: Vec<Child> = (0..WATCHERS).map(|_| start("--watcher", dir, &[])).collect();
    let fighter =
        |lots: &mut Lots| start("--brawler", dir, &[lots.below(u64::MAX >> 33).to_string()]);
    let mut fighters: Vec<Child> = (0..RACERS).map(|_| fighter(&mut lots)).collect();
    let (mut started, mut killed, mut signalled) = (RACERS, 0, 0);
    let deadline = Instant::now() + LIMIT;
    while !fighters.is_empty() {
        assert!(Instant::now() < deadline, "still {} of {started}", fighters.len());
        let mut fighting = Vec::new();
        for mut child in fighters {
            match child.try_wait().unwrap() {
                None => fighting.push(child),
                Some(status) if status.success() => {}
                Some(status) => {
                    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "{status}");
                    signalled += 1;
                    if started < 2 * RACERS {
                        started += 1;
                        fighting.push(fighter(&mut lots));
                    }
                }
            }
        }
        fighters = fighting;
        if killed < KILLS && !fighters.is_empty() {
            let victim = lots.index(fighters.len());
            fighters[victim].kill().unwrap();
            killed += 1;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    let looks = stop(&mut watchers);
    let (holdings, broken) = read_journal(dir);
    println!(
        "{started} processes, {signalled} killed; the lock was held {holdings} times, \
         {broken} times until death; watchers found it whole {looks} times"
    );
    assert!(holdings > RACERS && broken > 5 && looks > 1000 && signalled > 10);
}

fn lock_name() -> Name {
    Name::new("lock").unwrap()
}

fn brawl(dir: &Path, mut lots: Lots) {
    let directory = Directory::open(dir).unwrap();
    let name = lock_name();
    let mut held = 0;
    for _ in 0..150 {
        if let Some(published) = take(&directory, &name) {
            hold(dir, &mut lots);
            release(&directory, &name, published, lots.below(3));
            held += 1;
        }
        if held == 8 {
            break;
        }
        std::thread::sleep(Duration::from_micros(500 + lots.below(8000)));
    }
}

/// While the lock is held: the witness must be free, and the journal is written.
fn hold(dir: &Path, lots: &mut Lots) {
    let own = Pid::this();
    let witness = File::open(dir.join("witness")).unwrap();
    let witness = Flock::lock(witness, FlockArg::LockExclusiveNonblock);
    assert!(witness.is_ok(), "two holders: {own} is the second");
    let mut journal = OpenOptions::new().append(true).open(dir.join("journal")).unwrap();
    journal.write_all(format!("+{own}\n").as_bytes()).unwrap();
    match lots.below(12) {
        0 => kill(nix::unistd::Pid::this(), Signal::SIGKILL).unwrap(),
        1 => std::thread::sleep(Duration::from_millis(1)),
        2..4 => std::thread::yield_now(),
        _ => {}
    }
    journal.write_all(format!("-{own}\n").as_bytes()).unwrap();
}

/// Between one holder's entry and its leaving there is nobody else's line; tells how often the
/// lock was held, and how often until death.
fn read_journal(dir: &Path) -> (usize, usize) {
    let journal = std::fs::read_to_string(dir.join("journal")).unwrap();
    let (mut inside, mut holdings, mut broken) = (None, 0, 0);
    let mut dead = HashSet::new();
    for line in journal.lines() {
        let (sign, pid) = line.split_at(1);
        assert!(!dead.contains(pid), "{pid} was broken, and went on");
        if sign == "+" {
            if let Some(broken_one) = inside.replace(pid) {
                dead.insert(broken_one);
                broken += 1;
            }
            holdings += 1;
        } else {
            assert_eq!(inside.take(), Some(pid), "{line} in the holding of another");
        }
    }
    (holdings, broken)
}

/// Reads the lock as any program would, until standard input ends.
fn watch(dir: &Path) {
    let path = dir.join("lock");
    let stop = std::thread::spawn(|| std::io::stdin().lines().count());
    let mut looks = 0;
    while !stop.is_finished() {
        match std::fs::read(&path) {
            Ok(content) => assert!(holder(&content).is_some(), "not whole: {content:?}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
        looks += 1;
        std::thread::sleep(Duration::from_micros(50));
    }
    println!("{looks}");
}

fn stop(watchers: &mut [Child]) -> usize {
    let mut looks = 0;
    for watcher in watchers {
        drop(watcher.stdin.take());
        let mut line = String::new();
        BufReader::new(watcher.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(watcher.wait().unwrap().success());
        looks += line.trim_end().parse::<usize>().unwrap();
    }
    looks
}

// Processes.

fn start(part: &str, dir: &Path, more: &[String]) -> Child {
    let mut own = Command::new(std::env::current_exe().unwrap());
    own.arg(part).arg(dir).args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// The number of a process that is gone.
fn gone() -> Pid {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("--list")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.wait().unwrap();
    Pid::new(child.id().into()).unwrap()
}

fn assert_no_litter(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with("round"), "litter: {name}");
    }
}
