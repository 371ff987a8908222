//! The table of connections, with what the server knows of each one; and the connections that watch a key. Each of them
//! watches one key, and their number is limited.
//!
//! One key may have ten thousand watchers. So a change only begins a sweep over them, and each turn of the timer wakes
//! a portion of bounded size. Other clients are served between the portions.
//!
//! [`Headcount`] counts connections of one kind and their addresses. HTTP has one of its own.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;

use leases::journal::Mark;
use leases::{Answer, ConnId, Moment, Refusal, Token};

/// Why there is no room for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    All,
    Address,
}

/// The connections of one kind, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Headcount {
    count: usize,
    addresses: HashMap<IpAddr, usize>,
}

impl Headcount {
    /// All of them.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Caps: of all connections, and of those of one address; 0 for none.
    pub(crate) fn room_for(
        &self,
        address: Option<IpAddr>,
        most: usize,
        each: usize,
    ) -> Result<(), Full> {
        let present = address.and_then(|address| self.addresses.get(&address));
        if most > 0 && self.count >= most {
            Err(Full::All)
        } else if each > 0 && present.is_some_and(|count| *count >= each) {
            Err(Full::Address)
        } else {
            Ok(())
        }
    }

    pub(crate) fn add(&mut self, address: Option<IpAddr>) {
        self.count += 1;
        if let Some(address) = address {
            *self.addresses.entry(address).or_insert(0) += 1;
        }
    }

    pub(crate) fn remove(&mut self, address: Option<IpAddr>) {
        self.count -= 1;
        let Some(address) = address else { return };
        if let Some(count) = self.addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&address);
            }
        }
    }
}

/// What is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum ClientKind {
    /// A socket, here or at another server.
    Socket,
    /// A client of HTTP, which has no socket of its own: a session, or one request without a session.
    Http,
}

/// What is known of one connection.
pub(super) struct ConnectionState {
    id: ConnId,
    kind: ClientKind,
    /// The number that is shown to people.
    serial: u64,
    /// The term in which it came.
    pub(super) term: u64,
    /// An administrator has ended it.
    kicked: bool,
    /// Its client understands the line `lost`.
    hears_lost: bool,
    /// The holds that were taken from it and that its client does not know of.
    lost: Vec<Token>,
    address: Option<IpAddr>,
    waker: Option<Waker>,
    /// The answer to its wait, and when it may be sent. In a box, because most connections have none.
    answer: Option<Box<(Answer, Option<Mark>)>>,
}

/// See the module.
#[derive(Default)]
pub(in crate::server) struct Connections {
    seats: Vec<Option<ConnectionState>>,
    sockets: Headcount,
    http: Headcount,
    last_serial: u64,
}

impl Connections {
    pub(in crate::server) const fn len(&self) -> usize {
        self.sockets.count() + self.http.count()
    }

    /// The number of connections with a descriptor.
    pub(in crate::server) const fn sockets(&self) -> usize {
        self.sockets.count()
    }

    const fn of(&mut self, kind: ClientKind) -> &mut Headcount {
        match kind {
            ClientKind::Socket => &mut self.sockets,
            ClientKind::Http => &mut self.http,
        }
    }

    /// Whether there is room for one more connection. Caps: of all of this kind, and of those of one address; 0 for none.
    pub(super) fn room_for(
        &mut self,
        kind: ClientKind,
        address: Option<IpAddr>,
        most: usize,
        each: usize,
    ) -> Result<(), Full> {
        self.of(kind).room_for(address, most, each)
    }

    /// The number of the next connection.
    pub(super) const fn next_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    /// A connection was not a client's: the next one gets its number, unless there is a later one already.
    pub(in crate::server) const fn reuse_serial(&mut self, serial: u64) {
        if self.last_serial == serial {
            self.last_serial -= 1;
        }
    }

    pub(super) fn add(
        &mut self,
        (id, kind): (ConnId, ClientKind),
        serial: u64,
        term: u64,
        address: Option<IpAddr>,
    ) {
        let seat = ConnectionState {
            id,
            kind,
            serial,
            term,
            kicked: false,
            hears_lost: false,
            lost: Vec::new(),
            address,
            waker: None,
            answer: None,
        };
        if self.seats.len() <= id.place() {
            self.seats.resize_with(id.place() + 1, || None);
        }
        if let Some(place) = self.seats.get_mut(id.place()) {
            *place = Some(seat);
        }
        self.of(kind).add(address);
    }

