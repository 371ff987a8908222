//! A picture of all keys, for `stats`, the page and the metrics, read from etcd when somebody asks;
//! and what each round of the sweep does with one: it finds holds without a front-end, and keys that
//! nobody has used in a while.

use super::Inner;
use super::calls::BUDGET_MICROS;
use super::keys::{Front, Span, Stage, Ticket, read_decimal};
use super::orphans::Orphan;
use super::rpc::{KeyValue, RangeRequest};
use super::seats::Seats;
use super::tickets::Tickets;
use super::txn;
use crate::engine::{
    Census, ConnId, Cursor, Key, KeyLine, KeyView, Moment, Party, Progress, Refusal,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Keys of etcd in one answer.
const PAGE: i64 = 1000;
/// A picture is good this long if this front-end changed nothing.
const GOOD_MICROS: u64 = 500_000;
/// A sweep may take this part of the time at most.
const SWEEP_SHARE: u32 = 20;
/// Idle keys that are forgotten in one call: one by one the keys of a busy hour stay for another.
const FORGOTTEN_TOGETHER: usize = 100;

#[derive(Debug)]
struct Row {
    name: Box<[u8]>,
    limit: u64,
    /// The revision of its limit.
    revision: i64,
    /// In the order of the queue.
    tickets: Vec<Seen>,
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
    come: Moment,
    changes: u64,
}

/// What this front-end knows by itself of the tickets that a picture shows.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) front: Front,
    /// All front-ends that live.
    pub(super) fronts: &'a HashSet<Front>,
    pub(super) seats: &'a Seats,
    pub(super) tickets: &'a Tickets,
}

impl Row {
    fn held(&self) -> usize {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        self.tickets.len().min(limit)
    }

    fn line(&self, known: Known<'_>, now: Moment) -> KeyLine<'_> {
        let held = self.held();
        let last = held.checked_sub(1).and_then(|place| self.tickets.get(place));
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        KeyLine {
            name: &self.name,
            limit: self.limit,
            held: count(held),
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
    /// Exact where this front-end keeps the lease, else the most it can be.
    fn left(&self, known: Known<'_>, now: Moment) -> u64 {
        let ours = known.tickets.get(self.nonce).map(|mine| mine.ends.lease);
        let is_kept = self.ticket.keeper == known.front;
        match ours.filter(|deadline| is_kept && *deadline < Moment::NEVER) {
            Some(deadline) => deadline.micros_since(now),
            None => self.ticket.ttl.span().count().saturating_mul(1_000_000),
        }
    }

    /// Its owner, if that is connected here.
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
        }
    }
}

impl Picture {
    /// What a look is still to see. By name: another picture may have come meanwhile, where the same
    /// keys are in other places.
    fn after(&self, cursor: &Cursor) -> &[Row] {
        let Cursor::After(last) = cursor else { return &self.rows };
        self.rows.get(self.rows.partition_point(|row| row.name <= *last)..).unwrap_or_default()
    }

    fn row(&self, key: Key<'_>) -> Option<&Row> {
        let place = self.rows.binary_search_by(|row| (*row.name).cmp(key.bytes())).ok()?;
        self.rows.get(place)
    }

    fn census(&self) -> Census {
        let mut census = Census::default();
        for row in &self.rows {
            let held = row.held();
            let waiters = row.tickets.len() - held;
            let is_idle = row.tickets.is_empty();
            match (row.limit, is_idle) {
                (1, false) => census.locks += 1,
                (1, true) => census.idle_locks += 1,
                (_, false) => census.semaphores += 1,
                (_, true) => census.idle_semaphores += 1,
            }
            if row.limit == 1 {
                census.lock_holders += held;
                census.lock_waiters += waiters;
            } else {
                census.semaphore_holders += held;
                census.semaphore_waiters += waiters;
            }
        }
        census
    }

