//! A snapshot of all keys, read from etcd on demand for `stats`, the page, the metrics and the sweep. With many
//! keys it is the largest cost of all, so it keeps no more than it needs.

use super::Inner;
use super::calls::BUDGET_MICROS;
use super::keys::{Front, Share, Span, Stage, Ticket, read_limit};
use super::mirror;
use super::orphans::Orphan;
use super::rpc::{KeyValue, RangeRequest};
use super::seats::Seats;
use super::tickets::Tickets;
use leases::{
    Census, ConnId, Cursor, Key, KeyLine, KeyView, Limit, Moment, Party, Progress, Refusal,
};
use std::collections::{HashMap, HashSet};
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec::IntoIter;

/// The most keys of etcd in one answer.
const PAGE: i64 = 1000;
/// How long a snapshot can be used if this front-end changes nothing.
const GOOD_MICROS: u64 = 500_000;

#[derive(Debug)]
struct Row {
    name: Box<[u8]>,
    limit: Limit,
    /// The revision of its limit.
    revision: i64,
    /// In the order of the queue.
    tickets: Box<[Seen]>,
    idle_since: Moment,
}

#[derive(Debug)]
struct Seen {
    create: i64,
    nonce: u64,
    revision: i64,
    ticket: Ticket,
}

#[derive(Debug, Default)]
pub(super) struct Picture {
    /// In the order of names.
    rows: Vec<Row>,
    begun: Moment,
    changes: u64,
    /// Since when the first idle key has been idle.
    first_idle: Moment,
}

/// What this front-end knows about the tickets of a snapshot.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) front: Front,
    /// All living front-ends.
    pub(super) fronts: &'a HashSet<Front>,
    pub(super) seats: &'a Seats,
    pub(super) tickets: &'a Tickets,
}

impl Row {
    fn held(&self) -> usize {
        mirror::holders(self.limit, self.tickets.iter().map(|seen| seen.ticket.share))
    }

    /// The number of holders, if they share it.
    fn readers(&self) -> usize {
        let is_shared =
            self.tickets.first().is_some_and(|first| first.ticket.share == Share::Shared);
        if is_shared { self.held() } else { 0 }
    }

    fn line(&self, known: Known<'_>, now: Moment) -> KeyLine<'_> {
        let held = self.held();
        let last = held.checked_sub(1).and_then(|place| self.tickets.get(place));
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        KeyLine {
            name: &self.name,
            limit: self.limit.count(),
            held: count(held),
            readers: count(self.readers()),
            waiters: count(self.tickets.len() - held),
            owner: last.map_or(0, |seen| seen.ticket.last_owner.serial),
            conn: last.and_then(|seen| seen.conn(known)),
            owner_name: None,
            left_micros: last.map_or(0, |seen| seen.left(known, now)),
            idle_micros: now.micros_since(self.idle_since),
        }
    }
}

impl Seen {
    /// Exact if this front-end keeps the lease; otherwise the longest possible time.
    fn left(&self, known: Known<'_>, now: Moment) -> u64 {
        let ours = known.tickets.get(self.nonce).map(|mine| mine.ends.lease);
        let is_kept = self.ticket.keeper == known.front;
        match ours.filter(|deadline| is_kept && *deadline < Moment::NEVER) {
            Some(deadline) => deadline.micros_since(now),
            None => self.ticket.ttl.span().count().saturating_mul(1_000_000),
        }
    }

    /// Its owner, if it is connected here.
    fn conn(&self, known: Known<'_>) -> Option<ConnId> {
        known.seats.of(self.ticket.standing.owner?)
    }

    fn party(&self, known: Known<'_>, now: Moment) -> Party {
        let serial = self.ticket.last_owner.serial;
        let mine = known.tickets.get(self.nonce);
        Party {
            serial,
            conn: self.conn(known),
            since_micros: mine.map_or(0, |mine| now.micros_since(mine.since)),
            left_micros: (self.ticket.stage == Stage::Held).then(|| self.left(known, now)),
            is_reader: self.ticket.share == Share::Shared,
        }
    }
}

impl Picture {
    /// The keys that a reader has not seen yet, found by name, because in a newer snapshot the same keys may be in
    /// other places.
    fn after(&self, cursor: &Cursor) -> &[Row] {
        let Cursor::After(last) = cursor else { return &self.rows };
        self.rows.get(self.rows.partition_point(|row| row.name <= *last)..).unwrap_or_default()
    }

