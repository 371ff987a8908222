//! How long a client tries again: the pauses between its attempts, and the errors after which it comes back. Pauses are
//! short at first, so that a broken connection costs little, then longer, so that a thousand clients do not overload a
//! server that is starting.

use super::error::{ClientError, Refusal};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);
/// A grant that comes later than this came after a wait.
const PROMPT: Duration = Duration::from_millis(100);

/// Whether a grant that came now came after a wait. Then the exact moment of the grant, and so the end of the lease,
/// is unknown.
pub(super) fn was_waited_for(asked_at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(asked_at) >= PROMPT
}

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

/// For how long to try again.
pub(super) struct Patience {
    end: Instant,
    backoff: Backoff,
    /// The server has served this client before. Others may come back before it, and fill the server for a moment.
    is_to_return: bool,
}

impl Patience {
    /// To reach a server that is away.
    pub(super) fn until(end: Instant) -> Self {
        Self { end, backoff: Backoff::new(), is_to_return: false }
    }

    /// To come back to a server that has served this client before.
    pub(super) fn to_return_until(end: Instant) -> Self {
        Self { is_to_return: true, ..Self::until(end) }
    }

    /// A client that wants to wait in line until `end` has failed by this error, after a request that was sent at
    /// `asked_at`. Whether it stood in line, for the first time or again for a while; then it wants to return. A client
    /// that was refused at once was not in line, nor was one that asked a server that does not lead.
    pub(super) fn was_in_line(
        &mut self,
        error: &ClientError,
        asked_at: Instant,
        end: Instant,
        now: Instant,
    ) -> bool {
        let is_lost = error.is_passing() || error.is_expired();
        let is_new = !self.is_to_return && !error.is_for_another_server();
        let was_in_line = is_lost && (is_new || was_waited_for(asked_at, now));
        if was_in_line {
            *self = Self::to_return_until(end);
        }
        was_in_line
    }

    /// Waits for the next attempt.
    ///
    /// # Errors
    /// This error, if it does not pass by itself or there is no time for another attempt.
    pub(super) async fn outlast(&mut self, error: ClientError) -> Result<(), ClientError> {
        match self.pause(&error, Instant::now()) {
            Some(pause) => sleep(pause).await,
            None => return Err(error),
        }
        Ok(())
    }

    /// The pause before the next attempt; the last attempt is made at the end of the time.
    fn pause(&mut self, error: &ClientError, now: Instant) -> Option<Duration> {
        let is_full =
            matches!(error, ClientError::Refused(Refusal::MaxLocks | Refusal::MaxWaiters));
        let passes = error.is_passing() || self.is_to_return && (is_full || error.is_expired());
        let left = self.end.saturating_duration_since(now);
        (passes && !left.is_zero()).then(|| self.backoff.next().min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Patience};
    use crate::error::{ClientError, Refusal};
    use rstest::rstest;
    use std::time::Duration;
    use tokio::time::Instant;

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
        while let Some(pause) = patience.pause(&ClientError::TimedOut, now) {
            pauses.push(pause.as_millis());
            now += pause;
        }
        assert_eq!(pauses, [50, 100, 50]);
    }

    #[rstest]
    #[case::away(ClientError::TimedOut, true, true)]
    #[case::full(ClientError::Refused(Refusal::MaxWaiters), false, true)]
    #[case::without_room(ClientError::Refused(Refusal::MaxLocks), false, true)]
    #[case::too_late(ClientError::Refused(Refusal::LeaseExpired), false, true)]
    #[case::refused(ClientError::Refused(Refusal::Auth), false, false)]
    #[case::too_old(ClientError::NotWatched("watch"), false, false)]
    fn a_client_that_was_served_before_also_returns_to_a_server_that_is_full(
        #[case] error: ClientError,
        #[case] at_first: bool,
        #[case] later: bool,
    ) {
        let now = Instant::now();
        let end = now + Duration::from_secs(1);
        let comes_again = |mut patience: Patience| patience.pause(&error, now).is_some();
        let found = [Patience::until(end), Patience::to_return_until(end)].map(comes_again);
        assert_eq!(found, [at_first, later]);
    }

    /// The first time at once, and again only after a while in line.
    #[rstest]
    #[case::lost(ClientError::TimedOut, [true, false, true])]
    #[case::too_late(ClientError::Refused(Refusal::LeaseExpired), [true, false, true])]
    #[case::refused(ClientError::Refused(Refusal::MaxWaiters), [false; 3])]
    fn a_client_loses_its_place(#[case] error: ClientError, #[case] want: [bool; 3]) {
        let now = Instant::now();
        let mut patience = Patience::until(now);
        let mut was_in_line = |ms| {
            let later = now + Duration::from_millis(ms);
            patience.was_in_line(&error, now, now, later)
        };
        assert_eq!([0, 99, 100].map(&mut was_in_line), want);
    }
}
