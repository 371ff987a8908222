//! The requests `l`, `e` and `w`. Each makes a ticket, which is a hold at once or waits for its turn.

use super::Inner;
use super::batch::Haste;
use super::calls::{BUDGET_MICROS, PAUSE};
use super::client::Failure;
use super::keys::{Party, Share, Span, Stage, Ticket};
use super::mine::{Ends, Mine, Place};
use super::mirror;
use super::orphans::ANSWER_MICROS;
use super::rpc::{RangeRequest, TxnRequest, TxnResponse};
use super::seats::{Conn, Phase, Record};
use super::state::State;
use super::txn::{self, Behind, Changed, Create, Created, Guard, Session};
use leases::{Answer, Claim, ConnId, Grant, Label, Limit, Moment, Refusal, Ttl};
use std::sync::Arc;
use std::time::Duration;

/// How often other clients may overtake one attempt to get a slot of a semaphore.
const MOST_TRIES: usize = 32;

/// How long a client is ready to wait for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Not at all.
    Try,
    /// Until then.
    Until(Moment),
    /// The answer is a place in the queue.
    Enqueue,
}

/// A client's request.
#[derive(Clone, Debug)]
pub(super) struct Want {
    pub(super) id: ConnId,
    pub(super) serial: u64,
    pub(super) label: Option<Arc<Label>>,
    pub(super) key: Arc<[u8]>,
    pub(super) claim: Claim,
    pub(super) ttl: Ttl,
    pub(super) patience: Patience,
    pub(super) asked: Moment,
}

impl Want {
    pub(super) fn ticket(&self, inner: &Inner, stage: Stage) -> Ticket {
        let party = Party { front: inner.front, serial: self.serial };
        let bare = Ticket::new(stage, Share::of(self.claim), party, self.ttl);
        Ticket { label: self.label.clone(), ..bare }
    }
}

/// A ticket that was made, as the answer to its create describes it.
pub(super) struct Made {
    pub(super) nonce: u64,
    pub(super) create: i64,
    pub(super) revision: i64,
    pub(super) sent: Moment,
}

