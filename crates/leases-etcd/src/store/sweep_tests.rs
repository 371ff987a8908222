//! What a sweep leaves of the tables of a rush, with a stand-in for etcd.

use super::super::Engine;
use super::super::both_stores::{Clock, front};
use super::super::stand_in::Etcd;
use super::*;
use crate::sample::CAPS;
use leases::{Answer, Caps, Claim, ConnId, Effect, Key, Request, Seconds, Token, Ttl, Verdict};
use rstest::rstest;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

const CONNECTIONS: usize = 100;
const KEYS_OF_EACH: usize = 25;
const KEYS: usize = CONNECTIONS * KEYS_OF_EACH;

/// Each connection asks for one thing; what they are answered.
async fn ask_all<'r>(
    engine: &mut Engine,
    now: Moment,
    requests: impl Iterator<Item = (ConnId, Request<'r>)>,
) -> HashMap<ConnId, Answer> {
    let mut answers = HashMap::new();
    let mut asked = 0;
    for (id, request) in requests {
        assert_eq!(engine.ask(now, id, request), Verdict::Later);
        asked += 1;
    }
    for _ in 0..10_000 {
        while let Some(effect) = engine.take_effect() {
            if let Effect::Answer(id, answer) = effect {
                answers.insert(id, answer);
            }
        }
        if answers.len() == asked {
            return answers;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} of {asked} were answered", answers.len())
}

/// Each connection takes a key of this round; the tokens.
async fn take_all(
    engine: &mut Engine,
    conns: &[ConnId],
    names: &[String],
) -> HashMap<ConnId, Token> {
    let requests = conns.iter().zip(names).map(|(id, name)| {
        let key = Key::new(name.as_bytes()).unwrap();
        let (claim, timeout, ttl) = (Claim::LOCK, Seconds::ZERO, Ttl::new(3600));
        (*id, Request::Acquire { key, claim, timeout, ttl })
    });
    let now = engine.inner.now();
    let token = |(id, answer)| match answer {
        Answer::Granted(grant) => (id, grant.token),
        Answer::All(_)
        | Answer::Acquired(_)
        | Answer::Queued
        | Answer::TimedOut
        | Answer::Released
        | Answer::Renewed(_)
        | Answer::Refused(_) => panic!("{answer:?}"),
    };
    ask_all(engine, now, requests).await.into_iter().map(token).collect()
}

async fn release_all(
    engine: &mut Engine,
    conns: &[ConnId],
    names: &[String],
    tokens: &HashMap<ConnId, Token>,
) {
    let requests = conns.iter().zip(names).map(|(id, name)| {
        let key = Key::new(name.as_bytes()).unwrap();
        (*id, Request::Release { key, token: Some(tokens[id]) })
    });
    let now = engine.inner.now();
    let answers = ask_all(engine, now, requests).await;
    assert!(answers.values().all(|answer| *answer == Answer::Released));
}

/// Keys come in a rush and go: once they are forgotten no table keeps room for them, and the server is told
/// that memory may go.
#[tokio::test]
async fn keys_of_a_rush_are_forgotten() {
    let (most, gc_max_idle) = (2 * KEYS, Seconds::new(60).unwrap());
    let caps = Caps { max_locks: most, max_entries: most, gc_max_idle, ..CAPS };
    let caps = Caps { max_entries_per_connection: most, ..caps };
    let (clock, etcd) = (Arc::new(Clock::default()), Etcd::default());
    let mut engine = front(caps, &clock, &etcd);
    let inner = Arc::clone(&engine.inner);
    let conns: Vec<ConnId> = (0..CONNECTIONS as u64).map(|it| engine.connect(1 + it)).collect();
    let names: Vec<Vec<String>> = (0..KEYS_OF_EACH)
        .map(|round| (0..CONNECTIONS).map(|conn| format!("held/{conn}/{round}")).collect())
        .collect();
    let mut tokens = Vec::new();
    for names in &names {
        tokens.push(take_all(&mut engine, &conns, names).await);
    }
    inner.take_picture().await.unwrap();
    assert!(!inner.state().is_outdated());
    for (names, tokens) in names.iter().zip(&tokens) {
        release_all(&mut engine, &conns, names, tokens).await;
    }
    assert!(inner.state().is_outdated());
    // Idle, but not for long enough.
    inner.take_picture().await.unwrap();
    inner.tidy().await;
    assert_eq!(inner.state().census.idle_locks, KEYS);
    // One is used again, and the picture does not show that.
    clock.0.fetch_add(61_000, Ordering::Relaxed);
    let tokens = take_all(&mut engine, &conns[..1], &names[0][..1]).await;
    release_all(&mut engine, &conns[..1], &names[0][..1], &tokens).await;
    while engine.take_effect().is_some() {}
    inner.tidy().await;
    let is_there = |key: &[u8]| etcd.has(&inner.names.limit(key));
    assert!(is_there(b"held/0/0") && !is_there(b"held/0/1") && !is_there(b"held/99/24"));
    assert_eq!(inner.state().census.idle_locks, 1);
}

#[rstest]
#[case::soon(false, 19, false)]
#[case::in_time(false, 20, true)]
#[case::outdated_but_soon(true, 3, false)]
#[case::outdated(true, 4, true)]
fn pictures_take_their_share_at_most(
    #[case] is_outdated: bool,
    #[case] seconds: u64,
    #[case] is_due: bool,
) {
    let end = Instant::now();
    let pace = Pace::since(end, Duration::from_secs(1));
    assert_eq!(pace.is_due(end + Duration::from_secs(seconds), is_outdated), is_due);
}