    fn row(&self, key: Key<'_>) -> Option<&Row> {
        let place = self.rows.binary_search_by(|row| (*row.name).cmp(key.bytes())).ok()?;
        self.rows.get(place)
    }

    /// The unused keys in the order of names: since when each is unused, and the revision of its limit.
    pub(super) fn idle(&self) -> impl Iterator<Item = (Moment, &[u8], i64)> {
        let is_idle = |row: &&Row| row.tickets.is_empty();
        self.rows.iter().filter(is_idle).map(|row| (row.idle_since, &*row.name, row.revision))
    }

    /// Removes keys, which come in the order of names, each if it still has this revision.
    pub(super) fn leave_out(&mut self, gone: &[(Box<[u8]>, i64)]) {
        let mut gone = gone.iter().peekable();
        self.rows.retain(|row| {
            while gone.next_if(|(name, _)| *name < row.name).is_some() {}
            gone.next_if(|(name, revision)| (name, *revision) == (&row.name, row.revision))
                .is_none()
        });
        self.note_idle();
    }

    fn note_idle(&mut self) {
        self.first_idle = self.idle().map(|(since, ..)| since).min().unwrap_or(Moment::NEVER);
    }

    /// Since when the first idle key has been idle; [`Moment::NEVER`] if none is idle.
    pub(super) const fn first_idle(&self) -> Moment {
        self.first_idle
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn census(&self) -> Census {
        let mut census = Census::default();
        for row in &self.rows {
            let held = row.held();
            let waiters = row.tickets.len() - held;
            let is_idle = row.tickets.is_empty();
            match (row.limit.count(), is_idle) {
                (1, false) => census.locks += 1,
                (1, true) => census.idle_locks += 1,
                (_, false) => census.semaphores += 1,
                (_, true) => census.idle_semaphores += 1,
            }
            if row.limit == Limit::ONE {
                census.lock_holders += held;
                census.lock_readers += row.readers();
                census.lock_waiters += waiters;
            } else {
                census.semaphore_holders += held;
                census.semaphore_waiters += waiters;
            }
        }
        census
    }

    /// The holds that no living front-end keeps. Among them are holds that name this front-end, which does not know
    /// them because the answer to its write never came.
    fn orphans(&self, known: Known<'_>, names: &super::keys::Names) -> Vec<Orphan> {
        let mut orphans = Vec::new();
        for row in &self.rows {
            for seen in &row.tickets {
                let keeper = seen.ticket.keeper;
                let is_kept = if keeper == known.front {
                    known.tickets.will_end(seen.nonce)
                } else {
                    known.fronts.contains(&keeper)
                };
                if seen.ticket.stage == Stage::Held && !is_kept {
                    let name = names.ticket(&row.name, seen.nonce);
                    let (revision, lasts) = (seen.revision, seen.ticket.lasts());
                    orphans.push(Orphan { name, revision, lasts });
                }
            }
        }
        orphans
    }
}

/// The tickets of one key, in the order of the queue.
struct Group {
    key: Box<[u8]>,
    tickets: Box<[Seen]>,
}

/// The tickets read so far, before the keys are known.
#[derive(Default)]
struct Draft {
    /// In etcd's order, which differs from the order of keys if one key is the beginning of another.
    groups: Vec<Group>,
    /// The tickets of the last key so far; etcd returns the tickets of one key together.
    last: Option<(Box<[u8]>, Vec<Seen>)>,
}

impl Draft {
    fn note(&mut self, key: &[u8], seen: Seen) {
        if let Some((_, tickets)) = self.last.as_mut().filter(|(last, _)| **last == *key) {
            return tickets.push(seen);
        }
        self.end_group();
        self.last = Some((key.into(), vec![seen]));
    }

