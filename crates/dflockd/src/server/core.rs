//! The state that all connections share: the engine, one seat for each connection, and their
//! deadlines. Everything here happens under one lock that no thread holds across a system call.

mod people;
mod recording;
mod shared;
mod watching;

use super::access::Access;
use super::settings::Settings;
use super::state::{Doubt, Health};
use super::store::Store;
use super::tls::Tls;
use leases::wire::{Fault, StatsCursor, push_stats};
use leases::{
    Answer, AutoRelease, ConnId, Effect, KeyLine, Label, Moment, Progress, Refusal, Request,
    Timers, Token, Verdict,
};
use recording::Recording;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Instant;
use tokio::sync::Notify;
use watching::{WOKEN_PER_TURN, Watchers};

/// The number of bytes of a `stats` body that are made in one turn.
pub(super) const STATS_PIECE_BYTES: usize = 16 * 1024;
/// The number of places of the table that are read for it in one turn.
const STATS_PLACES: u32 = 2048;

/// The server's own counters, beside those of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
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

/// What the core knows of a connection.
struct Seat {
    id: ConnId,
    /// The number that is shown to people.
    serial: u64,
    /// The term in which it came.
    term: u64,
    /// The name and value that the client has sent.
    label: Option<Arc<Label>>,
    /// An administrator has ended it.
    kicked: bool,
    /// Its client understands the line `lost`.
    hears_lost: bool,
    /// The holds that were taken from it and that its client does not know of.
    lost: Vec<Token>,
    address: Option<IpAddr>,
    waker: Option<Waker>,
    deadline: Moment,
    /// When the timer fires. That may be before the deadline: the timer is moved only when it fires.
    timer_at: Moment,
    answer: Option<Answer>,
}

pub(super) struct Core {
    pub(super) store: Store,
    recording: Recording,
    seats: Vec<Option<Seat>>,
    timers: Timers<ConnId>,
    watchers: Watchers,
    /// When the driver runs next.
    armed: Moment,
    driver: Option<Waker>,
    connections: usize,
    addresses: HashMap<IpAddr, usize>,
    last_serial: u64,
    /// When the last wrong secret is answered.
    last_penalty: Moment,
    pub(super) draining: bool,
    pub(super) tallies: Tallies,
}

/// Shared by all tasks of one server.
pub(super) struct Shared {
    pub(super) settings: Settings,
    start: Instant,
    core: Mutex<Core>,
    /// The secrets that a new connection must show, and its TLS settings. Both may change while the server runs.
    open: Mutex<(Arc<Access>, Option<Tls>)>,
    kicked: AtomicBool,
    changed: Notify,
}

/// Whether clients should use this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Clients can use it.
    Ready,
    /// The server is shutting down.
    Draining,
    /// The store cannot be reached.
    Unavailable,
    /// Holds cannot be recorded.
    State(Health),
    /// Nothing is granted for a while after the start.
    Closed {
        /// Set if leases may be missing from the record, and why.
        doubt: Option<Doubt>,
        /// For this long.
        left_micros: u64,
    },
}

/// Why a connection was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnedAway {
    Full,
    AddressFull,
}

impl Core {
    /// Seats a new connection, if the caps allow.
    pub(super) fn admit(
        &mut self,
        settings: &Settings,
        address: Option<IpAddr>,
    ) -> Result<(ConnId, u64), TurnedAway> {
        if settings.max_connections > 0 && self.connections >= settings.max_connections {
            self.tallies.turned_away += 1;
            return Err(TurnedAway::Full);
        }
        if let (Some(address), cap @ 1..) = (address, settings.max_connections_per_address) {
            let count = self.addresses.entry(address).or_insert(0);
            if *count >= cap {
                self.tallies.turned_away += 1;
                return Err(TurnedAway::AddressFull);
            }
            *count += 1;
        }
        self.last_serial += 1;
        let serial = self.last_serial;
        let id = self.store.connect(serial);
        let seat = Seat {
            id,
            serial,
            term: self.recording.term(),
            label: None,
            kicked: false,
            hears_lost: false,
            lost: Vec::new(),
            address,
            waker: None,
            deadline: Moment::NEVER,
            timer_at: Moment::NEVER,
            answer: None,
        };
        if self.seats.len() <= id.place() {
            self.seats.resize_with(id.place() + 1, || None);
        }
        if let Some(place) = self.seats.get_mut(id.place()) {
            *place = Some(seat);
        }
        self.connections += 1;
        self.tallies.accepted += 1;
        Ok((id, serial))
    }

