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
