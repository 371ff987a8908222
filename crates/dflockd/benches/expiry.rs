//! How late a lease ends: from the end that was promised to the moment in which the next in line
//! knows that the lock is its own. Beside nothing, and beside a million held keys.
//!
//! The end is counted from before the lease was asked for, so the figures are upper bounds; they
//! hold two wake-ups of the client's threads. For comparison, in the same rounds: how late a
//! thread of the same kind wakes from a sleep of the same length.

#[path = "server/mod.rs"]
mod server;
#[path = "wire/mod.rs"]
mod wire;

use server::Server;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use wire::{Outcome, Wire};

const HELD_KEYS: usize = 1_000_000;
const ROUNDS: usize = 8;
const LEASES_PER_ROUND: usize = 100;
const LEASE: Duration = Duration::from_secs(1);

type Lateness = Vec<Duration>;

fn main() -> Outcome<()> {
    let (empty, full) = (Server::dflockd()?, Server::dflockd()?);
    let mut holder = Wire::open(full.address)?;
    holder.hold(HELD_KEYS, 3600)?;
    let (mut bare, mut laden, mut plain) = (Lateness::new(), Lateness::new(), Lateness::new());
    for _ in 0..ROUNDS {
        bare.extend(round(move |number| end_of_a_lease(empty.address, number))?);
        laden.extend(round(move |number| end_of_a_lease(full.address, number))?);
        plain.extend(round(|_| end_of_a_wait())?);
    }
    println!("late by, in ms            median    99th %     worst   ({} leases each)", bare.len());
    report("no other key held", bare);
    report("1,000,000 keys held", laden);
    report("a thread's plain sleep", plain);
    drop((holder, full));
    storm(empty.address)
}

/// A million leases end within a second or two, and somebody else asks all the time meanwhile.
fn storm(server: SocketAddr) -> Outcome<()> {
    let (mut holder, mut other) = (Wire::open(server)?, Wire::open(server)?);
    holder.hold(HELD_KEYS, 2)?;
    let mut next = Wire::open(server)?;
    next.say(&format!("l\nheld/{}\n60\n", HELD_KEYS - 1))?;
    let last_is_free = std::thread::spawn(move || next.hear("ok ").map_err(|e| e.to_string()));
    let (mut longest, mut asked) = (Duration::ZERO, 0);
    while !last_is_free.is_finished() {
        let began = Instant::now();
        other.say("ping\n_\n_\n")?;
        other.hear("ok")?;
        longest = longest.max(began.elapsed());
        asked += 1;
    }
    last_is_free.join().map_err(|_| "a thread ended early")??;
    let millis = longest.as_secs_f64() * 1e3;
    println!("1,000,000 leases end together: {asked} pings meanwhile, the longest {millis:.1} ms");
    Ok(())
}

/// A hundred at once, begun a little apart.
fn round<F>(one: F) -> Outcome<Lateness>
where
    F: Fn(usize) -> Outcome<Duration> + Send + Sync + Copy,
{
    std::thread::scope(|scope| {
        let measure = |number: usize| {
            std::thread::sleep(LEASE.mul_f64(number as f64 / LEASES_PER_ROUND as f64));
            one(number).map_err(|error| error.to_string())
        };
        let threads: Vec<_> =
            (0..LEASES_PER_ROUND).map(|number| scope.spawn(move || measure(number))).collect();
        let outcomes = threads.into_iter().map(|thread| thread.join());
        outcomes
            .map(|outcome| Ok(outcome.map_err(|_| "a thread ended early".to_owned())??))
            .collect()
    })
}

fn end_of_a_lease(server: SocketAddr, number: usize) -> Outcome<Duration> {
    let (mut holder, mut waiter) = (Wire::open(server)?, Wire::open(server)?);
    let asked = Instant::now();
    holder.say(&format!("l\nlease/{number}\n0 {}\n", LEASE.as_secs()))?;
    holder.hear("ok ")?;
    waiter.say(&format!("l\nlease/{number}\n10\n"))?;
    waiter.hear("ok ")?;
    let took = asked.elapsed();
    took.checked_sub(LEASE).ok_or_else(|| format!("a lease ended early: after {took:?}").into())
}

fn end_of_a_wait() -> Outcome<Duration> {
    let began = Instant::now();
    std::thread::sleep(LEASE);
    Ok(began.elapsed().saturating_sub(LEASE))
}

fn report(name: &str, mut late: Lateness) {
    late.sort();
    let millis = |percent: usize| {
        let index = (late.len() * percent / 100).min(late.len().saturating_sub(1));
        late.get(index).map_or(0.0, |late| late.as_secs_f64() * 1e3)
    };
    println!("{name:<24} {:>7.2}   {:>7.2}   {:>7.2}", millis(50), millis(99), millis(100));
}
