//! The roster for people: who holds what, since when, and who waits. Looks at the table in small
//! steps, so that nobody's request waits for somebody's curiosity.

use super::Handle;
use crate::engine::{KeyView, Party, Progress};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;

/// Places of the table looked at under one lock.
const PLACES_PER_STEP: u32 = 2048;

/// Some keys in use, those with the longest queues first.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    /// The keys shown.
    pub keys: Vec<(KeyView, Addresses)>,
    /// Keys in use, shown or not.
    pub in_use: usize,
}

/// Where the parties of a [`KeyView`] are connected from, in the same order. Nothing for a Unix
/// socket and for a connection that is gone.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// Of the holders.
    pub holders: Vec<Option<IpAddr>>,
    /// Of the waiters.
    pub waiting: Vec<Option<IpAddr>>,
}

impl Handle {
    /// At most `most_keys` keys in use, with at most `most_parties` holders and waiters each. Not a
    /// picture of one moment.
    #[must_use]
    pub fn roster(&self, most_keys: usize, most_parties: usize) -> Roster {
        let mut picked = BinaryHeap::new();
        let mut in_use = 0;
        let mut cursor = 0;
        let mut progress = Progress::More;
        while progress == Progress::More {
            progress =
                self.0.core().engine.look_over(&mut cursor, PLACES_PER_STEP, |place, waiters| {
                    in_use += 1;
                    picked.push(Reverse((waiters, Reverse(place))));
                    if picked.len() > most_keys {
                        picked.pop();
                    }
                });
        }
        let places = picked.into_sorted_vec();
        let keys = places
            .into_iter()
            .filter_map(|Reverse((_, Reverse(place)))| self.view(place, most_parties))
            .collect();
        Roster { keys, in_use }
    }

    fn view(&self, place: u32, most_parties: usize) -> Option<(KeyView, Addresses)> {
        let now = self.0.now();
        let core = self.0.core();
        let view = core.engine.view(now, place, most_parties)?;
        let address = |party: &Party| party.conn.and_then(|conn| core.address(conn));
        let addresses = Addresses {
            holders: view.holders.iter().map(address).collect(),
            waiting: view.waiting.iter().map(address).collect(),
        };
        Some((view, addresses))
    }
}
