//! Every future of the library, dropped at each of its steps: polled never, once, twice, until it is ready.
//! Whatever it was about to do, nothing stays held, queued or connected, and the client works on.
//!
//! One server gives back what a closed connection held, the other keeps it for a lease of ten minutes: there a
//! grant that nobody has heard of would stay.

use crate::library::{KEEPS, client, queued, seconds, turn, until_stats};
use dflock::{Claim, Claims, ClientError, Connection, Entry, Key, Kind, Lease, Stats, Token};
use rstest::rstest;
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::{Duration, Instant};
use testbed::dflockd::Daemon;

/// More than any of the futures takes.
const MOST_STEPS: usize = 200;

/// The outcome, if the future is ready by its last poll. It is dropped after that.
async fn polled<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    let mut left = times;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Only the one that asks is connected, and nothing is held or waited for.
async fn until_nothing_is_left(daemon: &Daemon) {
    until_stats(daemon, "ok {\"connections\":1,\"locks\":[],\"semaphores\":[]").await;
}

async fn held(lock: &Claim) -> Lease {
    lock.try_acquire().await.unwrap().expect("nobody has it")
}

/// Drops the future that `begin` makes after each number of polls until it is ready by itself.
async fn at_each_step<T, F: Future<Output = Option<T>>>(
    daemon: &Daemon,
    lock: &Claim,
    begin: impl Fn(usize) -> F,
) -> T {
    for step in 0..MOST_STEPS {
        let outcome = begin(step).await;
        if let Some(outcome) = outcome {
            assert!(step > 1, "there was nothing to drop");
            return outcome;
        }
        until_nothing_is_left(daemon).await;
        held(lock).await.release().await.unwrap();
        until_nothing_is_left(daemon).await;
    }
    panic!("it is never ready");
}

/// The same for a lock that somebody has for a while: for longer than what is taken for a grant at once.
async fn while_held<T>(
    daemon: &Daemon,
    lock: &Claim,
    wait: impl Future<Output = Option<T>>,
) -> Option<T> {
    let holder = held(lock).await;
    let mut wait = Box::pin(wait);
    let is_long = async {
        let mut waiting_since = None;
        while waiting_since
            .is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(150))
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
            if waiting_since.is_none() && daemon.stats().contains("\"waiters\":1") {
                waiting_since = Some(Instant::now());
            }
        }
    };
    let early = tokio::select! {
        outcome = &mut wait => Some(outcome),
        () = is_long => None,
    };
    holder.release().await.unwrap();
    match early {
        Some(outcome) => outcome,
        None => wait.await,
    }
}

/// The same story of a lock at a server that gives back what a closed connection held, and at one that keeps it.
fn on_both(story: impl AsyncFn(&Daemon, &Claim)) {
    for options in [&[][..], KEEPS] {
        println!("{options:?}");
        let daemon = Daemon::start(options);
        let lock = client(&daemon).lock("k").unwrap().ttl(seconds(600)).unwrap();
        turn(story(&daemon, &lock));
    }
}

#[test]
fn a_cancelled_acquire_of_a_free_lock_leaves_nothing() {
    on_both(async |daemon, lock| {
        let lease = at_each_step(daemon, lock, |step| polled(step, lock.try_acquire())).await;
        lease.unwrap().unwrap().release().await.unwrap();
        let long = || lock.acquire(seconds(60));
        let lease = at_each_step(daemon, lock, |step| polled(step, long())).await;
        lease.unwrap().unwrap().release().await.unwrap();
        let entry = at_each_step(daemon, lock, |step| polled(step, lock.enqueue())).await.unwrap();
        assert!(matches!(entry, Entry::Acquired(_)));
    });
}

/// All free, or the last of them waited for while the others are held; taken by one request, or one after another.
#[rstest]
fn a_cancelled_acquire_of_several_locks_leaves_nothing(#[values(false, true)] go_together: bool) {
    on_both(async |daemon, _| {
        let one = client(daemon);
        let lock = &one.lock("k").unwrap().ttl(seconds(600)).unwrap();
        let other = if go_together { one } else { client(daemon) };
        let first = other.lock("a").unwrap().ttl(seconds(600)).unwrap();
        let both = Claims::of([lock.clone(), first]).unwrap();
        let leases = at_each_step(daemon, lock, |step| polled(step, both.try_acquire())).await;
        leases.unwrap().unwrap().release().await.unwrap();
        let wait = |step| while_held(daemon, lock, polled(step, both.acquire(seconds(60))));
        let leases = at_each_step(daemon, lock, wait).await.unwrap().unwrap();
        leases.release().await.unwrap();
        let release = |step| {
            let both = &both;
            async move {
                let leases = both.try_acquire().await.unwrap().unwrap();
                polled(step, leases.release()).await
            }
        };
        at_each_step(daemon, lock, release).await.unwrap();
    });
}

#[test]
fn a_cancelled_detached_acquire_of_several_leaves_nothing() {
    on_both(async |daemon, lock| {
        let client = client(daemon);
        let [a, b] = ["a", "b"].map(|key| client.shared(key).unwrap().ttl(seconds(600)).unwrap());
        let both = Claims::of([a.clone(), b.clone()]).unwrap();
        let detached = || both.acquire_detached(None, |_, _| {});
        match at_each_step(daemon, lock, |step| polled(step, detached())).await {
            Ok(grants) => {
                for (claim, grant) in [a, b].iter().zip(grants.unwrap()) {
                    claim.release(&grant.token).await.unwrap();
                }
            }
            Err(error) => {
                assert!(matches!(error, ClientError::EndsWithConnection { .. }), "{error}")
            }
        }
        until_nothing_is_left(daemon).await;
    });
}

