//! Keeps the record of an engine's holds: notes changes, tells whether the record behind an answer is saved,
//! and has the changes of each turn of the loop written at once.

use super::codec::Doubt;
use super::dir::{Files, StateDir, clocks};
use super::disk::{Disk, Health, Holds, Synced, Times};
use super::ledger::Ledger;
use super::load::{Damage, Loaded};
use super::promises::{Origin, Promises};
use leases::{ConnId, Engine, Hold, Mint, Moment, Progress, Refusal, Request, Seconds, Space};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::task::Waker;

/// Whether the changes on which an answer depends are saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Saving {
    Saved,
    Pending,
    /// They could not be saved.
    Lost,
}

/// See the module.
#[derive(Debug)]
pub(in crate::server) struct Keeper {
    ledger: Ledger<Files>,
    /// Whether answers wait for the disk, and not only for the kernel.
    synced: bool,
    /// The number of changes that are saved, in the kernel or on the disk as `synced` says.
    saved: u64,
    /// Whether a sync is under way.
    syncing: bool,
    waiting: Vec<ConnId>,
    flusher: Option<Waker>,
    doubt: Option<Doubt>,
}

/// Continues the record that was found: gives the engine its holds, closes the engine for the time in which holds may
/// be missing, and writes a new record.
pub(super) fn resume<D: Disk, M: Mint>(
    disk: D,
    origin: Origin,
    found: &Loaded,
    engine: &mut Engine<M>,
    default_lease: Seconds,
    times: Times,
) -> Ledger<D> {
    engine.record();
    for kept in &found.holds {
        let Some(key) = kept.key() else { continue };
        let expires = times.now.after_micros(kept.left_micros);
        let (claim, token, ttl, label) = (kept.claim, kept.token, kept.ttl, kept.label.as_ref());
        engine.restore(times.now, &Hold { key, claim, token, ttl, expires, label });
    }
    if let Some((_, micros)) = found.wait(default_lease) {
        engine.close(times.now.after_micros(micros).max(engine.closed_until()));
    }
    let promises = Promises::new(origin, found, default_lease, times);
    let mut ledger = Ledger::new(disk, found, promises);
    ledger.rewrite(engine, times);
    ledger
}

