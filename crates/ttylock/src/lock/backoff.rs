//! How long a request waits for another process that is breaking the same lock file. No sleep.
//!
//! Breaking takes microseconds, but any user may hold `flock(2)` on a world-readable file for ever. Only the service's
//! own processes can be in the gate, so a request waits longer for these.

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

/// The pause while the kernel's list of locks is being read, and of a request that waits for the gate.
const SHORT: Duration = Duration::from_millis(5);

/// How long a request waits for the gate, and how many attempts it makes at least: a busy machine may have time for one or
/// two, which prove nothing. Clients wait at least a second for their answer.
const AT_THE_GATE: Duration = Duration::from_millis(700);
const ATTEMPTS_AT_THE_GATE: usize = 20;

/// Counts the attempts of one request at a contended lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    asked: Instant,
    attempts: usize,
    /// When the last pause is over. Before the first attempt, when the request came.
    decides_at: Instant,
    is_last: bool,
}

impl Backoff {
    /// Before the first attempt of a request that came at that moment.
    #[must_use]
    pub fn since(asked: Instant) -> Self {
        Self { asked, attempts: 0, decides_at: asked, is_last: false }
    }

    /// After the last pause.
    #[must_use]
    pub fn used_up(self, now: Instant) -> Self {
        if self.decides() {
            return self;
        }
        Self { attempts: PAUSES.len(), decides_at: now, ..self }
    }

    /// The same, for the last attempt: it does not wait for the gate either.
    #[must_use]
    pub fn last(self, now: Instant) -> Self {
        Self { is_last: true, ..self.used_up(now) }
    }

    /// When the request came.
    #[must_use]
    pub fn asked(self) -> Instant {
        self.asked
    }

    /// When the pauses are over. The attempt that decides needs a reading that began later: another process may have taken
    /// the lock file meanwhile.
    #[must_use]
    pub(crate) fn decides_at(self) -> Instant {
        self.decides_at
    }

    /// Whether the next attempt gives a final answer, even if another process holds a lock file by `flock(2)`. An
    /// earlier one ends there, and the caller tries again a moment later.
    #[must_use]
    pub fn decides(self) -> bool {
        self.attempts >= PAUSES.len()
    }

    /// Whether a request waits for another process that is in the gate.
    #[must_use]
    pub(crate) fn waits_at_the_gate(self) -> bool {
        let is_over = self.asked.elapsed() >= AT_THE_GATE && self.attempts >= ATTEMPTS_AT_THE_GATE;
        !self.is_last && !is_over
    }

    /// The pause before the next attempt. Each call counts an attempt that had no answer, but for one while the list was
    /// being read.
    pub fn pause(&mut self, cause: Cause, now: Instant) -> Duration {
        if cause == Cause::Reading {
            return SHORT;
        }
        let pause = PAUSES.get(self.attempts).copied();
        self.attempts += 1;
        if let Some(pause) = pause {
            self.decides_at = now.checked_add(pause).unwrap_or(now);
        }
        pause.unwrap_or(SHORT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_gives_up_after_a_bounded_number_of_pauses() {
        let asked = Instant::now();
        let (mut backoff, mut now) = (Backoff::since(asked), asked);
        let mut pauses = Vec::new();
        while !backoff.decides() {
            assert_eq!(backoff.pause(Cause::Reading, now), SHORT);
            pauses.push(backoff.pause(Cause::Breaking, now));
            now += pauses[pauses.len() - 1];
            assert!(pauses.len() < 100, "without an end");
        }
        assert_eq!(pauses, PAUSES);
        // A request that waits for the gate is no reason for another reading.
        let later = now + Duration::from_secs(1);
        assert_eq!(backoff.pause(Cause::Breaking, later), SHORT);
        assert!(backoff.waits_at_the_gate() && !backoff.last(later).waits_at_the_gate());
        let mut long_ago = Backoff::since(asked.checked_sub(AT_THE_GATE).unwrap());
        for _ in 0..ATTEMPTS_AT_THE_GATE {
            assert!(long_ago.waits_at_the_gate());
            long_ago.pause(Cause::Breaking, now);
        }
        assert!(!long_ago.waits_at_the_gate());
        for decided in [backoff, backoff.used_up(later)] {
            assert_eq!((decided.asked(), decided.decides_at()), (asked, now));
        }
        let used_up = Backoff::since(asked).used_up(later);
        assert!(used_up.decides() && used_up.decides_at() == later);
        assert!((20..50).contains(&pauses.iter().sum::<Duration>().as_millis()));
    }
}
