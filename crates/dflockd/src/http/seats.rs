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
    /// What serves it.
    task: AbortHandle,
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

    /// Serves a connection in a task of its own. If no seat is free, the connection that is silent for longest is closed.
    pub(super) fn spawn<F>(self: &Arc<Self>, serve: impl FnOnce(Seat) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut table = self.table();
        if table.taken.len() >= self.most {
            table.push_out();
        }
        table.clock += 1;
        let id = table.clock;
        let task = tokio::spawn(serve(Seat { seats: Arc::clone(self), id })).abort_handle();
        table.taken.push(Taken { last_used: id, id, task });
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
            self.taken.swap_remove(place).task.abort();
            self.pushed_out += 1;
        }
    }
}

impl Seat {
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
