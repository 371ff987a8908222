//! The state that all connections share: the engine with the source of its tokens, and one seat (`ConnectionState`) for each
//! connection. One lock guards all of it, and no task waits while it holds that lock.

mod connections;
mod lists;
mod recording;
mod sessions;
mod shared;

use super::Settings;
use super::access::Penalties;
use connections::{ClientKind, Connections, WOKEN_PER_TURN, Watchers};
pub(crate) use connections::{Full, Headcount};
use leases::journal::{Failed, Mark};
use leases::wire::{Fault, tag_of};
use leases::{
    AutoRelease, ConnId, Effect, Engine, Key, Label, Mint, Moment, Refusal, Request, Seconds,
    Sight, Token, Verdict,
};
pub(crate) use lists::{Roster, RosterQuery};
use recording::Recording;
pub(crate) use sessions::SessionId;
use sessions::Sessions;
pub(crate) use shared::{Numbers, PARTIES_PER_TURN, Shared};
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// The server's own counters, beside those of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tallies {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed at once because of a cap.
    pub turned_away: u64,
    /// Refused frames and connections ended by a fault, indexed by the fault's code.
    pub faults: [u64; 14],
    /// Failed authentications.
    pub auth_failures: u64,
    /// TLS handshakes that failed.
    pub tls_failures: u64,
    /// Connections dropped because they did not read.
    pub write_timeouts: u64,
    /// Connections that their peers closed while they waited.
    pub gone_while_waiting: u64,
}

impl Tallies {
    pub(super) fn count_fault(&mut self, fault: Fault) {
        if let Some(count) = self.faults.get_mut(usize::from(fault.code())) {
            *count += 1;
        }
    }
}

/// What all connections share.
pub(super) struct Core {
    pub(super) engine: Engine,
    pub(super) recording: Recording,
    pub(super) connections: Connections,
    pub(super) watchers: Watchers,
    pub(super) sessions: Sessions,
    pub(super) penalties: Penalties,
    /// When the timer fires next.
    armed: Moment,
    /// Notified when the timer must fire earlier.
    pub(super) rearmed: Arc<Notify>,
    pub(super) tallies: Tallies,
}

/// Whether clients should use this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// The state in a word.
    pub word: &'static str,
    /// How long after the start nothing is granted.
    pub closed_micros: u64,
}

impl Readiness {
    /// Clients should use this server.
    pub(crate) const READY: Self = Self::of("ready");

    const fn of(word: &'static str) -> Self {
        Self { word, closed_micros: 0 }
    }
}

/// What a client that watches a key gets, and when it may be sent.
type Sighted = (Result<Option<Sight>, Refusal>, Option<Mark>);

impl Core {
    pub(super) fn new(settings: &Settings) -> Self {
        let mut engine = Engine::new(settings.caps, ServerMint::new(0), RandomState::new());
        if settings.startup_grace > Seconds::ZERO {
            engine.close(Moment::default().after(settings.startup_grace));
        }
        Self {
            engine,
            recording: Recording::new(settings),
            connections: Connections::default(),
            watchers: Watchers::default(),
            sessions: Sessions::new(settings.http.session_silence()),
            penalties: Penalties::default(),
            armed: Moment::NEVER,
            rearmed: Arc::default(),
            tallies: Tallies::default(),
        }
    }

