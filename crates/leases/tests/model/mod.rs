//! What the engine must do, said once more in the plainest way: lists, searched from the front.
//!
//! [`Pair`] drives both with the same events and compares every answer. Time is virtual: event i
//! happens i milliseconds after a whole second, and spans are whole seconds, so no two deadlines
//! of different events meet and their order is never in doubt.

use leases::{
    Answer, AutoRelease, Caps, Census, Claim, ConnId, Cursor, Effect, Engine, Grant, Key, Keys,
    Limit, Mint, Moment, Refusal, Request, Seconds, Token, Ttl, Verdict,
};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;

const CONNS: u8 = 5;
const KEYS: u8 = 4;
const MAX_LOCKS: usize = 3;

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Ask { conn: u8, key: u8, ask: Ask },
    AskAll { conn: u8, keys: KeyBits, ttl: u64 },
    Disconnect { conn: u8 },
    Pass { millis: u64 },
}

/// A request about one key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Acquire { claim: Claim, timeout: u64, ttl: u64 },
    Enqueue { claim: Claim, ttl: u64 },
    Wait { timeout: u64 },
    Release { nth: u8 },
    Renew { nth: u8, ttl: u64 },
}

/// Several keys, one bit for each.
type KeyBits = u8;

impl Event {
    /// Any five bytes are an event.
    pub(crate) fn decode([what, who, which, small, other]: [u8; 5]) -> Self {
        let (conn, key) = (who % CONNS, which % KEYS);
        // Mostly the limit that belongs to the key, now and then another.
        let limit = if other % 16 == 0 { 3 } else { 1 + u64::from(key % 2) };
        // Half of those who want a lock share it; now and then somebody would share a semaphore.
        let shares = if limit == 1 { other % 2 == 0 } else { other % 16 == 1 };
        let claim = if shares { Claim::Shared } else { Claim::Slot(Limit::new(limit).unwrap()) };
        let (timeout, ttl) = (u64::from(small % 4), 1 + u64::from(small / 16 % 6));
        let nth = other / 16;
        let ask = match what % 18 {
            16..=17 => return Self::AskAll { conn, keys: 1 + other % 15, ttl },
            0..=4 => Ask::Acquire { claim, timeout, ttl },
            5..=6 => Ask::Enqueue { claim, ttl },
            7..=8 => Ask::Wait { timeout },
            9..=11 => Ask::Release { nth },
            12 => Ask::Renew { nth, ttl },
            13 => return Self::Disconnect { conn },
            _ => return Self::Pass { millis: 1000 * u64::from(small % 4) },
        };
        Self::Ask { conn, key, ask }
    }
}

/// Fences 1, 2, 3, …
pub(crate) struct Counting(u64);

impl Mint for Counting {
    fn token(&mut self) -> Token {
        self.0 += 1;
        Token::new(self.0, self.0 ^ 0xffff)
    }
}

#[derive(Debug)]
struct Holder {
    conn: Option<u8>,
    claim: Claim,
    /// Who else renewed it last.
    renewer: Option<u8>,
    /// When it is given back for want of an owner.
    lapses: u64,
    /// Unknown until somebody is told.
    token: Option<Token>,
    expires: u64,
    record: bool,
    /// Unknown until somebody is told or it was looked at. Then it stays.
    slot: Option<u32>,
}

impl Holder {
    fn new(conn: u8, claim: Claim, expires: u64, record: bool) -> Self {
        let (renewer, lapses, token, slot) = (None, u64::MAX, None, None);
        Self { conn: Some(conn), claim, renewer, lapses, token, expires, record, slot }
    }
}

#[derive(Debug)]
struct Waiter {
    conn: u8,
    claim: Claim,
    ttl: u64,
    /// Set while its connection waits for the answer.
    until: Option<u64>,
    record: bool,
}

#[derive(Debug, Default)]
struct Lock {
    limit: u64,
    holders: Vec<Holder>,
    queue: Vec<Waiter>,
}

impl Lock {
    /// Whether there is room for one more beside the holders.
    fn has_room(&self, claim: Claim) -> bool {
        let sharing = self.holders.iter().filter(|holder| holder.claim == Claim::Shared).count();
        match claim {
            Claim::Shared => sharing == self.holders.len(),
            Claim::Slot(_) => sharing == 0 && (self.holders.len() as u64) < self.limit,
        }
    }