/// Logs what was found.
fn tell(found: &Loaded, default_lease: Seconds) {
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

impl Keeper {
    /// See [`resume`].
    pub(in crate::server) fn start<M: Mint>(
        dir: &StateDir,
        engine: &mut Engine<M>,
        now: Moment,
        default_lease: Seconds,
    ) -> Option<Self> {
        let found = dir.take()?;
        tell(&found, default_lease);
        let (files, origin) = (dir.files(), dir.origin());
        let mut keeper = Self {
            ledger: resume(files, origin, &found, engine, default_lease, times(now)),
            synced: origin.synced == Synced::Yes,
            saved: 0,
            syncing: false,
            waiting: Vec::new(),
            flusher: None,
            doubt: found.wait(default_lease).map(|(doubt, _)| doubt),
        };
        keeper.tell_failure();
        Some(keeper)
    }

    /// Notes the changes that the engine made.
    pub(in crate::server) fn note<M: Mint>(&mut self, engine: &mut Engine<M>, now: Moment) {
        if !engine.has_changes() {
            return;
        }
        let times = times(now);
        let ledger = &mut self.ledger;
        engine.take_changes(|change| ledger.note(&change, times));
        self.wake_flusher();
    }

    fn wake_flusher(&self) {
        if let Some(flusher) = &self.flusher {
            flusher.wake_by_ref();
        }
    }

    /// The refusal of a request that is not passed on to the engine, if there is one. Tells the engine whether there
    /// is room for new holds.
    pub(in crate::server) fn judge<M: Mint>(
        &mut self,
        engine: &mut Engine<M>,
        request: &Request<'_>,
        now: Moment,
    ) -> Option<Refusal> {
        let is_broken = self.ledger.health() == Health::Broken;
        match request {
            Request::Acquire { .. } | Request::AcquireAll { .. } | Request::Enqueue { .. }
                if is_broken =>
            {
                Some(Refusal::NoSpace)
            }
            Request::Acquire { .. } | Request::AcquireAll { .. } | Request::Enqueue { .. } => {
                let has_room = self.ledger.has_room(now, request.keys().count());
                engine.set_space(if has_room { Space::Free } else { Space::Full });
                self.tell_failure();
                None
            }
            Request::Wait { .. } | Request::Release { .. } | Request::Renew { .. } => {
                is_broken.then_some(Refusal::Unavailable)
            }
        }
    }

    /// The number of changes so far, on which the last answer depends.
    pub(in crate::server) const fn noted(&self) -> u64 {
        self.ledger.noted()
    }

    /// Whether an answer that depends on this number of changes may be sent. If not yet, `id` is woken when it may.
    pub(in crate::server) fn saving(&mut self, id: ConnId, noted: u64) -> Saving {
        if noted <= self.saved {
            return Saving::Saved;
        }
        if self.ledger.health() == Health::Broken {
            return Saving::Lost;
        }
        if self.waiting.last() != Some(&id) {
            self.waiting.push(id);
        }
        Saving::Pending
    }

    /// Writes the noted changes. Adds the connections to wake to `woken`.
    pub(in crate::server) fn flush<M: Mint>(
        &mut self,
        engine: &Engine<M>,
        now: Moment,
        woken: &mut Vec<ConnId>,
    ) {
        if !self.ledger.has_work() && self.ledger.health() != Health::Broken {
            return;
        }
        self.ledger.flush(engine, times(now));
        self.tell_failure();
        if !self.synced {
            self.saved = self.ledger.written();
        }
        if self.saved == self.ledger.noted() || self.ledger.health() == Health::Broken {
            woken.append(&mut self.waiting);
        }
    }

    fn tell_failure(&mut self) {
        if let Some(err) = self.ledger.take_failure() {
            let health = self.ledger.health();
            tracing::error!(%err, ?health, "state cannot be written");
        }
    }

    /// The file to sync now, and the number of changes that are saved by it, if there is anything to sync.
    pub(in crate::server) fn begin_sync(&mut self) -> Option<(Arc<File>, u64)> {
        if !self.synced || self.syncing || self.saved >= self.ledger.written() {
            return None;
        }
        self.syncing = true;
        let file = self.ledger.disk().file(self.ledger.slot());
        Some((file, self.ledger.written()))
    }

    /// A sync has ended.
    pub(in crate::server) fn end_sync(
        &mut self,
        upto: u64,
        result: io::Result<()>,
        now: Moment,
        woken: &mut Vec<ConnId>,
    ) {
        self.syncing = false;
        match result {
            Ok(()) => self.saved = self.saved.max(upto),
            Err(err) => {
                self.ledger.fail(err, now);
                self.tell_failure();
            }
        }
        woken.append(&mut self.waiting);
    }

    /// The task to wake when there is something to write.
    pub(in crate::server) fn register(&mut self, flusher: &Waker) {
        if !self.flusher.as_ref().is_some_and(|known| known.will_wake(flusher)) {
            self.flusher = Some(flusher.clone());
        }
    }

    /// Whether more is to be written in the next turn.
    pub(in crate::server) fn has_work(&self) -> bool {
        self.ledger.has_work()
    }

    /// When to try again after a failure.
    pub(in crate::server) const fn retry(&self) -> Moment {
        self.ledger.retry()
    }

    /// To be called when the time of [`Keeper::retry`] may have come.
    pub(in crate::server) fn ring(&self, now: Moment) {
        if self.retry() <= now {
            self.wake_flusher();
        }
    }

    pub(in crate::server) const fn health(&self) -> Health {
        self.ledger.health()
    }

    /// Why nothing is granted yet, if that is so.
    pub(in crate::server) const fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }

    /// Ends the record in order, so that the next start has no doubt.
    pub(in crate::server) fn close<M: Mint>(&mut self, engine: &Engine<M>, now: Moment) {
        if let Err(err) = self.ledger.close(engine, times(now)) {
            tracing::error!(%err, "state cannot be written");
        }
    }
}

fn times(now: Moment) -> Times {
    Times { now, clocks: clocks() }
}

impl<M: Mint> Holds for Engine<M> {
    fn look_over(&self, cursor: &mut u32, budget: u32, note: &mut dyn FnMut(Hold<'_>)) -> Progress {
        self.look_over_holds(cursor, budget, note)
    }
}
