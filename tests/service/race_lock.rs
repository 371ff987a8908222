//! Two hundred processes race for one device, fresh and stale, round after round: one of them wins each time, and
//! every reader of the lock file sees a whole lock or none.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use testbed::{GONE, Ground};

use crate::wire::{BUSY, DONE, Wire};

const RACERS: usize = 200;
const ROUNDS: usize = 8;

/// Every racer asks for its own service process, which lives as long as its connection.
fn race(racers: &[Wire]) -> Vec<usize> {
    for racer in racers {
        assert!(racer.send(format!("lock /dev/ttyS1 {}\n", racer.pid()).as_bytes()));
    }
    let reply = |racer: &Wire| racer.receive().trim_end().to_owned();
    let replies: Vec<String> = racers.iter().map(reply).collect();
    assert!(replies.iter().all(|reply| [DONE, BUSY].contains(&&**reply)), "{replies:?}");
    (0..replies.len()).filter(|number| replies[*number] == DONE).collect()
}

/// Reads the lock all the time until told to stop; how often it was there.
fn watch(path: &Path, stop: &AtomicBool) -> usize {
    let mut seen = 0;
    while !stop.load(Ordering::Relaxed) {
        if let Ok(content) = fs::read(path) {
            let text = String::from_utf8(content).expect("text");
            let pid: i64 = text.trim_start().trim_end().parse().expect("a whole lock");
            assert_eq!(text, format!("{pid:>10}\n"));
            seen += 1;
        }
        std::thread::yield_now();
    }
    seen
}

#[test]
fn one_winner_each_round_fresh_and_stale() {
    let ground = Ground::new();
    let lock = ground.path("lock/LCK..ttyS1");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&lock, &stop));
        let mut racers: Vec<Wire> = (0..RACERS).map(|_| Wire::greeted(&ground)).collect();
        for round in 0..ROUNDS {
            let winners = race(&racers);
            assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
            let winner = &racers[winners[0]];
            assert_eq!(fs::read_to_string(&lock).unwrap(), format!("{:>10}\n", winner.pid()));
            if round % 2 == 0 {
                // Stale: the winner dies, and the others race for what it left.
                assert_eq!(racers.remove(winners[0]).hang_up().code(), Some(0));
            } else {
                // Fresh: the winner lets go.
                assert_eq!(winner.ask(&format!("unlock /dev/ttyS1 {}", winner.pid())), DONE);
                assert!(!lock.exists());
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(watcher.join().unwrap() > 0);
    });
    let leftovers: Vec<_> =
        ground.locks().into_iter().filter(|name| name != "LCK..ttyS1").collect();
    assert_eq!(leftovers, [""; 0]);
}

/// Many release one stale lock at once while others take it: who takes it keeps it. Where a releaser stands still for a
/// second, all others are sent away.
#[test]
fn releasers_of_a_stale_lock_never_take_a_fresh_one_away() {
    let ground = Ground::new();
    let lock = ground.path("lock/LCK..ttyS1");
    let racers: Vec<Wire> = (0..40).map(|_| Wire::greeted(&ground)).collect();
    let mut rounds = 0;
    for round in 0..20 {
        fs::write(&lock, format!("{GONE:>10}\n")).unwrap();
        let (takers, releasers): (Vec<_>, Vec<_>) =
            racers.iter().enumerate().partition(|(number, _)| number % 2 == 0);
        for ((_, taker), (_, releaser)) in takers.iter().zip(&releasers) {
            assert!(releaser.send(format!("unlock ttyS1 {GONE}\n").as_bytes()));
            assert!(taker.send(format!("lock ttyS1 {}\n", taker.pid()).as_bytes()));
        }
        let won: Vec<u32> = takers
            .iter()
            .filter(|(_, taker)| taker.receive().starts_with("200 "))
            .map(|(_, taker)| taker.pid())
            .collect();
        for (_, releaser) in &releasers {
            assert!(["200 ", "450 "].contains(&&releaser.receive()[..4]));
        }
        assert!(won.len() < 2, "round {round}: {won:?}");
        let Some(winner) = won.first() else { continue };
        assert_eq!(fs::read_to_string(&lock).unwrap(), format!("{winner:>10}\n"));
        fs::remove_file(&lock).unwrap();
        rounds += 1;
    }
    assert!(rounds > 0, "nobody ever got it");
}
