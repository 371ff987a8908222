//! Waiting for a condition to a deadline. The only place where a test may pause.

use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for what should happen at once, on a slow and busy machine.
pub const LIMIT: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(5);

/// Asks again and again until there is an answer; `None` when `limit` has passed without one.
pub fn until<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = condition() {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(PAUSE);
    }
}