    pub(super) fn remove(&mut self, id: ConnId) {
        let place = self.seats.get_mut(id.place());
        let is_its = |seat: &mut ConnectionState| seat.id == id;
        let Some(seat) = place.and_then(|place| place.take_if(is_its)) else { return };
        self.of(seat.kind).remove(seat.address);
    }

    /// Whether a connection is still there.
    pub(in crate::server) fn has(&self, id: ConnId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&ConnectionState> {
        self.seats.get(id.place())?.as_ref().filter(|seat| seat.id == id)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut ConnectionState> {
        self.seats.get_mut(id.place())?.as_mut().filter(|seat| seat.id == id)
    }

    /// The address of the peer; `None` for a Unix socket.
    pub(in crate::server) fn address(&self, id: ConnId) -> Option<IpAddr> {
        self.get(id)?.address
    }

    /// The task to wake when something happens to this connection.
    pub(in crate::server) fn register(&mut self, id: ConnId, waker: &Waker) {
        if let Some(seat) = self.get_mut(id) {
            if !seat.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                seat.waker = Some(waker.clone());
            }
        }
    }

    pub(super) fn wake(&self, id: ConnId) {
        if let Some(waker) = self.get(id).and_then(|seat| seat.waker.as_ref()) {
            waker.wake_by_ref();
        }
    }

    pub(in crate::server) fn wake_all(&self) {
        let seats = self.seats.iter().flatten();
        seats.filter_map(|seat| seat.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    /// Gives a waiting connection its answer, which may be sent when `mark` is reached.
    pub(super) fn answer(&mut self, id: ConnId, answer: Answer, mark: Option<Mark>) {
        if let Some(seat) = self.get_mut(id) {
            seat.answer = Some(Box::new((answer, mark)));
        }
        self.wake(id);
    }

    /// Returns the answer to a wait, once. A grant whose lease has ended meanwhile does not count: this process may have stood
    /// still. A lease that begins with its record has not begun here, because the answer waits for the same record. What
    /// delays the answer after that, in this process or in the network, nobody sees here: so a client that has waited
    /// renews before it trusts its lease, and the fence of a token refuses late writes.
    pub(in crate::server) fn take_answer(
        &mut self,
        id: ConnId,
        now: Moment,
    ) -> Option<(Answer, Option<Mark>)> {
        let (answer, mark) = self.take_unseen(id)?;
        let over = answer.grants().iter().any(|grant| grant.expires <= now);
        Some((if over { Answer::Refused(Refusal::LeaseExpired) } else { answer }, mark))
    }

    /// The answer that a connection has not seen.
    pub(super) fn take_unseen(&mut self, id: ConnId) -> Option<(Answer, Option<Mark>)> {
        self.get_mut(id)?.answer.take().map(|unseen| *unseen)
    }

    pub(super) fn drop_answers(&mut self) {
        for seat in self.seats.iter_mut().flatten() {
            seat.answer = None;
        }
    }

    pub(in crate::server) fn is_kicked(&self, id: ConnId) -> bool {
        self.get(id).is_some_and(|seat| seat.kicked)
    }

    /// The connection with this number, if it has no socket.
    pub(super) fn session_of(&self, serial: u64) -> Option<ConnId> {
        let mut seats = self.seats.iter().flatten();
        seats.find(|it| it.serial == serial && it.kind == ClientKind::Http).map(|seat| seat.id)
    }

    /// Has the connection with this number end as soon as it waits for anything; false if there is none.
    pub(in crate::server) fn kick(&mut self, serial: u64) -> bool {
        let seat = self.seats.iter_mut().flatten().find(|seat| seat.serial == serial);
        let Some(seat) = seat else { return false };
        seat.kicked = true;
        if let Some(waker) = &seat.waker {
            waker.wake_by_ref();
        }
        true
    }

    pub(in crate::server) fn hear_lost(&mut self, id: ConnId, hears_lost: bool) {
        if let Some(seat) = self.get_mut(id) {
            seat.hears_lost = hears_lost;
        }
    }

    /// A hold was taken from a connection. The connection is woken, so that it reports that to its client.
    pub(super) fn note_lost(&mut self, id: ConnId, token: Token) {
        let Some(seat) = self.get_mut(id).filter(|seat| seat.hears_lost) else { return };
        seat.lost.push(token);
        self.wake(id);
    }

    /// The holds of which its client is to hear, once.
    pub(in crate::server) fn take_lost(&mut self, id: ConnId) -> Vec<Token> {
        self.get_mut(id).map(|seat| std::mem::take(&mut seat.lost)).unwrap_or_default()
    }
}

/// The most watchers that are woken in one turn, of all keys together. Each of them sends a line, which takes some ten
/// microseconds.
pub(super) const WOKEN_PER_TURN: usize = 64;

/// All watchers, by key and by connection.
#[derive(Debug, Default)]
pub(in crate::server) struct Watchers {
    of_key: HashMap<Arc<[u8]>, KeyWatchers>,
    /// The key of each connection, and its place among the watchers of the key.
    keys: HashMap<ConnId, (Arc<[u8]>, u64)>,
    /// The last place.
    latest: u64,
    /// The keys with a sweep under way.
    sweeping: VecDeque<Arc<[u8]>>,
}

/// The watchers of one key, those that were woken last at the end.
#[derive(Debug, Default)]
struct KeyWatchers {
    ids: BTreeMap<u64, ConnId>,
    /// The watchers up to this place are still to be woken.
    swept_to: u64,
    is_sweeping: bool,
}

impl Watchers {
    /// Returns whether it is the first watcher of the key.
    pub(super) fn add(&mut self, id: ConnId, key: &[u8]) -> bool {
        let known = self.of_key.get_key_value(key).map(|(key, _)| Arc::clone(key));
        let is_first = known.is_none();
        let key = known.unwrap_or_else(|| key.into());
        self.latest += 1;
        self.of_key.entry(Arc::clone(&key)).or_default().ids.insert(self.latest, id);
        self.keys.insert(id, (key, self.latest));
        is_first
    }

    /// Returns the key if it has no watcher any more.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<Arc<[u8]>> {
        let (key, place) = self.keys.remove(&id)?;
        let others = self.of_key.get_mut(&key)?;
        others.ids.remove(&place);
        others.ids.is_empty().then(|| self.of_key.remove(&key))?;
        Some(key)
    }

    /// The number of connections that watch.
    pub(in crate::server) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Begins a sweep over the watchers of a key, or has the one under way reach all of them.
    pub(super) fn begin_sweep(&mut self, key: &[u8]) {
        let Some(watched) = self.of_key.get_mut(key) else { return };
        watched.swept_to = self.latest;
        if !std::mem::replace(&mut watched.is_sweeping, true) {
            self.sweeping.push_back(key.into());
        }
    }

    /// Begins a sweep over all watchers.
    pub(super) fn begin_sweeps(&mut self) {
        let keys: Vec<_> = self.of_key.keys().cloned().collect();
        for key in keys {
            self.begin_sweep(&key);
        }
    }

    /// Whether there are more watchers to wake.
    pub(super) fn has_work(&self) -> bool {
        !self.sweeping.is_empty()
    }

    /// The next watcher to wake; the keys take turns. It goes to the end, so that a key that changes all the time keeps
    /// nobody waiting.
    pub(super) fn next(&mut self) -> Option<ConnId> {
        loop {
            let name = self.sweeping.pop_front()?;
            // The watchers of a key may all have left meanwhile.
            let Some(watched) = self.of_key.get_mut(&name) else { continue };
            let first = watched.ids.first_entry().filter(|it| *it.key() <= watched.swept_to);
            let Some(id) = first.map(|it| it.remove()) else {
                watched.is_sweeping = false;
                continue;
            };
            self.latest += 1;
            watched.ids.insert(self.latest, id);
            self.keys.insert(id, (Arc::clone(&name), self.latest));
            self.sweeping.push_back(name);
            return Some(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Headcount, WOKEN_PER_TURN};
    use crate::server::Settings;
    use crate::server::core::{Core, Shared};
    use leases::{Answer, Claim, ConnId, Key, Request, Seconds, Verdict};
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    fn key(name: &'static str) -> Key<'static> {
        Key::new(name.as_bytes()).unwrap()
    }

    /// Counts how often a connection is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Watchers of the key `k`, and a client that changes its holders.
    struct Scene {
        shared: Arc<Shared>,
        watchers: Vec<(ConnId, Arc<Woken>)>,
        changer: ConnId,
    }

    impl Scene {
        fn new(watchers: usize) -> Self {
            let shared = Arc::new(Shared::new(Settings::default()));
            let admit = || shared.core().admit(&shared.settings, None).unwrap().0;
            let changer = admit();
            let watchers = (0..watchers).map(|_| (admit(), Arc::new(Woken::default()))).collect();
            let scene = Self { watchers, changer, shared: Arc::clone(&shared) };
            for (id, woken) in &scene.watchers {
                shared.core().connections.register(*id, &Waker::from(Arc::clone(woken)));
                scene.watch(*id);
            }
            scene
        }

        fn watch(&self, id: ConnId) {
            self.shared.core().begin_watch(id, key("k"), 0).unwrap();
        }

        /// The lock changes hands twice.
        fn change(&self) {
            let claim = Claim::LOCK;
            let take = Request::Acquire { key: key("k"), claim, timeout: Seconds::ZERO, ttl: None };
            let mut core = self.shared.core();
            let now = self.shared.now();
            let Ok(Verdict::Now(Answer::Granted(grant))) = core.ask(now, self.changer, take) else {
                panic!("the lock is free")
            };
            let release = Request::Release { key: key("k"), token: Some(grant.token) };
            core.ask(now, self.changer, release).unwrap();
        }

        /// One turn; returns the watchers that it wakes.
        fn turn(&self) -> Vec<usize> {
            let woken = |(_, woken): &(ConnId, Arc<Woken>)| woken.0.load(Ordering::Relaxed);
            let before: Vec<usize> = self.watchers.iter().map(woken).collect();
            let now = self.shared.now();
            self.shared.core().turn(now);
            let after = self.watchers.iter().map(woken);
            let changed = before.iter().zip(after).enumerate().filter(|(_, (a, b))| *a != b);
            changed.map(|(place, _)| place).collect()
        }

        fn core<T>(&self, ask: impl FnOnce(&mut Core) -> T) -> T {
            ask(&mut self.shared.core())
        }
    }

    /// A change wakes nobody at once, then a portion in each turn, and each watcher once. In between, other clients
    /// are served.
    #[test]
    fn watchers_are_woken_in_bounded_portions() {
        const WATCHERS: usize = 10_000;
        let scene = Scene::new(WATCHERS);
        scene.change();
        let mut woken = Vec::new();
        for turn in 0..WATCHERS.div_ceil(WOKEN_PER_TURN) {
            assert!(scene.core(|core| core.watchers.has_work()), "turn {turn}");
            let portion = scene.turn();
            assert!(portion.len() <= WOKEN_PER_TURN, "{} in one turn", portion.len());
            woken.extend(portion);
        }
        assert_eq!(woken, (0..WATCHERS).collect::<Vec<_>>());
        // The two changes came before the first turn. The second sweep is for those that still watch.
        while scene.core(|core| core.watchers.has_work()) {
            assert!(scene.turn().len() <= WOKEN_PER_TURN);
        }
        assert!(scene.turn().is_empty());
    }

    /// However often the key changes, and however fast the first watchers come back, the last one is woken.
    #[test]
    fn changes_one_after_the_other_wake_every_watcher() {
        const WATCHERS: usize = WOKEN_PER_TURN * 5;
        let scene = Scene::new(WATCHERS);
        let mut left: std::collections::BTreeSet<usize> = (0..WATCHERS).collect();
        for _ in 0..5 {
            scene.change();
            for place in scene.turn() {
                left.remove(&place);
                let id = scene.watchers[place].0;
                scene.core(|core| core.end_watch(id));
                scene.watch(id);
            }
        }
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn connections_of_an_address() {
        let mut guests = Headcount::default();
        let address = |number: u32| Some(Ipv4Addr::from(number).into());
        let enter = |guests: &mut Headcount, address| {
            let has_room = guests.room_for(address, 0, 2).is_ok();
            if has_room {
                guests.add(address);
            }
            has_room
        };
        assert_eq!([(); 3].map(|()| enter(&mut guests, address(1))), [true, true, false]);
        assert!(enter(&mut guests, address(2)) && enter(&mut guests, None));
        guests.remove(address(1));
        assert_eq!([(); 2].map(|()| enter(&mut guests, address(1))), [true, false]);
        (0..2).for_each(|_| guests.remove(address(1)));
        guests.remove(address(2));
        assert!(guests.addresses.is_empty());
    }
}
