//! `l`, `e`, `w`: a ticket is made, and is a hold at once or waits for its turn.

use super::Inner;
use super::calls::BUDGET_MICROS;
use super::client::Failure;
use super::keys::{Party, Stage, Ticket};
use super::orphans::ANSWER_MICROS;
use super::state::{End, Line, Mine, Phase, Place, Record};
use super::txn::{self, Behind, Changed, Create, Created, Guard, Session};
use crate::engine::{Answer, ConnId, Grant, Limit, Moment, Refusal, Ttl};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often a try for a slot of a pool may be overtaken by others.
const MOST_TRIES: usize = 32;

/// How long somebody waits for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Not at all.
    Try,
    /// Until then.
    Until(Moment),
    /// The answer is a place in the queue.
    Enqueue,
}

/// What somebody wants.
#[derive(Clone, Debug)]
pub(super) struct Want {
    pub(super) id: ConnId,
    pub(super) serial: u64,
    pub(super) key: Arc<[u8]>,
    pub(super) limit: Limit,
    pub(super) ttl: Ttl,
    pub(super) patience: Patience,
    pub(super) asked: Moment,
}

impl Want {
    fn ticket(&self, inner: &Inner, stage: Stage) -> Ticket {
        let owner = Some(Party { front: inner.front, serial: self.serial });
        Ticket { stage, keeper: inner.front, owner, renewer: None, ttl: self.ttl }
    }
}

/// A ticket that was made, as its create told.
struct Made {
    nonce: u64,
    create: i64,
    revision: i64,
    sent: Moment,
}

impl Inner {
    pub(super) async fn acquire(self: Arc<Self>, want: Want) {
        let result = self.try_acquire(&want).await;
        let answer = match (result, want.patience) {
            (Ok(Some(grant)), Patience::Enqueue) => Answer::Acquired(grant),
            (Ok(Some(grant)), Patience::Try | Patience::Until(_)) => Answer::Granted(grant),
            (Ok(None), Patience::Enqueue) => Answer::Queued,
            (Ok(None), Patience::Try | Patience::Until(_)) => Answer::TimedOut,
            (Err(refusal), _) => Answer::Refused(refusal),
        };
        if want.patience == Patience::Enqueue && matches!(answer, Answer::Refused(_)) {
            let mut state = self.state();
            if let Some(conn) = state.conn(want.id) {
                conn.records.remove(&*want.key);
            }
        }
        self.answer(want.id, answer);
    }

    /// A grant, or nothing: a place in the queue, or the end of the patience.
    async fn try_acquire(self: &Arc<Self>, want: &Want) -> Result<Option<Grant>, Refusal> {
        let until = want.asked.after_micros(BUDGET_MICROS);
        let mut seen = 0;
        for _ in 0..MOST_TRIES {
            let session = self.session(until).await?;
            let behind = self.behind(want, seen);
            let (made, created) = match self.create(want, session, behind, until).await? {
                Some(created) => created,
                None => continue,
            };
            return match created {
                Created::NoSession => {
                    self.session_is_gone(session, until).await?;
                    continue;
                }
                Created::Mismatch => Err(Refusal::LimitMismatch),
                Created::Held(_) => self.hold(want, &made).await.map(Some),
                Created::NewKey { keys, .. } if self.exceeds(keys) => {
                    if self.make_room(&want.key).await? {
                        return self.hold(want, &made).await.map(Some);
                    }
                    self.take_back_key(want, &made, until).await?;
                    Err(Refusal::MaxLocks)
                }
                Created::NewKey { .. } => self.hold(want, &made).await.map(Some),
                Created::Full { tickets, revision } => {
                    let tickets = u64::try_from(tickets).unwrap_or(u64::MAX);
                    if tickets < want.limit.count() {
                        seen = revision;
                        continue;
                    }
                    let waiters = tickets - want.limit.count();
                    if self.is_full(waiters) { Err(Refusal::MaxWaiters) } else { Ok(None) }
                }
                Created::Behind { tickets, .. } => {
                    let tickets = u64::try_from(tickets).unwrap_or(u64::MAX);
                    self.stand_behind(want, made, behind, tickets, until).await
                }
            };
        }
        // Overtaken again and again: others got every slot.
        if want.patience == Patience::Try { Ok(None) } else { Err(Refusal::Unavailable) }
    }

