//! What all connections share: the engine, one seat per connection, and one wheel of their
//! deadlines. Everything here happens under one lock that nobody holds across a system call.

use super::access::{Access, AuthToken};
use super::settings::Settings;
use super::state::{Doubt, Health, Keeper, Saving};
use super::store::{Event, Store};
use super::tls::Tls;
use crate::engine::wheel::{TimerId, Wheel};
use crate::engine::{
    Answer, AutoRelease, ConnId, Effect, Key, KeyLine, Moment, Progress, Refusal, Request, Seconds,
    Verdict,
};
use crate::wire::{Fault, StatsCursor, push_stats};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Keys or holds one turn may work off before others get theirs.
pub(super) const BUDGET: usize = 1024;

/// Bytes of a `stats` body made in one turn.
pub(super) const STATS_PIECE_BYTES: usize = 16 * 1024;
/// Between two answers to wrong secrets: a hundred a second, for all who try together.
const PENALTY_STEP_MICROS: u64 = 10_000;
/// Nobody waits longer for such an answer.
const PENALTY_MOST_MICROS: u64 = 20_000_000;
/// Places of the table looked at for it in one turn.
const STATS_PLACES: u32 = 2048;

/// What the server counts besides the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Connections taken in.
    pub accepted: u64,
    /// Connections closed at once because of a cap.
    pub turned_away: u64,
    /// Frames refused and connections ended by a fault; the place is the fault's code.
    pub faults: [u64; 14],
    /// Failed authentications.
    pub auth_failures: u64,
    /// TLS handshakes that failed.
    pub tls_failures: u64,
    /// Connections dropped because they did not read.
    pub write_timeouts: u64,
    /// Waiting connections whose peer went away.
    pub gone_while_waiting: u64,
}

/// What the shared part knows of a connection.
struct Seat {
    id: ConnId,
    /// The number by which people know it.
    serial: u64,
    /// What it says of itself.
    name: Option<Arc<str>>,
    /// An administrator wants it to go.
    kicked: bool,
    address: Option<IpAddr>,
    waker: Option<Waker>,
    deadline: Moment,
    /// When the timer rings, which may be before the deadline: it is moved only then.
    rings: Moment,
    timer: TimerId<ConnId>,
    answer: Option<Answer>,
}

pub(super) struct Core {
    pub(super) store: Store,
    /// Keeps the record of holds, if there is one.
    keeper: Option<Keeper>,
    /// Whom to wake: kept for its room.
    woken: Vec<ConnId>,
    seats: Vec<Option<Seat>>,
    timers: Wheel<ConnId>,
    /// When the driver will look next.
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
    /// What a new connection must show, and what it is secured with: may be changed while the
    /// server runs.
    open: Mutex<(Arc<Access>, Option<Tls>)>,
    kicked: AtomicBool,
    changed: Notify,
}

/// Whether clients should come here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They should.
    Ready,
    /// The end has begun.
    Draining,
    /// The store cannot be reached.
    Unavailable,
    /// Holds cannot be recorded.
    State(Health),
    /// Nothing is granted for a while after the start.
    Closed {
        /// What may be missing, if that is why.
        doubt: Option<Doubt>,
        /// For so long.
        left_micros: u64,
    },
}

/// Why a connection was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnedAway {
    Full,
    AddressFull,
}

