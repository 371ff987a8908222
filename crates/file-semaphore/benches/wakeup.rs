//! How long a waiter sleeps on after a release: from the moment before the holder lets go to the
//! moment after another thread holds it. The floor beside it: a byte through a socket.
//!
//! `cargo bench -p file-semaphore --bench wakeup`

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a bench ends at the first fault")]

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use file_semaphore::{Config, Durability, Error, Semaphore};

const ROUNDS: usize = 200;
const ALLOWED: Duration = Duration::from_millis(2);

fn main() {
    let scratch = tempfile::tempdir_in("/dev/shm").expect("a directory for the lock");
    let path = scratch.path().join("lock");
    let config = Config { durability: Durability::Memory, ..Config::default() };
    let semaphore = Semaphore::with_config(&path, config).unwrap();
    let (ask, asked) = channel();
    let (tell, told) = channel();
    let waiter = semaphore.clone();
    let thread = std::thread::spawn(move || wait(&waiter, &asked, &tell));

    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| round(&semaphore, &ask, &told)).collect();
    drop(ask);
    thread.join().unwrap();
    times.sort_unstable();
    let at = |part: usize| times.get(ROUNDS * part / 100).copied().unwrap_or_default();
    let verdict = if at(50) < ALLOWED { "ok" } else { "TOO SLOW" };
    println!(
        "release to next holder: median {:?}, p90 {:?}, worst {:?} (median below {ALLOWED:?}): \
         {verdict}",
        at(50),
        at(90),
        at(99)
    );
    println!("the floor, one byte through a socket to a sleeping thread: median {:?}", byte());
}

fn round(semaphore: &Semaphore, ask: &Sender<()>, told: &Receiver<Instant>) -> Duration {
    let guard = semaphore.try_acquire(None).unwrap();
    ask.send(()).unwrap();
    // Until the other thread surely sleeps: longer than its first looks, not a multiple of the
    // 100 ms after which it would look by itself.
    std::thread::sleep(Duration::from_millis(15));
    assert!(matches!(semaphore.try_acquire(None), Err(Error::AlreadyLocked { .. })));
    let begin = Instant::now();
    guard.release().unwrap();
    told.recv().unwrap().duration_since(begin)
}

fn wait(semaphore: &Semaphore, asked: &Receiver<()>, tell: &Sender<Instant>) {
    while asked.recv().is_ok() {
        let guard = semaphore.acquire(None).unwrap();
        let now = Instant::now();
        guard.release().unwrap();
        tell.send(now).unwrap();
    }
}

fn byte() -> Duration {
    let (mut reader, mut writer) = std::os::unix::net::UnixStream::pair().unwrap();
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || {
        let mut byte = [0];
        while reader.read_exact(&mut byte).is_ok() {
            tell.send(Instant::now()).unwrap();
        }
    });
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            let begin = Instant::now();
            writer.write_all(b"x").unwrap();
            told.recv().unwrap().duration_since(begin)
        })
        .collect();
    drop(writer);
    thread.join().unwrap();
    times.sort_unstable();
    times.get(ROUNDS / 2).copied().unwrap_or_default()
}