    fn behind(&self, want: &Want, seen: i64) -> Behind {
        if want.patience == Patience::Try {
            return Behind::Stay(seen);
        }
        let queue_is_known = || {
            let state = self.state();
            state.lines.get(&want.key).is_some_and(|line| !line.own.is_empty())
        };
        if want.limit == Limit::ONE || queue_is_known() { Behind::Wait } else { Behind::Hope }
    }

    /// Sends the create once. Nothing: it did not happen and will not.
    async fn create(
        self: &Arc<Self>,
        want: &Want,
        session: Session,
        behind: Behind,
        until: Moment,
    ) -> Result<Option<(Made, Created)>, Refusal> {
        let nonce = super::random();
        let create = Create {
            key: &want.key,
            nonce,
            limit: want.limit,
            behind,
            held: want.ticket(self, Stage::Held).write(),
            waiting: want.ticket(self, Stage::Waiting).write(),
        };
        let request = txn::create(&self.names, &self.names.front(self.front), session, &create);
        let sent = self.now();
        match self.once(&want.key, request, until).await {
            Ok(answer) => {
                if let Some(created) = txn::read_created(behind, &answer) {
                    let create = answer.header.map_or(0, |header| header.revision);
                    return Ok(Some((Made { nonce, create, revision: create, sent }, created)));
                }
            }
            // The lease it names is gone: no transaction with it is done.
            Err(Failure::Refused) => {
                self.session_is_gone(session, until).await?;
                return Ok(None);
            }
            Err(Failure::NotSent) => return Err(Refusal::Unavailable),
            Err(Failure::Unclear) => {}
        }
        self.bury(Arc::clone(&want.key), nonce, session, until).await?;
        Ok(None)
    }

