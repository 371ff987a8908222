//! Pauses between attempts to reach a server: short at first, so that a broken connection costs little, then
//! longer, so that a thousand clients do not overload a server that is starting. Pure.

use super::error::ClientError;
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// The next pause; each is twice as long as the previous one, up to a second.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(FIRST)
    }

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        pause
    }
}

/// For how long to try to reach a server that is away.
pub(super) struct Patience {
    end: Instant,
    backoff: Backoff,
}

impl Patience {
    pub(super) fn until(end: Instant) -> Self {
        Self { end, backoff: Backoff::new() }
    }

    /// The pause before the next attempt after this error, if the error may be temporary and there is time for
    /// another attempt.
    pub(super) fn outlasts(&mut self, error: &ClientError, now: Instant) -> Option<Duration> {
        if error.is_passing() { self.pause(now) } else { None }
    }

    /// The pause before the next attempt; the last attempt is made at the end of the time.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Duration> {
        let left = self.end.saturating_duration_since(now);
        if left.is_zero() { None } else { Some(self.backoff.next().min(left)) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Patience};
    use crate::error::{ClientError, Refusal};
    use std::time::{Duration, Instant};

    #[test]
    fn pauses_grow_to_a_second_and_no_longer() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..7).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn the_last_attempt_is_made_at_the_end() {
        let begun = Instant::now();
        let mut patience = Patience::until(begun + Duration::from_millis(200));
        let mut now = begun;
        let mut pauses = Vec::new();
        while let Some(pause) = patience.outlasts(&ClientError::Silent, now) {
            pauses.push(pause.as_millis());
            now += pause;
        }
        assert_eq!(pauses, [50, 100, 50]);
        let refused = ClientError::Refused(Refusal::Auth);
        assert_eq!(Patience::until(now).outlasts(&refused, begun), None);
    }
}
