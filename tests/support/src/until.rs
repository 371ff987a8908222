//! Waiting for a condition to a deadline. The only place where a test may pause.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for what should happen at once, on a slow and busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The shortest and the longest pause between two looks. Pauses grow with the time that has passed, because each look
/// takes time from the programs that the test waits for.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(20));

/// Asks again and again until there is an answer; `None` when `limit` has passed without one.
pub fn until<T>(limit: Duration, condition: impl FnMut() -> Option<T>) -> Option<T> {
    until_with(PAUSES, limit, condition)
}

/// The same, with this pause after each look, for a look that takes long.
pub fn until_every<T>(
    pause: Duration,
    limit: Duration,
    condition: impl FnMut() -> Option<T>,
) -> Option<T> {
    until_with((pause, pause), limit, condition)
}

fn until_with<T>(
    (shortest, longest): (Duration, Duration),
    limit: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = condition() {
            return Some(answer);
        }
        let passed = begun.elapsed();
        if passed >= limit {
            return None;
        }
        thread::sleep((passed / 16).clamp(shortest, longest));
    }
}

/// Waits until the condition holds; false if it does not hold within [`LIMIT`]. The test says what was missing:
/// `assert!(comes(|| ...), "what")`.
#[must_use]
pub fn comes(mut condition: impl FnMut() -> bool) -> bool {
    until(LIMIT, || condition().then_some(())).is_some()
}

/// Does this again as long as it is interrupted: a call with a time limit is, when the machine stood still meanwhile.
///
/// # Errors
/// What the system says; nothing in time.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
