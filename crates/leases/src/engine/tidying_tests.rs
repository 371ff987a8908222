use super::*;
use crate::sample::{CAPS, Counting};
use crate::{Answer, AutoRelease, Claim, ConnId, Key, Limit, Request, Seconds, Token, Verdict};
use rstest::rstest;
use std::hash::RandomState;

const KEYS: usize = 50_000;

fn at(seconds: u64) -> Moment {
    Moment::from_micros(seconds * 1_000_000)
}

fn engine() -> Engine<Counting> {
    let caps = crate::Caps { max_locks: KEYS, max_entries: KEYS, ..CAPS };
    let caps = crate::Caps { max_entries_per_connection: KEYS, ..caps };
    Engine::new(caps, Counting(0), RandomState::new())
}

/// Locks and semaphores with two slots, all held by one connection.
fn take_all(engine: &mut Engine<Counting>, conn: ConnId) -> Vec<(String, Token)> {
    let take = |number: usize| {
        let name = format!("key/{number}");
        let request = Request::Acquire {
            key: Key::new(name.as_bytes()).unwrap(),
            claim: Claim::Slot(Limit::new(1 + number as u64 % 2).unwrap()),
            timeout: Seconds::ZERO,
            ttl: None,
        };
        let verdict = engine.ask(at(0), conn, request);
        let Verdict::Now(Answer::Granted(grant)) = verdict else { panic!("{verdict:?}") };
        (name, grant.token)
    };
    (0..KEYS).map(take).collect()
}

/// Calls the engine at its deadlines, as the server does.
fn run(engine: &mut Engine<Counting>, until: Moment) -> Vec<Effect> {
    let mut effects = Vec::new();
    let (mut now, mut calls) = (at(0), 0);
    while engine.next_deadline() <= until {
        now = now.max(engine.next_deadline());
        let _the_deadline_tells = engine.advance(now, 64);
        effects.extend(std::iter::from_fn(|| engine.take_effect()));
        calls += 1;
        assert!(calls < 100 * KEYS, "it comes to an end");
    }
    effects
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Released,
    /// The leases end.
    Expired,
    /// Its connection ends.
    Left,
}

/// When the keys of a rush are forgotten, their memory is given back, however they became free, except for places
/// before a hold that stays.
#[rstest]
#[case::released(Way::Released, None, 6 * 1024)]
#[case::expired(Way::Expired, None, 6 * 1024)]
#[case::left(Way::Left, None, 6 * 1024)]
#[case::one_stays(Way::Released, Some(1_000), 12 * 1024)]
fn tables_of_a_rush_give_their_memory_back(
    #[case] way: Way,
    #[case] stays: Option<usize>,
    #[case] most: usize,
) {
    let mut engine = engine();
    let conn = engine.connect(1);
    let held = take_all(&mut engine, conn);
    let full = engine.capacity();
    assert!(full > 3 * KEYS, "{full}");
    match way {
        Way::Released => {
            for (number, (name, token)) in held.iter().enumerate() {
                let key = Key::new(name.as_bytes()).unwrap();
                if stays == Some(number) {
                    let ttl = crate::Ttl::new(3600);
                    engine.ask(at(1), conn, Request::Renew { key, token: Some(*token), ttl });
                } else {
                    engine.ask(at(1), conn, Request::Release { key, token: Some(*token) });
                }
            }
        }
        Way::Expired => {}
        Way::Left => while engine.disconnect(at(1), conn, AutoRelease::On, 64) == Progress::More {},
    }
    let effects = run(&mut engine, at(600));
    assert_eq!((engine.keys(), engine.held()), stays.map_or((0, 0), |_| (1, 1)));
    // Once when the holds have ended, and once when the keys are forgotten, not in each round.
    let told = effects.iter().filter(|effect| **effect == Effect::Shrunk).count();
    assert!((1..=2).contains(&told), "{told}");
    assert!(engine.capacity() <= most, "{}", engine.capacity());
}

/// Entries that come and go all the time do not make tables shrink or grow.
#[test]
fn small_tables_stay_as_they_are() {
    let mut engine = engine();
    let conn = engine.connect(1);
    for round in 0..50 {
        for number in 0..10 {
            let name = format!("{round}/{number}");
            let key = Key::new(name.as_bytes()).unwrap();
            let (claim, timeout) = (Claim::LOCK, Seconds::ZERO);
            engine.ask(at(round), conn, Request::Acquire { key, claim, timeout, ttl: None });
        }
    }
    assert!(!run(&mut engine, at(600)).contains(&Effect::Shrunk));
}
