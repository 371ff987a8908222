//! Keeps the record of an engine's holds: takes changes down, says whether what an answer rests on
//! is saved, and has it written once for all that happened in one turn of the loop.

use super::dir::{Files, StateDir, clocks};
use super::ledger::{Health, Holds, Ledger, Times};
use super::load::{Doubt, Loaded};
use crate::engine::{
    ConnId, Engine, Hold, Mint, Moment, Progress, Refusal, Request, Seconds, Space,
};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::task::Waker;

/// Whether what an answer rests on is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Saving {
    Saved,
    Pending,
    /// It could not be.
    Lost,
}

/// See the module.
#[derive(Debug)]
pub(in crate::server) struct Keeper {
    ledger: Ledger<Files>,
    /// Answers wait for the disk, not only for the kernel.
    synced: bool,
    /// Changes that are saved as was asked for.
    saved: u64,
    /// A sync is under way.
    syncing: bool,
    waiting: Vec<ConnId>,
    flusher: Option<Waker>,
    restored: usize,
    doubt: Option<Doubt>,
}

impl Keeper {
    /// Goes on where the last one ended: gives the engine the holds that were found, and closes it
    /// for as long as ones may be missing.
    pub(in crate::server) fn start<M: Mint>(
        dir: &StateDir,
        engine: &mut Engine<M>,
        now: Moment,
        default_lease: Seconds,
    ) -> Option<Self> {
        let found = dir.take()?;
        let files = dir.files();
        let mut ledger =
            Ledger::new(files, dir.boot(), dir.synced(), found.generation, found.next_slot);
        ledger.start_fences(found.fence);
        engine.record();
        for kept in &found.holds {
            let Some(key) = kept.key() else { continue };
            let expires = now.after_micros(kept.left_micros);
            let (limit, token, ttl) = (kept.limit, kept.token, kept.ttl);
            engine.restore(now, &Hold { key, limit, token, ttl, expires });
            ledger.count(&kept.key);
        }
        let mut keeper = Self {
            ledger,
            synced: dir.synced(),
            saved: 0,
            syncing: false,
            waiting: Vec::new(),
            flusher: None,
            restored: found.holds.len(),
            doubt: found.doubt,
        };
        keeper.ledger.rewrite(engine, times(now));
        keeper.close_in_doubt(&found, engine, now, default_lease);
        keeper.tell_failure();
        Some(keeper)
    }

    fn close_in_doubt<M: Mint>(
        &self,
        found: &Loaded,
        engine: &mut Engine<M>,
        now: Moment,
        default_lease: Seconds,
    ) {
        tracing::info!(holds = self.restored, "state read");
        let seconds = match found.doubt {
            None => return,
            Some(Doubt::OtherBoot) => found.longest,
            Some(Doubt::Damaged { .. }) => found.longest.max(default_lease.count()),
        };
        match found.doubt {
            Some(Doubt::Damaged { bytes }) => {
                tracing::error!(
                    bytes,
                    seconds,
                    "state damaged at its end; no grants until leases are over"
                );
            }
            Some(Doubt::OtherBoot) | None => {
                tracing::warn!(seconds, "machine restarted; no grants until leases are over");
            }
        }
        if let Some(span) = Seconds::new(seconds).filter(|&span| span > Seconds::ZERO) {
            engine.close(now.after(span).max(engine.closed_until()));
        }
    }

    /// What the engine did is taken down.
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

    /// Why a request is not even passed on; says to the engine whether new holds have room.
    pub(in crate::server) fn judge<M: Mint>(
        &mut self,
        engine: &mut Engine<M>,
        request: &Request<'_>,
        now: Moment,
    ) -> Option<Refusal> {
        let is_broken = self.ledger.health() == Health::Broken;
        match request {
            Request::Acquire { .. } | Request::Enqueue { .. } if is_broken => {
                Some(Refusal::NoSpace)
            }
            Request::Acquire { .. } | Request::Enqueue { .. } => {
                let has_room = self.ledger.has_room(now);
                engine.set_space(if has_room { Space::Free } else { Space::Full });
                self.tell_failure();
                None
            }
            Request::Wait { .. } | Request::Release { .. } | Request::Renew { .. } => {
                is_broken.then_some(Refusal::Unavailable)
            }
        }
    }

    /// How many changes there were: what the last answer rests on.
    pub(in crate::server) const fn noted(&self) -> u64 {
        self.ledger.noted()
    }

    /// Whether an answer may leave that rests on so many changes; `id` is woken when it may.
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

    /// Writes what was noted. Those to be woken are in `woken`.
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

    /// The file to be synced now and what is saved then, if there is anything to sync.
    pub(in crate::server) fn begin_sync(&mut self) -> Option<(Arc<File>, u64)> {
        if !self.synced || self.syncing || self.saved >= self.ledger.written() {
            return None;
        }
        self.syncing = true;
        let file = self.ledger.disk().file(self.ledger.slot());
        Some((file, self.ledger.written()))
    }

    /// A sync is done.
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

    /// Whom to wake when there is something to write.
    pub(in crate::server) fn register(&mut self, flusher: &Waker) {
        if !self.flusher.as_ref().is_some_and(|known| known.will_wake(flusher)) {
            self.flusher = Some(flusher.clone());
        }
    }

    /// More is to be written in the next turn.
    pub(in crate::server) fn has_work(&self) -> bool {
        self.ledger.has_work()
    }

    /// When a try is due after a failure.
    pub(in crate::server) const fn retry(&self) -> Moment {
        self.ledger.retry()
    }

    /// The time of [`Keeper::retry`] may have come.
    pub(in crate::server) fn ring(&self, now: Moment) {
        if self.retry() <= now {
            self.wake_flusher();
        }
    }

    pub(in crate::server) const fn health(&self) -> Health {
        self.ledger.health()
    }

    /// Why grants wait, if they do.
    pub(in crate::server) const fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }

    /// The end in order: the next start need not doubt anything.
    pub(in crate::server) fn close<M: Mint>(&mut self, engine: &Engine<M>, now: Moment) {
        self.ledger.close(engine, times(now));
        let file = self.ledger.disk().file(self.ledger.slot());
        if let Err(err) = file.sync_data() {
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
