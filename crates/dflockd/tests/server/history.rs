//! Recorded histories of many clients at once, checked for linearizability (Wing and Gong's
//! search, with a memory of what was tried). Each key is checked by itself.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use testbed::dflockd::{Daemon, Talker};

const WORKERS: u64 = 20;
const ROUNDS: u64 = 60;
/// On a right history the search is nearly straight; on a wrong one it explodes.
const STEPS: usize = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// A try or a wait that got this token.
    Took(u64, Mode),
    /// A try that got none: at that moment all slots were taken or somebody waited.
    Failed(Mode),
    /// A wait that ended without one. It may have stood in the queue for a moment and changed
    /// nothing, so it says nothing about the state and may stand anywhere.
    GaveUp,
    Released(u64),
    /// A release that was refused.
    Refused(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Mode {
    /// A lock or a slot of its own.
    Alone,
    /// A lock, with others that ask for the same.
    Shared,
}

/// Tokens, and in which way they hold the key.
type Held = Vec<(u64, Mode)>;

#[derive(Clone, Copy, Debug)]
struct Entry {
    call: Call,
    from: u64,
    to: u64,
}

/// Whether `call` may happen in `held`, and what is held then. `waits` tells whether a call that
/// can have waited in the queue is open at that moment.
fn apply(held: &[(u64, Mode)], limit: usize, call: Call, queued: bool) -> Option<Held> {
    let mut next = held.to_vec();
    let has_room = |mode| match mode {
        Mode::Alone => held.len() < limit && held.iter().all(|it| it.1 == Mode::Alone),
        Mode::Shared => held.iter().all(|it| it.1 == Mode::Shared),
    };
    match call {
        Call::Took(token, mode) => {
            has_room(mode).then(|| next.push((token, mode)))?;
            next.sort_unstable();
        }
        Call::Failed(mode) => (!has_room(mode) || queued).then_some(())?,
        Call::GaveUp => {}
        Call::Released(token) => {
            let place = held.iter().position(|it| it.0 == token)?;
            next.remove(place);
        }
        Call::Refused(token) => held.iter().all(|it| it.0 != token).then_some(())?,
    }
    Some(next)
}

/// An order of all calls that one client at a time could have made, or the step budget ran out.
fn is_linearizable(entries: &[Entry], limit: usize) -> bool {
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| entry.from);
    let mut tried: HashSet<(Vec<bool>, Held)> = HashSet::new();
    let mut stack = vec![(vec![false; entries.len()], Vec::new())];
    let mut steps = 0;
    while let Some((done, held)) = stack.pop() {
        let Some(first) = done.iter().position(|&d| !d) else { return true };
        // A call that returned before another began comes before it.
        let open: Vec<usize> = (first..entries.len()).filter(|&i| !done[i]).collect();
        let end = open.iter().map(|&i| entries[i].to).min().unwrap();
        for &i in open.iter().rev().filter(|&&i| entries[i].from < end) {
            let queued = open.iter().any(|&j| {
                j != i
                    && entries[j].from < entries[i].to
                    && matches!(entries[j].call, Call::Took(..) | Call::GaveUp)
            });
            if let Some(next) = apply(&held, limit, entries[i].call, queued) {
                let mut done = done.clone();
                done[i] = true;
                if tried.insert((done.clone(), next.clone())) {
                    stack.push((done, next));
                }
            }
        }
        steps += 1;
        assert!(steps < STEPS, "the search found no order within its budget");
    }
    false
}

fn token_of(reply: &str) -> Option<(String, u64)> {
    let token = reply.strip_prefix("ok ")?.split(' ').next()?.to_owned();
    let fence = u64::from_str_radix(&token[..16], 16).unwrap();
    Some((token, fence))
}

