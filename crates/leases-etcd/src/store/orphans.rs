//! Holds whose front-end is gone, and when another front-end may end each of them. Pure.
//!
//! Nobody knows when the dead front-end last wrote a lease. But if one process has seen a hold unchanged for its
//! whole lease, plus a second for an answer that was on its way, the hold is over by any clock. Every renewal
//! changes the ticket, and the time starts again.

use leases::{Moment, Seconds};
use std::collections::HashMap;

/// An answer that promises a lease is sent at most this long after the write that granted it.
pub(super) const ANSWER_MICROS: u64 = 1_000_000;

/// A hold without a front-end, as read from etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    /// Its full name in etcd.
    pub(super) name: Vec<u8>,
    pub(super) revision: i64,
    /// The longest time that it lasts if nobody changes it.
    pub(super) lasts: Seconds,
}

#[derive(Debug, Default)]
pub(super) struct Orphans {
    seen: HashMap<Vec<u8>, (i64, Moment)>,
}

impl Orphans {
    /// All orphans, by a read that was answered at `now`.
    pub(super) fn note(&mut self, now: Moment, orphans: Vec<Orphan>) {
        let mut known = std::mem::take(&mut self.seen);
        for Orphan { name, revision, lasts } in orphans {
            let sight = match known.remove(&name) {
                Some((old, due)) if old == revision => (old, due),
                Some(_) | None => (revision, now.after(lasts).after_micros(ANSWER_MICROS)),
            };
            self.seen.insert(name, sight);
        }
    }

    /// When the next one is over; [`Moment::NEVER`] if there is none.
    pub(super) fn next(&self) -> Moment {
        self.seen.values().map(|(_, due)| *due).min().unwrap_or(Moment::NEVER)
    }

    /// Takes those that are over. Each may be ended only if its revision is still the same.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<(Vec<u8>, i64)> {
        let mut over = Vec::new();
        self.seen.retain(|name, (revision, due)| {
            let stays = *due > now;
            if !stays {
                over.push((name.clone(), *revision));
            }
            stays
        });
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphan(name: &str, revision: i64) -> Orphan {
        Orphan { name: name.into(), revision, lasts: Seconds::new(4).unwrap() }
    }

    const fn at(tenths: u64) -> Moment {
        Moment::from_micros(tenths * 100_000)
    }

    #[test]
    fn an_orphan_is_over_after_its_lease_and_a_second() {
        let mut orphans = Orphans::default();
        assert_eq!(orphans.next(), Moment::NEVER);
        orphans.note(at(10), vec![orphan("a", 7)]);
        orphans.note(at(30), vec![orphan("a", 7), orphan("b", 8)]);
        assert_eq!(orphans.next(), at(60));
        assert!(orphans.take_due(at(59)).is_empty());
        assert_eq!(orphans.take_due(at(60)), [(b"a".to_vec(), 7)]);
        assert_eq!(orphans.take_due(at(80)), [(b"b".to_vec(), 8)]);
        assert_eq!(orphans.next(), Moment::NEVER);
    }

    #[test]
    fn a_change_begins_the_time_anew() {
        let mut orphans = Orphans::default();
        orphans.note(at(10), vec![orphan("a", 7)]);
        orphans.note(at(50), vec![orphan("a", 9)]);
        assert!(orphans.take_due(at(99)).is_empty());
        assert_eq!(orphans.take_due(at(100)), [(b"a".to_vec(), 9)]);
    }

    #[test]
    fn a_hold_is_no_orphan_once_its_front_end_is_back() {
        let mut orphans = Orphans::default();
        orphans.note(at(10), vec![orphan("a", 7)]);
        orphans.note(at(20), Vec::new());
        assert_eq!(orphans.next(), Moment::NEVER);
        // Its front-end is gone again, so the time begins again, too.
        orphans.note(at(40), vec![orphan("a", 7)]);
        assert_eq!(orphans.next(), at(90));
    }
}