    /// The address of the peer; `None` for a Unix socket.
    pub(super) fn address(&self, id: ConnId) -> Option<IpAddr> {
        self.seats.get(id.place())?.as_ref().filter(|seat| seat.id == id)?.address
    }

    fn seat(&mut self, id: ConnId) -> Option<&mut Seat> {
        self.seats.get_mut(id.place())?.as_mut().filter(|seat| seat.id == id)
    }

    /// The task to wake when something happens to this connection.
    pub(super) fn register(&mut self, id: ConnId, waker: &Waker) {
        if let Some(seat) = self.seat(id) {
            if !seat.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                seat.waker = Some(waker.clone());
            }
        }
    }

    /// Passes a request to the store, and its effects to the connections concerned.
    pub(super) fn ask(&mut self, now: Moment, id: ConnId, request: Request<'_>) -> Verdict {
        if self.is_over(id) || !self.is_available() {
            return Verdict::Now(Answer::Refused(Refusal::Unavailable));
        }
        let verdict = self.store.ask(now, id, request);
        self.deliver(now);
        self.rearm();
        verdict
    }

    /// When the connection is to be woken next if nothing else happens.
    pub(super) fn set_deadline(&mut self, id: ConnId, deadline: Moment) {
        let place = self.seats.get_mut(id.place()).and_then(Option::as_mut);
        let Some(seat) = place.filter(|seat| seat.id == id) else { return };
        // News wait for nothing.
        let deadline = if seat.lost.is_empty() { deadline } else { Moment::from_micros(0) };
        seat.deadline = deadline;
        if deadline < seat.timer_at {
            self.timers.reset(id, seat.timer_at, deadline);
            seat.timer_at = deadline;
            self.rearm();
        }
    }

    pub(super) fn is_late(&mut self, id: ConnId, now: Moment) -> bool {
        self.seat(id).is_some_and(|seat| seat.kicked || seat.deadline <= now)
    }

    /// Returns the answer to a wait, once. A grant whose lease has ended meanwhile does not count.
    pub(super) fn take_answer(&mut self, id: ConnId, now: Moment) -> Option<Answer> {
        let answer = self.seat(id)?.answer.take()?;
        let over = answer.grants().iter().any(|grant| grant.expires <= now);
        Some(if over { Answer::Refused(Refusal::LeaseExpired) } else { answer })
    }

    /// Removes the holds and waits of a connection. Call it until it is done.
    pub(super) fn leave(&mut self, id: ConnId, now: Moment, auto: AutoRelease) -> Progress {
        self.store.cancel(now, id);
        self.end_watch(id);
        let untold = self.seat(id).and_then(|seat| seat.answer.take());
        for grant in untold.iter().flat_map(Answer::grants) {
            // No client was told this token. With auto-release off, the hold would block the key for a whole lease.
            self.store.take_back(now, id, grant.token);
        }
        let progress = self.store.disconnect(now, id, auto);
        self.deliver(now);
        self.rearm();
        if progress == Progress::Done {
            self.vacate(id);
        }
        progress
    }

    fn vacate(&mut self, id: ConnId) {
        let place = self.seats.get_mut(id.place());
        let is_its = |seat: &mut Seat| seat.id == id;
        let Some(seat) = place.and_then(|place| place.take_if(is_its)) else { return };
        self.timers.reset(id, seat.timer_at, Moment::NEVER);
        self.connections -= 1;
        if let Some(address) = seat.address {
            if let Some(count) = self.addresses.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    self.addresses.remove(&address);
                }
            }
        }
    }

    /// Delivers effects to their connections.
    fn deliver(&mut self, now: Moment) {
        if let Some(engine) = self.store.engine() {
            self.recording.note(engine, now);
        }
        while let Some(effect) = self.store.take_effect() {
            match effect {
                Effect::Answer(id, answer) => {
                    if let Some(seat) = self.seat(id) {
                        seat.answer = Some(answer);
                    }
                    self.wake(id);
                }
                Effect::Wake(id) => self.wake(id),
                Effect::Taken(id, token) => self.note_taken(id, token),
                Effect::Moved(key) => self.wake_watchers(&key),
                Effect::Expired { serial, key } => {
                    tracing::info!(key = %key.escape_ascii(), conn = serial, "lease expired");
                }
            }
        }
    }

    fn wake(&self, id: ConnId) {
        let seat = self.seats.get(id.place()).and_then(Option::as_ref).filter(|it| it.id == id);
        if let Some(waker) = seat.and_then(|seat| seat.waker.as_ref()) {
            waker.wake_by_ref();
        }
    }

    /// The store has news that no request caused.
    pub(super) fn stirred(&mut self, now: Moment) {
        self.deliver(now);
        self.rearm();
    }

    /// Wakes the driver if it would run too late.
    fn rearm(&mut self) {
        let next = self.next_deadline();
        if next < self.armed {
            self.armed = next;
            if let Some(driver) = &self.driver {
                driver.wake_by_ref();
            }
        }
    }

    fn next_deadline(&self) -> Moment {
        if self.watchers.has_work() {
            return Moment::default();
        }
        self.store.next_deadline().min(self.timers.next())
    }

    /// One turn of the driver: serves what is due and returns the time of the next turn.
    pub(super) fn turn(&mut self, now: Moment, driver: &Waker) -> Moment {
        if !self.driver.as_ref().is_some_and(|known| known.will_wake(driver)) {
            self.driver = Some(driver.clone());
        }
        self.store.advance(now);
        self.deliver(now);
        for _ in 0..WOKEN_PER_TURN {
            let Some(id) = self.timers.pop(now) else { break };
            self.ring(id, now);
        }
        for id in self.watchers.next_portion(WOKEN_PER_TURN) {
            self.wake(id);
        }
        self.armed = self.next_deadline();
        self.armed
    }

    fn ring(&mut self, id: ConnId, now: Moment) {
        let place = self.seats.get_mut(id.place()).and_then(Option::as_mut);
        let Some(seat) = place.filter(|seat| seat.id == id) else { return };
        seat.timer_at = Moment::NEVER;
        if seat.deadline <= now {
            if let Some(waker) = &seat.waker {
                waker.wake_by_ref();
            }
        } else if seat.deadline < Moment::NEVER {
            seat.timer_at = seat.deadline;
            self.timers.reset(id, Moment::NEVER, seat.deadline);
        }
    }

    /// Ends all waits and refuses new holds from now on.
    pub(super) fn drain(&mut self, now: Moment) {
        self.draining = true;
        self.store.drain(now);
        self.wake_all_watchers();
        self.deliver(now);
        self.rearm();
    }

    /// Wakes every connection.
    fn wake_all(&self) {
        self.seats
            .iter()
            .flatten()
            .filter_map(|seat| seat.waker.as_ref())
            .for_each(Waker::wake_by_ref);
    }

    pub(super) const fn connections(&self) -> usize {
        self.connections
    }

    pub(super) fn count_fault(&mut self, fault: Fault) {
        if let Some(count) = self.tallies.faults.get_mut(usize::from(fault.code())) {
            *count += 1;
        }
    }

    pub(super) fn stats(
        &self,
        now: Moment,
        cursor: &mut StatsCursor,
        out: &mut String,
        room: usize,
    ) -> Progress {
        let names = cursor.has_names();
        push_stats(out, room, cursor, self.connections, |place, note| {
            self.store.look_over(now, place, STATS_PLACES, |line| {
                let label = line.conn.filter(|_| names).and_then(|conn| self.label(conn));
                let name = label.map(|label| &*label.name).filter(|name| !name.is_empty());
                note(&KeyLine { owner_name: name, ..*line })
            })
        })
    }
}
