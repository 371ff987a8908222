//! How late a lease ends: from the end that was promised to the moment in which the next in line
//! knows that the lock is its own. Beside nothing, and beside a million held keys.
//!
//! The end is counted from before the lease was asked for, so the figures are upper bounds; they
//! hold two wake-ups of the client's threads. For comparison, in the same rounds: how late a
//! thread of the same kind wakes from a sleep of the same length.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made ends")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use testbed::dflockd::{Talker, roomy};

const HELD_KEYS: usize = 1_000_000;
const ROUNDS: usize = 8;
const LEASES_PER_ROUND: usize = 100;
const LEASE: Duration = Duration::from_secs(1);

type Lateness = Vec<Duration>;

fn main() {
    let [empty, full] = [(); 2].map(|()| roomy(env!("CARGO_BIN_EXE_dflockd"), &[]));
    let mut holder = full.talk();
    holder.take_many((0..HELD_KEYS).map(|number| format!("held/{number}")), 3600);
    let (mut bare, mut laden, mut plain) = (Lateness::new(), Lateness::new(), Lateness::new());
    for _ in 0..ROUNDS {
        bare.extend(round(|number| end_of_a_lease(empty.address, number)));
        laden.extend(round(|number| end_of_a_lease(full.address, number)));
        plain.extend(round(|_| end_of_a_wait()));
    }
    println!("late by, in ms            median    99th %     worst   ({} leases each)", bare.len());
    report("no other key held", bare);
    report("1,000,000 keys held", laden);
    report("a thread's plain sleep", plain);
}

/// A hundred at once, begun a little apart.
fn round(one: impl Fn(usize) -> Duration + Sync) -> Lateness {
    let measure = &|number: usize| {
        std::thread::sleep(LEASE.mul_f64(number as f64 / LEASES_PER_ROUND as f64));
        one(number)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..LEASES_PER_ROUND).map(|number| scope.spawn(move || measure(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn end_of_a_lease(server: SocketAddr, number: usize) -> Duration {
    let [mut holder, mut waiter] = [(); 2].map(|()| Talker::connect(server));
    let (key, asked) = (format!("lease/{number}"), Instant::now());
    holder.take(&key, &format!("0 {}", LEASE.as_secs()));
    waiter.take(&key, "10");
    asked.elapsed().checked_sub(LEASE).unwrap()
}

fn end_of_a_wait() -> Duration {
    let began = Instant::now();
    std::thread::sleep(LEASE);
    began.elapsed().saturating_sub(LEASE)
}

fn report(name: &str, mut late: Lateness) {
    late.sort();
    let millis = |percent: usize| {
        let index = (late.len() * percent / 100).min(late.len().saturating_sub(1));
        late.get(index).map_or(0.0, |late| late.as_secs_f64() * 1e3)
    };
    println!("{name:<24} {:>7.2}   {:>7.2}   {:>7.2}", millis(50), millis(99), millis(100));
}
