//! Short connections: connect, take a lock, close without releasing it. Their rate must not depend on how many keys
//! others hold: a disconnect costs the keys of that connection only.
//!
//! Two servers, one without keys and one with many, are visited in turn; the ratio of a round does
//! not depend on what else the machine does.

#[path = "server/mod.rs"]
mod server;
#[path = "wire/mod.rs"]
mod wire;

use server::Server;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use wire::{Outcome, Wire};

const HELD_KEYS: [usize; 3] = [10_000, 100_000, 1_000_000];
const ROUNDS: usize = 15;
const VISITS_PER_ROUND: usize = 1_000;

fn main() -> Outcome<()> {
    println!("held keys   visits/s with none   with them   ratio: median (least .. most) [~1]");
    for count in HELD_KEYS {
        let (empty, full) = (Server::dflockd()?, Server::dflockd()?);
        let mut holder = Wire::open(full.address)?;
        holder.hold(count, 3600)?;
        let (mut ratios, mut rates) = (Vec::new(), [Duration::ZERO; 2]);
        let mut number = 0;
        for round in 0..=ROUNDS {
            let (bare, laden) = if round % 2 == 0 {
                let bare = visits(empty.address, &mut number)?;
                (bare, visits(full.address, &mut number)?)
            } else {
                let laden = visits(full.address, &mut number)?;
                (visits(empty.address, &mut number)?, laden)
            };
            // The first round warms both up.
            if round > 0 {
                ratios.push(bare.as_secs_f64() / laden.as_secs_f64());
                rates = [rates[0] + bare, rates[1] + laden];
            }
        }
        ratios.sort_by(f64::total_cmp);
        let rate = |took: Duration| (ROUNDS * VISITS_PER_ROUND) as f64 / took.as_secs_f64();
        println!(
            "{count:>9}   {:>18.0}   {:>9.0}   {:.2} ({:.2} .. {:.2})",
            rate(rates[0]),
            rate(rates[1]),
            ratios.get(ROUNDS / 2).copied().unwrap_or_default(),
            ratios.first().copied().unwrap_or_default(),
            ratios.last().copied().unwrap_or_default(),
        );
    }
    Ok(())
}

fn visits(server: SocketAddr, number: &mut usize) -> Outcome<Duration> {
    let began = Instant::now();
    for _ in 0..VISITS_PER_ROUND {
        *number += 1;
        let mut visit = Wire::open(server)?;
        visit.say(&format!("l\nvisit/{number}\n0 3600\n"))?;
        visit.hear("ok ")?;
    }
    Ok(began.elapsed())
}