    /// A create's fate is unknown: sees to it that its ticket never is, even if that takes longer
    /// than the caller can wait.
    async fn bury(
        self: &Arc<Self>,
        key: Arc<[u8]>,
        nonce: u64,
        session: Session,
        until: Moment,
    ) -> Result<(), Refusal> {
        self.state().tombstones += 1;
        let inner = Arc::clone(self);
        let task = tokio::spawn(async move {
            let request = txn::bury(&inner.names, session, &key, nonce);
            loop {
                let until = inner.now().after_micros(BUDGET_MICROS);
                if inner.again(&key, request.clone(), until).await.is_ok() {
                    return;
                }
                // Without its session a create does nothing.
                if inner.state().session != Some(session) || inner.is_closed() {
                    return;
                }
            }
        });
        let left = Duration::from_micros(until.micros_since(self.now()));
        match tokio::time::timeout(left, task).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Refusal::Unavailable),
        }
    }

    fn exceeds(&self, keys: i64) -> bool {
        usize::try_from(keys).unwrap_or(usize::MAX) > self.caps.max_locks
    }

    fn is_full(&self, waiters: u64) -> bool {
        let waiters = usize::try_from(waiters).unwrap_or(usize::MAX);
        self.caps.max_waiters > 0 && waiters >= self.caps.max_waiters
    }

    /// One key too many: its first ticket goes, and the key if nobody has joined.
    async fn take_back_key(
        self: &Arc<Self>,
        want: &Want,
        made: &Made,
        until: Moment,
    ) -> Result<(), Refusal> {
        let name = self.names.ticket(&want.key, made.nonce);
        self.again(&want.key, txn::remove(&name, Guard::Create(made.create)), until).await?;
        let forget = txn::forget(&self.names, &want.key, made.create);
        self.again(&want.key, forget, until).await.map(drop)
    }

    fn mine(&self, want: &Want, made: &Made, place: Place) -> Mine {
        let now = self.now();
        let (stage, deadline) = match place {
            Place::Held => (Stage::Held, now.after(want.ttl.span())),
            Place::Waiting | Place::Promoting => (Stage::Waiting, Moment::NEVER),
        };
        Mine {
            key: Arc::clone(&want.key),
            nonce: made.nonce,
            create: made.create,
            revision: made.revision,
            ticket: want.ticket(self, stage),
            place,
            conn: want.id,
            since: now,
            deadline,
            wake: None,
            unwanted: false,
        }
    }

    /// The ticket is a hold.
    async fn hold(self: &Arc<Self>, want: &Want, made: &Made) -> Result<Grant, Refusal> {
        let mine = self.mine(want, made, Place::Held);
        {
            let mut state = self.state();
            state.counters.waits.record(mine.since.micros_since(want.asked));
            state.keep(mine);
            if want.patience == Patience::Enqueue {
                self.note_record(&mut state, want, made.nonce, Phase::Acquired);
            }
        }
        self.tell(made.nonce, made.sent).await
    }

    fn note_record(&self, state: &mut super::state::State, want: &Want, nonce: u64, phase: Phase) {
        if let Some(conn) = state.conn(want.id) {
            conn.records.insert((*want.key).into(), Record { nonce, ttl: want.ttl, phase });
        }
    }

    /// What is answered of a hold written down by a write sent at `sent`. A lease is promised only
    /// while that write is fresh: others count from it.
    pub(super) async fn tell(self: &Arc<Self>, nonce: u64, sent: Moment) -> Result<Grant, Refusal> {
        if self.now().micros_since(sent) > ANSWER_MICROS {
            let who = self.state().tickets.get(&nonce).and_then(|mine| mine.ticket.owner);
            let ttl = self.state().tickets.get(&nonce).map(|mine| mine.ticket.ttl);
            let (Some(who), Some(ttl)) = (who, ttl) else { return Err(Refusal::LeaseExpired) };
            let until = self.now().after_micros(BUDGET_MICROS);
            return match self.write_lease(nonce, who, ttl, until).await {
                Err(Refusal::NotHeld) => Err(Refusal::LeaseExpired),
                result => result,
            };
        }
        let state = self.state();
        state.tickets.get(&nonce).map(Mine::grant).ok_or(Refusal::LeaseExpired)
    }

    /// The ticket was made behind others.
    async fn stand_behind(
        self: &Arc<Self>,
        want: &Want,
        mut made: Made,
        behind: Behind,
        tickets: u64,
        until: Moment,
    ) -> Result<Option<Grant>, Refusal> {
        let name = self.names.ticket(&want.key, made.nonce);
        let waits = tickets > want.limit.count();
        if !waits && behind == Behind::Hope {
            return self.hold(want, &made).await.map(Some);
        }
        if waits && self.is_full((tickets - want.limit.count()).saturating_sub(1)) {
            let remove = txn::remove(&name, Guard::Create(made.create));
            self.change(&want.key, remove, until).await?;
            return Err(Refusal::MaxWaiters);
        }
        if behind == Behind::Hope {
            made.revision = self.demote(want, &made, &name, until).await?;
        }
        let waiter = self.stand_in_line(want, &made)?;
        match (waiter, want.patience) {
            (Some(waiter), Patience::Until(end)) => self.wait_turn(made.nonce, waiter, end).await,
            _ => Ok(None),
        }
    }

    /// What hoped to be a hold becomes a waiting ticket.
    async fn demote(
        self: &Arc<Self>,
        want: &Want,
        made: &Made,
        name: &[u8],
        until: Moment,
    ) -> Result<i64, Refusal> {
        let session = self.session(until).await?;
        let value = want.ticket(self, Stage::Waiting).write();
        let rewrite = txn::rewrite(name, Guard::Mod(made.revision), value.clone(), session.lease);
        match self.change(&want.key, rewrite, until).await {
            Ok(Changed::Done(revision)) => Ok(revision),
            // An attempt whose answer was lost did it.
            Ok(Changed::Other(now)) if now.value == value => Ok(now.mod_revision),
            Ok(Changed::Other(_) | Changed::Gone | Changed::Vanished) => Err(Refusal::Unavailable),
            Err(refusal) => {
                // It says it is a hold, and nobody will use it: it goes when its time is over.
                let mut state = self.state();
                state.keep(self.mine(want, made, Place::Held));
                drop(state);
                self.abandon(made.nonce);
                Err(refusal)
            }
        }
    }

    /// Registers a waiting ticket here; its turn comes by the mirror of its key.
    fn stand_in_line(
        self: &Arc<Self>,
        want: &Want,
        made: &Made,
    ) -> Result<Option<oneshot::Receiver<End>>, Refusal> {
        let mut state = self.state();
        let here =
            state.conn(want.id).is_some_and(|c| c.departure == super::state::Departure::Here);
        let mut mine = self.mine(want, made, Place::Waiting);
        if state.draining || !here {
            self.remove_later(&state, &mine);
            return Err(Refusal::Draining);
        }
        let waiter = match want.patience {
            Patience::Enqueue => {
                self.note_record(&mut state, want, made.nonce, Phase::Queued);
                None
            }
            Patience::Try | Patience::Until(_) => {
                let (wake, waiter) = oneshot::channel();
                mine.wake = Some(wake);
                mine.since = want.asked;
                if let Some(conn) = state.conn(want.id) {
                    conn.blocked = Some(made.nonce);
                }
                Some(waiter)
            }
        };
        let line = Self::line(&mut state, &self.names, &want.key, want.limit.count());
        line.own.insert(made.create, made.nonce);
        state.keep(mine);
        self.take_turns(&mut state, &want.key);
        Ok(waiter)
    }

    /// The watched key, which is opened if it is not.
    fn line<'s>(
        state: &'s mut super::state::State,
        names: &super::keys::Names,
        key: &Arc<[u8]>,
        limit: u64,
    ) -> &'s mut Line {
        if !state.lines.contains_key(key) {
            let watch = super::watch::open(state, names, key);
            state.lines.insert(Arc::clone(key), Line::new(watch, limit));
        }
        let line = state.lines.entry(Arc::clone(key)).or_insert_with(|| Line::new(0, limit));
        line.limit = limit;
        line
    }

    /// Waits for the turn of a ticket.
    async fn wait_turn(
        self: &Arc<Self>,
        nonce: u64,
        mut waiter: oneshot::Receiver<End>,
        end: Moment,
    ) -> Result<Option<Grant>, Refusal> {
        let left = Duration::from_micros(end.micros_since(self.now()));
        let ended = match tokio::time::timeout(left, &mut waiter).await {
            Ok(ended) => ended,
            Err(_) => {
                let withdrawn = self.state().withdraw(nonce);
                if let Some(mine) = withdrawn {
                    self.remove_ticket(&mine).await?;
                    return Ok(None);
                }
                // It has its turn: a grant that races the end of the patience wins.
                waiter.await
            }
        };
        match ended {
            Ok(End::Granted(sent)) => self.tell(nonce, sent).await.map(Some),
            Ok(End::Refused(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::Unavailable),
        }
    }

    /// From here on somebody waits for the end of this ticket's wait.
    fn block(
        &self,
        state: &mut super::state::State,
        nonce: u64,
    ) -> Option<(Arc<[u8]>, oneshot::Receiver<End>)> {
        let mine = state.tickets.get_mut(&nonce)?;
        let (wake, waiter) = oneshot::channel();
        mine.since = self.now();
        let key = Arc::clone(&mine.key);
        mine.wake = Some(wake);
        Some((key, waiter))
    }

    /// `w` for a place in the queue.
    pub(super) async fn wait(self: Arc<Self>, id: ConnId, nonce: u64, end: Moment) {
        let waiter = {
            let mut state = self.state();
            if let Some(conn) = state.conn(id) {
                conn.blocked = Some(nonce);
            }
            self.block(&mut state, nonce)
        };
        let answer = match waiter {
            None => Answer::Refused(Refusal::Unavailable),
            Some((key, waiter)) => {
                let result = self.wait_turn(nonce, waiter, end).await;
                self.state().forget_record(id, &key, nonce);
                match result {
                    Ok(Some(grant)) => Answer::Granted(grant),
                    Ok(None) if self.state().draining => Answer::Refused(Refusal::Draining),
                    Ok(None) => Answer::TimedOut,
                    Err(refusal) => Answer::Refused(refusal),
                }
            }
        };
        self.answer(id, answer);
    }

    /// `w` for a hold that `e` got: its lease begins anew.
    pub(super) async fn fetch(self: Arc<Self>, id: ConnId, serial: u64, nonce: u64, ttl: Ttl) {
        let who = Party { front: self.front, serial };
        let until = self.now().after_micros(BUDGET_MICROS);
        let answer = match self.write_lease(nonce, who, ttl, until).await {
            Ok(grant) => Answer::Granted(grant),
            Err(Refusal::NotHeld) => Answer::Refused(Refusal::LeaseExpired),
            Err(refusal) => Answer::Refused(refusal),
        };
        self.answer(id, answer);
    }
}