    /// The slot that the next holder of a semaphore gets.
    fn lowest_slot(&self) -> u32 {
        let is_taken = |slot: &u32| self.holders.iter().any(|holder| holder.slot == Some(*slot));
        (0..).find(|slot| !is_taken(slot)).unwrap()
    }
}

/// What a wait ended with, as far as the model can know.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Granted(u8, u8),
    Other(u8, Answer),
    Expired,
}

#[derive(Default)]
struct Model {
    locks: BTreeMap<u8, Lock>,
    /// (connection, key) → its lease, and whether it was lost.
    records: BTreeMap<(u8, u8), (u64, bool)>,
    ends: Vec<End>,
}

impl Model {
    fn census(&self) -> Census {
        let mut census = Census::default();
        for lock in self.locks.values() {
            let (held, waiting) = (lock.holders.len(), lock.queue.len());
            let readers = lock.holders.iter().filter(|holder| holder.claim == Claim::Shared);
            census.lock_readers += readers.count();
            let kind = if lock.limit == 1 { &mut census.locks } else { &mut census.semaphores };
            *(if held + waiting == 0 { &mut kind.idle } else { &mut kind.in_use }) += 1;
            kind.holders += held;
            kind.waiters += waiting;
        }
        census
    }

    /// A connection is gone: nothing more is known of it.
    fn forget_renewer(&mut self, conn: u8) {
        for holder in self.locks.values_mut().flat_map(|lock| &mut lock.holders) {
            if holder.renewer == Some(conn) {
                holder.renewer = None;
            }
        }
    }

    fn serve(&mut self, key: u8, now: u64) {
        let lock = self.locks.get_mut(&key).unwrap();
        while lock.queue.first().is_some_and(|waiter| lock.has_room(waiter.claim)) {
            let waiter = lock.queue.remove(0);
            let answered = waiter.until.is_some();
            if answered {
                if waiter.record {
                    self.records.remove(&(waiter.conn, key));
                }
                self.ends.push(End::Granted(waiter.conn, key));
            }
            let (expires, record) = (now + 1000 * waiter.ttl, waiter.record && !answered);
            lock.holders.push(Holder::new(waiter.conn, waiter.claim, expires, record));
        }
    }

    fn remove_holder(&mut self, key: u8, place: usize, now: u64) -> Holder {
        let holder = self.locks.get_mut(&key).unwrap().holders.remove(place);
        self.serve(key, now);
        holder
    }

    /// The first moment at which something is due, if not after `end`.
    fn next_due(&self, end: u64) -> Option<u64> {
        let leases = self.locks.values().flat_map(|lock| &lock.holders);
        let leases = leases.map(|h| h.expires.min(h.lapses));
        let waits = self.locks.values().flat_map(|lock| &lock.queue).filter_map(|w| w.until);
        leases.chain(waits).min().filter(|&due| due <= end)
    }

    fn pass_to(&mut self, due: u64) {
        for key in 0..KEYS {
            let Some(lock) = self.locks.get_mut(&key) else { continue };
            if let Some(place) =
                lock.holders.iter().position(|h| h.lapses <= due && h.expires > due)
            {
                lock.holders.remove(place);
                self.serve(key, due);
                return self.pass_to(due);
            }
            if let Some(place) = lock.holders.iter().position(|h| h.expires <= due) {
                let holder = lock.holders.remove(place);
                self.ends.push(End::Expired);
                if holder.record {
                    self.records.get_mut(&(holder.conn.unwrap(), key)).unwrap().1 = true;
                }
                self.serve(key, due);
                return self.pass_to(due);
            }
            let lock = self.locks.get_mut(&key).unwrap();
            if let Some(place) = lock.queue.iter().position(|w| w.until.is_some_and(|u| u <= due)) {
                let waiter = lock.queue.remove(place);
                if waiter.record {
                    self.records.remove(&(waiter.conn, key));
                }
                self.ends.push(End::Other(waiter.conn, Answer::TimedOut));
                self.serve(key, due);
                return self.pass_to(due);
            }
        }
    }

