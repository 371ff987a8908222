//! A lock taken and released by processes, as a shell script does it: `sema try` and `sema
//! release` against flock(1), dotlockfile(1) and GNU sem(1), interleaved, in memory and on a disk.
//!
//! `cargo bench -p file-semaphore --features cli --bench processes`. Needs util-linux,
//! liblockfile-bin and parallel.

#![expect(clippy::expect_used, reason = "a bench ends at the first fault")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 200;
const ALLOWED: f64 = 1.3;
const RUN_ALLOWED: f64 = 2.0;

struct Contender {
    name: &'static str,
    cycle: fn(&Path),
    times: Vec<Duration>,
}

fn main() {
    for (directory, kind) in [("/dev/shm", Kind::Memory), (env!("CARGO_TARGET_TMPDIR"), Kind::Disk)]
    {
        let scratch = tempfile::tempdir_in(directory).expect("a directory for the locks");
        println!("locks in {directory}, {ROUNDS} rounds, one take and release, lower quartile:");
        compare(scratch.path(), kind);
    }
}

/// Where the locks are. On a disk `sema` makes sure that the lock is on it (fsync), which neither
/// peer does; that line is there to show what it costs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Memory,
    Disk,
}

fn compare(directory: &Path, kind: Kind) {
    let mut contenders = [
        Contender { name: "sema try, sema release", cycle: sema, times: vec![] },
        Contender { name: "sema run -- true", cycle: sema_run, times: vec![] },
        Contender { name: "flock -n FILE true", cycle: flock, times: vec![] },
        Contender { name: "dotlockfile -l, -u", cycle: dotlockfile, times: vec![] },
        Contender { name: "true, true (the floor)", cycle: nothing, times: vec![] },
        Contender { name: "sem --fg true (GNU)", cycle: gnu_sem, times: vec![] },
    ];
    for round in 0..ROUNDS + 10 {
        for contender in &mut contenders {
            // It takes a hundred times as long as the others.
            if contender.name.starts_with("sem ") && round % 20 != 0 {
                continue;
            }
            let begin = Instant::now();
            (contender.cycle)(directory);
            if round >= 10 {
                contender.times.push(begin.elapsed());
            }
        }
    }
    let times: Vec<Duration> = contenders.iter_mut().map(|c| quartile(&mut c.times)).collect();
    for (contender, time) in contenders.iter().zip(&times) {
        println!("  {:<26} {:>8.1} µs", contender.name, time.as_secs_f64() * 1e6);
    }
    if let [ours, run, flock, dotlockfile, ..] = times[..] {
        let ratio = ours.as_secs_f64() / flock.min(dotlockfile).as_secs_f64();
        let verdict = match kind {
            Kind::Disk => "with fsync, which the peers leave out",
            Kind::Memory if ratio <= ALLOWED => "ok",
            Kind::Memory => "TOO SLOW",
        };
        println!("  sema is {ratio:.2} times the faster peer (at most {ALLOWED}): {verdict}");
        let ratio = run.as_secs_f64() / flock.as_secs_f64();
        let verdict = if ratio <= RUN_ALLOWED { "ok" } else { "TOO SLOW" };
        println!("  sema run is {ratio:.2} times flock (at most {RUN_ALLOWED}): {verdict}");
    }
}

/// The time that a quarter of the rounds stayed below: other load on the machine disturbs it less
/// than the middle.
fn quartile(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 4).copied().unwrap_or_default()
}

fn call(program: &str, words: &[&str], path: &Path) {
    let mut command = Command::new(program);
    command.args(words).arg(path);
    finish(&mut command);
}

fn finish(command: &mut Command) {
    // Cargo sets it; it makes the loader of all programs search more, but not that of dotlockfile,
    // which is installed setgid.
    command.env_remove("LD_LIBRARY_PATH").stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().expect("the peers are in util-linux and liblockfile-bin");
    assert!(status.success(), "{command:?}: {status}");
}

fn sema(directory: &Path) {
    let path = directory.join("sema");
    call(env!("CARGO_BIN_EXE_sema"), &["try"], &path);
    call(env!("CARGO_BIN_EXE_sema"), &["release"], &path);
}

fn sema_run(directory: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sema"));
    finish(command.arg("run").arg(directory.join("run")).args(["--", "true"]));
}

fn flock(directory: &Path) {
    finish(Command::new("flock").arg("-n").arg(directory.join("flock")).arg("true"));
}

fn dotlockfile(directory: &Path) {
    let path = directory.join("dot");
    call("dotlockfile", &["-l", "-r", "0"], &path);
    call("dotlockfile", &["-u"], &path);
}

fn gnu_sem(directory: &Path) {
    let mut command = Command::new("sem");
    command.args(["--id", "bench", "--fg", "true"]).env("HOME", directory).stderr(Stdio::null());
    finish(&mut command);
}

fn nothing(_directory: &Path) {
    finish(&mut Command::new("true"));
    finish(&mut Command::new("true"));
}
