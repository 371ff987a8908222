//! The engine against a small model, in virtual time, over random interleavings.

#[cfg(test)]
#[path = "model/mod.rs"]
mod model;

use leases::AutoRelease;
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
    let (mut grants, mut late, mut expiries) = (0, 0, 0);
    for _ in 0..200 {
        let tree = events(60).new_tree(&mut runner).unwrap();
        let mut pair = Pair::new(AutoRelease::On, 0, 0);
        for event in &tree.current() {
            pair.apply(event);
        }
        grants += pair.engine.counters().grants;
        expiries += pair.engine.counters().expiries;
        late += pair.late_grants;
    }
    assert!(grants > 1000 && late > 100 && expiries > 300, "{grants} {late} {expiries}");
}

/// Orders that once were wrong, here or in the reference.
#[test]
fn known_traps() {
    use Event::{Acquire, Disconnect, Enqueue, Pass, Release, Wait};
    let scripts: &[&[Event]] = &[
        // The reference handed out a token whose lease was over (defect a).
        &[
            Acquire { conn: 0, key: 0, limit: 1, timeout: 0, ttl: 9 },
            Enqueue { conn: 1, key: 0, limit: 1, ttl: 1 },
            Release { conn: 0, key: 0, nth: 0 },
            Pass { millis: 1500 },
            Acquire { conn: 2, key: 0, limit: 1, timeout: 0, ttl: 9 },
            Wait { conn: 1, key: 0, timeout: 5 },
            Wait { conn: 1, key: 0, timeout: 5 },
        ],
        // A grant nobody fetched goes with its connection.
        &[
            Acquire { conn: 0, key: 0, limit: 1, timeout: 0, ttl: 9 },
            Enqueue { conn: 1, key: 0, limit: 1, ttl: 9 },
            Acquire { conn: 2, key: 0, limit: 1, timeout: 5, ttl: 9 },
            Release { conn: 0, key: 0, nth: 0 },
            Disconnect { conn: 1 },
        ],
        // Releasing what `e` acquired deletes its record.
        &[
            Enqueue { conn: 0, key: 0, limit: 1, ttl: 9 },
            Release { conn: 0, key: 0, nth: 0 },
            Wait { conn: 0, key: 0, timeout: 0 },
            Enqueue { conn: 0, key: 0, limit: 1, ttl: 9 },
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