    /// Keeps only what is needed of each key, because there may be a million.
    fn end_group(&mut self) {
        if let Some((key, mut tickets)) = self.last.take() {
            tickets.sort_unstable_by_key(|seen| seen.create);
            self.groups.push(Group { key, tickets: tickets.into_boxed_slice() });
        }
    }

    fn end(mut self) -> Groups {
        self.end_group();
        self.groups.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        Groups(self.groups.into_iter().peekable())
    }
}

/// All tickets read, in the order of keys.
struct Groups(Peekable<IntoIter<Group>>);

impl Groups {
    /// Takes the tickets of this key, which must be after the key of the previous call.
    fn take(&mut self, key: &[u8]) -> Group {
        while self.0.next_if(|group| *group.key < *key).is_some() {}
        let found = self.0.next_if(|group| *group.key == *key);
        found.unwrap_or_else(|| Group { key: key.into(), tickets: Box::default() })
    }
}

/// Since when keys are idle. Etcd does not record that, so it is the time when a hold of ours left the key, or when
/// a snapshot first showed the key as idle.
fn idle_as_before(rows: &mut [Row], before: Picture, left: &mut HashMap<Arc<[u8]>, Moment>) {
    let mut before = before.rows.into_iter().peekable();
    for row in rows {
        while before.next_if(|old| old.name < row.name).is_some() {}
        let old = before.next_if(|old| old.name == row.name);
        if !row.tickets.is_empty() {
            continue;
        }
        let is_same = |old: &Row| old.tickets.is_empty() && old.revision == row.revision;
        let as_before = old.filter(is_same).map(|old| old.idle_since);
        if let Some(since) = left.get(&*row.name).copied().or(as_before) {
            row.idle_since = since;
        }
    }
    left.clear();
}

impl Inner {
    /// Reads keys from a snapshot that is recent enough, or waits for one.
    pub(super) fn look_over(
        self: &Arc<Self>,
        now: Moment,
        cursor: &mut Cursor,
        budget: u32,
        mut note: impl FnMut(&KeyLine<'_>) -> ControlFlow<()>,
    ) -> Progress {
        let state = self.state();
        let is_good = |picture: &&Picture| match *cursor {
            Cursor::Start => {
                picture.changes == state.changes && now.micros_since(picture.begun) < GOOD_MICROS
            }
            // A snapshot that was under way then may have missed a change just before.
            Cursor::Asked(then) => then <= picture.begun,
            Cursor::Place(_) | Cursor::After(_) => true,
        };
        let Some(picture) = state.picture.as_ref().filter(is_good) else {
            if *cursor == Cursor::Start {
                *cursor = Cursor::Asked(now);
            }
            self.ask_for_picture();
            return Progress::Later;
        };
        let mut rest = picture.after(cursor).iter();
        for row in rest.by_ref().take(usize::try_from(budget).unwrap_or(usize::MAX)) {
            let is_enough = note(&row.line(state.known(), now)).is_break();
            if is_enough {
                break;
            }
        }
        let rest = rest.as_slice();
        let looked_at = picture.rows.len() - rest.len();
        if let Some(last) = looked_at.checked_sub(1).and_then(|place| picture.rows.get(place)) {
            *cursor = Cursor::After(last.name.clone());
        }
        if rest.is_empty() { Progress::Done } else { Progress::More }
    }

    pub(super) fn view(&self, now: Moment, key: Key<'_>, most: usize) -> Option<KeyView> {
        let state = self.state();
        let row = state.picture.as_ref()?.row(key).filter(|row| !row.tickets.is_empty())?;
        let line = row.line(state.known(), now);
        let (holders, waiting) = row.tickets.split_at_checked(row.held())?;
        let party = |seen: &Seen| seen.party(state.known(), now);
        Some(KeyView {
            name: row.name.to_vec(),
            limit: row.limit.count(),
            held: line.held,
            waiters: line.waiters,
            holders: holders.iter().rev().take(most).map(party).collect(),
            waiting: waiting.iter().take(most).map(party).collect(),
        })
    }

    /// Makes one snapshot at a time, and wakes all callers that wait for it.
    fn ask_for_picture(self: &Arc<Self>) {
        use std::sync::atomic::Ordering;
        if self.picturing.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            // A caller that gets none asks again, and hears then that etcd cannot be reached.
            let _ = inner.take_picture().await;
            inner.picturing.store(false, Ordering::Relaxed);
            {
                let mut state = inner.state();
                let ids: Vec<ConnId> = state.seats.conns().map(|conn| conn.id).collect();
                state.effects.extend(ids.into_iter().map(leases::Effect::Wake));
            }
            inner.stir();
        });
    }

