//! The state directory: the holds on the disk, so that a restart forgets nothing.
//!
//! `codec`, `log_file`, `load` and `promises` are pure. `ledger` decides what is written, `journal` is the boundary to
//! the server, and `dir` has the files.

mod codec;
mod dir;
mod disk;
mod journal;
mod ledger;
mod load;
mod log_file;
mod promises;

pub(super) use codec::Doubt;
pub(crate) use dir::StateDir;
pub(crate) use disk::Synced;
pub(super) use journal::DiskJournal;

/// For the fuzz target: reads any three files.
pub fn check(bytes: &[u8]) {
    let Some((lengths, rest)) = bytes.split_first_chunk::<4>() else { return };
    let [a, b, c, d] = *lengths;
    let cut =
        |rest: &'_ [u8], length: [u8; 2]| usize::from(u16::from_be_bytes(length)).min(rest.len());
    let (index, rest) = rest.split_at(cut(rest, [a, b]));
    let (one, two) = rest.split_at(cut(rest, [c, d]));
    let loaded = load::load(load::Found { index, holds: [one, two] }, &[0; 16], 1);
    assert!(loaded.next_slot < 2 && loaded.generation <= loaded.last_generation);
    assert!(
        loaded
            .holds
            .iter()
            .all(|hold| hold.left_micros > 0 && leases::Key::new(&hold.key).is_some())
    );
    let waits = loaded.wait(leases::Seconds::ZERO).is_some();
    assert_eq!(waits, loaded.doubt.is_some() || loaded.closing.is_some());
}

#[cfg(test)]
mod damage_tests;

/// A record that continues what was found, and an engine that continues with it.
#[cfg(test)]
fn resumed<D: disk::Disk>(
    disk: D,
    origin: promises::Origin,
    found: load::Loaded,
    engine: &mut leases::Engine,
    usual: leases::Seconds,
    times: disk::Times,
) -> ledger::Ledger<D> {
    let ledger = ledger::Ledger::resume(disk, origin, found, usual, times);
    engine.record(leases::LeaseStart::Grant);
    ledger.recovered(times).restore(times.now, engine);
    ledger
}

/// Notes what has changed in an engine.
#[cfg(test)]
fn note_changes<D: disk::Disk>(
    engine: &mut leases::Engine,
    ledger: &mut ledger::Ledger<D>,
    times: disk::Times,
) {
    let mut records = Vec::new();
    engine.take_changes(times.now, &mut records);
    records.iter().for_each(|record| ledger.note(record, times));
}
