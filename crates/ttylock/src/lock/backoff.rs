//! How long a request waits for another process that is breaking the same lock file. Counts only: no clock,
//! no sleep.
//!
//! Breaking takes microseconds, but any user may hold `flock(2)` on a world-readable file for ever.
//!
//! Pure.

use std::time::Duration;

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

/// What an attempt does if another process holds a lock file by `flock(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contention {
    /// It ends; the caller tries again a moment later.
    ComesBack,
    /// It gives a final answer.
    Decides,
}

/// Counts the attempts of one request at a contended lock file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    attempts: usize,
}

impl Backoff {
    /// The state after the last pause.
    #[must_use]
    pub fn used_up() -> Self {
        Self { attempts: PAUSES.len() }
    }

    /// How the next attempt is to be made.
    #[must_use]
    pub fn contention(self) -> Contention {
        if self.attempts < PAUSES.len() { Contention::ComesBack } else { Contention::Decides }
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
        let mut backoff = Backoff::default();
        let mut pauses = Vec::new();
        while backoff.contention() == Contention::ComesBack {
            assert_eq!(backoff.pause(Cause::Reading), WHILE_READING);
            pauses.push(backoff.pause(Cause::Breaking));
            assert!(pauses.len() < 100, "without an end");
        }
        assert_eq!(pauses, PAUSES);
        assert_eq!(backoff.contention(), Backoff::used_up().contention());
        assert!((20..50).contains(&pauses.iter().sum::<Duration>().as_millis()));
    }
}
