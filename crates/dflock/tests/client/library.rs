//! The client library under `dflock`, against the real server: leases, places in the line, and what
//! dropping them does.

use crate::program::assert_free;
use dflock::{
    ArgumentError, Client, ClientError, Entry, Key, Lease, Loss, Refusal, ServerAddress, Servers,
    Settings, Ticket,
};
use std::future::Future;
use std::time::{Duration, Instant};
use testbed::dflockd::{Daemon, PATIENCE};

/// A server that keeps what a closed connection held, to the end of its lease.
pub(crate) const KEEPS: &[&str] = &["--auto-release-on-disconnect=false"];

/// Towards the server at this address.
pub(crate) fn settings(address: impl ToString) -> Settings {
    let server = address.to_string().parse().unwrap();
    Settings::new(Servers::Shards(vec![server]))
}

pub(crate) fn client(daemon: &Daemon) -> Client {
    Client::new(settings(daemon.address)).unwrap()
}

/// The same for a program without a runtime.
pub(crate) fn blocking(daemon: &Daemon) -> dflock::blocking::Client {
    dflock::blocking::Client::new(settings(daemon.address)).unwrap()
}

pub(crate) fn turn<T>(story: impl Future<Output = T>) -> T {
    let limited = async { tokio::time::timeout(3 * PATIENCE, story).await };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(limited).expect("it ends in time")
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn acquired(entry: Entry) -> Lease {
    match entry {
        Entry::Acquired(lease) => lease,
        Entry::Queued(_) => panic!("queued"),
    }
}

pub(crate) fn queued(entry: Entry) -> Ticket {
    match entry {
        Entry::Queued(ticket) => ticket,
        Entry::Acquired(lease) => panic!("acquired {lease:?}"),
    }
}

pub(crate) fn refusal<T>(outcome: Result<T, ClientError>) -> Option<Refusal> {
    match outcome {
        Err(ClientError::Refused(refusal)) => Some(refusal),
        _ => None,
    }
}

/// Waits until `stats` contain this text, from within the runtime.
pub(crate) async fn until_stats(daemon: &Daemon, text: &str) {
    let began = Instant::now();
    loop {
        let stats = daemon.stats();
        if stats.contains(text) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "never {text:?} in {stats}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_lease_tells_about_itself() {
    let daemon = Daemon::start(&[]);
    turn(async {
        let client = client(&daemon);
        let before = Instant::now();
        let lock = client.lock("k").unwrap().ttl(seconds(20)).unwrap();
        let lease = lock.try_acquire().await.unwrap().unwrap();
        assert_eq!(
            (lease.key().as_bytes(), lease.ttl(), lease.loss()),
            (&b"k"[..], seconds(20), None)
        );
        let until = lease.held_until().unwrap();
        assert!(
            until >= before + Duration::from_secs(20)
                && until <= Instant::now() + Duration::from_secs(20)
        );
        let fence = lease.fence().unwrap();
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert!(!format!("{lease:?}").contains(lease.token().as_str()), "the token is shown");
        lease.release().await.unwrap();
        let next = lock.try_acquire().await.unwrap().unwrap();
        assert!(next.fence().unwrap() > fence);
        next.release().await.unwrap();
    });
    assert_free(&daemon);
}

#[test]
fn enqueue_and_wait_take_a_lock_in_two_steps() {
    let daemon = Daemon::start(&[]);
    turn(async {
        let client = client(&daemon);
        let lock = client.lock("k").unwrap();
        let first = acquired(lock.enqueue().await.unwrap());
        let second = queued(lock.enqueue().await.unwrap());
        let third = queued(lock.enqueue().await.unwrap());
        daemon.until_stats("\"waiters\":2");
        assert!(second.wait(seconds(0)).await.unwrap().is_none());
        daemon.until_stats("\"waiters\":1");
        first.release().await.unwrap();
        let third = third.wait(seconds(5)).await.unwrap().unwrap();
        drop(queued(lock.enqueue().await.unwrap()));
        until_stats(&daemon, "\"waiters\":0").await;
        third.release().await.unwrap();
    });
    assert_free(&daemon);
}

/// A client whose turn came and went before it asked is told so, and holds nothing.
#[test]
fn a_client_that_waits_after_its_lease_has_ended_gets_an_error() {
    let daemon = Daemon::start(&[]);
    turn(async {
        let client = client(&daemon);
        let lock = client.lock("k").unwrap().ttl(seconds(4)).unwrap();
        let first = acquired(lock.enqueue().await.unwrap());
        let second = queued(lock.enqueue().await.unwrap());
        first.release().await.unwrap();
        until_stats(&daemon, "\"locks\":[],\"semaphores\":[]").await;
        assert_eq!(refusal(second.wait(seconds(10)).await), Some(Refusal::LeaseExpired));
    });
}

/// A place in the line is kept although the server hangs up on the silent.
#[test]
fn a_waiting_client_keeps_its_silent_connection_open() {
    let daemon = Daemon::start(&["--read-timeout", "9"]);
    turn(async {
        let mut settings = settings(daemon.address);
        settings.read_timeout = seconds(9);
        let client = Client::new(settings).unwrap();
        let lock = client.lock("k").unwrap();
        let first = acquired(lock.enqueue().await.unwrap());
        let second = queued(lock.enqueue().await.unwrap());
        assert!(lock.acquire(seconds(11)).await.unwrap().is_none(), "longer than the read timeout");
        assert_eq!(first.loss(), None);
        first.release().await.unwrap();
        second.wait(seconds(5)).await.unwrap().unwrap().release().await.unwrap();
    });
}

/// Somebody who knows the token releases it: the holder is told, also after an earlier wait for that was given up, and
/// has nothing to release.
#[test]
fn a_loss_is_told() {
    let daemon = Daemon::start(&[]);
    turn(async {
        let client = client(&daemon);
        let lock = client.lock("k").unwrap().ttl(seconds(9)).unwrap();
        let lease = lock.acquire(seconds(0)).await.unwrap().unwrap();
        assert_eq!(lock.renew(lease.token()).await.unwrap(), seconds(9));
        tokio::time::timeout(Duration::ZERO, lease.lost()).await.unwrap_err();
        lock.release(lease.token()).await.unwrap();
        assert_eq!(lease.lost().await, Loss::NotHeld);
        assert_eq!((lease.loss(), lease.held_until()), (Some(Loss::NotHeld), None));
        assert_eq!(refusal(lock.renew(lease.token()).await), Some(Refusal::Error));
        assert_eq!(refusal(lease.release().await), Some(Refusal::Error));
    });
}

#[test]
fn invalid_arguments_are_refused_before_they_are_sent() {
    let nowhere: ServerAddress = "127.0.0.1:1".parse().unwrap();
    let mut settings = settings(&nowhere);
    settings.connect_limit = seconds(1);
    let client = Client::new(settings).unwrap();
    let term = |error: ClientError| {
        let ClientError::InvalidArgument(term) = error else { panic!("{error}") };
        term
    };
    assert_eq!(term(client.semaphore("k", 0).err().unwrap()), ArgumentError::Limit);
    let lock = client.lock("k").unwrap();
    let too_long = dflock::MAX_TIME + Duration::from_nanos(1);
    assert_eq!(term(lock.clone().ttl(Duration::ZERO).err().unwrap()), ArgumentError::Ttl);
    assert_eq!(term(turn(lock.acquire(too_long)).err().unwrap()), ArgumentError::TimeLong);
    let persistently = turn(lock.acquire_persistently(Some(too_long), |_| {}));
    assert_eq!(term(persistently.err().unwrap()), ArgumentError::TimeLong);
    assert_eq!(client.servers_of(&Key::new("k").unwrap()), [&nowhere]);
    let unreachable = turn(client.lock("k").unwrap().acquire(seconds(0))).err().unwrap();
    assert!(matches!(unreachable, ClientError::Connect { server, .. } if server == nowhere));
    let none = Settings::new(Servers::Shards(Vec::new()));
    assert!(matches!(Client::new(none).err(), Some(ClientError::NoServer)));
}
