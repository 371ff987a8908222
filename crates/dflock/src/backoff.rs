//! Pauses between attempts to reach a server: short at first, so that a broken connection costs little, then
//! longer, so that a thousand clients do not overload a server that is starting.

use super::error::ClientError;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// The next pause; each is twice as long as the one before, up to a second.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(FIRST)
    }

    pub(super) async fn pause(&mut self) {
        sleep(self.next()).await;
    }

    fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        pause
    }
}

/// For how long a server that is away is looked for.
pub(super) struct Patience {
    end: Instant,
    backoff: Backoff,
}

impl Patience {
    pub(super) fn until(end: Instant) -> Self {
        Self { end, backoff: Backoff::new() }
    }

    /// Whether to try again after this error: when it may pass, and after a pause, if there is time for
    /// that.
    pub(super) async fn outlasts(&mut self, error: &ClientError) -> bool {
        error.is_passing() && self.pause().await
    }

    /// Pauses, unless the time is over before.
    pub(super) async fn pause(&mut self) -> bool {
        timeout_at(self.end, self.backoff.pause()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;

    #[test]
    fn pauses_grow_to_a_second_and_no_longer() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..7).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
    }
}