    /// Nobody holds it, waits for it or is to hear of a lease that ran out.
    fn is_forgettable(&self, key: u8) -> bool {
        let lock = &self.locks[&key];
        let lost = self.records.iter().any(|((_, of), (_, lost))| *of == key && *lost);
        lock.holders.is_empty() && lock.queue.is_empty() && !lost
    }

    /// `None`: the connection waits. A grant has no token yet.
    fn enter(&mut self, key: u8, limit: u64) -> Result<&mut Lock, Refusal> {
        let count = self.locks.len();
        match self.locks.get(&key) {
            Some(lock) if lock.limit != limit && !self.is_forgettable(key) => {
                return Err(Refusal::LimitMismatch);
            }
            None if count >= MAX_LOCKS => return Err(Refusal::MaxLocks),
            Some(_) | None => {}
        }
        if let Some(lock) = self.locks.get_mut(&key) {
            lock.limit = limit;
        }
        Ok(self.locks.entry(key).or_insert(Lock { limit, ..Lock::default() }))
    }
}

/// What is taken together, from the last key to the first.
fn chosen(keys: u8) -> impl Iterator<Item = u8> {
    (0..KEYS).rev().filter(move |key| keys >> key & 1 == 1)
}

/// What an answer is, without the token.
#[derive(Debug, PartialEq, Eq)]
enum Class {
    Later,
    Granted,
    Acquired,
    Plain(Answer),
}

fn class(verdict: Verdict) -> Class {
    match verdict {
        Verdict::Later => Class::Later,
        Verdict::Now(Answer::Granted(_) | Answer::All(_)) => Class::Granted,
        Verdict::Now(Answer::Acquired(_)) => Class::Acquired,
        Verdict::Now(answer) => Class::Plain(answer),
    }
}

/// Engine and model, side by side.
pub(crate) struct Pair {
    pub(crate) engine: Engine,
    model: Model,
    ids: Vec<ConnId>,
    waiting: Vec<Option<u8>>,
    auto: AutoRelease,
    max_waiters: usize,
    /// In seconds.
    grace: u64,
    whole: u64,
    index: u64,
    serial: u64,
    /// Grants to those who had waited.
    pub(crate) late_grants: u64,
    /// How often several keys were taken at once.
    pub(crate) taken_together: u64,
}

impl Pair {
    pub(crate) fn new(auto: AutoRelease, max_waiters: usize, grace: u64) -> Self {
        let mut caps = Caps::DEFAULT;
        caps.max_locks = MAX_LOCKS;
        caps.max_waiters = max_waiters;
        caps.gc_max_idle = Seconds::new(1_000_000).unwrap();
        caps.disconnect_grace = Seconds::new(grace).unwrap();
        caps.max_entries = 1000;
        caps.max_entries_per_connection = 1000;
        let mut engine = Engine::new(caps, Counting(0), RandomState::new());
        let ids = (0..CONNS).map(|conn| engine.connect(u64::from(conn))).collect();
        Self {
            engine,
            model: Model::default(),
            ids,
            waiting: vec![None; usize::from(CONNS)],
            auto,
            max_waiters,
            grace,
            whole: 1000,
            index: 0,
            serial: u64::from(CONNS),
            late_grants: 0,
            taken_together: 0,
        }
    }

    fn now(&self) -> u64 {
        self.whole + self.index
    }

    fn moment(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        self.index += 1;
        assert!(self.index < 1000, "one millisecond per event");
        self.pass(self.now());
        match *event {
            Event::Pass { millis } => {
                self.whole += millis;
                self.pass(self.now());
            }
            Event::Disconnect { conn } => self.disconnect(conn),
            Event::AskAll { conn, .. } | Event::Ask { conn, .. }
                if self.waiting[usize::from(conn)].is_some() => {}
            Event::AskAll { conn, keys, ttl } => self.ask_all(conn, keys, ttl),
            Event::Ask { conn, key, ask } => self.ask(conn, key, ask),
        }
        self.compare_ends();
        self.check();
    }