    pub(super) async fn take_picture(self: &Arc<Self>) -> Result<(), Refusal> {
        let (begun, changes) = (self.now(), self.state().changes);
        let mut draft = Draft::default();
        // The tickets are read first, because a key exists before its tickets and after them.
        self.read_all(self.names.all_tickets(), |kv| {
            let Some((key, nonce)) = self.names.read_ticket(&kv.key) else { return };
            let Some(ticket) = Ticket::read(&kv.value) else { return };
            let (create, revision) = (kv.create_revision, kv.mod_revision);
            // It is not shown, and there may be a million of them.
            let ticket = Ticket { label: None, ..ticket };
            draft.note(key, Seen { create, nonce, revision, ticket });
        })
        .await?;
        let mut groups = draft.end();
        let mut rows: Vec<Row> = Vec::new();
        self.read_all(self.names.limits(), |kv| {
            let Some(key) = self.names.read_limit(&kv.key) else { return };
            let Some(limit) = read_limit(&kv.value) else { return };
            let Group { key: name, tickets } = groups.take(key);
            let (revision, idle_since) = (kv.mod_revision, begun);
            rows.push(Row { name, limit, revision, tickets, idle_since });
        })
        .await?;
        drop(groups);
        rows.shrink_to_fit();
        let mut state = self.state();
        let state = &mut *state;
        let before = state.picture.take().unwrap_or_default();
        idle_as_before(&mut rows, before, &mut state.left);
        let mut picture = Picture { rows, begun, changes, first_idle: Moment::NEVER };
        picture.note_idle();
        state.census = picture.census();
        let orphans = picture.orphans(state.known(), &self.names);
        state.orphans.note(self.now(), orphans);
        state.orphans_due = state.orphans.next();
        state.picture = Some(picture);
        Ok(())
    }

