//! A thread that reads the kernel's list of locks for a daemon: while other users take and drop thousands of locks, one
//! read may wait for milliseconds, and a whole reading takes longer than other clients should wait.
//!
//! It does one reading at a time. The result is for requests that came before the reading began, because it
//! may miss what happened later.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::kernel_list::{Listing, read_list};
use crate::thread;

/// A reading that began at most this long ago is good enough for a question now: reading costs as much as all the
/// rest of a LOCK. A flock that is taken within that time could also have come after the lock.
pub(super) const GOOD_FOR: Duration = Duration::from_millis(5);

/// A reading is kept this long for callers that asked before it began. On a busy machine a caller comes back late. If
/// it then needed another reading, it might never get one in time.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// How long a caller waits for a reading if the thread has nothing else to do.
const PATIENCE: Duration = Duration::from_millis(2);

/// The thread, as its callers see it.
#[derive(Debug)]
pub(super) struct ListThread {
    board: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    board: Mutex<Board>,
    changed: Condvar,
}

/// The state that callers and the thread share.
#[derive(Debug, Default)]
struct Board {
    is_asked: bool,
    /// The beginning of the reading that is under way.
    under_way: Option<Instant>,
    is_over: bool,
    last: Option<Reading>,
}

impl Board {
    /// The list, if its last reading is good for a caller that first asked at `asked`.
    fn listing(&self, asked: Instant) -> Option<io::Result<Arc<Listing>>> {
        let last = self.last.as_ref().filter(|it| it.is_good_for(asked, Instant::now()))?;
        Some(last.listing.clone().map_err(io::Error::from))
    }
}

/// Whether a reading that began at `began` is good for a caller that first asked at `asked`.
fn answers(began: Instant, asked: Instant) -> bool {
    asked.saturating_duration_since(began) < GOOD_FOR
}

/// The result of one reading.
#[derive(Debug)]
struct Reading {
    began: Instant,
    listing: Result<Arc<Listing>, io::ErrorKind>,
    ended: Instant,
}

impl Reading {
    fn is_good_for(&self, asked: Instant, now: Instant) -> bool {
        answers(self.began, asked) && now.saturating_duration_since(self.ended) < KEPT_FOR
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        // No operation on it can fail half-way, so a poisoned lock is still valid.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListThread {
    /// # Errors
    /// An error of the system, if no thread can be started.
    pub(super) fn begin() -> io::Result<Self> {
        let board = Arc::new(Shared::default());
        let shared = Arc::clone(&board);
        thread::start("lfpd-locks", move || keep_reading(&shared))?;
        Ok(Self { board })
    }

    /// The list, for a caller that first asked at `asked`. `None` while it is being read.
    ///
    /// # Errors
    /// If the list could not be read.
    pub(super) fn listing(&self, asked: Instant) -> io::Result<Option<Arc<Listing>>> {
        let mut board = self.board.board();
        if let Some(listing) = board.listing(asked) {
            return listing.map(Some);
        }
        // Another reading would only delay the next caller.
        if board.under_way.is_some_and(|began| answers(began, asked)) {
            return Ok(None);
        }
        board.is_asked = true;
        self.board.changed.notify_all();
        if board.under_way.is_some() {
            return Ok(None);
        }
        let end = Instant::now().checked_add(PATIENCE);
        loop {
            let now = Instant::now();
            let left = end.map(|end| end.saturating_duration_since(now)).unwrap_or_default();
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.board.changed.wait_timeout(board, left);
            board = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(listing) = board.listing(asked) {
                return listing.map(Some);
            }
        }
    }
}

impl Drop for ListThread {
    fn drop(&mut self) {
        self.board.board().is_over = true;
        self.board.changed.notify_all();
    }
}

/// Reads until there are no more questions.
fn keep_reading(shared: &Shared) {
    let mut kept = None;
    loop {
        let mut board = shared.board();
        while !board.is_asked && !board.is_over {
            board = shared.changed.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
        if board.is_over {
            return;
        }
        board.is_asked = false;
        let began = Instant::now();
        board.under_way = Some(began);
        drop(board);

        let listing = read_list(&mut kept, None, "").map(Arc::new).map_err(|error| error.kind());
        let ended = Instant::now();

        let mut board = shared.board();
        board.last = Some(Reading { began, listing, ended });
        board.under_way = None;
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rstest::rstest;

    use super::*;

    /// Times are in milliseconds. A reading is good if it began after the question or a moment before it, and is not
    /// too old.
    #[rstest]
    #[case::short([100, 101], 100, 101, true)]
    #[case::began_a_moment_before([100, 101], 104, 104, true)]
    #[case::began_too_long_before([100, 101], 105, 105, false)]
    #[case::long_and_asked_before([100, 400], 90, 650, true)]
    #[case::long_and_asked_meanwhile([100, 400], 200, 401, false)]
    #[case::asked_again_soon([100, 101], 90, 1100, true)]
    #[case::asked_again_a_second_later([100, 101], 90, 1101, false)]
    fn a_reading_is_good_for_earlier_requests(
        #[case] reading: [u64; 2],
        #[case] asked: u64,
        #[case] now: u64,
        #[case] is_good: bool,
    ) {
        let (start, [began, ended]) = (Instant::now(), reading);
        let at = |millis| start + Duration::from_millis(millis);
        let listing = Ok(Arc::new(Listing::default()));
        let reading = Reading { began: at(began), listing, ended: at(ended) };
        assert_eq!(reading.is_good_for(at(asked), at(now)), is_good);
    }

    /// A caller that serves others never waits for the thread, however long it takes.
    #[test]
    fn a_request_for_a_list_being_read_comes_back() {
        let board = Arc::new(Shared::default());
        let (at, asked) = (Instant::now(), Instant::now() + GOOD_FOR);
        board.board().under_way = Some(at);
        let list_thread = ListThread { board: Arc::clone(&board) };
        // The reading under way answers the first of them.
        for (asked, needs_another) in [(at, false), (asked, true)] {
            for _ in 0..1000 {
                assert!(list_thread.listing(asked).unwrap().is_none());
            }
            assert_eq!(board.board().is_asked, needs_another);
        }
        let thread = {
            let board = Arc::clone(&board);
            thread::spawn(move || keep_reading(&board))
        };
        while list_thread.listing(asked).unwrap().is_none() {
            assert!(asked.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
        drop(list_thread);
        thread.join().unwrap();
    }
}