    /// Seats a new connection, if the caps allow; else says which does not.
    pub(super) fn admit(
        &mut self,
        settings: &Settings,
        address: Option<IpAddr>,
    ) -> Result<(ConnId, u64), &'static str> {
        let (most, each) = (settings.max_connections, settings.max_connections_per_address);
        if let Err(full) = self.connections.room_for(ClientKind::Socket, address, most, each) {
            self.tallies.turned_away += 1;
            return Err(match full {
                Full::All => "max connections reached",
                Full::Address => "max connections per address reached",
            });
        }
        self.tallies.accepted += 1;
        Ok(self.seat(ClientKind::Socket, address))
    }

    /// Makes a connection in any case.
    fn seat(&mut self, kind: ClientKind, address: Option<IpAddr>) -> (ConnId, u64) {
        let serial = self.connections.next_serial();
        let id = self.engine.connect(serial);
        self.connections.add((id, kind), serial, self.recording.commits.term(), address);
        (id, serial)
    }

    /// Passes a request to the engine, and its effects to the connections concerned.
    ///
    /// # Errors
    /// The term of this connection is over, or no term is under way.
    pub(super) fn ask(
        &mut self,
        now: Moment,
        id: ConnId,
        request: Request<'_>,
    ) -> Result<Verdict, Failed> {
        if self.is_of_past_term(id) || !self.is_available() {
            return Err(Failed);
        }
        let verdict = self.engine.ask(now, id, request);
        self.deliver(now);
        Ok(verdict)
    }

    /// Ends the wait of a connection that stays.
    pub(super) fn cancel(&mut self, now: Moment, id: ConnId) {
        self.engine.cancel(now, id);
        self.deliver(now);
    }

    /// Ends the wait of a connection whose client does not wait any more, and takes back what it got by that. The
    /// caller must `deliver` the effects.
    pub(super) fn withdraw(&mut self, now: Moment, id: ConnId) {
        self.engine.cancel(now, id);
        let unseen = self.connections.take_unseen(id);
        for grant in unseen.iter().flat_map(|(answer, _)| answer.grants()) {
            // No client knows this token. With auto-release off, the hold would block the key for a whole lease.
            self.engine.take_back(now, id, grant.token);
        }
    }

    /// Takes back grants of which the client does not know.
    pub(super) fn take_back(&mut self, now: Moment, id: ConnId, tokens: &[Token]) {
        for token in tokens {
            self.engine.take_back(now, id, *token);
        }
        self.deliver(now);
    }

    /// A connection has ended: removes its holds, by the policy, and its waits.
    pub(super) fn end_connection(&mut self, id: ConnId, now: Moment, auto: AutoRelease) {
        self.withdraw(now, id);
        self.end_watch(id);
        self.engine.disconnect(now, id, auto);
        self.deliver(now);
        self.connections.remove(id);
    }

    /// Passes on what the engine has changed: the records to the journal, the effects to the connections, and the next
    /// deadline to the timer.
    fn deliver(&mut self, now: Moment) {
        self.recording.note(&mut self.engine, now);
        while let Some(effect) = self.engine.take_effect() {
            match effect {
                Effect::Answer(id, answer) => {
                    // Decided now: the commit of these changes is enough, whenever the connection wakes.
                    let mark = self.recording.mark();
                    self.connections.answer(id, answer, mark);
                }
                Effect::Taken(id, token) => self.note_taken(id, token),
                Effect::Moved(key) => self.watchers.begin_sweep(&key),
                Effect::Expired { serial, key } => {
                    tracing::info!(key = %key.escape_ascii(), conn = serial, "lease expired");
                }
            }
        }
        self.rearm();
    }

    /// Wakes the timer if it would fire too late.
    fn rearm(&mut self) {
        let next = self.next_deadline();
        if next < self.armed {
            self.armed = next;
            self.rearmed.notify_one();
        }
    }

    fn next_deadline(&self) -> Moment {
        if self.watchers.has_work() {
            return Moment::default();
        }
        self.engine.next_deadline().min(self.sessions.next_deadline())
    }

    /// One turn of the timer: serves what is due and returns the time of the next turn.
    pub(super) fn turn(&mut self, now: Moment) -> Moment {
        // The timer has fired now, so nothing needs to wake it.
        self.armed = Moment::default();
        self.engine.advance(now);
        self.deliver(now);
        for id in std::iter::from_fn(|| self.watchers.next()).take(WOKEN_PER_TURN) {
            self.connections.wake(id);
        }
        self.armed = self.next_deadline();
        self.armed
    }

    /// Ends all waits and refuses new holds from now on.
    pub(super) fn drain(&mut self, now: Moment) {
        self.engine.drain(now);
        // Those that watch a key hear of it.
        self.watchers.begin_sweeps();
        self.deliver(now);
    }

    /// Changes a part of the label of a connection.
    pub(super) fn relabel(&mut self, id: ConnId, change: impl FnOnce(&mut Label)) {
        let mut label = self.engine.label(id).cloned().unwrap_or_default();
        change(&mut label);
        self.engine.introduce(id, &Arc::new(label));
    }

    /// The answer to a connection that watches a key, and when it may be sent; the watch is over then. `None` if the
    /// watch goes on: the client has seen this state, `until` has not come, and no server is draining.
    pub(super) fn sight(
        &mut self,
        now: Moment,
        id: ConnId,
        (key, last): (Key<'_>, Option<u64>),
        until: Moment,
        is_draining: bool,
    ) -> Option<Sighted> {
        let is_draining = self.engine.is_draining() || is_draining;
        let sight = self.engine.sight(now, key);
        let is_known = last == Some(tag_of(sight.as_ref()));
        if now < until && is_known && !is_draining {
            return None;
        }
        self.end_watch(id);
        // The client reads nothing that would be false after a restart.
        let mark = self.recording.mark();
        Some((if is_draining { Err(Refusal::Draining) } else { Ok(sight) }, mark))
    }

    /// From now on, a connection that watches nothing yet is woken when this key's holders change. At most `most`
    /// connections may watch at the same time; 0 for no limit.
    pub(super) fn begin_watch(
        &mut self,
        id: ConnId,
        key: Key<'_>,
        most: usize,
    ) -> Result<(), Refusal> {
        if most > 0 && self.watchers.len() >= most {
            return Err(Refusal::MaxWaiters);
        }
        if self.watchers.add(id, key.bytes()) {
            self.engine.watch(key, true);
        }
        Ok(())
    }

    /// Does nothing for a connection that watches no key.
    pub(super) fn end_watch(&mut self, id: ConnId) {
        if self.watchers.len() == 0 {
            return;
        }
        if let Some(name) = self.watchers.remove(id) {
            if let Some(key) = Key::new(&name) {
                self.engine.watch(key, false);
            }
        }
    }
}

