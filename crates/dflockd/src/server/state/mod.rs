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

#[cfg(any(test, fuzzing))]
pub(super) mod corpus_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod memory_tests;

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
