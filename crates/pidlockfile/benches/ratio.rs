//! What a safe lock costs beside a bare one, in one run and in turns: printed as ratios to
//! `open(O_CREAT|O_EXCL)`, `write`, `close`, `unlink`, which is the least a lock file can cost.
//!
//! `cargo bench -p pidlockfile --bench ratio`, in `TMPDIR`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a program for developers")]

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use pidlockfile::{Attempt, Claim, Directory, Durability, Found, Judged, Name};

const TURNS: usize = 40;
const EACH_TURN: u32 = 250;
const WORDS: &[u8] = b"      4242\n";

type Way<'a> = (&'static str, Box<dyn Fn() + 'a>);

fn main() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    let ways = ways(scratch.path(), &directory);
    let mut times = vec![Vec::with_capacity(TURNS); ways.len()];
    for _ in 0..TURNS {
        for ((_, way), times) in ways.iter().zip(&mut times) {
            let start = Instant::now();
            (0..EACH_TURN).for_each(|_| way());
            times.push(start.elapsed() / EACH_TURN);
        }
    }
    let medians: Vec<Duration> = times.iter_mut().map(|times| median(times)).collect();
    let floor = medians.first().unwrap();
    for ((what, _), time) in ways.iter().zip(&medians) {
        let ratio = time.as_secs_f64() / floor.as_secs_f64();
        println!("{what:<45} {:>8.2} us  ratio {ratio:.2}", time.as_secs_f64() * 1e6);
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap()
}

fn ways<'a>(path: &Path, directory: &'a Directory) -> Vec<Way<'a>> {
    let bare = path.join("bare");
    let linked = (path.join("temporary"), path.join("linked"));
    let name = Name::new("LCK..x").unwrap();
    let claim =
        Claim { content: WORDS, mode: 0o444, prefix: "b".as_ref(), durability: Durability::Memory };
    let stale = Name::new("LCK..stale").unwrap();
    directory.publish(&stale, &claim).unwrap();
    let named = name.clone();
    vec![
        (
            "bare: open exclusively, write, close, unlink",
            Box::new(move || {
                let mut file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o444)
                    .open(&bare)
                    .unwrap();
                file.write_all(WORDS).unwrap();
                drop(file);
                std::fs::remove_file(&bare).unwrap();
            }),
        ),
        (
            "by hand: temporary file, chmod, link, unlinks",
            Box::new(move || {
                let (temporary, lock) = &linked;
                let mut file =
                    OpenOptions::new().write(true).create_new(true).open(temporary).unwrap();
                file.write_all(WORDS).unwrap();
                file.set_permissions(PermissionsExt::from_mode(0o444)).unwrap();
                std::fs::hard_link(temporary, lock).unwrap();
                std::fs::remove_file(temporary).unwrap();
                drop(file);
                std::fs::remove_file(lock).unwrap();
            }),
        ),
        (
            "publish, withdraw",
            Box::new(move || match directory.publish(&name, &claim).unwrap() {
                Some(published) => {
                    directory.withdraw(&name, &published).unwrap();
                }
                None => panic!("it was free"),
            }),
        ),
        (
            "publish, read, release",
            Box::new(move || {
                directory.publish(&named, &claim).unwrap();
                directory.release(&named, judge(directory, &named), "b").unwrap();
            }),
        ),
        (
            "read, replace",
            Box::new(move || {
                let judged = judge(directory, &stale);
                let breaking = directory.replace(&stale, judged, &claim).unwrap();
                assert!(matches!(breaking, Attempt::Done(_)));
            }),
        ),
    ]
}

fn judge(directory: &Directory, name: &Name) -> Judged {
    match directory.read(name, 64).unwrap() {
        Found::File(judged) => judged,
        other @ (Found::Nothing | Found::Obstacle(_)) => panic!("found {other:?}"),
    }
}
