//! The state directory: what is held, on the disk, so that a restart forgets nothing.
//!
//! `codec` and `load` are pure; `ledger` decides what is written and is driven by `keeper`, which
//! knows the clocks; `dir` has the files.

mod codec;
mod dir;
mod keeper;
mod ledger;
mod load;

pub use dir::{StateDir, Synced};
pub(super) use keeper::{Keeper, Saving};
pub use ledger::Health;
pub use load::Doubt;

/// For the fuzz target: any two files can be read.
pub fn check(bytes: &[u8]) {
    let Some((&cut, rest)) = bytes.split_first() else { return };
    let at = rest.len() * usize::from(cut) / 255;
    let (first, second) = rest.split_at_checked(at).unwrap_or((rest, &[]));
    let clocks = load::Clocks { boot_micros: 1, wall_micros: 1 };
    let loaded = load::load([first, second], &[0; 16], clocks);
    assert!(loaded.next_slot < 2);
    assert!(loaded.holds.iter().all(|hold| hold.left_micros > 0 && hold.key().is_some()));
}
