//! The engine against a small model, in virtual time, over random interleavings.

#[cfg(test)]
#[path = "model/mod.rs"]
mod model;

use leases::{AutoRelease, Claim, Limit};
use model::{Event, Pair};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

fn events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(any::<[u8; 5]>().prop_map(Event::decode), 1..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// Same answers, same effects, same queues, whatever happens in whatever order.
    #[test]
    fn engine_and_model_agree(events in events(60), off in any::<bool>(), max_waiters in 0usize..3, grace in 0u64..3) {
        let auto = if off { AutoRelease::Off } else { AutoRelease::On };
        let mut pair = Pair::new(auto, max_waiters, grace);
        for event in &events {
            pair.apply(event);
        }
        pair.finish();
    }
}

/// A run in which little is granted would prove little.
#[test]
fn the_random_runs_grant_and_wait() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut grants, mut late, mut expiries, mut together) = (0, 0, 0, 0);
    for _ in 0..200 {
        let tree = events(60).new_tree(&mut runner).unwrap();
        let mut pair = Pair::new(AutoRelease::On, 0, 0);
        for event in &tree.current() {
            pair.apply(event);
        }
        grants += pair.engine.counters().grants;
        expiries += pair.engine.counters().expiries;
        late += pair.late_grants;
        together += pair.taken_together;
    }
    assert!(grants > 1000 && late > 100 && expiries > 300, "{grants} {late} {expiries}");
    assert!(together > 50, "{together}");
}

/// Orders that once were wrong, here or in the reference.
#[test]
fn orders_of_requests_that_once_went_wrong() {
    use Event::{Acquire, AcquireAll, Disconnect, Enqueue, Pass, Release, Wait};
    let scripts: &[&[Event]] = &[
        // The reference handed out a token whose lease was over (defect a).
        &[
            Acquire { conn: 0, key: 0, claim: Claim::LOCK, timeout: 0, ttl: 9 },
            Enqueue { conn: 1, key: 0, claim: Claim::LOCK, ttl: 1 },
            Release { conn: 0, key: 0, nth: 0 },
            Pass { millis: 1500 },
            Acquire { conn: 2, key: 0, claim: Claim::LOCK, timeout: 0, ttl: 9 },
            Wait { conn: 1, key: 0, timeout: 5 },
            Wait { conn: 1, key: 0, timeout: 5 },
        ],
        // A grant nobody fetched goes with its connection.
        &[
            Acquire { conn: 0, key: 0, claim: Claim::LOCK, timeout: 0, ttl: 9 },
            Enqueue { conn: 1, key: 0, claim: Claim::LOCK, ttl: 9 },
            Acquire { conn: 2, key: 0, claim: Claim::LOCK, timeout: 5, ttl: 9 },
            Release { conn: 0, key: 0, nth: 0 },
            Disconnect { conn: 1 },
        ],
        // Readers behind a writer that gives up, or leaves, can share with those before it.
        &[
            Acquire { conn: 0, key: 0, claim: Claim::Shared, timeout: 0, ttl: 9 },
            Acquire { conn: 1, key: 0, claim: Claim::LOCK, timeout: 1, ttl: 9 },
            Acquire { conn: 2, key: 0, claim: Claim::Shared, timeout: 5, ttl: 9 },
            Enqueue { conn: 3, key: 0, claim: Claim::Shared, ttl: 9 },
            Pass { millis: 2000 },
            Wait { conn: 3, key: 0, timeout: 0 },
            Acquire { conn: 1, key: 0, claim: Claim::LOCK, timeout: 3, ttl: 9 },
            Acquire { conn: 4, key: 0, claim: Claim::Shared, timeout: 3, ttl: 9 },
            Disconnect { conn: 1 },
            Release { conn: 4, key: 0, nth: 3 },
            Release { conn: 4, key: 0, nth: 0 },
        ],
        // The lease of one reader ends, and nothing else.
        &[
            Acquire { conn: 0, key: 0, claim: Claim::Shared, timeout: 0, ttl: 1 },
            Acquire { conn: 1, key: 0, claim: Claim::Shared, timeout: 0, ttl: 3 },
            Acquire { conn: 2, key: 0, claim: Claim::LOCK, timeout: 5, ttl: 9 },
            Acquire { conn: 3, key: 0, claim: Claim::Shared, timeout: 5, ttl: 9 },
            Pass { millis: 2000 },
            Pass { millis: 2000 },
            Release { conn: 2, key: 0, nth: 0 },
        ],
        // All or none: not beside a holder, not before a waiter, and not with one key too many.
        &[
            Acquire { conn: 0, key: 1, claim: Claim::LOCK, timeout: 0, ttl: 9 },
            AcquireAll { conn: 1, keys: 0b0011, ttl: 9 },
            Acquire { conn: 2, key: 1, claim: Claim::LOCK, timeout: 9, ttl: 2 },
            Release { conn: 0, key: 1, nth: 0 },
            AcquireAll { conn: 1, keys: 0b1010, ttl: 9 },
            Pass { millis: 3000 },
            AcquireAll { conn: 1, keys: 0b1111, ttl: 9 },
            AcquireAll { conn: 1, keys: 0b1011, ttl: 9 },
            AcquireAll { conn: 1, keys: 0b0100, ttl: 9 },
            Release { conn: 3, key: 1, nth: 0 },
            AcquireAll { conn: 3, keys: 0b0110, ttl: 9 },
            Disconnect { conn: 1 },
        ],
        // An idle semaphore can be taken as a lock, and is a lock from then on. Idle keys are forgotten.
        &[
            Acquire {
                conn: 0,
                key: 1,
                claim: Claim::Slot(Limit::new(2).unwrap()),
                timeout: 0,
                ttl: 1,
            },
            Acquire { conn: 0, key: 0, claim: Claim::LOCK, timeout: 0, ttl: 1 },
            AcquireAll { conn: 1, keys: 0b0010, ttl: 9 },
            Pass { millis: 2000 },
            AcquireAll { conn: 1, keys: 0b1110, ttl: 9 },
        ],
        // A lost record keeps its key's limit.
        &[
            Enqueue { conn: 0, key: 1, claim: Claim::Slot(Limit::new(2).unwrap()), ttl: 1 },
            Pass { millis: 2000 },
            AcquireAll { conn: 1, keys: 0b0011, ttl: 9 },
            Wait { conn: 0, key: 1, timeout: 0 },
            AcquireAll { conn: 1, keys: 0b0011, ttl: 9 },
        ],
        // Releasing what `e` acquired deletes its record.
        &[
            Enqueue { conn: 0, key: 0, claim: Claim::LOCK, ttl: 9 },
            Release { conn: 0, key: 0, nth: 0 },
            Wait { conn: 0, key: 0, timeout: 0 },
            Enqueue { conn: 0, key: 0, claim: Claim::LOCK, ttl: 9 },
        ],
    ];
    for script in scripts {
        for auto in [AutoRelease::On, AutoRelease::Off] {
            let mut pair = Pair::new(auto, 0, 0);
            script.iter().for_each(|event| pair.apply(event));
            pair.finish();
        }
    }
}