    /// Everything that was given out ends, and nothing is left.
    pub(crate) fn finish(&mut self) {
        self.whole += 1_000_000;
        self.pass(self.now());
        self.compare_ends();
        for conn in 0..CONNS {
            self.disconnect(conn);
        }
        self.compare_ends();
        self.whole += 1_000_000;
        self.pass(self.now());
        self.compare_ends();
        self.check();
        let mut locks = self.model.locks.values();
        assert!(locks.all(|lock| lock.holders.is_empty() && lock.queue.is_empty()));
    }

    /// Both go from deadline to deadline, as the server's driver does.
    fn pass(&mut self, end: u64) {
        while let Some(due) = self.model.next_due(end) {
            // Idle keys may be searched earlier; nothing happens then.
            while self.engine.next_deadline() < Self::moment(due) {
                let early = self.engine.next_deadline();
                self.engine.advance(early);
                assert!(self.engine.take_effect().is_none(), "early");
            }
            self.engine.advance(Self::moment(due));
            self.model.pass_to(due);
            self.compare_ends();
            self.check();
        }
        self.engine.advance(Self::moment(end));
        assert!(self.engine.take_effect().is_none(), "something came due in the engine alone");
    }

    fn ask(&mut self, conn: u8, name: u8, ask: Ask) {
        let now = self.now();
        let token = match ask {
            Ask::Release { nth } | Ask::Renew { nth, .. } => self.known_token(name, nth),
            Ask::Acquire { .. } | Ask::Enqueue { .. } | Ask::Wait { .. } => None,
        };
        let bytes = [b'k', b'0' + name];
        let key = Key::new(&bytes).unwrap();
        let seconds = |count| Seconds::new(count).unwrap();
        let request = match ask {
            Ask::Acquire { claim, timeout, ttl } => {
                Request::Acquire { key, claim, timeout: seconds(timeout), ttl: Ttl::new(ttl) }
            }
            Ask::Enqueue { claim, ttl } => Request::Enqueue { key, claim, ttl: Ttl::new(ttl) },
            Ask::Wait { timeout } => Request::Wait { key, timeout: seconds(timeout) },
            Ask::Release { .. } => Request::Release { key, token },
            Ask::Renew { ttl, .. } => Request::Renew { key, token, ttl: Ttl::new(ttl) },
        };
        let lowest = self.model.locks.get(&name).map_or(0, Lock::lowest_slot);
        let verdict = self.engine.ask(Self::moment(now), self.ids[usize::from(conn)], request);
        let expected = self.expect(conn, name, ask, token, now);
        assert_eq!(class(verdict.clone()), expected, "{ask:?} at {now}");
        if let (
            Ask::Acquire { claim, .. } | Ask::Enqueue { claim, .. },
            Verdict::Now(Answer::Granted(grant) | Answer::Acquired(grant)),
        ) = (ask, &verdict)
        {
            let is_semaphore = claim.limit() != Limit::ONE;
            assert_eq!(grant.slot, is_semaphore.then_some(lowest), "{ask:?} at {now}");
        }
        match verdict {
            Verdict::Later => self.waiting[usize::from(conn)] = Some(name),
            Verdict::Now(Answer::Granted(grant)) => self.learn(conn, name, &grant, false),
            Verdict::Now(Answer::Acquired(grant)) => self.learn(conn, name, &grant, true),
            Verdict::Now(_) => {}
        }
    }

    fn ask_all(&mut self, conn: u8, keys: u8, ttl: u64) {
        let now = self.now();
        let line: Vec<String> = chosen(keys).map(|key| format!("k{key}")).collect();
        let line = line.join(" ");
        let all = Keys::new(line.as_bytes()).unwrap();
        let granted = self.engine.counters().grants;
        let request = Request::AcquireAll { keys: all, ttl: Ttl::new(ttl) };
        let verdict = self.engine.ask(Self::moment(now), self.ids[usize::from(conn)], request);
        let expected = self.expect_all(conn, keys, ttl, now);
        assert_eq!(class(verdict.clone()), expected, "{line} at {now}");
        let Verdict::Now(answer) = verdict else { unreachable!("it never waits") };
        assert_eq!(answer.grants().len(), if expected == Class::Granted { all.count() } else { 0 });
        assert_eq!(self.engine.counters().grants - granted, answer.grants().len() as u64);
        self.taken_together += u64::from(answer.grants().len() > 1);
        for (key, grant) in chosen(keys).zip(answer.grants()) {
            self.learn(conn, key, grant, false);
        }
    }

