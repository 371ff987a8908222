//! Recorded histories of many clients at once, half of them over HTTP, checked for linearizability. Each key is checked by itself. And that the
//! checker finds what it is for.

use rstest::rstest;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use testbed::Lots;
use testbed::dflockd::history::{Call, Entry, History, Mode};
use testbed::dflockd::{Daemon, HttpTalker, Talker, fence, free_port, slot_of, token_of};

const WORKERS: u64 = 20;
const ROUNDS: u64 = 60;

/// A client of one kind or the other.
enum Client {
    Tcp(Talker),
    Http(HttpTalker),
}

impl Client {
    fn ask(&mut self, command: &str, key: &str, arg: &str) -> String {
        match self {
            Self::Tcp(talker) => talker.ask(command, key, arg),
            Self::Http(talker) => talker.try_ask(command, key, arg).expect("an answer"),
        }
    }
}

/// A worker's calls, per key.
fn work(mut talker: Client, worker: u64, clock: &AtomicU64) -> Vec<History> {
    let mut histories = vec![History::default(); KEYS.len()];
    if let Client::Tcp(talker) = &mut talker {
        assert_eq!(talker.ask("ping", "hello", "slots"), "ok fences lost slots");
    }
    let (mut lots, mut slots) = (Lots(worker), Vec::new());
    let mut old: Vec<Option<String>> = vec![None; KEYS.len()];
    for _ in 0..ROUNDS {
        let place = lots.index(KEYS.len());
        let (key, limit) = KEYS[place];
        let timeout = lots.below(2);
        let shares = key == SHARED && lots.below(4) > 0;
        let mode = if shares { Mode::Shared } else { Mode::Alone };
        let mut record = |from, call| {
            let to = clock.fetch_add(1, Ordering::SeqCst);
            histories[place].entries.push(Entry { call, from, to });
        };
        let from = clock.fetch_add(1, Ordering::SeqCst);
        let reply = match mode {
            Mode::Alone => talker.ask("sl", key, &format!("{timeout} {limit} 60")),
            Mode::Shared => talker.ask("rl", key, &format!("{timeout} 60")),
        };
        match token_of(&reply) {
            None if timeout == 0 => record(from, Call::Failed(mode)),
            None => record(from, Call::GaveUp),
            Some(token) => {
                record(from, Call::Took(fence(token), mode));
                let from = clock.fetch_add(1, Ordering::SeqCst);
                assert_eq!(talker.ask("sr", key, token), "ok");
                record(from, Call::Released(fence(token)));
                let slot = slot_of(&reply).filter(|_| place == POOL);
                slots.extend(slot.map(|slot| (fence(token), slot)));
                old[place] = Some(token.to_owned());
            }
        }
        if let Some(token) = &old[place] {
            let from = clock.fetch_add(1, Ordering::SeqCst);
            assert_eq!(talker.ask("sr", key, token), "error");
            record(from, Call::Refused(fence(token)));
        }
    }
    histories[POOL].slots = slots;
    histories
}

/// The place of the only semaphore.
const POOL: usize = 2;
const KEYS: [(&str, usize); 4] = [("a", 1), ("b", 1), ("pool", 2), (SHARED, 1)];
/// Some take this lock alone, more share it.
const SHARED: &str = "shared";

#[test]
fn concurrent_histories_are_linearizable() {
    let daemon = Daemon::start(&["--http-port", &free_port().to_string()]);
    let http = daemon.http_address();
    let clock = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let clock = Arc::clone(&clock);
            let talker = match worker % 2 {
                0 => Client::Tcp(daemon.talk()),
                _ => Client::Http(HttpTalker::connect(http)),
            };
            std::thread::spawn(move || work(talker, worker, &clock))
        })
        .collect();
    let mut histories = vec![History::default(); KEYS.len()];
    for worker in workers {
        let parts = worker.join().unwrap();
        histories.iter_mut().zip(parts).for_each(|(all, part)| all.join(part));
    }
    for (history, (key, limit)) in histories.iter().zip(KEYS) {
        assert!(history.is_linearizable(limit), "{key}");
        assert!(history.fences_grow(limit), "{key}: fences went back");
        assert!(history.slots_are_apart(limit), "{key}: two had one slot");
    }
    let grants: usize = histories.iter().map(History::grants).sum();
    // A run in which nobody got anything would prove nothing.
    assert!(grants > 300, "{grants}");
}

const fn took(fence: u64) -> Call {
    Call::Took(fence, Mode::Alone)
}

const fn shared(fence: u64) -> Call {
    Call::Took(fence, Mode::Shared)
}

const FAILED: Call = Call::Failed(Mode::Alone);

const fn entry(call: Call, from: u64, to: u64) -> Entry {
    Entry { call, from, to }
}

