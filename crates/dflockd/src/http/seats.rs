//! The limits on HTTP connections. A new connection is always accepted. If there are too many, one of them is closed: one
//! that has made no request, or only refused ones; if there is none, one that waits for its next request; and only if all
//! are being answered, one of these. Among equals it is the one whose state changed longest ago. So a flood of connections
//! that are silent, or have no secret, closes only its own, and a client that may ask gets its whole answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// Which connections are closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It has made no request yet, or only refused ones.
    NeverAsked,
    /// Between two requests.
    Idle,
    /// Its request came and was not refused, and its answer is not complete.
    Answering,
}

/// The order in which connections are closed: the rank, and when it began.
type SeatKey = (Rank, u64);

#[derive(Debug, Default)]
struct Table {
    /// Grows with every event.
    clock: u64,
    /// What serves each connection: the first is closed first.
    tasks: BTreeMap<SeatKey, AbortHandle>,
    /// The number of those that have made no request yet, or only refused ones.
    silent: usize,
    accepted: u64,
    pushed_out: u64,
}

/// The seats of one server.
#[derive(Debug)]
pub(super) struct Seats {
    most: usize,
    most_silent: usize,
    table: Mutex<Table>,
}

/// One connection's seat, free again when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    place: Mutex<SeatKey>,
}

/// An answer that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Answering {
    seat: Arc<Seat>,
    /// Of the seat, as soon as the request is not refused.
    place: Option<SeatKey>,
}

impl Table {
    /// A place of this rank that begins now.
    const fn place(&mut self, rank: Rank) -> SeatKey {
        self.clock += 1;
        (rank, self.clock)
    }

    fn add(&mut self, place: SeatKey, task: AbortHandle) {
        self.silent += usize::from(place.0 == Rank::NeverAsked);
        self.tasks.insert(place, task);
    }

    fn remove(&mut self, place: SeatKey) -> Option<AbortHandle> {
        let task = self.tasks.remove(&place)?;
        self.silent -= usize::from(place.0 == Rank::NeverAsked);
        Some(task)
    }
}

impl Seats {
    /// For at most so many connections, and so many that have made no request yet.
    pub(super) fn new(most: usize, most_silent: usize) -> Arc<Self> {
        Arc::new(Self { most, most_silent, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection in a task of its own, and closes another one if no seat is free.
    pub(super) fn spawn<F>(self: &Arc<Self>, serve: impl FnOnce(Seat) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut table = self.table();
        if table.tasks.len() >= self.most || table.silent >= self.most_silent {
            let first = table.tasks.first_key_value().map(|(place, _)| *place);
            if let Some(least) = first.and_then(|place| table.remove(place)) {
                least.abort();
                table.pushed_out += 1;
            }
        }
        table.accepted += 1;
        let place = table.place(Rank::NeverAsked);
        let seat = Seat { seats: Arc::clone(self), place: place.into() };
        table.add(place, tokio::spawn(serve(seat)).abort_handle());
    }

    /// The number of connections now, of those accepted so far, and of those closed to make room.
    pub(super) fn numbers(&self) -> (usize, u64, u64) {
        let table = self.table();
        (table.tasks.len(), table.accepted, table.pushed_out)
    }
}

impl Seat {
    /// The answer to a request that came, which may be refused.
    pub(super) fn begin(self: &Arc<Self>) -> Answering {
        Answering { seat: Arc::clone(self), place: None }
    }

    fn place(&self) -> MutexGuard<'_, SeatKey> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, rank: Rank) -> SeatKey {
        let (mut table, mut place) = (self.seats.table(), self.place());
        let next = table.place(rank);
        if let Some(task) = table.remove(std::mem::replace(&mut *place, next)) {
            table.add(next, task);
        }
        next
    }
}

impl Answering {
    /// Notes that the request is permitted.
    pub(super) fn permit(&mut self) {
        self.place = Some(self.seat.change(Rank::Answering));
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // The next request may have come already.
        let is_last = self.place == Some(*self.seat.place());
        if is_last {
            self.seat.change(Rank::Idle);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let place = *self.place();
        self.seats.table().remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::cell::RefCell;
    use std::future::pending;
    use std::rc::Rc;

    /// Some connections on as many seats; then one more comes.
    #[rstest]
    #[case::the_oldest_of_the_silent("...", 0)]
    #[case::silent_before_idle("i.", 1)]
    #[case::silent_before_answering("a.", 1)]
    #[case::idle_before_answering("aai", 2)]
    #[case::the_oldest_of_the_idle("aii", 1)]
    #[case::the_oldest_of_all_that_are_answered("aa", 0)]
    #[case::one_that_is_asked_again("bi", 1)]
    #[case::refused_before_idle("ir", 1)]
    #[case::refused_before_answering("ar", 1)]
    #[case::refused_as_silent("r.", 0)]
    fn the_least_makes_room(#[case] states: &str, #[case] closed: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let seats = Seats::new(states.len(), states.len());
            let taken = Rc::new(RefCell::new(Vec::new()));
            let enter = || {
                seats.spawn(|seat| {
                    let seat = Arc::new(seat);
                    taken.borrow_mut().push(Arc::downgrade(&seat));
                    async move {
                        pending::<()>().await;
                        drop(seat);
                    }
                });
            };
            states.chars().for_each(|_| enter());
            let mut answers = Vec::new();
            let permitted = |seat: &Arc<Seat>| {
                let mut answer = seat.begin();
                answer.permit();
                answer
            };
            for (seat, state) in taken.borrow().iter().zip(states.chars()) {
                let seat = seat.upgrade().unwrap();
                match state {
                    'a' => answers.push(permitted(&seat)),
                    'i' => drop(permitted(&seat)),
                    'r' => answers.push(seat.begin()),
                    'b' => {
                        // Two requests, one right behind the other.
                        let first = permitted(&seat);
                        answers.push(permitted(&seat));
                        drop(first);
                    }
                    _ => {}
                }
            }
            let seats_of = || seats.table().tasks.len();
            let places = |table: &Table| table.tasks.keys().copied().collect::<Vec<_>>();
            let before = places(&seats.table());
            let last = *taken.borrow()[closed].upgrade().unwrap().place();
            enter();
            let after = places(&seats.table());
            assert!(before.contains(&last) && !after.contains(&last), "{before:?} {after:?}");
            assert_eq!((seats_of(), seats.numbers().2), (states.len(), 1));
        });
    }
}