    /// Holds that no living front-end keeps. Also what says that this one does, and it does not: a
    /// write whose answer never came.
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

/// Since when keys are idle, which etcd does not keep: since a hold of ours left, or since a picture
/// showed them so first.
fn idle_as_before(
    rows: &mut BTreeMap<Box<[u8]>, Row>,
    before: Picture,
    left: &mut HashMap<Arc<[u8]>, Moment>,
) {
    left.retain(|name, _| rows.get(&**name).is_some_and(|row| row.tickets.is_empty()));
    for (name, since) in left.iter() {
        if let Some(row) = rows.get_mut(&**name) {
            row.idle_since = *since;
        }
    }
    for old in before.rows.into_iter().filter(|old| old.tickets.is_empty()) {
        let row = rows.get_mut(&old.name).filter(|row| row.tickets.is_empty());
        if let Some(row) = row.filter(|row| old.revision == row.revision) {
            if !left.contains_key(&*old.name) {
                row.idle_since = old.idle_since;
            }
        }
    }
    left.clear();
}

impl Inner {
    /// See the store's contract: shows a picture that is fresh enough, or waits for one.
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
            Cursor::Asked(then) => then <= picture.come,
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
            limit: row.limit,
            held: line.held,
            waiters: line.waiters,
            holders: holders.iter().rev().take(most).map(party).collect(),
            waiting: waiting.iter().take(most).map(party).collect(),
        })
    }

    /// Once at a time; everybody who waits for one is woken.
    fn ask_for_picture(self: &Arc<Self>) {
        use std::sync::atomic::Ordering;
        if self.picturing.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let taken = inner.take_picture().await;
            inner.picturing.store(false, Ordering::Relaxed);
            {
                let mut state = inner.state();
                if taken.is_err() {
                    // They are told that the store is away, rather than nothing.
                    state.away = state.session.is_none();
                }
                let ids: Vec<ConnId> = state.seats.conns().map(|conn| conn.id).collect();
                state.effects.extend(ids.into_iter().map(crate::engine::Effect::Wake));
            }
            inner.stir();
        });
    }

    async fn take_picture(self: &Arc<Self>) -> Result<(), Refusal> {
        let (begun, changes) = (self.now(), self.state().changes);
        let mut rows: BTreeMap<Box<[u8]>, Row> = BTreeMap::new();
        // The tickets first: a key is there before its tickets and after them.
        let mut tickets: HashMap<Box<[u8]>, Vec<Seen>> = HashMap::new();
        for kv in self.read_all(self.names.all_tickets()).await? {
            let Some((key, nonce)) = self.names.read_ticket(&kv.key) else { continue };
            let Some(ticket) = Ticket::read(&kv.value) else { continue };
            let (create, revision) = (kv.create_revision, kv.mod_revision);
            tickets.entry(key.into()).or_default().push(Seen { create, nonce, revision, ticket });
        }
        for kv in self.read_all(self.names.limits()).await? {
            let Some(key) = self.names.read_limit(&kv.key) else { continue };
            let Some(limit) = read_decimal(&kv.value) else { continue };
            let mut tickets = tickets.remove(key).unwrap_or_default();
            tickets.sort_unstable_by_key(|seen| seen.create);
            let name: Box<[u8]> = key.into();
            let (revision, idle_since) = (kv.mod_revision, begun);
            rows.insert(name.clone(), Row { name, limit, revision, tickets, idle_since });
        }
        let mut state = self.state();
        let state = &mut *state;
        let before = state.picture.take().unwrap_or_default();
        idle_as_before(&mut rows, before, &mut state.left);
        let rows = rows.into_values().collect();
        let come = self.now();
        let picture = Picture { rows, begun, come, changes };
        state.census = picture.census();
        let orphans = picture.orphans(state.known(), &self.names);
        state.orphans.note(picture.come, orphans);
        state.orphans_due = state.orphans.next();
        state.picture = Some(picture);
        Ok(())
    }

    /// Everything in a span, page by page.
    async fn read_all(&self, Span { mut from, to }: Span) -> Result<Vec<KeyValue>, Refusal> {
        let mut all = Vec::new();
        loop {
            let request = RangeRequest {
                key: from.clone(),
                range_end: to.clone(),
                limit: PAGE,
                ..RangeRequest::default()
            };
            let until = self.now().after_micros(BUDGET_MICROS);
            let answer = self.range(request, until).await?;
            let last = answer.kvs.last().map(|kv| kv.key.clone());
            all.extend(answer.kvs);
            match last {
                Some(last) if answer.more => {
                    from = last;
                    from.push(0);
                }
                Some(_) | None => return Ok(all),
            }
        }
    }

    /// Every now and then, and at once when a front-end has gone.
    pub(super) async fn sweep(self: Arc<Self>) {
        let mut pause = Duration::from_secs(self.caps.gc_interval.count());
        while !self.is_closed() {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.sweep_now.notified() => {}
            }
            if self.state().session.is_none() {
                continue;
            }
            let begun = tokio::time::Instant::now();
            if self.take_picture().await.is_ok() {
                self.forget_idle().await;
                self.state().shrink();
                self.stir();
            }
            let least = Duration::from_secs(self.caps.gc_interval.count());
            pause = least.max(begun.elapsed().saturating_mul(SWEEP_SHARE));
        }
    }

    /// Removes keys that nobody has used for longer than they are kept.
    async fn forget_idle(self: &Arc<Self>) {
        let now = self.now();
        let idle = self.caps.gc_max_idle.count().saturating_mul(1_000_000);
        let over: Vec<(Box<[u8]>, i64)> = {
            let state = self.state();
            let rows = state.picture.iter().flat_map(|picture| &picture.rows);
            rows.filter(|row| row.tickets.is_empty() && now.micros_since(row.idle_since) > idle)
                .map(|row| (row.name.clone(), row.revision))
                .collect()
        };
        for many in over.chunks(FORGOTTEN_TOGETHER) {
            let until = self.now().after_micros(BUDGET_MICROS);
            let mut under_way = JoinSet::new();
            for (key, revision) in many {
                let inner = Arc::clone(self);
                let forget = txn::forget(&self.names, key, *revision);
                under_way.spawn(async move { inner.again(forget, until).await });
            }
            while let Some(outcome) = under_way.join_next().await {
                if !matches!(outcome, Ok(Ok(_))) {
                    return;
                }
            }
            self.state().changes += 1;
        }
    }

    /// Forgets the key that has been idle longest, for a new one. False when all are in use.
    pub(super) async fn make_room(self: &Arc<Self>, new: &[u8]) -> Result<bool, Refusal> {
        self.take_picture().await?;
        let mut idle: Vec<(Moment, Box<[u8]>, i64)> = {
            let state = self.state();
            let rows = state.picture.iter().flat_map(|picture| &picture.rows);
            rows.filter(|row| row.tickets.is_empty() && *row.name != *new)
                .map(|row| (row.idle_since, row.name.clone(), row.revision))
                .collect()
        };
        idle.sort_unstable();
        for (_, key, revision) in idle {
            let until = self.now().after_micros(BUDGET_MICROS);
            let forget = txn::forget(&self.names, &key, revision);
            if self.again(forget, until).await?.answer.succeeded {
                self.state().changes += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::{self, Names};
    use super::super::mine::{Ends, Mine, Place};
    use super::super::state::State;
    use super::super::{Engine, Settings, turns};
    use super::*;
    use crate::engine::Ttl;
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
            Row { name, limit: 1, revision: 2, tickets: Vec::new(), idle_since: Moment::default() }
        };
        Picture { rows: names.iter().map(row).collect(), ..Picture::default() }
    }

    /// Keys come and go between the steps of a look, and each time there is another picture.
    #[rstest]
    #[case::before_it(&["b", "d", "f", "h"], &["a", "b", "c", "d", "f", "h"], "bdfh")]
    #[case::those_before_it_go(&["a", "b", "c", "d", "e", "f"], &["c", "d", "e", "f"], "abcdef")]
    #[case::the_last_one_goes(&["a", "b", "c"], &["a", "c"], "abc")]
    #[case::behind_it(&["a", "b", "d"], &["a", "b", "c", "d"], "abcd")]
    #[case::all_go(&["a", "b", "c"], &[], "ab")]
    fn a_key_that_stays_is_told_once(
        #[case] first: &[&str],
        #[case] then: &[&str],
        #[case] want: &str,
    ) {
        let settings = Settings { members: Vec::new(), prefix: String::new(), user: None };
        let store = Engine::new(settings, turns::CAPS);
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

    #[test]
    fn tables_of_a_rush_give_their_memory_back() {
        let mut state = State::new(OURS);
        for number in 0..50_000_u32 {
            state.note_left(&number.to_be_bytes()[..].into(), Moment::default());
        }
        assert!(state.left.capacity() > 4096);
        idle_as_before(&mut BTreeMap::new(), Picture::default(), &mut state.left);
        state.shrink();
        assert!(state.left.capacity() < 64, "{}", state.left.capacity());
    }

    /// Somebody alive must be going to end a hold; what a ticket says of that is not enough when it
    /// names this front-end.
    #[rstest]
    #[case::kept_here(OURS, Some(Moment::from_micros(9)), false)]
    #[case::not_known_here(OURS, None, true)]
    #[case::known_here_as_anothers(OURS, Some(Moment::NEVER), true)]
    #[case::kept_there(THEIRS, None, false)]
    #[case::of_a_dead_one(Front(3), None, true)]
    fn who_ends_a_hold(
        #[case] keeper: Front,
        #[case] deadline: Option<Moment>,
        #[case] is_orphan: bool,
    ) {
        let mut state = State::new(OURS);
        state.fronts.extend([OURS, THEIRS]);
        let ttl = Ttl::new(5).unwrap();
        let ticket = Ticket::new(Stage::Held, keys::Party { front: keeper, serial: 1 }, ttl);
        if let Some(deadline) = deadline {
            state.keep(mine(ticket, deadline));
        }
        let tickets = vec![Seen { create: 20, nonce: 7, revision: 20, ticket }];
        let idle_since = Moment::default();
        let row = Row { name: b"k"[..].into(), limit: 1, revision: 2, tickets, idle_since };
        let picture = Picture { rows: vec![row], ..Picture::default() };
        assert_eq!(picture.orphans(state.known(), &Names::new("")).len(), usize::from(is_orphan));
    }
}
