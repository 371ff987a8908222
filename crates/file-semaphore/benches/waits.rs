//! Forty-eight loops at one lock, by `sema run`, flock(1) and GNU sem(1), one after the other: how many turns they
//! have, and the longest wait. (dotlockfile(1) looks once a second at most.)
//!
//! `cargo bench -p file-semaphore --features cli --bench waits`. Needs util-linux and
//! parallel.

#![expect(clippy::expect_used, reason = "a bench ends at the first fault")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LOOPS: usize = 48;
const TIME: Duration = Duration::from_secs(6);
/// What everybody does inside.
const HOLD: [&str; 2] = ["sleep", "0.002"];

type Way = fn(&Path) -> Command;

fn main() {
    let ways: [(&str, Way); 3] = [("sema run", sema), ("flock", flock), ("sem (GNU)", gnu_sem)];
    println!("{LOOPS} loops, {TIME:?} each, holding for `{}`:", HOLD.join(" "));
    for (name, way) in ways {
        let scratch = tempfile::tempdir_in("/dev/shm").expect("a directory for the locks");
        let mut waits = contend(scratch.path(), way);
        waits.sort_unstable();
        let count = waits.len().max(1);
        let at = |part: usize| waits.get(count * part / 100).copied().unwrap_or_default();
        let longest = waits.last().copied().unwrap_or_default();
        println!(
            "  {name:<12} {:>6} turns, median {:>8.1?}, p99 {:>8.1?}, longest {longest:>8.1?}",
            waits.len(),
            at(50),
            at(99)
        );
    }
}

fn contend(directory: &Path, way: Way) -> Vec<Duration> {
    let begin = Instant::now();
    let one = || {
        let mut waits = Vec::new();
        while begin.elapsed() < TIME {
            let start = Instant::now();
            let mut command = way(directory);
            command.env_remove("LD_LIBRARY_PATH").env("HOME", directory);
            let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status();
            assert!(status.expect("the peers are installed").success(), "{command:?}");
            waits.push(start.elapsed());
        }
        waits
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..LOOPS).map(|_| scope.spawn(one)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a loop")).collect()
    })
}

fn sema(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sema"));
    command.arg("run").arg(directory.join("a")).args(HOLD);
    command
}

fn flock(directory: &Path) -> Command {
    let mut command = Command::new("flock");
    command.arg(directory.join("a")).args(HOLD);
    command
}

fn gnu_sem(_directory: &Path) -> Command {
    let mut command = Command::new("sem");
    command.args(["--id", "bench", "--fg"]).args(HOLD);
    command
}