/// Gives the store what was recorded, and lets it grant nothing for as long as is asked for.
fn open_store(store: &mut Store, settings: &Settings) -> Option<Keeper> {
    let now = Moment::default();
    let engine = store.engine()?;
    if settings.startup_grace > Seconds::ZERO {
        engine.close(now.after(settings.startup_grace));
    }
    let default_lease = settings.caps.default_ttl.span();
    Keeper::start(settings.state.as_ref()?, engine, now, default_lease)
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Self {
        let start = Instant::now();
        let mut store = Store::new(&settings);
        let keeper = open_store(&mut store, &settings);
        let core = Core {
            store,
            keeper,
            woken: Vec::new(),
            seats: Vec::new(),
            timers: Wheel::new(),
            armed: Moment::NEVER,
            driver: None,
            connections: 0,
            addresses: HashMap::new(),
            last_serial: 0,
            last_penalty: Moment::default(),
            draining: false,
            tallies: Tallies::default(),
        };
        let open = (Arc::new(settings.access.clone()), settings.tls.clone());
        Self {
            open: Mutex::new(open),
            settings,
            start,
            core: Mutex::new(core),
            kicked: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    pub(super) fn now(&self) -> Moment {
        let micros = self.start.elapsed().as_micros();
        Moment::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    pub(super) fn instant(&self, moment: Moment) -> Option<Instant> {
        self.start.checked_add(Duration::from_micros(moment.micros()))
    }

    pub(super) fn set_open(&self, access: Access, tls: Option<Tls>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        *open = (Arc::new(access), tls);
    }

    pub(super) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.open.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    pub(super) fn tls(&self) -> Option<Tls> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Makes every connection end now.
    pub(super) fn kick(&self) {
        self.kicked.store(true, Ordering::Relaxed);
        self.core().wake_all();
    }

    /// As many connections as the system's limits allow are there.
    pub(super) fn is_full(&self) -> bool {
        let most = self.settings.max_descriptors;
        most > 0 && self.core().connections() >= most
    }

    pub(super) fn is_kicked(&self) -> bool {
        self.kicked.load(Ordering::Relaxed)
    }

    /// Told when draining begins and when the last connection has left.
    pub(super) const fn changed(&self) -> &Notify {
        &self.changed
    }

    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            name: None,
            kicked: false,
            address,
            waker: None,
            deadline: Moment::NEVER,
            rings: Moment::NEVER,
            timer: TimerId::NIL,
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

    /// Where a connection comes from; nothing for a Unix socket.
    pub(super) fn address(&self, id: ConnId) -> Option<IpAddr> {
        self.seats.get(id.place())?.as_ref().filter(|seat| seat.id == id)?.address
    }

    fn seat(&mut self, id: ConnId) -> Option<&mut Seat> {
        self.seats.get_mut(id.place())?.as_mut().filter(|seat| seat.id == id)
    }

    /// Whom to wake when something happens to this connection.
    pub(super) fn register(&mut self, id: ConnId, waker: &Waker) {
        if let Some(seat) = self.seat(id) {
            if !seat.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                seat.waker = Some(waker.clone());
            }
        }
    }

    /// Passes a request to the engine and what follows from it to those concerned.
    pub(super) fn ask(&mut self, now: Moment, id: ConnId, request: Request<'_>) -> Verdict {
        if let (Some(keeper), Some(engine)) = (&mut self.keeper, self.store.engine()) {
            if let Some(refusal) = keeper.judge(engine, &request, now) {
                return Verdict::Now(Answer::Refused(refusal));
            }
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
        seat.deadline = deadline;
        if deadline < seat.rings {
            self.timers.remove(seat.timer);
            seat.timer = self.timers.insert(deadline, id);
            seat.rings = deadline;
            self.rearm();
        }
    }

    pub(super) fn is_late(&mut self, id: ConnId, now: Moment) -> bool {
        self.seat(id).is_some_and(|seat| seat.kicked || seat.deadline <= now)
    }

    pub(super) fn is_kicked(&mut self, id: ConnId) -> bool {
        self.seat(id).is_some_and(|seat| seat.kicked)
    }

    /// Ends a connection at its next rest.
    pub(super) fn kick(&mut self, serial: u64) -> bool {
        let seat = self.seats.iter_mut().flatten().find(|seat| seat.serial == serial);
        let Some(seat) = seat else { return false };
        seat.kicked = true;
        if let Some(waker) = &seat.waker {
            waker.wake_by_ref();
        }
        true
    }

    /// Takes away all holds of a key.
    pub(super) fn force_release(&mut self, now: Moment, key: Key<'_>) -> Option<usize> {
        let count = self.store.force_release(now, key);
        self.deliver(now);
        self.rearm();
        count
    }

    /// When somebody who shows a wrong secret now is answered: not at once, and one after another,
    /// however many try at a time.
    pub(super) fn penalty(&mut self, now: Moment) -> Moment {
        let after_last = self.last_penalty.after_micros(PENALTY_STEP_MICROS);
        let most = now.after_micros(PENALTY_MOST_MICROS);
        let due = now.after_micros(AuthToken::COOL_DOWN_MICROS).max(after_last).min(most);
        self.last_penalty = due;
        due
    }

    /// What a connection says of itself, for people.
    pub(super) fn set_name(&mut self, id: ConnId, name: Arc<str>) {
        if let Some(seat) = self.seat(id) {
            seat.name = Some(name);
        }
    }

    pub(super) fn name(&self, id: ConnId) -> Option<Arc<str>> {
        self.seats.get(id.place())?.as_ref().filter(|seat| seat.id == id)?.name.clone()
    }

    /// The answer to a wait, once. A grant whose lease ended on the way is none.
    pub(super) fn take_answer(&mut self, id: ConnId, now: Moment) -> Option<Answer> {
        let answer = self.seat(id)?.answer.take()?;
        let over = matches!(
            answer,
            Answer::Granted(grant) | Answer::Acquired(grant) if grant.expires <= now
        );
        Some(if over { Answer::Refused(Refusal::LeaseExpired) } else { answer })
    }

    /// Removes what a connection had; to be called until done.
    pub(super) fn leave(&mut self, id: ConnId, now: Moment, auto: AutoRelease) -> Progress {
        self.store.cancel(now, id);
        let untold = self.seat(id).and_then(|seat| seat.answer.take());
        if let Some(Answer::Granted(grant) | Answer::Acquired(grant)) = untold {
            // Nobody was told this token; with auto-release off it would block for a whole lease.
            self.store.take_back(now, id, grant.token);
        }
        let progress = self.store.disconnect(now, id, auto, BUDGET);
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
        self.timers.remove(seat.timer);
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

    /// Hands effects to the connections they are for.
    fn deliver(&mut self, now: Moment) {
        if let (Some(keeper), Some(engine)) = (&mut self.keeper, self.store.engine()) {
            keeper.note(engine, now);
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
                Effect::Expired { serial, key } => {
                    tracing::info!(key = %key.escape_ascii(), conn = serial, "lease expired");
                }
            }
        }
    }

    fn wake(&mut self, id: ConnId) {
        if let Some(waker) = self.seat(id).and_then(|seat| seat.waker.as_ref()) {
            waker.wake_by_ref();
        }
    }

    /// Something came to the store by itself.
    pub(super) fn feed(&mut self, now: Moment, event: Event) {
        self.store.feed(now, event);
        self.deliver(now);
        self.rearm();
    }

    /// Wakes the driver if it would look too late.
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
        let retry = self.keeper.as_ref().map_or(Moment::NEVER, Keeper::retry);
        self.store.next_deadline().min(self.timers.next()).min(retry)
    }

    /// One turn of the driver: serves what is due and says when to look again.
    pub(super) fn turn(&mut self, now: Moment, driver: &Waker) -> Moment {
        if !self.driver.as_ref().is_some_and(|known| known.will_wake(driver)) {
            self.driver = Some(driver.clone());
        }
        let progress = self.store.advance(now, BUDGET);
        self.deliver(now);
        if let Some(keeper) = &self.keeper {
            keeper.ring(now);
        }
        for _ in 0..BUDGET {
            let Some(id) = self.timers.pop(now) else { break };
            self.ring(id, now);
        }
        self.armed = match progress {
            Progress::Done | Progress::Later => self.next_deadline(),
            Progress::More => now,
        };
        self.armed
    }

    fn ring(&mut self, id: ConnId, now: Moment) {
        let place = self.seats.get_mut(id.place()).and_then(Option::as_mut);
        let Some(seat) = place.filter(|seat| seat.id == id) else { return };
        seat.timer = TimerId::NIL;
        seat.rings = Moment::NEVER;
        if seat.deadline <= now {
            if let Some(waker) = &seat.waker {
                waker.wake_by_ref();
            }
        } else if seat.deadline < Moment::NEVER {
            seat.timer = self.timers.insert(seat.deadline, id);
            seat.rings = seat.deadline;
        }
    }

    /// Holds outlive this process.
    pub(super) const fn has_record(&self) -> bool {
        self.keeper.is_some()
    }

    /// What the last answer rests on: changes of holds so far; 0 when nobody records them.
    pub(super) fn noted(&self) -> u64 {
        self.keeper.as_ref().map_or(0, Keeper::noted)
    }

    /// Whether an answer that rests on so many changes may leave; the connection is woken then.
    pub(super) fn saving(&mut self, id: ConnId, noted: u64) -> Saving {
        self.keeper.as_mut().map_or(Saving::Saved, |keeper| keeper.saving(id, noted))
    }

    /// Writes what was noted; true when there is more to do in the next turn.
    pub(super) fn flush(&mut self, now: Moment, flusher: &Waker) -> bool {
        let (Some(keeper), Some(engine)) = (&mut self.keeper, self.store.engine()) else {
            return false;
        };
        keeper.register(flusher);
        keeper.flush(engine, now, &mut self.woken);
        let more = keeper.has_work() && keeper.health() != Health::Broken;
        self.wake_woken();
        self.rearm();
        more
    }

    fn wake_woken(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        woken.drain(..).for_each(|id| self.wake(id));
        self.woken = woken;
    }

    /// A file to be synced now, and how many changes are safe then.
    pub(super) fn begin_sync(&mut self) -> Option<(Arc<File>, u64)> {
        self.keeper.as_mut()?.begin_sync()
    }

    pub(super) fn end_sync(&mut self, upto: u64, result: io::Result<()>, now: Moment) {
        if let Some(keeper) = &mut self.keeper {
            keeper.end_sync(upto, result, now, &mut self.woken);
        }
        self.wake_woken();
    }

    /// The last connection has left.
    pub(super) fn close(&mut self, now: Moment) {
        if let (Some(keeper), Some(engine)) = (&mut self.keeper, self.store.engine()) {
            keeper.close(engine, now);
        }
    }

    /// Why clients should better be sent elsewhere.
    pub(super) fn readiness(&mut self, now: Moment) -> Readiness {
        let closed = self.store.engine().map_or(0, |e| e.closed_until().micros_since(now));
        let health = self.keeper.as_ref().map(Keeper::health);
        match (self.draining, health) {
            (true, _) => Readiness::Draining,
            (false, _) if !self.store.is_available() => Readiness::Unavailable,
            (false, Some(health @ (Health::Full | Health::Broken))) => Readiness::State(health),
            (false, _) if closed > 0 => {
                let doubt = self.keeper.as_ref().and_then(Keeper::doubt);
                Readiness::Closed { doubt, left_micros: closed }
            }
            (false, _) => Readiness::Ready,
        }
    }

    /// Ends all waits and refuses new holds from now on.
    pub(super) fn drain(&mut self, now: Moment) {
        self.draining = true;
        self.store.drain(now);
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
            self.store.look_over(now, place, STATS_PLACES, |_, line| {
                let name = line.conn.filter(|_| names).and_then(|conn| self.name(conn));
                note(&KeyLine { owner_name: name.as_deref(), ..*line })
            })
        })
    }
}