#[rstest]
#[case::two_holders(&[entry(took(1), 0, 1), entry(took(2), 2, 3)], &[], &[], false)]
#[case::the_first_may_be_gone(&[entry(took(1), 0, 1), entry(took(2), 4, 5)], &[(1, 2)], &[], true)]
#[case::not_yet(&[entry(took(1), 0, 1), entry(took(2), 2, 3)], &[(1, 4)], &[], false)]
#[case::busy_without_a_holder(&[entry(FAILED, 0, 1)], &[], &[], false)]
#[case::busy_after_a_release(
    &[entry(took(1), 0, 1), entry(Call::Released(1), 2, 3), entry(FAILED, 4, 5)], &[], &[], false)]
#[case::busy_before_a_release(
    &[entry(took(1), 0, 3), entry(FAILED, 1, 5), entry(Call::Released(1), 4, 6)], &[], &[], true)]
#[case::busy_by_a_lost_request(&[entry(FAILED, 2, 3)], &[], &[1], true)]
#[case::busy_by_a_hold_that_may_be_gone(
    &[entry(took(1), 0, 1), entry(FAILED, 3, 4)], &[(1, 2)], &[], true)]
#[case::readers(&[entry(shared(1), 0, 1), entry(shared(2), 2, 3), entry(FAILED, 4, 5)], &[], &[], true)]
#[case::a_writer_beside_a_reader(&[entry(shared(1), 0, 1), entry(took(2), 2, 3)], &[], &[], false)]
#[case::a_reader_beside_a_writer(&[entry(took(1), 0, 1), entry(shared(2), 2, 3)], &[], &[], false)]
#[case::a_reader_is_refused_beside_readers(
    &[entry(shared(1), 0, 1), entry(Call::Failed(Mode::Shared), 2, 3)], &[], &[], false)]
#[case::refused_though_held(&[entry(took(1), 0, 1), entry(Call::Refused(1), 2, 3)], &[], &[], false)]
#[case::renewed_after_its_release(
    &[entry(took(1), 0, 1), entry(Call::Released(1), 2, 3), entry(Call::Renewed(1), 4, 5)], &[], &[], false)]
#[case::released_twice(&[entry(took(1), 0, 1), entry(Call::Released(1), 2, 3), entry(Call::Released(1), 4, 5)], &[], &[], false)]
fn the_checker_accepts_and_refuses_the_right_histories(
    #[case] entries: &[Entry],
    #[case] dropped: &[(u64, u64)],
    #[case] lost: &[u64],
    #[case] right: bool,
) {
    let (entries, dropped, lost) = (entries.to_vec(), dropped.to_vec(), lost.to_vec());
    let history = History { entries, dropped, lost, ..History::default() };
    assert_eq!(history.is_linearizable(1), right);
}

#[rstest]
#[case::apart(&[(1, 0), (2, 1)], 2, true)]
#[case::the_same(&[(1, 1), (2, 1)], 2, false)]
#[case::one_without(&[(1, 0)], 2, false)]
#[case::too_great(&[(1, 0), (2, 2)], 2, false)]
#[case::one_after_the_other(&[(1, 0), (2, 1), (3, 0)], 2, true)]
#[case::too_early(&[(1, 0), (2, 1), (3, 1)], 2, false)]
#[case::a_lock(&[], 1, true)]
fn two_holders_of_one_slot_are_found(
    #[case] slots: &[(u64, u32)],
    #[case] limit: usize,
    #[case] right: bool,
) {
    let mut entries = vec![
        entry(took(1), 0, 1),
        entry(took(2), 2, 3),
        entry(Call::Released(1), 4, 5),
        entry(Call::Released(2), 8, 9),
    ];
    if slots.len() == 3 {
        entries.extend([entry(took(3), 5, 6), entry(Call::Released(3), 9, 10)]);
    }
    let history = History { entries, slots: slots.to_vec(), ..History::default() };
    assert_eq!(history.slots_are_apart(limit), right);
}

#[test]
fn fences_and_overlaps() {
    let back = [entry(took(2), 0, 1), entry(took(1), 2, 3)];
    let history = |entries: &[Entry]| History { entries: entries.into(), ..History::default() };
    assert!(!history(&back).fences_grow(2));
    let overtaken = [entry(took(2), 0, 3), entry(took(1), 1, 4)];
    assert!(!history(&overtaken).fences_grow(1) && history(&overtaken).fences_grow(2));
    let both = [
        entry(took(1), 0, 1),
        entry(took(2), 2, 3),
        entry(Call::Released(1), 4, 5),
        entry(Call::Released(2), 6, 7),
    ];
    assert_eq!(history(&both).most_at_once(), 2);
    for (second, most) in [(shared(2), 1), (took(2), 2)] {
        let mut with_reader = both;
        (with_reader[0].call, with_reader[1].call) = (shared(1), second);
        assert_eq!(history(&with_reader).most_at_once(), most);
    }
}
