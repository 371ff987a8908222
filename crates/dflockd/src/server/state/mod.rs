//! The state directory: the holds on the disk, so that a restart forgets nothing.
//!
//! `codec`, `story`, `load` and `promises` are pure, and so is `ledger`, which decides what is
//! written. `keeper` knows the clocks and drives `ledger`; `dir` has the files.

mod codec;
mod dir;
mod disk;
mod keeper;
mod ledger;
mod load;
mod promises;
mod story;

pub use codec::Doubt;
pub use dir::StateDir;
pub use disk::{Health, Synced};
pub(super) use keeper::{Keeper, Saving};

/// For the fuzz target: reads any three files.
pub fn check(bytes: &[u8]) {
    let Some((lengths, rest)) = bytes.split_first_chunk::<4>() else { return };
    let [a, b, c, d] = *lengths;
    let cut =
        |rest: &'_ [u8], length: [u8; 2]| usize::from(u16::from_be_bytes(length)).min(rest.len());
    let (index, rest) = rest.split_at(cut(rest, [a, b]));
    let (one, two) = rest.split_at(cut(rest, [c, d]));
    let clocks = load::Clocks { boot_micros: 1, wall_micros: 1 };
    let loaded = load::load(load::Found { index, holds: [one, two] }, &[0; 16], clocks);
    assert!(loaded.next_slot < 2 && loaded.generation <= loaded.last_generation);
    assert!(loaded.holds.iter().all(|hold| hold.left_micros > 0 && hold.key().is_some()));
    let waits = loaded.wait(leases::Seconds::ZERO).is_some();
    assert_eq!(waits, loaded.doubt.is_some() || loaded.closing.is_some());
}

#[cfg(test)]
mod damage_tests;
