//! The state of this front-end under one lock: its connections, the tickets that it made or keeps, and the
//! contended keys that it watches. Nothing here talks to etcd.

use super::crowd::Crowd;
use super::keys::{Front, Party, Stage, Ticket};
use super::lines::Lines;
use super::mine::{Ends, Mine, Place};
use super::orphans::Orphans;
use super::picture::{Known, Picture};
use super::seats::{Departure, Phase, Seats};
use super::tickets::Tickets;
use super::txn::Session;
use leases::ownership::Standing;
use leases::{Answer, Census, ConnId, Counters, Effect, Moment, Refusal};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The most keys that are noted between two snapshots because holds of ours left them.
const MOST_LEFT: usize = 100_000;

/// This many of them are a reason for a snapshot.
const MANY_LEFT: usize = 1024;

pub(super) struct State {
    pub(super) front: Front,
    pub(super) session: Option<Session>,
    /// etcd does not answer: see [`State::note_silence`].
    pub(super) away: bool,
    /// Since when no attempt to reach etcd has been answered.
    silent_since: Option<Moment>,
    /// Whether there has ever been a session.
    pub(super) begun: bool,
    pub(super) draining: bool,
    /// All living front-ends.
    pub(super) fronts: HashSet<Front>,
    pub(super) seats: Seats,
    pub(super) tickets: Tickets,
    pub(super) lines: Lines,
    pub(super) orphans: Orphans,
    /// When the next orphan is over.
    pub(super) orphans_due: Moment,
    pub(super) effects: VecDeque<Effect>,
    pub(super) counters: Counters,
    pub(super) census: Census,
    pub(super) crowd: Crowd,
    pub(super) picture: Option<Picture>,
    /// When a hold of ours last left a key, since the last snapshot.
    pub(super) left: HashMap<Arc<[u8]>, Moment>,
    /// Counts the changes by this front-end, to recognise a snapshot that is too old.
    pub(super) changes: u64,
    pub(super) tombstones: u64,
}

impl State {
    pub(super) fn new(front: Front) -> Self {
        Self {
            front,
            session: None,
            away: false,
            silent_since: None,
            begun: false,
            draining: false,
            fronts: HashSet::new(),
            seats: Seats::new(front),
            tickets: Tickets::default(),
            lines: Lines::new(),
            orphans: Orphans::default(),
            orphans_due: Moment::NEVER,
            effects: VecDeque::new(),
            counters: Counters::default(),
            census: Census::default(),
            crowd: Crowd::default(),
            picture: None,
            left: HashMap::new(),
            changes: 0,
            tombstones: 0,
        }
    }

