//! Forty-eight loops at one lock take turns: how long does the one wait that waits longest? By the
//! library, by `sema acquire` and by `sema run`, left alone and with SIGKILL at random points. And two
//! hundred, to whom the kernel gives not one inotify instance.
//!
//! Starts itself again in every part. The process inside takes flock(2) on a separate file without waiting, which
//! shows that two are never inside at once. With SEMA_TURNS_SECS=300 each contest takes so many seconds.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test program")]

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use file_semaphore::{Config, Durability, Semaphore};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, killpg};
use testbed::local::{Scratch, pid_of, until};
use testbed::{Lots, run_tests};

const SEMA: &str = env!("CARGO_BIN_EXE_sema");

const LOOPS: usize = 48;
/// More than one user has inotify instances (128).
const CROWD: usize = 200;
const HOLD: Duration = Duration::from_millis(2);
/// So many turns are enough, and after so many seconds [`FEW`] for each loop are.
const ENOUGH: u64 = 400;
const SECONDS: u64 = 25;
const FEW: u64 = 3;
/// However busy the machine is, a contest does not take longer.
const DEADLINE: Duration = Duration::from_secs(900);

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, part, way, directory] = &words[..] {
        if part == "part" {
            return part_of(way, Path::new(directory));
        }
    }
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let tests: [(&str, fn()); 4] = [
        ("library", || few("library", &["library"], Kills::None)),
        ("acquire_and_run", || few("sema acquire and run", &["acquire", "run"], Kills::None)),
        ("all_with_kills", || few("all, with kills", &["library", "acquire", "run"], Kills::Some)),
        ("without_inotify", without_inotify),
    ];
    run_tests(&tests, None);
}

/// How many turns are enough, and how much time.
fn enough() -> (u64, Duration) {
    let seconds = std::env::var("SEMA_TURNS_SECS").ok().map(|text| text.parse().unwrap());
    let enough = seconds.map_or(ENOUGH, |_| u64::MAX);
    (enough, Duration::from_secs(seconds.unwrap_or(SECONDS)))
}

fn few(title: &str, ways: &'static [&'static str], kills: Kills) {
    contend(title, &Contest { ways, loops: LOOPS, kills, told: Told::Inotify }, enough());
}

fn without_inotify() {
    if untold(Path::new("true"), &[]).status().is_ok_and(|status| status.success()) {
        let (ways, kills) = (&["run"], Kills::None);
        let crowd = Contest { ways, loops: CROWD, kills, told: Told::Nothing };
        let (enough, time) = enough();
        contend("without inotify", &crowd, (enough.max(FEW * CROWD as u64), time));
    } else {
        println!("without inotify: left out, as there are no user namespaces");
    }
}

/// The processes that take turns, and their ends.
struct Contest {
    ways: &'static [&'static str],
    loops: usize,
    kills: Kills,
    told: Told,
}

impl Contest {
    fn start(&self, scratch: &Scratch, index: usize) -> Child {
        let words: [&OsStr; 3] =
            ["part".as_ref(), self.ways[index % self.ways.len()].as_ref(), scratch.path().as_ref()];
        let us = std::env::current_exe().unwrap();
        let mut command = match self.told {
            Told::Nothing => untold(&us, &words),
            Told::Inotify => Command::new(us),
        };
        if self.told == Told::Inotify {
            command.args(words);
        }
        command.stdin(Stdio::null()).process_group(0).spawn().unwrap()
    }
}

/// Whether the kernel tells of files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Inotify,
    Nothing,
}