/// Notes an `e`, if the connection has none for this key. If it has one for a hold, returns the nonce, because the
/// hold may have been released at another front-end.
pub(super) fn enqueue(conn: &mut Conn, key: &[u8], ttl: Ttl) -> Result<Option<u64>, Answer> {
    match conn.records.get(key).map(|record| (record.phase, record.nonce)) {
        Some((Phase::Asked | Phase::Queued, _)) => {
            return Err(Answer::Refused(Refusal::AlreadyEnqueued));
        }
        Some((Phase::Acquired | Phase::Granted, nonce)) => return Ok(Some(nonce)),
        Some((Phase::Lost | Phase::Forgotten, _)) | None => {}
    }
    conn.records.insert(key.into(), Record { nonce: 0, ttl, phase: Phase::Asked });
    Ok(None)
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
            if let Some(conn) = state.seats.conn(want.id) {
                conn.records.remove(&*want.key);
            }
        }
        self.answer(want.id, answer);
    }

    /// Serves an `e` although an earlier one got a hold that was not fetched yet. It is a second `e`, unless that
    /// hold has ended at another front-end.
    pub(super) async fn enqueue_again(self: Arc<Self>, want: Want, nonce: u64) {
        let until = want.asked.after_micros(BUDGET_MICROS);
        let name = self.names.ticket(&want.key, nonce);
        let refusal =
            match self.range(RangeRequest { key: name, ..RangeRequest::default() }, until).await {
                Ok(found) if found.kvs.is_empty() => {
                    drop(self.let_go(nonce));
                    self.note_record(&mut self.state(), &want, 0, Phase::Asked);
                    return self.acquire(want).await;
                }
                Ok(_) => Refusal::AlreadyEnqueued,
                Err(refusal) => refusal,
            };
        self.answer(want.id, Answer::Refused(refusal));
    }

    /// A grant; `None` for a place in the queue, or if the time to wait is over.
    async fn try_acquire(self: &Arc<Self>, want: &Want) -> Result<Option<Grant>, Refusal> {
        let until = want.asked.after_micros(BUDGET_MICROS);
        let mut seen = 0;
        for _ in 0..MOST_TRIES {
            let session = self.session(until).await?;
            let (behind, haste) = self.behind(want, seen);
            let (made, created) = match self.create(want, session, behind, haste, until).await? {
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
                Created::NewKey { revision, keys } => {
                    if self.has_room(revision, keys, until).await
                        || self.make_room(std::slice::from_ref(&want.key)).await?
                    {
                        return self.hold(want, &made).await.map(Some);
                    }
                    self.take_back_key(want, &made, until).await?;
                    Err(Refusal::MaxLocks)
                }
                Created::Full { tickets, revision } => {
                    let tickets = u64::try_from(tickets).unwrap_or(u64::MAX);
                    if tickets < want.claim.limit().count() {
                        seen = revision;
                        continue;
                    }
                    let is_full = self.is_line_full(want, tickets, i64::MAX, until).await?;
                    if is_full { Err(Refusal::MaxWaiters) } else { Ok(None) }
                }
                Created::Behind { tickets, .. } => {
                    let tickets = u64::try_from(tickets).unwrap_or(u64::MAX);
                    self.stand_behind(want, made, behind, tickets, until).await
                }
            };
        }
        // Overtaken again and again: other clients got every slot.
        if want.patience == Patience::Try { Ok(None) } else { Err(Refusal::Unavailable) }
    }

    /// A request behind others of this front-end waits whatever etcd says, so it is not urgent.
    fn behind(&self, want: &Want, seen: i64) -> (Behind, Haste) {
        if want.patience == Patience::Try {
            return (Behind::Stay(seen), Haste::Now);
        }
        let line_is_long = {
            let state = self.state();
            // Readers before a reader may become holders soon, or hold already.
            let keeps_waiting = |nonce: &u64| {
                let share = state.tickets.get(*nonce).map(|mine| mine.ticket.share);
                !want.claim.is_shared() || share == Some(Share::Alone)
            };
            let line = state.lines.get(&want.key);
            line.is_some_and(|line| line.own.values().any(keeps_waiting))
        };
        match (line_is_long, want.claim.limit()) {
            (true, _) => (Behind::Queue, Haste::Later),
            (false, Limit::ONE) => (Behind::Wait, Haste::Now),
            (false, _) => (Behind::Hope, Haste::Now),
        }
    }

    /// Sends the create once. `None` means that it did not happen and never will.
    async fn create(
        self: &Arc<Self>,
        want: &Want,
        session: Session,
        behind: Behind,
        haste: Haste,
        until: Moment,
    ) -> Result<Option<(Made, Created)>, Refusal> {
        let nonce = super::random();
        let create = Create {
            key: &want.key,
            nonce,
            claim: want.claim,
            behind,
            counts: !self.state().crowd.will_have_room(self.caps.max_locks),
            held: want.ticket(self, Stage::Held).write(),
            waiting: want.ticket(self, Stage::Waiting).write(),
        };
        let request = txn::create(&self.names, &self.names.front(self.front), session, &create);
        let ticket = (Arc::clone(&want.key), nonce);
        let read = |answer: &TxnResponse| txn::read_created(behind, answer);
        let made = self.make(request, haste, session, vec![ticket], until, read).await?;
        Ok(made.and_then(|(mut made, created)| Some((made.pop()?, created))))
    }

    /// Sends the create of several tickets once. `None` means that it did not happen and never will.
    pub(super) async fn make<C>(
        self: &Arc<Self>,
        request: TxnRequest,
        haste: Haste,
        session: Session,
        tickets: Vec<(Arc<[u8]>, u64)>,
        until: Moment,
        read: impl Fn(&TxnResponse) -> Option<C>,
    ) -> Result<Option<(Vec<Made>, C)>, Refusal> {
        let sent = self.now();
        match self.once(request, haste, until).await {
            Ok(answer) => {
                if let Some(created) = read(&answer) {
                    let create = answer.header.map_or(0, |header| header.revision);
                    let made = |(_, nonce)| Made { nonce, create, revision: create, sent };
                    return Ok(Some((tickets.into_iter().map(made).collect(), created)));
                }
            }
            // The lease that it names is gone, so no transaction with it takes effect.
            Err(Failure::Refused) => {
                self.session_is_gone(session, until).await?;
                return Ok(None);
            }
            Err(Failure::NotSent) => return Err(Refusal::Unavailable),
            Err(Failure::NoSpace) => return Err(Refusal::NoSpace),
            Err(Failure::Unclear) => {}
        }
        Arc::clone(self).bury(tickets, until).await?;
        Ok(None)
    }

    /// The outcome of a create is unknown. Makes sure that its tickets never exist, even if that takes longer than
    /// the caller can wait.
    pub(super) async fn bury(
        self: Arc<Self>,
        tickets: Vec<(Arc<[u8]>, u64)>,
        until: Moment,
    ) -> Result<(), Refusal> {
        self.state().tombstones += 1;
        let inner = Arc::clone(&self);
        let task = tokio::spawn(async move {
            while !inner.is_closed() {
                // Without its session the create has no effect any more, but it may have had one before.
                let session = inner.state().session;
                if let Some(session) = session {
                    let request = txn::bury(&inner.names, session, &tickets);
                    let until = inner.now().after_micros(BUDGET_MICROS);
                    if inner.again(request, until).await.is_ok() {
                        return;
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        let left = Duration::from_micros(until.micros_since(self.now()));
        match tokio::time::timeout(left, task).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Refusal::Unavailable),
        }
    }

    /// Whether the number of keys is within the limit after a key was made at this revision. The create may have
    /// counted the keys. If the number is unknown, there is no room.
    pub(super) async fn has_room(
        &self,
        revision: i64,
        counted: Option<i64>,
        until: Moment,
    ) -> bool {
        let most = self.caps.max_locks;
        let (as_of, keys) = match counted {
            Some(keys) => (revision, keys),
            None if self.state().crowd.has_room(revision, most) => return true,
            None => {
                let Span { from: key, to: range_end } = self.names.limits();
                let all =
                    RangeRequest { key, range_end, count_only: true, ..RangeRequest::default() };
                let Ok(answer) = self.range(all, until).await else { return false };
                (answer.header.map_or(0, |header| header.revision), answer.count)
            }
        };
        self.state().crowd.count(as_of, keys);
        usize::try_from(keys).is_ok_and(|keys| keys <= most)
    }

    /// Whether the number of waiters has reached its limit. `others` is the number of other tickets; those before
    /// `create` count.
    async fn is_line_full(
        &self,
        want: &Want,
        others: u64,
        create: i64,
        until: Moment,
    ) -> Result<bool, Refusal> {
        let limit = want.claim.limit();
        let is_full =
            |waiters: usize| self.caps.max_waiters > 0 && waiters >= self.caps.max_waiters;
        let most = usize::try_from(others.saturating_sub(limit.count())).unwrap_or(usize::MAX);
        // A lock may have several holders: readers.
        if !is_full(most) || limit != Limit::ONE {
            return Ok(is_full(most));
        }
        let Span { from: key, to: range_end } = self.names.tickets(&want.key);
        let request = RangeRequest { key, range_end, ..RangeRequest::default() };
        let mut tickets = self.range(request, until).await?.kvs;
        tickets.retain(|kv| kv.create_revision < create);
        tickets.sort_unstable_by_key(|kv| kv.create_revision);
        let held = mirror::holders(limit, tickets.iter().map(|kv| Share::read(&kv.value)));
        Ok(is_full(tickets.len() - held))
    }

    /// There is one key too many: removes its first ticket, and the key if no other client uses it.
    async fn take_back_key(
        self: &Arc<Self>,
        want: &Want,
        made: &Made,
        until: Moment,
    ) -> Result<(), Refusal> {
        let name = self.names.ticket(&want.key, made.nonce);
        self.again(txn::remove(&name, Guard::Create(made.create)), until).await?;
        let forget = txn::forget(&self.names, &want.key, made.create);
        self.again(forget, until).await.map(drop)
    }

    pub(super) fn mine(&self, want: &Want, made: &Made, place: Place) -> Mine {
        let now = self.now();
        let (stage, ends) = match place {
            Place::Held => (Stage::Held, Ends::with_lease(now.after(want.ttl.span()))),
            Place::Waiting | Place::Promoting => (Stage::Waiting, Ends::NEVER),
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
            ends,
            wake: None,
            unwanted: false,
        }
    }

    /// The ticket is a hold.
    async fn hold(self: &Arc<Self>, want: &Want, made: &Made) -> Result<Grant, Refusal> {
        self.keep_hold(want, made);
        self.tell(made.nonce, made.sent).await
    }

    /// From now on our tables have the ticket.
    pub(super) fn keep_hold(&self, want: &Want, made: &Made) {
        let mine = self.mine(want, made, Place::Held);
        let mut state = self.state();
        state.counters.waits.record(mine.since.micros_since(want.asked));
        state.keep(mine);
        if want.patience == Patience::Enqueue {
            self.note_record(&mut state, want, made.nonce, Phase::Acquired);
        }
    }

    pub(super) fn note_record(&self, state: &mut State, want: &Want, nonce: u64, phase: Phase) {
        if let Some(conn) = state.seats.conn(want.id) {
            conn.records.insert((*want.key).into(), Record { nonce, ttl: want.ttl, phase });
        }
    }

    /// The answer for a hold that was recorded by a write sent at `sent`. A lease is promised only while that write
    /// is recent, because other front-ends count from it.
    pub(super) async fn tell(self: &Arc<Self>, nonce: u64, sent: Moment) -> Result<Grant, Refusal> {
        let found = self
            .state()
            .tickets
            .get(nonce)
            .map(|mine| (mine.ticket.last_owner, mine.ticket.ttl, mine.grant()));
        let (owner, ttl, grant) = found.ok_or(Refusal::LeaseExpired)?;
        if self.now().micros_since(sent) <= ANSWER_MICROS {
            return Ok(grant);
        }
        match self.extend(nonce, owner, ttl).await {
            Err(Refusal::NotHeld) => Err(Refusal::LeaseExpired),
            result => result,
        }
    }

    /// The ticket was made behind other tickets.
    async fn stand_behind(
        self: &Arc<Self>,
        want: &Want,
        mut made: Made,
        behind: Behind,
        tickets: u64,
        until: Moment,
    ) -> Result<Option<Grant>, Refusal> {
        let name = self.names.ticket(&want.key, made.nonce);
        let waits = tickets > want.claim.limit().count();
        if !waits && behind == Behind::Hope {
            return self.hold(want, &made).await.map(Some);
        }
        if waits && self.is_line_full(want, tickets - 1, made.create, until).await? {
            let remove = txn::remove(&name, Guard::Create(made.create));
            self.change(remove, until).await?;
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

    /// A ticket that was created as a possible hold becomes a waiting ticket.
    async fn demote(
        self: &Arc<Self>,
        want: &Want,
        made: &Made,
        name: &[u8],
        until: Moment,
    ) -> Result<i64, Refusal> {
        let session = self.session(until).await?;
        let value = want.ticket(self, Stage::Waiting).write();
        let guard = Guard::Mod(made.revision);
        match self.rewrite(name, guard, value, session.lease, until).await {
            Ok(Changed::Done(revision)) => Ok(revision),
            Ok(Changed::Other(_) | Changed::Gone | Changed::Vanished) => Err(Refusal::Unavailable),
            Err(refusal) => {
                // It is marked as a hold that nobody will use, and is removed when its lease is over.
                let mut state = self.state();
                state.keep(self.mine(want, made, Place::Held));
                drop(state);
                self.abandon(made.nonce);
                Err(refusal)
            }
        }
    }
}