    /// All are held after it, or nothing has changed.
    fn expect_all(&mut self, conn: u8, keys: u8, ttl: u64, now: u64) -> Class {
        let is_free = |key: u8| {
            self.model.locks.get(&key).is_none_or(|lock| {
                let is_lock = lock.limit == 1 || self.model.is_forgettable(key);
                lock.holders.is_empty() && lock.queue.is_empty() && is_lock
            })
        };
        if !chosen(keys).all(is_free) {
            return Class::Plain(Answer::TimedOut);
        }
        let others = self.model.locks.keys().filter(|key| keys >> **key & 1 == 0);
        let in_use = others.filter(|key| !self.model.is_forgettable(**key)).count();
        if in_use + chosen(keys).count() > MAX_LOCKS {
            return Class::Plain(Answer::Refused(Refusal::MaxLocks));
        }
        let left = self.names(now);
        for key in 0..KEYS {
            if self.model.locks.contains_key(&key) && !left.contains(&key) {
                assert!(self.model.is_forgettable(key) && keys >> key & 1 == 0);
                self.model.locks.remove(&key);
            }
        }
        for key in chosen(keys) {
            let lock = self.model.locks.entry(key).or_default();
            lock.limit = 1;
            lock.holders.push(Holder::new(conn, Claim::LOCK, now + 1000 * ttl, false));
        }
        Class::Granted
    }

    /// The keys that the engine knows.
    fn names(&self, now: u64) -> Vec<u8> {
        let mut names = Vec::new();
        let _ =
            self.engine.look_over(Self::moment(now), &mut Cursor::default(), u32::MAX, |line| {
                names.push(line.name[1] - b'0');
                std::ops::ControlFlow::Continue(())
            });
        names
    }

    /// One of the tokens people know, or one nobody has.
    fn known_token(&self, key: u8, nth: u8) -> Option<Token> {
        let lock = self.model.locks.get(&key)?;
        let known: Vec<Token> = lock.holders.iter().filter_map(|h| h.token).collect();
        if known.is_empty() || nth == 15 {
            return Some(Token::new(1, 1));
        }
        known.get(usize::from(nth) % known.len()).copied()
    }

    fn expect(&mut self, conn: u8, key: u8, ask: Ask, token: Option<Token>, now: u64) -> Class {
        let refused = |refusal| Class::Plain(Answer::Refused(refusal));
        match ask {
            Ask::Acquire { claim, timeout, ttl } => {
                match self.model_enter(conn, key, claim, ttl, now, false) {
                    Err(refusal) => refused(refusal),
                    Ok(true) => Class::Granted,
                    Ok(false) if timeout == 0 => {
                        self.model.locks.get_mut(&key).unwrap().queue.pop();
                        Class::Plain(Answer::TimedOut)
                    }
                    Ok(false) => {
                        let queue = &mut self.model.locks.get_mut(&key).unwrap().queue;
                        queue.last_mut().unwrap().until = Some(now + 1000 * timeout);
                        Class::Later
                    }
                }
            }
            Ask::Enqueue { claim, ttl } => {
                match self.model.records.get(&(conn, key)) {
                    Some((_, false)) => return refused(Refusal::AlreadyEnqueued),
                    Some((_, true)) => drop(self.model.records.remove(&(conn, key))),
                    None => {}
                }
                match self.model_enter(conn, key, claim, ttl, now, true) {
                    Err(refusal) => refused(refusal),
                    Ok(true) => Class::Acquired,
                    Ok(false) => Class::Plain(Answer::Queued),
                }
            }
            Ask::Wait { timeout } => self.expect_wait(conn, key, timeout, now),
            Ask::Release { .. } => match self.holder_of(key, token) {
                None => refused(Refusal::NotHeld),
                Some(place) => {
                    let holder = self.model.remove_holder(key, place, now);
                    if holder.record {
                        self.model.records.remove(&(holder.conn.unwrap(), key));
                    }
                    Class::Plain(Answer::Released)
                }
            },
            Ask::Renew { ttl, .. } => match self.holder_of(key, token) {
                None => refused(Refusal::NotHeld),
                Some(place) => {
                    let holder = &mut self.model.locks.get_mut(&key).unwrap().holders[place];
                    holder.expires = now + 1000 * ttl;
                    if holder.lapses < u64::MAX {
                        (holder.conn, holder.lapses) = (Some(conn), u64::MAX);
                    } else if holder.conn.is_none() && holder.renewer == Some(conn) {
                        (holder.conn, holder.renewer) = (Some(conn), None);
                    } else if holder.conn != Some(conn) {
                        holder.renewer = Some(conn);
                    }
                    Class::Plain(Answer::Renewed(Ttl::new(ttl).unwrap()))
                }
            },
        }
    }