    /// The facts that are needed to show a snapshot.
    pub(super) const fn known(&self) -> Known<'_> {
        let Self { front, ref fronts, ref seats, ref tickets, .. } = *self;
        Known { front, fronts, seats, tickets }
    }

    /// Whether a connection is open. For connections of other front-ends: whether their front-end lives.
    pub(super) fn lives(&self, party: Party) -> bool {
        if party.front == self.front {
            return self.seats.of(party).is_some();
        }
        self.fronts.contains(&party.front)
    }

    /// Answers the request of a connection. Returns the answer if the connection is gone.
    pub(super) fn answer(&mut self, id: ConnId, answer: Answer) -> Option<Answer> {
        self.count(&answer);
        let Some(conn) = self.seats.conn(id) else { return Some(answer) };
        conn.busy = false;
        conn.blocked = None;
        conn.idle.notify_one();
        if conn.departure != Departure::Here {
            conn.untold.extend(answer.grants().iter().map(|grant| grant.token.salt()));
            return None;
        }
        self.effects.push_back(Effect::Answer(id, answer));
        None
    }

    /// Etcd has answered.
    pub(super) fn note_answer(&mut self) {
        (self.away, self.begun, self.silent_since) = (false, true, None);
    }

    /// An attempt to reach etcd was not answered. Etcd counts as unreachable when none was answered for `patience`
    /// microseconds after the first failure. Returns whether that has just become true.
    pub(super) fn note_silence(&mut self, now: Moment, patience: u64) -> bool {
        let since = *self.silent_since.get_or_insert(now);
        let is_away = now.micros_since(since) >= patience;
        is_away && !std::mem::replace(&mut self.away, true)
    }

    pub(super) fn count(&mut self, answer: &Answer) {
        let counters = &mut self.counters;
        match answer {
            Answer::Released => counters.releases += 1,
            Answer::Renewed(_) => counters.renewals += 1,
            Answer::TimedOut => counters.timeouts += 1,
            Answer::Refused(refusal) => {
                if let Some(count) = counters.refusals.get_mut(*refusal as usize) {
                    *count += 1;
                }
            }
            Answer::Granted(_) | Answer::All(_) | Answer::Acquired(_) | Answer::Queued => {}
        }
    }

    /// Whether holds of ours have left most keys of the last snapshot since.
    pub(super) fn is_outdated(&self) -> bool {
        let shown = self.picture.as_ref().map_or(0, Picture::len);
        self.left.len() > MANY_LEFT && self.left.len() > shown / 2
    }

    /// Adds a ticket to the tables.
    pub(super) fn keep(&mut self, mine: Mine) {
        self.changes += 1;
        let (nonce, conn) = (mine.nonce, mine.conn);
        if mine.place == Place::Held {
            self.counters.grants += 1;
            if let Some(conn) = self.seats.conn(conn) {
                conn.holds.insert(nonce);
            }
        }
        self.tickets.insert(mine);
    }

    /// Forgets a ticket that is gone or no longer concerns this front-end.
    pub(super) fn drop_ticket(&mut self, nonce: u64) -> Option<Mine> {
        let mine = self.tickets.remove(nonce)?;
        self.changes += 1;
        if let Some(line) = self.lines.get_mut(&mine.key) {
            line.own.remove(&mine.create);
            line.mirror.remove(nonce);
        }
        let standing = mine.ticket.standing;
        for party in [standing.owner, standing.renewer].into_iter().flatten() {
            self.seats.cut(party, nonce);
        }
        if let Some(conn) = self.seats.conn(mine.conn) {
            conn.holds.remove(&nonce);
        }
        Some(mine)
    }

    /// This front-end has written a new standing of a hold of ours, without a new lease.
    pub(super) fn restood(&mut self, now: Moment, nonce: u64, revision: i64, ticket: Ticket) {
        let Some(mine) = self.tickets.get_mut(nonce) else { return };
        // If the revision is the same, another task has read it meanwhile.
        if revision >= mine.revision {
            let ends = Ends { grace: ticket.standing.lapses(now), ..mine.ends };
            (mine.revision, mine.ticket) = (revision, ticket);
            self.tickets.set_ends(nonce, ends);
        }
    }

    /// Etcd's text of a ticket of ours, which another front-end has written. A grace that began here before ends.
    pub(super) fn learn(&mut self, nonce: u64, revision: i64, ticket: Ticket) {
        let front = self.front;
        let Some(mine) = self.tickets.get_mut(nonce) else { return };
        if revision <= mine.revision {
            return;
        }
        let is_kept_here = ticket.keeper == front || ticket.stage != Stage::Held;
        (mine.revision, mine.ticket) = (revision, ticket);
        let lease = if is_kept_here { mine.ends.lease } else { Moment::NEVER };
        self.tickets.set_lease(nonce, lease);
    }

    /// Forgets a hold that still exists but no longer concerns this front-end.
    pub(super) fn forget_strange(&mut self, nonce: u64) {
        let Some(mine) = self.tickets.get(nonce) else { return };
        let Standing { owner, renewer, grace: _ } = mine.ticket.standing;
        let is_ours = |party: Party| party.front == self.front && self.lives(party);
        let is_any = [owner, renewer].into_iter().flatten().any(is_ours);
        if mine.place == Place::Held && mine.ends.first() == Moment::NEVER && !is_any {
            self.tickets.remove(nonce);
        }
    }

    /// The hold of a connection has ended before its `w`.
    pub(super) fn lose_record(&mut self, id: ConnId, key: &[u8], nonce: u64, phase: Phase) {
        let record = self.seats.conn(id).and_then(|conn| conn.records.get_mut(key));
        if let Some(record) = record.filter(|record| record.nonce == nonce) {
            record.phase = phase;
        }
    }

    pub(super) fn forget_record(&mut self, id: ConnId, key: &[u8], nonce: u64) {
        if let Some(conn) = self.seats.conn(id) {
            if conn.records.get(key).is_some_and(|record| record.nonce == nonce) {
                conn.records.remove(key);
            }
        }
    }

    /// Why a ticket would wait in vain: its line was lost with the session, no client wants it any more, or all
    /// waits end.
    pub(super) fn why_not_wait(&mut self, nonce: u64) -> Option<Refusal> {
        let mine = self.tickets.get(nonce)?;
        let (id, create, unwanted) = (mine.conn, mine.create, mine.unwanted);
        let is_blocked = mine.wake.is_some();
        if !self.lines.get(&mine.key).is_some_and(|line| line.own.contains_key(&create)) {
            return Some(Refusal::Unavailable);
        }
        let is_here = self.seats.conn(id).is_some_and(|conn| conn.departure == Departure::Here);
        let is_over = unwanted || !is_here || (is_blocked && self.draining);
        is_over.then_some(Refusal::Draining)
    }

    /// A hold of ours has left this key, so the key may be idle from now on.
    pub(super) fn note_left(&mut self, key: &Arc<[u8]>, now: Moment) {
        if self.left.len() < MOST_LEFT {
            self.left.insert(Arc::clone(key), now);
        }
    }

    /// Takes a waiting ticket of ours out of its queue here; `None` if it has its turn already.
    pub(super) fn withdraw(&mut self, nonce: u64) -> Option<Mine> {
        let mine = self.tickets.get(nonce)?;
        if mine.place != Place::Waiting {
            return None;
        }
        self.drop_ticket(nonce)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Attempts at these times in seconds, answered or not, and whether etcd counts as unreachable after the last
    /// one.
    #[rstest]
    #[case::never_asked(&[], false)]
    #[case::one_fails(&[(1, false)], false)]
    #[case::for_a_while(&[(1, false), (2, false), (4, false)], false)]
    #[case::for_long(&[(1, false), (2, false), (5, false)], true)]
    #[case::answered_between(&[(1, false), (3, true), (5, false), (8, false)], false)]
    #[case::answers_again(&[(1, false), (5, false), (6, true)], false)]
    #[case::this_process_stood_still(&[(1, true), (60, false)], false)]
    fn etcd_is_away_when_it_was_asked_in_vain(
        #[case] attempts: &[(u64, bool)],
        #[case] away: bool,
    ) {
        let mut state = State::new(Front(1));
        for (second, is_answered) in attempts {
            if *is_answered {
                state.note_answer();
            } else {
                state.note_silence(Moment::default().after_micros(second * 1_000_000), 4_000_000);
            }
        }
        assert_eq!(state.away, away);
    }
}
