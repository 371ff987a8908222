//! The state directory: the holds on the disk, so that a restart forgets nothing. [`DiskJournal`] is the journal of one
//! server.
//!
//! `codec`, `load` and `promises` are pure. `ledger` decides what is written, and `dir` has the files.

mod codec;
#[cfg(any(test, fuzzing))]
pub(super) mod corpus_tests;
mod dir;
mod ledger;
mod load;
mod promises;

use std::io;
use std::sync::Arc;

use dir::{Files, boot_micros};
use leases::journal::{Failed, Journal, Record, Recovered};
use leases::{Moment, Seconds};
use ledger::{Health, Ledger, RETRY};
use load::{Damage, Loaded};
use promises::Times;
use tokio::task::spawn_blocking;

pub(super) use codec::Doubt;
pub(crate) use dir::StateDir;
pub(crate) use promises::Synced;

/// A record that continues what was found, and an engine that continues with it.
#[cfg(test)]
fn resumed<D: ledger::Disk>(
    disk: D,
    origin: promises::Origin,
    found: Loaded,
    engine: &mut leases::Engine,
    usual: Seconds,
    times: Times,
) -> Ledger<D> {
    let ledger = Ledger::resume(disk, origin, found, usual, times);
    engine.record(leases::LeaseStart::Grant);
    ledger.recovered(times).restore(times.now, engine);
    ledger
}

/// Notes what has changed in an engine.
#[cfg(test)]
fn note_changes<D: ledger::Disk>(
    engine: &mut leases::Engine,
    ledger: &mut Ledger<D>,
    times: Times,
) {
    let mut records = Vec::new();
    engine.take_changes(times.now, &mut records);
    records.iter().for_each(|record| ledger.note(record, times));
}

/// See the module.
pub(in crate::server) struct DiskJournal {
    ledger: Ledger<Files>,
    /// Held for as long as the journal is used.
    dir: Arc<StateDir>,
}

impl DiskJournal {
    /// `None` if the content of the directory was already taken.
    pub(in crate::server) fn new(dir: &Arc<StateDir>, default_lease: Seconds) -> Option<Self> {
        let found = dir.take()?;
        log_found(&found, default_lease);
        let ledger = Ledger::resume(dir.files(), dir.origin(), found, default_lease, times());
        let mut journal = Self { ledger, dir: Arc::clone(dir) };
        journal.log_failure();
        Some(journal)
    }

    fn log_failure(&mut self) {
        if let Some(err) = self.ledger.take_failure() {
            let health = self.ledger.health();
            tracing::error!(%err, ?health, "state cannot be written");
        }
    }

    /// Waits until everything written is on the disk.
    async fn sync(&self) -> io::Result<()> {
        let file = self.ledger.disk().file(self.ledger.slot());
        spawn_blocking(move || file.sync_data()).await.map_err(io::Error::other)?
    }
}

impl Journal for DiskJournal {
    const MAX_RECORDS: usize = usize::MAX;
    const IS_SHARED: bool = false;

    /// After a failure, writes everything anew: this process knows all that was committed, whatever the files say.
    async fn load(&mut self) -> Recovered {
        while self.ledger.health() == Health::Broken {
            tokio::time::sleep(RETRY).await;
            self.ledger.rewrite(times());
            self.log_failure();
        }
        self.ledger.recovered(times())
    }

    async fn commit(&mut self, records: &[Record]) -> Result<(), Failed> {
        let times = times();
        records.iter().for_each(|record| self.ledger.note(record, times));
        let mut outcome = self.ledger.flush(times);
        if outcome.is_ok() && self.dir.origin().synced == Synced::Yes {
            if let Err(err) = self.sync().await {
                self.ledger.fail(err, times.now);
                outcome = Err(Failed);
            }
        }
        self.log_failure();
        if outcome.is_err() {
            self.ledger.take_back(records);
        }
        outcome
    }

    fn room(&mut self, wanted: usize) -> usize {
        let room = self.ledger.room(times().now, wanted);
        self.log_failure();
        room
    }

    async fn end(mut self) {
        if let Err(err) = self.ledger.close(times()) {
            tracing::error!(%err, "state cannot be written");
        }
    }
}

/// Logs what was found.
fn log_found(found: &Loaded, default_lease: Seconds) {
    tracing::info!(holds = found.holds.len(), "state read");
    let Some((doubt, micros)) = found.wait(default_lease) else { return };
    let seconds = micros.div_ceil(1_000_000);
    match (doubt, found.damage) {
        (Doubt::Damaged, Some(damage)) => {
            let what = damage.words();
            tracing::error!(what, seconds, "state damaged; no grants until leases are over");
        }
        (Doubt::Damaged, None) => {
            tracing::warn!(seconds, "state was damaged; no grants until leases are over");
        }
        (Doubt::OtherBoot, damage) => {
            let what = damage.map(Damage::words);
            tracing::warn!(what, seconds, "machine restarted; no grants until leases are over");
        }
    }
}

fn times() -> Times {
    let boot_micros = boot_micros();
    Times { now: Moment::from_micros(boot_micros), boot_micros }
}

#[cfg(test)]
mod damage_tests;

#[cfg(test)]
mod memory_tests;