    fn expect_wait(&mut self, conn: u8, key: u8, timeout: u64, now: u64) -> Class {
        let Some(&(ttl, lost)) = self.model.records.get(&(conn, key)) else {
            return Class::Plain(Answer::Refused(Refusal::NotEnqueued));
        };
        let lock = self.model.locks.get_mut(&key).unwrap();
        if lost {
            self.model.records.remove(&(conn, key));
            return Class::Plain(Answer::Refused(Refusal::LeaseExpired));
        }
        if let Some(holder) = lock.holders.iter_mut().find(|h| h.record && h.conn == Some(conn)) {
            holder.record = false;
            holder.expires = now + 1000 * ttl;
            self.model.records.remove(&(conn, key));
            return Class::Granted;
        }
        let place = lock.queue.iter().position(|w| w.record && w.conn == conn).unwrap();
        if timeout == 0 {
            lock.queue.remove(place);
            self.model.records.remove(&(conn, key));
            self.model.serve(key, now);
            return Class::Plain(Answer::TimedOut);
        }
        lock.queue[place].until = Some(now + 1000 * timeout);
        Class::Later
    }

    /// Whether a slot was free; else a place in the queue is taken.
    fn model_enter(
        &mut self,
        conn: u8,
        key: u8,
        claim: Claim,
        ttl: u64,
        now: u64,
        record: bool,
    ) -> Result<bool, Refusal> {
        let max_waiters = self.max_waiters;
        self.follow_forgetting(key);
        let lock = self.model.enter(key, claim.limit().count())?;
        let free = lock.queue.is_empty() && lock.has_room(claim);
        if !free && max_waiters > 0 && lock.queue.len() >= max_waiters {
            return Err(Refusal::MaxWaiters);
        }
        if free {
            lock.holders.push(Holder::new(conn, claim, now + 1000 * ttl, record));
        } else {
            lock.queue.push(Waiter { conn, claim, ttl, until: None, record });
        }
        if record {
            self.model.records.insert((conn, key), (ttl, false));
        }
        Ok(free)
    }

    /// A full table makes room for a new key by forgetting one that nobody needs. Which one, the
    /// engine knows.
    fn follow_forgetting(&mut self, new: u8) {
        let locks = &self.model.locks;
        let is_full = locks.len() >= MAX_LOCKS && !locks.contains_key(&new);
        if !is_full || !(0..KEYS).any(|k| locks.contains_key(&k) && self.model.is_forgettable(k)) {
            return;
        }
        let left = self.names(self.now());
        let gone: Vec<u8> = locks.keys().copied().filter(|key| !left.contains(key)).collect();
        assert_eq!(gone.len(), 1, "one makes room");
        assert!(self.model.is_forgettable(gone[0]));
        self.model.locks.remove(&gone[0]);
    }

    fn holder_of(&self, key: u8, token: Option<Token>) -> Option<usize> {
        let token = token?;
        self.model.locks.get(&key)?.holders.iter().position(|h| h.token == Some(token))
    }

    /// The model's newest hold of that connection and key gets its token; a token that the model
    /// knows already must be the same.
    fn learn(&mut self, conn: u8, key: u8, grant: &Grant, record: bool) {
        let holders = &mut self.model.locks.get_mut(&key).unwrap().holders;
        if let Some(holder) = holders.iter().find(|h| h.token == Some(grant.token)) {
            assert_eq!(grant.slot, holder.slot);
            return;
        }
        let holder = holders
            .iter_mut()
            .rev()
            .find(|h| h.conn == Some(conn) && h.token.is_none() && h.record == record)
            .expect("a grant the model knows nothing of");
        holder.token = Some(grant.token);
        holder.slot = holder.slot.or(grant.slot);
        assert_eq!(grant.slot, holder.slot);
        assert_eq!(grant.expires, Self::moment(holder.expires));
    }

