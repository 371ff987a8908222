//! The table of connections: what the server knows of each one.

use crate::population::{Full, Population};
use leases::journal::Mark;
use leases::{Answer, ConnId, Moment, Refusal, Token};
use std::net::IpAddr;
use std::task::Waker;

/// What is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Kind {
    /// A socket, here or at another server.
    Socket,
    /// A client of HTTP, which has no socket of its own.
    Session,
}

/// What is known of one connection.
pub(super) struct Seat {
    id: ConnId,
    kind: Kind,
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
    /// The answer to its wait, and when it may be sent.
    answer: Option<(Answer, Option<Mark>)>,
}

/// See the module.
#[derive(Default)]
pub(in crate::server) struct Connections {
    seats: Vec<Option<Seat>>,
    sockets: Population,
    sessions: Population,
    last_serial: u64,
}

impl Connections {
    pub(in crate::server) const fn len(&self) -> usize {
        self.sockets.count() + self.sessions.count()
    }

    /// The number of connections with a descriptor.
    pub(in crate::server) const fn sockets(&self) -> usize {
        self.sockets.count()
    }

    const fn of(&mut self, kind: Kind) -> &mut Population {
        match kind {
            Kind::Socket => &mut self.sockets,
            Kind::Session => &mut self.sessions,
        }
    }

    /// Whether there is room for one more connection. Caps: of all of this kind, and of those of one address; 0 for none.
    pub(super) fn room_for(
        &mut self,
        kind: Kind,
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
    pub(in crate::server) const fn give_back_serial(&mut self, serial: u64) {
        if self.last_serial == serial {
            self.last_serial -= 1;
        }
    }

    pub(super) fn add(
        &mut self,
        (id, kind): (ConnId, Kind),
        serial: u64,
        term: u64,
        address: Option<IpAddr>,
    ) {
        let seat = Seat {
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
        let is_its = |seat: &mut Seat| seat.id == id;
        let Some(seat) = place.and_then(|place| place.take_if(is_its)) else { return };
        self.of(seat.kind).remove(seat.address);
    }

    /// Whether a connection is still there.
    pub(in crate::server) fn has(&self, id: ConnId) -> bool {
        self.get(id).is_some()
    }

    fn get(&self, id: ConnId) -> Option<&Seat> {
        self.seats.get(id.place())?.as_ref().filter(|seat| seat.id == id)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Seat> {
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
        self.get(id).and_then(|seat| seat.waker.as_ref()).iter().for_each(|it| it.wake_by_ref());
    }

    pub(in crate::server) fn wake_all(&self) {
        let seats = self.seats.iter().flatten();
        seats.filter_map(|seat| seat.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    /// Gives a waiting connection its answer, which may be sent when `mark` is reached.
    pub(super) fn answer(&mut self, id: ConnId, answer: Answer, mark: Option<Mark>) {
        if let Some(seat) = self.get_mut(id) {
            seat.answer = Some((answer, mark));
        }
        self.wake(id);
    }

    /// Returns the answer to a wait, once. A grant whose lease has ended meanwhile does not count.
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
        self.get_mut(id)?.answer.take()
    }

    pub(super) fn drop_answers(&mut self) {
        self.seats.iter_mut().flatten().for_each(|seat| seat.answer = None);
    }

    pub(in crate::server) fn is_kicked(&mut self, id: ConnId) -> bool {
        self.get(id).is_some_and(|seat| seat.kicked)
    }

    /// The connection with this number, if it has no socket.
    pub(super) fn session_of(&self, serial: u64) -> Option<ConnId> {
        let mut seats = self.seats.iter().flatten();
        seats.find(|it| it.serial == serial && it.kind == Kind::Session).map(|seat| seat.id)
    }

    /// Ends a connection when it is idle next; false if there is none with this number.
    pub(in crate::server) fn kick(&mut self, serial: u64) -> bool {
        let seat = self.seats.iter_mut().flatten().find(|seat| seat.serial == serial);
        let Some(seat) = seat else { return false };
        seat.kicked = true;
        seat.waker.iter().for_each(Waker::wake_by_ref);
        true
    }

    pub(in crate::server) fn hear_lost(&mut self, id: ConnId, hears_lost: bool) {
        if let Some(seat) = self.get_mut(id) {
            seat.hears_lost = hears_lost;
        }
    }

    /// A hold was taken from a connection. The connection is woken, so that it tells its client.
    pub(super) fn note_lost(&mut self, id: ConnId, token: Token) {
        let Some(seat) = self.get_mut(id).filter(|seat| seat.hears_lost) else { return };
        seat.lost.push(token);
        self.wake(id);
    }

    /// The holds of which its client is to be told, once.
    pub(in crate::server) fn take_lost(&mut self, id: ConnId) -> Vec<Token> {
        self.get_mut(id).map(|seat| std::mem::take(&mut seat.lost)).unwrap_or_default()
    }
}