#[test]
fn a_cancelled_wait_for_a_lock_leaves_nothing() {
    on_both(async |daemon, lock| {
        let wait = |step| while_held(daemon, lock, polled(step, lock.acquire(seconds(60))));
        let lease = at_each_step(daemon, lock, wait).await.unwrap();
        lease.unwrap().release().await.unwrap();
        let persistently = |step| {
            let wait = polled(step, lock.acquire_persistently(None, |_| {}));
            while_held(daemon, lock, wait)
        };
        let lease = at_each_step(daemon, lock, persistently).await.unwrap();
        lease.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_cancelled_enqueue_or_wait_leaves_nothing() {
    on_both(async |daemon, lock| {
        let enqueue = |step| while_held(daemon, lock, polled(step, lock.enqueue()));
        drop(queued(at_each_step(daemon, lock, enqueue).await.unwrap()));
        until_nothing_is_left(daemon).await;
        let wait = |step| {
            let wait = async move {
                polled(step, queued(lock.enqueue().await.unwrap()).wait(seconds(60))).await
            };
            while_held(daemon, lock, wait)
        };
        let lease = at_each_step(daemon, lock, wait).await.unwrap();
        lease.unwrap().release().await.unwrap();
    });
}

/// A ticket that is dropped when its turn has come, which it does not know of.
#[test]
fn a_ticket_dropped_after_its_grant_leaves_nothing() {
    on_both(async |daemon, lock| {
        let holder = held(lock).await;
        let ticket = queued(lock.enqueue().await.unwrap());
        holder.release().await.unwrap();
        until_stats(daemon, "\"waiters\":0").await;
        drop(ticket);
        until_nothing_is_left(daemon).await;
    });
}

#[test]
fn a_cancelled_release_of_a_lease_leaves_nothing() {
    on_both(async |daemon, lock| {
        let release = |step| async move { polled(step, held(lock).await.release()).await };
        at_each_step(daemon, lock, release).await.unwrap();
        let lease = held(lock).await;
        for _ in 0..3 {
            assert_eq!(polled(1, lease.lost()).await, None);
        }
        lock.release(lease.token()).await.unwrap();
        // The keeper hears of it when it renews.
        lock.renew(lease.token()).await.unwrap_err();
        lease.release().await.unwrap_err();
    });
}

/// With a token: it may have been done or not, and can be asked again.
#[test]
fn a_cancelled_renewal_or_release_by_token_can_be_repeated() {
    on_both(async |daemon, lock| {
        let renew = |step| async move {
            let lease = held(lock).await;
            let renewed = polled(step, lock.renew(lease.token())).await;
            lease.release().await.unwrap();
            renewed
        };
        assert_eq!(at_each_step(daemon, lock, renew).await.unwrap(), seconds(600));
        let release = |step| async move {
            let lease = held(lock).await;
            let released = polled(step, lock.release(lease.token())).await;
            let again = lock.release(lease.token()).await;
            assert!(released.is_none() || again.is_err(), "{again:?}");
            drop(lease);
            released
        };
        at_each_step(daemon, lock, release).await.unwrap();
    });
}

async fn say(word: &str, connection: &mut Connection, token: &Token) -> Result<(), ClientError> {
    let (key, kind) = (&Key::new("k").unwrap(), Kind::Lock);
    match word {
        "acquire" => connection.acquire(key, kind, seconds(0), None).await.map(drop),
        "enqueue" => connection.enqueue(key, kind, None).await.map(drop),
        "wait" => connection.wait(key, kind, seconds(0)).await.map(drop),
        "release" => connection.release(key, kind, token).await,
        "renew" => connection.renew(key, kind, token, None).await.map(drop),
        "grace" => connection.grace().await.map(drop),
        "stats" => connection.stats(Stats::KeysAndNames).await.map(drop),
        _ => connection.ping().await,
    }
}

/// A connection whose answer nobody took says that it has ended; one that was asked nothing goes on. What it
/// had is given back when it is dropped.
#[rstest]
fn a_connection_with_a_cancelled_request_is_closed(
    #[values("acquire", "enqueue", "wait", "release", "renew", "grace", "stats", "ping")]
    word: &str,
) {
    let daemon = Daemon::start(&[]);
    turn(async {
        let (client, key) = (client(&daemon), Key::new("k").unwrap());
        let opened = async |step| loop {
            if let Some(connection) = polled(step, client.connect(&key)).await {
                break connection.unwrap();
            }
        };
        for step in 0..MOST_STEPS {
            if polled(step, client.connect(&key)).await.is_some() {
                break;
            }
            until_nothing_is_left(&daemon).await;
        }
        for step in 0..MOST_STEPS {
            let mut connection = opened(MOST_STEPS).await;
            let grant = connection.acquire(&key, Kind::Lock, seconds(0), None).await;
            let token = grant.unwrap().unwrap().token;
            let said = polled(step, say(word, &mut connection, &token)).await;
            let works = connection.ping().await;
            let should_work = step == 0 || said.is_some();
            assert_eq!(works.is_ok(), should_work, "after {step} polls: {works:?}");
            if let Err(error) = works {
                assert!(matches!(error, ClientError::Broken(_)), "{error}");
            }
            drop(connection);
            until_nothing_is_left(&daemon).await;
            if said.is_some() {
                return;
            }
        }
        panic!("it is never ready");
    });
}
