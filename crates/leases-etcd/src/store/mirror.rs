//! A copy of the tickets of one contended key, which etcd's events keep current. Pure.
//!
//! A ticket is a holder while the tickets of its key with smaller create revisions leave room for it. The rule is
//! [`leases::Ahead`], as in the store in memory. The copy may lack deletions, but never a ticket before a known
//! one, and a deletion ends no other hold. So a ticket that looks like a holder here is one.

use super::keys::{Share, Stage, Ticket};
use leases::{Ahead, Label, Limit, Moment, Sight};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// One change of a ticket, as a watch reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Made or rewritten.
    Put { place: Spot, revision: i64 },
    /// Gone.
    Delete { nonce: u64, revision: i64 },
}

impl Change {
    const fn revision(&self) -> i64 {
        match self {
            Self::Put { revision, .. } | Self::Delete { revision, .. } => *revision,
        }
    }
}

/// The facts about a ticket that matter to the other tickets of its key and to its watchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) nonce: u64,
    pub(super) create: i64,
    pub(super) share: Share,
    /// Whether it is recorded as a hold.
    pub(super) is_held: bool,
    pub(super) label: Option<Arc<Label>>,
    /// When this front-end first saw it as a hold.
    pub(super) seen: Moment,
}

impl Spot {
    /// From the text of a ticket, which any client of etcd may have written.
    pub(super) fn read(nonce: u64, create: i64, text: &[u8], seen: Moment) -> Self {
        let ticket = Ticket::read(text);
        let is_held = ticket.as_ref().is_some_and(|ticket| ticket.stage == Stage::Held);
        let label = ticket.and_then(|ticket| ticket.label);
        Self { nonce, create, share: Share::read(text), is_held, label, seen }
    }
}

/// The number of holders among all tickets of a key, which come in the order of their create revisions. The holders
/// are the first ones: behind a waiting ticket, all wait.
pub(super) fn holders(limit: Limit, tickets: impl IntoIterator<Item = Share>) -> usize {
    let mut ahead = Ahead::default();
    let mut is_holder = |share: &Share| {
        let claim = share.claim(limit);
        let has_room = ahead.leaves_room_for(claim);
        ahead = ahead.and(claim);
        has_room
    };
    tickets.into_iter().take_while(|share| is_holder(share)).count()
}

#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// Changes that came before the answer to the first read; `None` after it.
    early: Option<Vec<Change>>,
    /// The revision of the first read.
    revision: i64,
    order: BTreeMap<i64, Spot>,
    places: HashMap<u64, i64>,
    /// The create revisions of tickets that are recorded as holds.
    held: BTreeSet<i64>,
}

impl Mirror {
    /// Begins. Changes are kept until the following read is answered.
    pub(super) fn new() -> Self {
        Self { early: Some(Vec::new()), ..Self::default() }
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.early.is_none()
    }

    /// The answer to the read: these tickets, as of `revision`.
    pub(super) fn read(&mut self, revision: i64, tickets: impl IntoIterator<Item = Spot>) {
        let early = self.early.take().unwrap_or_default();
        self.revision = revision;
        self.order.clear();
        self.places.clear();
        self.held.clear();
        for spot in tickets {
            self.put(spot);
        }
        early.into_iter().for_each(|change| self.apply(change));
    }

    /// Applies a change. Changes from before the read, and changes that a member replays, have no effect.
    pub(super) fn apply(&mut self, change: Change) {
        if let Some(early) = &mut self.early {
            return early.push(change);
        }
        if change.revision() <= self.revision {
            return;
        }
        match change {
            Change::Put { place, .. } => self.put(place),
            Change::Delete { nonce, .. } => self.remove(nonce),
        }
    }

    fn put(&mut self, spot: Spot) {
        let before = self.places.get(&spot.nonce).and_then(|create| self.order.get(create));
        // A hold that is rewritten keeps its age.
        let seen = before.filter(|before| before.is_held && spot.is_held).map(|it| it.seen);
        self.remove(spot.nonce);
        if spot.is_held {
            self.held.insert(spot.create);
        }
        self.places.insert(spot.nonce, spot.create);
        let seen = seen.unwrap_or(spot.seen);
        self.order.insert(spot.create, Spot { seen, ..spot });
    }