/// A program in a user namespace that has no inotify instances.
fn untold(program: &Path, words: &[&OsStr]) -> Command {
    let script = "echo 0 >/proc/sys/user/max_inotify_instances && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script]).arg(program).args(words);
    command
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kills {
    None,
    Some,
}

fn contend(title: &str, contest: &Contest, (enough, time): (u64, Duration)) {
    let all = contest.loops;
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("locks")).unwrap();
    let mut loops: Vec<Child> = (0..all).map(|index| contest.start(&scratch, index)).collect();
    // Everybody is at it before the clock is read.
    until("all loops", || {
        let begun = fs::read_dir(scratch.path()).unwrap().count();
        (begun >= 2 * all).then_some(())
    });
    scratch.write("count", "");
    let (begin, before) = (Instant::now(), turns(scratch.path()));
    let mut killed = 0;
    let mut chance = Lots(12_345);
    let had = || turns(scratch.path()) - before;
    while had() < enough && (begin.elapsed() < time || had() < FEW * all as u64) {
        assert!(begin.elapsed() < DEADLINE, "only {} turns in all that time", had());
        std::thread::sleep(Duration::from_millis(60));
        if contest.kills == Kills::Some {
            let index = chance.index(all);
            killpg(pid_of(&loops[index]), Signal::SIGKILL).unwrap();
            loops[index].wait().unwrap();
            loops[index] = contest.start(&scratch, index);
            killed += 1;
        }
    }
    let elapsed = begin.elapsed();
    scratch.write("stop", "");
    for mut part in loops {
        // It has its last turn when all before it have had theirs.
        let end = loop {
            match part.try_wait().unwrap() {
                Some(end) => break end,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
            assert!(begin.elapsed() < DEADLINE * 2, "a part does not end");
        };
        assert!(end.success());
    }
    judge(title, &scratch, contest, (elapsed, killed));
}

fn judge(title: &str, scratch: &Scratch, contest: &Contest, (elapsed, killed): (Duration, usize)) {
    let all = contest.loops;
    assert!(!scratch.at("violation").exists(), "two were inside at once");
    let waits = numbers(scratch, "waits");
    let (count, longest) = (waits.len(), waits.last().copied().unwrap_or_default());
    let at = |part: usize| Duration::from_nanos(u64::try_from(waits[count * part / 100]).unwrap());
    let longest = Duration::from_nanos(u64::try_from(longest).unwrap());
    let turn = elapsed / u32::try_from(count).unwrap();
    println!(
        "{title}: {count} turns of {turn:.1?} in {elapsed:.1?}, {killed} killed; waited: median \
         {:.0?}, p99 {:.0?}, longest {longest:.0?}, which is {:.2} times {all} turns",
        at(50),
        at(99),
        longest.as_secs_f64() / (turn.as_secs_f64() * all as f64)
    );
    // Counted in turns that others had meanwhile: a busy machine makes waits longer, not unfair.
    let most = numbers(scratch, "passed").last().copied().unwrap_or_default();
    println!("  meanwhile others had at most {most} turns");
    assert!(most <= 2 * all as u128, "somebody waited for {most} turns of others");
    if contest.told == Told::Nothing {
        assert!(longest < at(50) * 3, "somebody waited long: {longest:?}, others {:?}", at(50));
    }
    assert!(count > all * 2, "everybody has a turn or two, or this is no test");
}

/// What all parts wrote down, sorted.
fn numbers(scratch: &Scratch, kind: &str) -> Vec<u128> {
    let logs = fs::read_dir(scratch.path()).unwrap().map(|log| log.unwrap().path());
    let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == kind));
    let texts: Vec<String> = logs.map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut numbers: Vec<u128> =
        texts.iter().flat_map(|text| text.lines().filter_map(|line| line.parse().ok())).collect();
    numbers.sort_unstable();
    numbers
}

// The parts.

fn part_of(way: &str, directory: &Path) {
    if way == "inside" {
        return inside(directory);
    }
    let mut waits = log(directory, "waits");
    let mut passed = log(directory, "passed");
    let mut config = Config::default();
    config.durability = Durability::Memory;
    let semaphore = Semaphore::with_config(directory.join("locks/a"), config).unwrap();
    let limit = Instant::now();
    while !directory.join("stop").exists() && limit.elapsed() < DEADLINE * 2 {
        let before = turns(directory);
        let begin = Instant::now();
        let waited = match way {
            "library" => {
                let guard = semaphore.acquire(None).unwrap();
                let waited = begin.elapsed();
                inside(directory);
                guard.release().unwrap();
                waited
            }
            "acquire" => {
                assert_eq!(sema(directory, &["acquire", "locks/a", "-q"]), 0);
                let waited = begin.elapsed();
                inside(directory);
                assert_eq!(sema(directory, &["release", "locks/a", "-q"]), 0);
                waited
            }
            _ => {
                let us = std::env::current_exe().unwrap();
                let (us, here) = (us.to_str().unwrap(), directory.to_str().unwrap());
                assert_eq!(
                    sema(directory, &["run", "locks/a", "--", us, "part", "inside", here]),
                    0
                );
                begin.elapsed()
            }
        };
        if directory.join("count").exists() {
            writeln!(waits, "{}", waited.as_nanos()).unwrap();
            // Its own turn is among them.
            writeln!(passed, "{}", turns(directory).saturating_sub(before + 1)).unwrap();
        }
    }
}

fn log(directory: &Path, kind: &str) -> File {
    let path = directory.join(format!("{}.{kind}", std::process::id()));
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

/// How many turns there have been: a byte each.
fn turns(directory: &Path) -> u64 {
    fs::metadata(directory.join("turns")).map_or(0, |data| data.len())
}

fn sema(directory: &Path, words: &[&str]) -> i32 {
    let mut command = Command::new(SEMA);
    command.current_dir(directory).args(words).stdin(Stdio::null()).stdout(Stdio::null());
    command.status().unwrap().code().unwrap_or(-1)
}

fn inside(directory: &Path) {
    let file = OpenOptions::new().create(true).append(true).open(directory.join("inside")).unwrap();
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(_alone) => {
            let turns = OpenOptions::new().create(true).append(true).open(directory.join("turns"));
            turns.unwrap().write_all(b".").unwrap();
            std::thread::sleep(HOLD);
        }
        Err(_) => drop(File::create(directory.join("violation")).unwrap()),
    }
}