    /// Reads all keys in a span in the order of names, a page at a time.
    async fn read_all(
        &self,
        Span { mut from, to }: Span,
        mut note: impl FnMut(&KeyValue),
    ) -> Result<(), Refusal> {
        loop {
            let request = RangeRequest {
                key: from.clone(),
                range_end: to.clone(),
                limit: PAGE,
                ..RangeRequest::default()
            };
            let until = self.now().after_micros(BUDGET_MICROS);
            let answer = self.range(request, until).await?;
            answer.kvs.iter().for_each(&mut note);
            match answer.kvs.into_iter().last() {
                Some(last) if answer.more => {
                    from = last.key;
                    from.push(0);
                }
                Some(_) | None => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::{self, Names};
    use super::super::mine::{Ends, Mine, Place};
    use super::super::state::State;
    use super::super::{Engine, Settings};
    use super::*;
    use leases::Ttl;
    use rstest::rstest;

    const OURS: Front = Front(1);
    const THEIRS: Front = Front(2);

    fn mine(ticket: Ticket, deadline: Moment) -> Mine {
        Mine {
            key: b"k"[..].into(),
            nonce: 7,
            create: 20,
            revision: 20,
            ticket,
            place: Place::Held,
            conn: ConnId::new(0, 1),
            since: Moment::default(),
            ends: Ends::with_lease(deadline),
            wake: None,
            unwanted: false,
        }
    }

    fn picture(names: &[&str]) -> Picture {
        let row = |name: &&str| {
            let name = name.as_bytes().into();
            let tickets = Box::default();
            Row { name, limit: Limit::ONE, revision: 2, tickets, idle_since: Moment::default() }
        };
        Picture { rows: names.iter().map(row).collect(), ..Picture::default() }
    }

    /// Keys come and go between the steps of a reader, and each time there is a new snapshot.
    #[rstest]
    #[case::before_it(&["b", "d", "f", "h"], &["a", "b", "c", "d", "f", "h"], "bdfh")]
    #[case::those_before_it_go(&["a", "b", "c", "d", "e", "f"], &["c", "d", "e", "f"], "abcdef")]
    #[case::the_last_one_goes(&["a", "b", "c"], &["a", "c"], "abc")]
    #[case::behind_it(&["a", "b", "d"], &["a", "b", "c", "d"], "abcd")]
    #[case::all_go(&["a", "b", "c"], &[], "ab")]
    fn a_key_that_exists_throughout_is_listed_once(
        #[case] first: &[&str],
        #[case] then: &[&str],
        #[case] want: &str,
    ) {
        let settings = Settings { members: Vec::new(), prefix: String::new(), user: None };
        let store = Engine::new(settings, crate::sample::CAPS);
        store.inner.state().picture = Some(picture(first));
        let (mut cursor, mut told) = (Cursor::Start, String::new());
        let mut look = || {
            store.look_over(Moment::default(), &mut cursor, 2, |line| {
                told.push_str(std::str::from_utf8(line.name).unwrap());
                ControlFlow::Continue(())
            })
        };
        assert_eq!(look(), Progress::More);
        store.inner.state().picture = Some(picture(then));
        assert!((0..9).any(|_| look() == Progress::Done), "it ends");
        assert_eq!(told, want);
    }

    /// The answer contains everything that was answered before the question.
    #[rstest]
    #[case::begun_before(4, false)]
    #[case::begun_then(5, true)]
    #[case::begun_after(6, true)]
    #[tokio::test]
    async fn a_question_is_answered_from_a_later_picture(
        #[case] begun: u64,
        #[case] is_good: bool,
    ) {
        let settings = Settings { members: Vec::new(), prefix: String::new(), user: None };
        let store = Engine::new(settings, crate::sample::CAPS);
        let begun = Moment::from_micros(begun);
        store.inner.state().picture = Some(Picture { begun, ..picture(&["a"]) });
        let mut cursor = Cursor::Asked(Moment::from_micros(5));
        let told =
            store.look_over(Moment::from_micros(9), &mut cursor, 2, |_| ControlFlow::Continue(()));
        assert_eq!(told, if is_good { Progress::Done } else { Progress::Later });
    }

    /// A living front-end must be going to end each hold. A ticket that names this front-end is not enough: our
    /// tables must have it.
    #[rstest]
    #[case::kept_here(OURS, Some(Moment::from_micros(9)), false)]
    #[case::not_known_here(OURS, None, true)]
    #[case::known_here_as_anothers(OURS, Some(Moment::NEVER), true)]
    #[case::kept_there(THEIRS, None, false)]
    #[case::of_a_dead_one(Front(3), None, true)]
    fn a_hold_that_no_front_end_will_end_is_an_orphan(
        #[case] keeper: Front,
        #[case] deadline: Option<Moment>,
        #[case] is_orphan: bool,
    ) {
        let mut state = State::new(OURS);
        state.fronts.extend([OURS, THEIRS]);
        let ttl = Ttl::new(5).unwrap();
        let ticket =
            Ticket::new(Stage::Held, Share::Alone, keys::Party { front: keeper, serial: 1 }, ttl);
        if let Some(deadline) = deadline {
            state.keep(mine(ticket.clone(), deadline));
        }
        let tickets = Box::new([Seen { create: 20, nonce: 7, revision: 20, ticket }]);
        let idle_since = Moment::default();
        let row =
            Row { name: b"k"[..].into(), limit: Limit::ONE, revision: 2, tickets, idle_since };
        let picture = Picture { rows: vec![row], ..Picture::default() };
        assert_eq!(picture.orphans(state.known(), &Names::new("")).len(), usize::from(is_orphan));
    }
}
