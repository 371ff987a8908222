//! From the end of one command that held the lock to the first act of the next, which waited for it: by
//! `sema run` and by flock(1), in turns, in one run.
//!
//! `cargo bench -p file-semaphore --features cli --bench starts`. Needs util-linux.

#![expect(clippy::expect_used, reason = "a bench ends at the first fault")]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ROUNDS: usize = 100;
/// Longer than anybody needs to get into line, and no multiple of the time after which a waiter looks
/// by itself.
const SETTLING: Duration = Duration::from_millis(35);
const MOST: f64 = 1.5;

type Way = fn(&Path) -> Command;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("hold") => return hold(),
        Some("start") => return tell(),
        _ => {}
    }
    let scratch = tempfile::tempdir_in("/dev/shm").expect("a directory for the locks");
    let ways: [(&str, Way); 2] = [("sema run", sema), ("flock", flock)];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for ((_, way), times) in ways.iter().zip(&mut times) {
            times.push(round(scratch.path(), *way));
        }
    }
    let mut medians = Vec::new();
    for ((name, _), mut times) in ways.into_iter().zip(times) {
        times.sort_unstable();
        let at = |part: usize| times.get(ROUNDS * part / 100).copied().unwrap_or_default();
        println!("{name:<9} p50 {:>8.1?}, p90 {:>8.1?}, p99 {:>8.1?}", at(50), at(90), at(99));
        medians.push(at(50).as_secs_f64());
    }
    let ratio = medians.iter().copied().reduce(|ours, theirs| ours / theirs).unwrap_or_default();
    let verdict = if ratio <= MOST { "ok" } else { "TOO SLOW" };
    println!("median of sema run over that of flock: {ratio:.2} (at most {MOST}): {verdict}");
}

fn round(directory: &Path, way: Way) -> Duration {
    let us = std::env::current_exe().expect("this program");
    let spawn = |word: &str| {
        let mut command = way(directory);
        command.arg(&us).arg(word).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().expect("the peer is installed")
    };
    let mut holder = spawn("hold");
    let mut holding = holder.stdout.take().expect("piped");
    // Its first line says that it holds the lock.
    read_time(&mut holding);
    let mut waiter = spawn("start");
    std::thread::sleep(SETTLING);
    holder.stdin.take().expect("piped").write_all(b"x").expect("it listens");
    let ended = read_time(&mut holding);
    let began = read_time(&mut waiter.stdout.take().expect("piped"));
    holder.wait().expect("it ends");
    waiter.wait().expect("it ends");
    began.saturating_sub(ended)
}

fn read_time(from: &mut impl Read) -> Duration {
    let mut bytes = [0; 16];
    from.read_exact(&mut bytes).expect("a time");
    Duration::from_nanos(u64::try_from(u128::from_le_bytes(bytes)).unwrap_or_default())
}

/// The command that holds the lock, until it hears a byte.
fn hold() {
    tell();
    std::io::stdin().read_exact(&mut [0]).expect("a byte");
    tell();
}

fn tell() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    std::io::stdout().write_all(&now.as_nanos().to_le_bytes()).expect("somebody listens");
    std::io::stdout().flush().expect("somebody listens");
}

fn sema(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sema"));
    command.arg("run").arg(directory.join("a"));
    command
}

fn flock(directory: &Path) -> Command {
    let mut command = Command::new("flock");
    command.arg(directory.join("b"));
    command
}