/// The number of grants whose salts come with one system call.
const SALTS: usize = 64;

/// Makes the tokens of this server: a fence that starts at the wall clock's nanoseconds, so that it grows across restarts,
/// and random bits from the system.
pub(super) struct ServerMint {
    fence: u64,
    /// Random numbers that were not used yet.
    salts: Vec<u64>,
}

impl ServerMint {
    /// Fences start above the wall clock and above `floor`.
    pub(super) fn new(floor: u64) -> Self {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = u64::try_from(clock.as_nanos()).unwrap_or(0);
        Self::from(clock.max(floor))
    }

    /// Fences start above this one.
    pub(super) const fn from(fence: u64) -> Self {
        Self { fence, salts: Vec::new() }
    }

    /// A random number that was in no token yet.
    fn salt(&mut self) -> Option<u64> {
        if self.salts.is_empty() {
            let mut bytes = [0; size_of::<u64>() * SALTS];
            getrandom::fill(&mut bytes).ok()?;
            let numbers =
                bytes.chunks_exact(size_of::<u64>()).flat_map(<[u8; size_of::<u64>()]>::try_from);
            self.salts.extend(numbers.map(u64::from_ne_bytes));
        }
        self.salts.pop()
    }
}

/// A number that nobody can guess if the system gives none any more: the keys of a `RandomState` came from the same source
/// while it still answered.
fn spare_number(of: impl Hash) -> u64 {
    RandomState::new().hash_one(of)
}

impl Mint for ServerMint {
    fn token(&mut self) -> Token {
        self.fence = self.fence.saturating_add(1);
        let salt = self.salt().unwrap_or_else(|| spare_number(self.fence));
        Token::new(self.fence, salt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_grow_and_salts_differ() {
        let mut mint = ServerMint::new(0);
        let tokens: Vec<Token> = (0..200).map(|_| mint.token()).collect();
        assert!(tokens.windows(2).all(|w| w[0].fence() < w[1].fence()));
        let salts: std::collections::HashSet<_> =
            tokens.iter().map(|token| token.digits()[16..].to_vec()).collect();
        assert_eq!(salts.len(), tokens.len());
    }

    #[test]
    fn fences_grow_though_the_clock_goes_back() {
        let last = u64::MAX / 3;
        assert_eq!(ServerMint::new(last).token().fence(), last + 1);
    }
}
