//! One acquire and release through the library against the bare system calls of the original
//! protocol (`open(O_EXCL)`, `write`, `unlink`), interleaved, with and without fsync.
//!
//! `cargo bench -p file-semaphore --bench library`

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a bench ends at the first fault")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use file_semaphore::{Config, Durability, Semaphore};

const BATCHES: usize = 40;
const REQUIRED: f64 = 0.5;

fn main() {
    for directory in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let scratch = tempfile::tempdir_in(directory).expect("a directory for the locks");
        for (durability, cycles) in [(Durability::Memory, 500), (Durability::Disk, 25)] {
            compare(directory, scratch.path(), durability, cycles);
        }
    }
}

fn compare(directory: &str, scratch: &Path, durability: Durability, cycles: usize) {
    let config = Config { durability, ..Config::default() };
    let path = scratch.join("ours");
    let semaphore = Semaphore::with_config(&path, config).unwrap();
    let words = semaphore.try_acquire(None).map(|guard| guard.info().to_text()).unwrap();
    let bare_path = scratch.join("bare");
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        ours.push(time(cycles, || semaphore.try_acquire(None).unwrap().release().unwrap()));
        bare.push(time(cycles, || bare_cycle(&bare_path, words.as_bytes(), durability)));
    }
    let (ours, bare) = (median(&mut ours), median(&mut bare));
    let ratio = bare.as_secs_f64() / ours.as_secs_f64();
    let verdict = match durability {
        Durability::Memory if ratio < REQUIRED => " TOO SLOW",
        Durability::Memory => " ok",
        Durability::Disk => "",
    };
    println!(
        "{directory}, {}: library {:.2} µs, bare calls {:.2} µs, speed ratio {ratio:.2}{verdict}",
        if durability == Durability::Disk { "fsync on " } else { "fsync off" },
        micros(ours),
        micros(bare),
    );
}

fn bare_cycle(path: &Path, words: &[u8], durability: Durability) {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
    file.write_all(words).unwrap();
    if durability == Durability::Disk {
        file.sync_all().unwrap();
    }
    drop(file);
    fs::remove_file(path).unwrap();
}

fn time(cycles: usize, mut cycle: impl FnMut()) -> Duration {
    let begin = Instant::now();
    for _ in 0..cycles {
        cycle();
    }
    begin.elapsed() / u32::try_from(cycles).unwrap()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
