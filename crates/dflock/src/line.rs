//! A waiter's place in line, which survives broken connections. Pure.

use super::backoff::Patience;
use super::error::{ClientError, Refusal};
use super::terms::{MAX_TIME, Seconds, TermError};
use std::time::{Duration, Instant};

/// A grant that comes later than this came after a wait.
const PROMPT: Duration = Duration::from_millis(100);

/// Whether a grant that came now came after a wait. Then the exact moment of the grant, and so the end of the lease,
/// is unknown.
pub(super) fn was_waited_for(asked_at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(asked_at) >= PROMPT
}

/// Report each request that is sent ([`Self::ask`]). After each failed attempt, ask first [`Self::was_left_by_force`]
/// and then [`Self::comes_again_after`].
pub(super) struct Line {
    end: Instant,
    /// When the request was sent on the present connection, if it was.
    asked_at: Option<Instant>,
    /// Whether the waiter has been in line for a while.
    has_stood: bool,
    /// The backoff for a server that is away: before the waiter was in line, and after.
    patience: Patience,
}

impl Line {
    /// Without a time it waits as long as a time can be expressed.
    pub(super) fn enter(
        timeout: Option<Duration>,
        patience: Patience,
        now: Instant,
    ) -> Result<Self, TermError> {
        let end = now + Seconds::to_wait(timeout.unwrap_or(MAX_TIME))?.time();
        Ok(Self { end, asked_at: None, has_stood: false, patience })
    }

    /// Begins an attempt, which first looks for a server.
    pub(super) fn begin_attempt(&mut self) {
        self.asked_at = None;
    }

    /// The request is sent now. Returns how long it may wait.
    pub(super) fn ask(&mut self, now: Instant) -> Duration {
        self.asked_at = Some(now);
        self.end.saturating_duration_since(now)
    }

    /// Whether the last attempt ended in the line, for a waiter that had not lost its place before, or had been in
    /// line for a while again. A waiter that was refused at once was not in line.
    pub(super) fn was_left_by_force(&mut self, error: &ClientError, now: Instant) -> bool {
        let Some(asked_at) = self.asked_at else { return false };
        if !error.is_passing() && !matches!(error, ClientError::Refused(Refusal::LeaseExpired)) {
            return false;
        }
        let is_new = !self.has_stood || was_waited_for(asked_at, now);
        if is_new {
            self.has_stood = true;
            self.patience = Patience::until(self.end);
        }
        is_new
    }

    /// The pause before the next attempt, if there is one.
    pub(super) fn comes_again_after(
        &mut self,
        error: &ClientError,
        now: Instant,
    ) -> Option<Duration> {
        // Others may have reconnected before us and fill the server for a moment.
        let is_full = matches!(
            error,
            ClientError::Refused(Refusal::MaxLocks | Refusal::MaxWaiters | Refusal::LeaseExpired)
        );
        if self.has_stood && is_full {
            return self.patience.pause(now);
        }
        self.patience.outlasts(error, now)
    }
}
