//! A copy of the tickets of one contended key, kept up to date by etcd's events in order. Pure.
//!
//! A ticket is a holder while fewer than `limit` tickets of its key have a smaller create revision. The copy
//! can only lack deletions, never a ticket before a known one: so a ticket that looks like a holder here is
//! one.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// One change of a ticket, as a watch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Made or written anew.
    Put { nonce: u64, create: i64, revision: i64 },
    /// Gone.
    Delete { nonce: u64, revision: i64 },
}

impl Change {
    const fn revision(self) -> i64 {
        match self {
            Self::Put { revision, .. } | Self::Delete { revision, .. } => revision,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// News that came before the first read was answered; `None` once it was.
    early: Option<Vec<Change>>,
    /// What the first read knew.
    revision: i64,
    order: BTreeMap<i64, u64>,
    places: HashMap<u64, i64>,
}

impl Mirror {
    /// Begins: news is kept until the read that follows is answered.
    pub(super) fn new() -> Self {
        Self { early: Some(Vec::new()), ..Self::default() }
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.early.is_none()
    }

    /// The read is answered: these tickets, nonce and create revision, as of `revision`.
    pub(super) fn read(&mut self, revision: i64, tickets: impl IntoIterator<Item = (u64, i64)>) {
        let early = self.early.take().unwrap_or_default();
        self.revision = revision;
        self.order.clear();
        self.places.clear();
        for (nonce, create) in tickets {
            self.put(nonce, create);
        }
        early.into_iter().for_each(|change| self.apply(change));
    }

    /// Some news. What the read knew already, and what a member replays, changes nothing.
    pub(super) fn apply(&mut self, change: Change) {
        if let Some(early) = &mut self.early {
            return early.push(change);
        }
        if change.revision() <= self.revision {
            return;
        }
        match change {
            Change::Put { nonce, create, .. } => self.put(nonce, create),
            Change::Delete { nonce, .. } => self.remove(nonce),
        }
    }

    fn put(&mut self, nonce: u64, create: i64) {
        self.remove(nonce);
        self.order.insert(create, nonce);
        self.places.insert(nonce, create);
    }

    /// A ticket is gone; also what we know before etcd's news of it has come.
    pub(super) fn remove(&mut self, nonce: u64) {
        if let Some(create) = self.places.remove(&nonce) {
            self.order.remove(&create);
        }
    }

    pub(super) fn has(&self, nonce: u64) -> bool {
        self.places.contains_key(&nonce)
    }

    /// The create revision from which on tickets wait; `None` when all are holders.
    pub(super) fn boundary(&self, limit: u64) -> Option<i64> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if self.order.len() <= limit {
            return None;
        }
        self.order.keys().nth(limit).copied()
    }

    /// Who becomes a holder when this ticket goes.
    pub(super) fn next_after(&self, leaving: u64, limit: u64) -> Option<u64> {
        let create = self.places.get(&leaving)?;
        let boundary = self.boundary(limit)?;
        // One that waits itself gives its place to nobody who holds then.
        let range = (Bound::Included(boundary), Bound::Unbounded);
        (*create < boundary).then(|| self.order.range(range).next().map(|(_, nonce)| *nonce))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn put(nonce: u64, create: i64, revision: i64) -> Change {
        Change::Put { nonce, create, revision }
    }

    const fn gone(nonce: u64, revision: i64) -> Change {
        Change::Delete { nonce, revision }
    }

    fn order(mirror: &Mirror) -> Vec<u64> {
        mirror.order.values().copied().collect()
    }

    #[rstest]
    #[case::nothing_happened(&[], &[], &[1, 2])]
    #[case::known_to_the_read(&[put(1, 5, 5), gone(3, 9)], &[], &[1, 2])]
    #[case::between_watch_and_read(&[put(3, 11, 11), gone(1, 12)], &[], &[2, 3])]
    #[case::afterwards(&[], &[put(3, 11, 11), gone(2, 12)], &[1, 3])]
    #[case::written_anew(&[], &[put(1, 5, 13)], &[1, 2])]
    #[case::replayed_by_a_member(&[], &[gone(1, 12), put(1, 5, 5), gone(2, 8)], &[2])]
    #[case::never_seen(&[], &[gone(77, 12)], &[1, 2])]
    #[case::came_and_went(&[put(3, 11, 11)], &[gone(3, 12)], &[1, 2])]
    fn news(#[case] early: &[Change], #[case] late: &[Change], #[case] want: &[u64]) {
        let mut mirror = Mirror::new();
        early.iter().for_each(|change| mirror.apply(*change));
        assert!(!mirror.is_complete() && order(&mirror).is_empty());
        mirror.read(10, [(2, 7), (1, 5)]);
        late.iter().for_each(|change| mirror.apply(*change));
        assert_eq!(order(&mirror), want);
    }

    #[rstest]
    #[case::lock(1, Some(20), &[(10, Some(20)), (20, None), (30, None)])]
    #[case::pool(2, Some(30), &[(10, Some(30)), (20, Some(30)), (30, None)])]
    #[case::all_hold(3, None, &[(10, None), (30, None)])]
    #[case::more_than_there_are(u64::MAX, None, &[(30, None)])]
    fn who_is_next(
        #[case] limit: u64,
        #[case] boundary: Option<i64>,
        #[case] next: &[(u64, Option<u64>)],
    ) {
        let mut mirror = Mirror::new();
        mirror.read(99, [(30, 30), (10, 10), (20, 20)]);
        assert_eq!(mirror.boundary(limit), boundary);
        for (leaving, want) in next {
            assert_eq!(mirror.next_after(*leaving, limit), *want, "{leaving}");
        }
        assert_eq!(mirror.next_after(77, limit), None);
    }

    /// The same news, told in full and from any read on, makes the same order.
    #[test]
    fn any_moment_of_reading_gives_the_same() {
        let story: Vec<Change> = vec![
            put(1, 1, 1),
            put(2, 2, 2),
            gone(1, 3),
            put(3, 4, 4),
            put(2, 2, 5),
            put(1, 6, 6),
            gone(3, 7),
            put(4, 8, 8),
        ];
        let mut all = Mirror::new();
        all.read(0, []);
        let mut states = vec![(0, Vec::new())];
        for change in &story {
            all.apply(*change);
            let tickets = all.order.iter().map(|(create, nonce)| (*nonce, *create)).collect();
            states.push((change.revision(), tickets));
        }
        for begun in 0..=story.len() {
            for (revision, tickets) in &states[begun..] {
                let mut mirror = Mirror::new();
                let (early, late) = story[begun..]
                    .iter()
                    .partition::<Vec<Change>, _>(|change| change.revision() <= *revision + 1);
                early.iter().for_each(|change| mirror.apply(*change));
                mirror.read(*revision, tickets.iter().copied());
                late.iter().for_each(|change| mirror.apply(*change));
                assert_eq!(order(&mirror), order(&all), "from {begun}, read at {revision}");
            }
        }
    }
}
