//! The limit on HTTP connections. A new connection is always accepted: if there are too many, the one that
//! made its last request longest ago is closed. So a flood of silent connections closes only its own, and a
//! client that asks gets an answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

#[derive(Debug)]
struct Taken {
    /// Grows with every event, so the connection that is silent for longest has the smallest.
    last_used: u64,
    id: u64,
    /// Missing between taking the seat and starting the task.
    task: Option<AbortHandle>,
}

#[derive(Debug, Default)]
struct Table {
    clock: u64,
    taken: Vec<Taken>,
    pushed_out: u64,
}

/// The seats of one server.
#[derive(Debug)]
pub(super) struct Seats {
    most: usize,
    table: Mutex<Table>,
}

/// One connection's seat, free again when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    id: u64,
}

impl Seats {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat for a connection. If none is free, the connection that is silent for longest is closed.
    pub(super) fn take(self: &Arc<Self>) -> Seat {
        let mut table = self.table();
        if table.taken.len() >= self.most {
            table.push_out();
        }
        table.clock += 1;
        let id = table.clock;
        table.taken.push(Taken { last_used: id, id, task: None });
        Seat { seats: Arc::clone(self), id }
    }

    /// The task that serves this seat, to be ended when the seat is needed.
    pub(super) fn set_task(&self, id: u64, task: AbortHandle) {
        if let Some(taken) = self.table().taken.iter_mut().find(|taken| taken.id == id) {
            taken.task = Some(task);
        }
    }

    /// The number of seats taken now, and of connections closed so far to make room.
    pub(super) fn numbers(&self) -> (usize, u64) {
        let table = self.table();
        (table.taken.len(), table.pushed_out)
    }
}

impl Table {
    fn push_out(&mut self) {
        let silent = self.taken.iter().enumerate().min_by_key(|(_, taken)| taken.last_used);
        if let Some((place, _)) = silent {
            let taken = self.taken.swap_remove(place);
            if let Some(task) = taken.task {
                task.abort();
            }
            self.pushed_out += 1;
        }
    }
}

impl Seat {
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    /// Notes that a request came.
    pub(super) fn touch(&self) {
        let mut table = self.seats.table();
        table.clock += 1;
        let now = table.clock;
        if let Some(taken) = table.taken.iter_mut().find(|taken| taken.id == self.id) {
            taken.last_used = now;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.table().taken.retain(|taken| taken.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(seats: &Seats) -> Vec<u64> {
        let mut ids: Vec<u64> = seats.table().taken.iter().map(|taken| taken.id).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn the_connection_idle_for_longest_is_closed_for_a_new_one() {
        let seats = Seats::new(3);
        let [first, second, third] = [seats.take(), seats.take(), seats.take()];
        first.touch();
        let fourth = seats.take();
        assert_eq!(ids(&seats), [first.id(), third.id(), fourth.id()]);
        assert_eq!(seats.numbers(), (3, 1));
        // A connection that has lost its seat already does not count when it ends.
        drop(second);
        assert_eq!(seats.numbers(), (3, 1));
        drop(first);
        let fifth = seats.take();
        assert_eq!(ids(&seats), [third.id(), fourth.id(), fifth.id()]);
        assert_eq!(seats.numbers(), (3, 1));
    }

    #[test]
    fn the_task_of_a_closed_seat_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let seats = Seats::new(1);
            let seat = seats.take();
            let id = seat.id();
            let task = tokio::spawn(async move {
                let _seat = seat;
                std::future::pending::<()>().await;
            });
            seats.set_task(id, task.abort_handle());
            let other = seats.take();
            assert!(task.await.unwrap_err().is_cancelled());
            assert_eq!(ids(&seats), [other.id()]);
        });
    }
}