/// A worker's calls, per key.
fn work(mut talker: Talker, worker: u64, clock: &AtomicU64) -> Vec<Vec<Entry>> {
    let mut histories = vec![Vec::new(); KEYS.len()];
    let mut random = worker * 7919 + 17;
    let mut old: Vec<Option<(String, u64)>> = vec![None; KEYS.len()];
    for _ in 0..ROUNDS {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = usize::try_from(random >> 33).unwrap() % KEYS.len();
        let (key, limit) = KEYS[place];
        let timeout = random >> 40 & 1;
        let shares = key == SHARED && (random >> 41) % 4 > 0;
        let mode = if shares { Mode::Shared } else { Mode::Alone };
        let mut record = |from, call| {
            histories[place].push(Entry { call, from, to: clock.fetch_add(1, Ordering::SeqCst) });
        };
        let from = clock.fetch_add(1, Ordering::SeqCst);
        let reply = match mode {
            Mode::Alone => talker.ask("sl", key, &format!("{timeout} {limit} 60")),
            Mode::Shared => talker.ask("rl", key, &format!("{timeout} 60")),
        };
        match token_of(&reply) {
            None if timeout == 0 => record(from, Call::Failed(mode)),
            None => record(from, Call::GaveUp),
            Some((token, fence)) => {
                record(from, Call::Took(fence, mode));
                let from = clock.fetch_add(1, Ordering::SeqCst);
                assert_eq!(talker.ask("sr", key, &token), "ok");
                record(from, Call::Released(fence));
                old[place] = Some((token, fence));
            }
        }
        if let Some((token, fence)) = &old[place] {
            let from = clock.fetch_add(1, Ordering::SeqCst);
            assert_eq!(talker.ask("sr", key, token), "error");
            record(from, Call::Refused(*fence));
        }
    }
    histories
}

const KEYS: [(&str, usize); 4] = [("a", 1), ("b", 1), ("pool", 2), (SHARED, 1)];
/// Some take this lock alone, more share it.
const SHARED: &str = "shared";

#[test]
fn concurrent_histories_are_linearizable() {
    let daemon = Daemon::start(&[]);
    let clock = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (talker, clock) = (daemon.talk(), Arc::clone(&clock));
            std::thread::spawn(move || work(talker, worker, &clock))
        })
        .collect();
    let mut histories = vec![Vec::new(); KEYS.len()];
    for worker in workers {
        for (all, part) in histories.iter_mut().zip(worker.join().unwrap()) {
            all.extend(part);
        }
    }
    let mut grants = 0;
    for (history, (key, limit)) in histories.iter().zip(KEYS) {
        assert!(is_linearizable(history, limit), "{key}");
        let mut taken: Vec<(u64, u64, u64)> = Vec::new();
        for entry in history {
            if let Call::Took(fence, _) = entry.call {
                taken.push((entry.from, entry.to, fence));
            }
        }
        grants += taken.len();
        // A client that got its grant before another asked has the smaller fence.
        for &(from, _, fence) in &taken {
            assert!(taken.iter().all(|&(_, to, other)| to > from || other < fence), "{key}");
        }
    }
    // A run in which nobody got anything would prove nothing.
    assert!(grants > 300, "{grants}");
}

fn entry(call: Call, from: u64, to: u64) -> Entry {
    Entry { call, from, to }
}

/// The checker finds what it is for.
#[test]
fn wrong_histories_are_found() {
    let took = |token| Call::Took(token, Mode::Alone);
    let shared = |token| Call::Took(token, Mode::Shared);
    let failed = Call::Failed(Mode::Alone);
    let two_holders = [entry(took(1), 0, 1), entry(took(2), 2, 3)];
    assert!(!is_linearizable(&two_holders, 1));
    assert!(is_linearizable(&two_holders, 2));
    let lost = [entry(took(1), 0, 1), entry(Call::Released(1), 2, 3), entry(failed, 4, 5)];
    assert!(!is_linearizable(&lost, 1));
    let overlapping = [entry(took(1), 0, 3), entry(failed, 1, 5), entry(Call::Released(1), 4, 6)];
    assert!(is_linearizable(&overlapping, 1));
    let twice =
        [entry(took(1), 0, 1), entry(Call::Released(1), 2, 3), entry(Call::Released(1), 4, 5)];
    assert!(!is_linearizable(&twice, 1));
    let refused = [entry(took(1), 0, 1), entry(Call::Refused(1), 2, 3)];
    assert!(!is_linearizable(&refused, 1));
    let both = |first, second| [entry(first, 0, 1), entry(second, 2, 3)];
    assert!(is_linearizable(&both(shared(1), shared(2)), 1));
    assert!(!is_linearizable(&both(shared(1), took(2)), 1));
    assert!(!is_linearizable(&both(took(1), shared(2)), 1));
    assert!(is_linearizable(&both(shared(1), failed), 1));
    assert!(!is_linearizable(&both(shared(1), Call::Failed(Mode::Shared)), 1));
}
