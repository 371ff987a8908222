//! How long a request waits for another process that is breaking the same lock file. Counts only: no clock,
//! no sleep.
//!
//! Breaking takes microseconds, but any user may hold `flock(2)` on a world-readable file for ever.
//!
//! Pure.

use std::time::{Duration, Instant};

use super::Cause;

/// The pauses between the attempts of one request: some 30 milliseconds in all.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(4),
    Duration::from_millis(8),
    Duration::from_millis(16),
];

/// The pause while the kernel's list of locks is being read.
const WHILE_READING: Duration = Duration::from_millis(5);

/// Counts the attempts of one request at a contended lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    asked: Instant,
    attempts: usize,
}

impl Backoff {
    /// Before the first attempt of a request that came at that moment.
    #[must_use]
    pub fn since(asked: Instant) -> Self {
        Self { asked, attempts: 0 }
    }

    /// After the last pause.
    #[must_use]
    pub fn used_up(self) -> Self {
        Self { attempts: PAUSES.len(), ..self }
    }

    /// When the request came.
    #[must_use]
    pub fn asked(self) -> Instant {
        self.asked
    }

    /// Whether the next attempt gives a final answer, even if another process holds a lock file by `flock(2)`. An
    /// earlier one ends there, and the caller tries again a moment later.
    #[must_use]
    pub fn decides(self) -> bool {
        self.attempts >= PAUSES.len()
    }

    /// The pause before the next attempt. Each call counts an attempt that had no answer, but for one while the list was
    /// being read.
    pub fn pause(&mut self, cause: Cause) -> Duration {
        if cause == Cause::Reading {
            return WHILE_READING;
        }
        let pause = PAUSES.get(self.attempts).copied().unwrap_or_default();
        self.attempts = self.attempts.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_gives_up_after_a_bounded_number_of_pauses() {
        let mut backoff = Backoff::since(Instant::now());
        let mut pauses = Vec::new();
        while !backoff.decides() {
            assert_eq!(backoff.pause(Cause::Reading), WHILE_READING);
            pauses.push(backoff.pause(Cause::Breaking));
            assert!(pauses.len() < 100, "without an end");
        }
        assert_eq!(pauses, PAUSES);
        assert!(Backoff::since(Instant::now()).used_up().decides());
        assert!((20..50).contains(&pauses.iter().sum::<Duration>().as_millis()));
    }
}
