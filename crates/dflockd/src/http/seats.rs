//! The limit on HTTP connections. A new connection is always accepted: if there are too many, the one that
//! made its last request longest ago is closed. So a flood of silent connections closes only its own, and a
//! client that asks gets an answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

#[derive(Debug, Default)]
struct Table {
    /// Grows with every event.
    clock: u64,
    /// What serves each connection, by its last event: the first is silent for longest.
    tasks: BTreeMap<u64, AbortHandle>,
    accepted: u64,
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
    last_used: AtomicU64,
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
        if table.tasks.len() >= self.most {
            if let Some((_, silent)) = table.tasks.pop_first() {
                silent.abort();
                table.pushed_out += 1;
            }
        }
        table.accepted += 1;
        table.clock += 1;
        let now = table.clock;
        let seat = Seat { seats: Arc::clone(self), last_used: now.into() };
        table.tasks.insert(now, tokio::spawn(serve(seat)).abort_handle());
    }

    /// The number of connections now, of those accepted so far, and of those closed to make room.
    pub(super) fn numbers(&self) -> (usize, u64, u64) {
        let table = self.table();
        (table.tasks.len(), table.accepted, table.pushed_out)
    }
}

impl Seat {
    /// Notes that a request came.
    pub(super) fn touch(&self) {
        let mut table = self.seats.table();
        table.clock += 1;
        let now = table.clock;
        if let Some(task) = table.tasks.remove(&self.last_used.swap(now, Ordering::Relaxed)) {
            table.tasks.insert(now, task);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.table().tasks.remove(self.last_used.get_mut());
    }
}
