//! Waiting for a condition to a deadline. The only place where a test may pause.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for what should happen at once, on a slow and busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The pause between two looks, which grows with the time that has passed: each look costs the processors something that
/// is waited for.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(20));

/// Asks again and again until there is an answer; `None` when `limit` has passed without one.
pub fn until<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = condition() {
            return Some(answer);
        }
        let passed = begun.elapsed();
        if passed >= limit {
            return None;
        }
        thread::sleep((passed / 16).clamp(PAUSES.0, PAUSES.1));
    }
}

/// Waits until the condition holds; false if it does not hold within [`LIMIT`]. The test says what was missing:
/// `assert!(comes(|| ...), "what")`.
#[must_use]
pub fn comes(mut condition: impl FnMut() -> bool) -> bool {
    until(LIMIT, || condition().then_some(())).is_some()
}

/// Receives a datagram. An interruption is none: a receive with a time limit has one when the machine stood
/// still meanwhile.
///
/// # Errors
/// What the system says; nothing in time.
pub fn receive(socket: &UnixDatagram, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}