    /// A ticket is gone. We may know that before etcd's event comes.
    pub(super) fn remove(&mut self, nonce: u64) {
        if let Some(create) = self.places.remove(&nonce) {
            self.order.remove(&create);
            self.held.remove(&create);
        }
    }

    pub(super) fn has(&self, nonce: u64) -> bool {
        self.places.contains_key(&nonce)
    }

    /// The facts for watchers of the key; `None` if it is free. A ticket that has its turn counts as a hold only
    /// after that is recorded.
    pub(super) fn sight(&self, now: Moment) -> Option<Sight> {
        let last = self.order.get(self.held.last()?)?;
        Some(Sight {
            holders: u32::try_from(self.held.len()).unwrap_or(u32::MAX),
            fence: u64::try_from(last.create).unwrap_or(0),
            since_micros: now.micros_since(last.seen),
            label: last.label.clone(),
        })
    }

    /// The create revision of the first waiting ticket; `None` if all are holders.
    pub(super) fn boundary(&self, limit: Limit) -> Option<i64> {
        self.order.keys().nth(self.holders(limit)).copied()
    }

    fn holders(&self, limit: Limit) -> usize {
        holders(limit, self.order.values().map(|spot| spot.share))
    }

    /// The first ticket that becomes a holder when this one goes.
    pub(super) fn next_after(&self, leaving: u64, limit: Limit) -> Option<u64> {
        let create = self.places.get(&leaving)?;
        let held = self.holders(limit);
        let (boundary, next) = self.order.iter().nth(held)?;
        // A waiting ticket that goes makes no other ticket a holder.
        if create >= boundary {
            return None;
        }
        let left = self.order.iter().filter(|(other, _)| *other != create);
        (holders(limit, left.map(|(_, spot)| spot.share)) >= held).then_some(next.nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn spot(nonce: u64, create: i64, share: Share) -> Spot {
        let (is_held, label, seen) = (false, None, Moment::default());
        Spot { nonce, create, share, is_held, label, seen }
    }

    fn put(nonce: u64, create: i64, revision: i64) -> Change {
        Change::Put { place: spot(nonce, create, Share::Alone), revision }
    }

    const fn gone(nonce: u64, revision: i64) -> Change {
        Change::Delete { nonce, revision }
    }

    fn order(mirror: &Mirror) -> Vec<u64> {
        mirror.order.values().map(|spot| spot.nonce).collect()
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
    fn changes_are_applied_in_every_order_of_arrival(
        #[case] early: &[Change],
        #[case] late: &[Change],
        #[case] want: &[u64],
    ) {
        let mut mirror = Mirror::new();
        early.iter().for_each(|change| mirror.apply(change.clone()));
        assert!(!mirror.is_complete() && order(&mirror).is_empty());
        mirror.read(10, [spot(2, 7, Share::Alone), spot(1, 5, Share::Alone)]);
        late.iter().for_each(|change| mirror.apply(change.clone()));
        assert_eq!(order(&mirror), want);
    }

    #[rstest]
    #[case::lock(1, Some(20), &[(10, Some(20)), (20, None), (30, None)])]
    #[case::pool(2, Some(30), &[(10, Some(30)), (20, Some(30)), (30, None)])]
    #[case::all_hold(3, None, &[(10, None), (30, None)])]
    #[case::more_than_there_are(u64::MAX, None, &[(30, None)])]
    fn the_next_holder_follows_the_create_revisions(
        #[case] limit: u64,
        #[case] boundary: Option<i64>,
        #[case] next: &[(u64, Option<u64>)],
    ) {
        let mut mirror = Mirror::new();
        mirror.read(99, [30, 10, 20].map(|it| spot(it, i64::try_from(it).unwrap(), Share::Alone)));
        let limit = Limit::new(limit).unwrap();
        assert_eq!(mirror.boundary(limit), boundary);
        for (leaving, want) in next {
            assert_eq!(mirror.next_after(*leaving, limit), *want, "{leaving}");
        }
        assert_eq!(mirror.next_after(77, limit), None);
    }

    /// Tickets in order, r for a reader; how many hold, and which is the first to hold when one goes.
    #[rstest]
    #[case::readers("rrr", 3, &[(0, None), (2, None)])]
    #[case::a_writer_behind_readers("rrwr", 2, &[(0, None), (1, None), (2, None), (3, None)])]
    #[case::a_writer_behind_the_last_reader("rwr", 1, &[(0, Some(1)), (1, None)])]
    #[case::readers_behind_a_writer("wrrw", 1, &[(0, Some(1)), (1, None)])]
    #[case::writers("wwr", 1, &[(0, Some(1)), (1, None)])]
    fn readers_and_writers(
        #[case] all: &str,
        #[case] hold: usize,
        #[case] next: &[(u64, Option<u64>)],
    ) {
        let share = |letter| if letter == b'r' { Share::Shared } else { Share::Alone };
        let mut mirror = Mirror::new();
        let tickets = (0..).zip(all.bytes());
        mirror.read(99, tickets.map(|(it, b)| spot(it, i64::try_from(it).unwrap(), share(b))));
        assert_eq!(mirror.holders(Limit::ONE), hold);
        for (leaving, want) in next {
            assert_eq!(mirror.next_after(*leaving, Limit::ONE), *want, "{leaving}");
        }
    }

    /// The same changes, complete and after a read at any moment, give the same order.
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
            all.apply(change.clone());
            let tickets = all.order.values().cloned().collect();
            states.push((change.revision(), tickets));
        }
        for begun in 0..=story.len() {
            for (revision, tickets) in &states[begun..] {
                let mut mirror = Mirror::new();
                let (early, late) = story[begun..]
                    .iter()
                    .cloned()
                    .partition::<Vec<Change>, _>(|change| change.revision() <= *revision + 1);
                early.iter().for_each(|change| mirror.apply(change.clone()));
                mirror.read(*revision, tickets.iter().cloned());
                late.iter().for_each(|change| mirror.apply(change.clone()));
                assert_eq!(order(&mirror), order(&all), "from {begun}, read at {revision}");
            }
        }
    }

    /// News of tickets, h for a hold and w for one that waits, each with its create revision and the second in
    /// which it came; then how many hold, the fence of the last, and since which second it does.
    #[rstest]
    #[case::free(&[], None)]
    #[case::held(&[('h', 5, 1)], Some((1, 5, 1)))]
    #[case::a_queue_is_not_told(&[('h', 5, 1), ('w', 6, 2)], Some((1, 5, 1)))]
    #[case::its_turn_is_not_written_down(&[('w', 6, 2)], None)]
    #[case::from_when_it_is(&[('w', 6, 2), ('h', 6, 3)], Some((1, 6, 3)))]
    #[case::renewed(&[('h', 5, 1), ('h', 5, 4)], Some((1, 5, 1)))]
    #[case::several(&[('h', 5, 1), ('h', 9, 2)], Some((2, 9, 2)))]
    #[case::the_last_has_gone(&[('h', 5, 1), ('h', 9, 2), ('-', 9, 3)], Some((1, 5, 1)))]
    #[case::all_have_gone(&[('h', 5, 1), ('-', 5, 3)], None)]
    fn watchers_are_told_the_last_holder(
        #[case] news: &[(char, i64, u64)],
        #[case] want: Option<(u32, u64, u64)>,
    ) {
        let mut mirror = Mirror::new();
        mirror.read(0, []);
        for ((kind, create, second), revision) in news.iter().zip(1..) {
            let nonce = u64::try_from(*create).unwrap();
            let seen = Moment::from_micros(second * 1_000_000);
            let bare = spot(nonce, *create, Share::Alone);
            mirror.apply(match kind {
                '-' => gone(nonce, revision),
                _ => Change::Put { place: Spot { is_held: *kind == 'h', seen, ..bare }, revision },
            });
        }
        let now = Moment::from_micros(10_000_000);
        let told =
            mirror.sight(now).map(|it| (it.holders, it.fence, 10 - it.since_micros / 1_000_000));
        assert_eq!(told, want);
    }
}
