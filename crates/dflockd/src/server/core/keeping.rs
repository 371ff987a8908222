//! The record of holds, as connections see it: which record an answer depends on, and whether it is saved.

use super::{Core, Readiness};
use crate::server::state::{Health, Keeper, Saving};
use leases::{ConnId, Moment};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::task::Waker;

impl Core {
    /// Whether holds outlive this process.
    pub(in crate::server) const fn has_record(&self) -> bool {
        self.keeper.is_some()
    }

    /// The number of changes of holds so far, on which the last answer depends; 0 if they are not recorded.
    pub(in crate::server) fn noted(&self) -> u64 {
        self.keeper.as_ref().map_or(0, Keeper::noted)
    }

    /// Whether an answer that depends on this number of changes may be sent. If not yet, the connection is woken when
    /// it may.
    pub(in crate::server) fn saving(&mut self, id: ConnId, noted: u64) -> Saving {
        self.keeper.as_mut().map_or(Saving::Saved, |keeper| keeper.saving(id, noted))
    }

    /// Writes the noted changes; true if there is more to do in the next turn.
    pub(in crate::server) fn flush(&mut self, now: Moment, flusher: &Waker) -> bool {
        let (Some(keeper), Some(engine)) = (&mut self.keeper, self.store.engine()) else {
            return false;
        };
        keeper.register(flusher);
        keeper.flush(engine, now, &mut self.woken);
        let more = keeper.has_work() && keeper.health() != Health::Broken;
        self.wake_woken();
        self.rearm();
        more
    }

    fn wake_woken(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        woken.drain(..).for_each(|id| self.wake(id));
        self.woken = woken;
    }

    /// The file to sync now, and the number of changes that are saved by it.
    pub(in crate::server) fn begin_sync(&mut self) -> Option<(Arc<File>, u64)> {
        self.keeper.as_mut()?.begin_sync()
    }

    pub(in crate::server) fn end_sync(&mut self, upto: u64, result: io::Result<()>, now: Moment) {
        if let Some(keeper) = &mut self.keeper {
            keeper.end_sync(upto, result, now, &mut self.woken);
        }
        self.wake_woken();
    }

    /// The last connection has left.
    pub(in crate::server) fn close(&mut self, now: Moment) {
        if let (Some(keeper), Some(engine)) = (&mut self.keeper, self.store.engine()) {
            keeper.close(engine, now);
        }
    }

    /// Whether clients should be sent to another server, and why.
    pub(in crate::server) fn readiness(&mut self, now: Moment) -> Readiness {
        let closed = self.store.engine().map_or(0, |e| e.closed_until().micros_since(now));
        let health = self.keeper.as_ref().map(Keeper::health);
        match (self.draining, health) {
            (true, _) => Readiness::Draining,
            (false, _) if !self.store.is_available() => Readiness::Unavailable,
            (false, Some(health @ (Health::Full | Health::Broken))) => Readiness::State(health),
            (false, _) if closed > 0 => {
                let doubt = self.keeper.as_ref().and_then(Keeper::doubt);
                Readiness::Closed { doubt, left_micros: closed }
            }
            (false, _) => Readiness::Ready,
        }
    }
}