    fn disconnect(&mut self, conn: u8) {
        let now = self.now();
        let id = self.ids[usize::from(conn)];
        self.engine.disconnect(Self::moment(now), id, self.auto);
        self.waiting[usize::from(conn)] = None;
        self.serial += 1;
        self.ids[usize::from(conn)] = self.engine.connect(self.serial);
        for lock in self.model.locks.values_mut() {
            lock.queue.retain(|waiter| waiter.conn != conn);
        }
        self.model.records.retain(|(of, _), _| *of != conn);
        self.model.forget_renewer(conn);
        for key in 0..KEYS {
            let auto = self.auto;
            let Some(lock) = self.model.locks.get_mut(&key) else { continue };
            // Nobody could ever release what nobody was told of.
            lock.holders.retain(|h| h.conn != Some(conn) || h.token.is_some());
            for holder in lock.holders.iter_mut().filter(|h| h.conn == Some(conn)) {
                holder.record = false;
                holder.conn = holder.renewer.take();
                if holder.conn.is_none() && auto == AutoRelease::On {
                    holder.lapses = now + 1000 * self.grace;
                }
            }
            // A grace of nothing is over.
            lock.holders.retain(|holder| holder.lapses > now);
            self.model.serve(key, now);
        }
    }

    fn compare_ends(&mut self) {
        let mut engine = Vec::new();
        let mut told = Vec::new();
        while let Some(effect) = self.engine.take_effect() {
            match effect {
                Effect::Expired { .. } => engine.push(End::Expired),
                // No answer depends on it.
                Effect::Moved(_) | Effect::Taken(..) => {}
                Effect::Answer(id, answer) => {
                    let conn = self.ids.iter().position(|&i| i == id).expect("nobody is there");
                    let conn = u8::try_from(conn).unwrap();
                    let key = self.waiting[usize::from(conn)].take().expect("nobody waits");
                    if let Answer::Granted(grant) = answer {
                        engine.push(End::Granted(conn, key));
                        told.push((conn, key, grant));
                        self.late_grants += 1;
                    } else {
                        engine.push(End::Other(conn, answer));
                    }
                }
            }
        }
        let model = std::mem::take(&mut self.model.ends);
        assert_eq!(engine.len(), model.len(), "engine {engine:?}, model {model:?}");
        for end in &engine {
            assert!(model.contains(end), "engine {engine:?}, model {model:?}");
        }
        for (conn, key, grant) in told {
            self.learn(conn, key, &grant, false);
        }
    }

    /// Each holder of a semaphore has a slot of its own, and keeps it.
    fn check_slots(&mut self) {
        let now = Self::moment(self.now());
        for (name, lock) in &mut self.model.locks {
            let bytes = [b'k', b'0' + name];
            let view = self.engine.view(now, Key::new(&bytes).unwrap(), 0..usize::MAX, 0..0);
            let shown = view.map(|view| view.holders).unwrap_or_default();
            assert_eq!(shown.len(), lock.holders.len());
            let mut taken = BTreeSet::new();
            for (party, holder) in shown.iter().rev().zip(&mut lock.holders) {
                holder.slot = holder.slot.or(party.slot);
                assert_eq!((party.slot, party.slot.is_some()), (holder.slot, lock.limit > 1));
                let is_its = |slot: u32| u64::from(slot) < lock.limit && taken.insert(slot);
                assert!(party.slot.is_none_or(is_its), "{lock:?}");
            }
        }
    }

    fn check(&mut self) {
        assert_eq!(*self.engine.census(), self.model.census());
        self.check_slots();
        for lock in self.model.locks.values() {
            let sharing = lock.holders.iter().all(|holder| holder.claim == Claim::Shared);
            assert!(sharing || lock.holders.len() as u64 <= lock.limit, "too many holders");
            let first = lock.queue.first();
            assert!(
                first.is_none_or(|waiter| !lock.has_room(waiter.claim)),
                "nobody waits for nothing"
            );
        }
    }
}
