//! The times of a client: how long it tries again, when a lease is renewed, and until when it is trusted.
//!
//! Pauses between attempts are short at first, so that a broken connection costs little, then longer, so that a thousand
//! clients do not overload a server that is starting. A client tries again only after errors that may pass.
//!
//! Never says that a lease is held after its end: its length is counted from before the request was sent, so the
//! lease ends later on the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::{ClientError, Refusal};
use super::settings::Settings;

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
    /// A server that takes as long as this to say that it does not lead has led before.
    limit: Duration,
    backoff: Backoff,
    /// The server has served this client before. Others may come back before it, and fill the server for a moment.
    is_to_return: bool,
}

impl Patience {
    /// To reach a server that is away.
    pub(super) fn within(limit: Duration) -> Self {
        Self { limit, ..Self::until(Instant::now() + limit) }
    }

    /// The same until this moment.
    pub(super) fn until(end: Instant) -> Self {
        Self { end, limit: Duration::MAX, backoff: Backoff::new(), is_to_return: false }
    }

    /// To come back to a server that has served this client before.
    pub(super) fn to_return_until(end: Instant) -> Self {
        Self { is_to_return: true, ..Self::until(end) }
    }

    /// A client that wants to wait in the queue until `end` has failed by this error, after a request that was sent at
    /// `asked_at`. Returns whether it stood in the queue: for the first time, or again and for a while. If it did, it
    /// wants to return, and the patience is for that from now on. A client that was refused at once was not in the
    /// queue. Neither was one that asked a server that does not lead, however slow that is, unless it waited as long as the
    /// patience lasts.
    pub(super) fn was_in_queue(
        &mut self,
        error: &ClientError,
        asked_at: Instant,
        end: Instant,
        now: Instant,
    ) -> bool {
        let is_lost = error.is_passing() || error.is_expired();
        let waited = now.saturating_duration_since(asked_at);
        let least = match (self.is_to_return, error.is_for_another_server()) {
            (false, false) => Duration::ZERO,
            (false, true) => self.limit,
            (true, _) => PROMPT,
        };
        let was_in_queue = is_lost && waited >= least;
        if was_in_queue {
            *self = Self::to_return_until(end);
        }
        was_in_queue
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

/// How often something is tried in the time that it has: two may fail.
pub(super) const TRIES_IN_TIME: u32 = 3;

/// The times of one lease. Report each renewal ([`Self::renewed`]), and the loss of the connection
/// ([`Self::broken`]).
#[derive(Clone)]
pub(super) struct Schedule {
    settings: Arc<Settings>,
    /// The length that was granted.
    pub(super) granted: Duration,
    /// When the grant was requested, or the latest renewal that was answered; or a moment before. The lease stood after
    /// that.
    pub(super) asked_at: Instant,
    /// How long the lease lasts from then.
    ttl: Duration,
    /// Until when it is trusted without further answers.
    pub(super) until: Instant,
    /// Set when the connection is gone: until when to look for the server.
    searched_until: Option<Instant>,
}

impl Schedule {
    /// For a lease that was granted or renewed for `ttl`, not before `asked_at`.
    pub(super) fn new(settings: Arc<Settings>, ttl: Duration, asked_at: Instant) -> Self {
        let until = asked_at + sure(&settings, ttl);
        Self { settings, granted: ttl, asked_at, ttl, until, searched_until: None }
    }

    /// The pause between two renewals. Only an urgent renewal (`Hold::is_urgent`), and one over another connection, comes
    /// sooner.
    pub(super) fn renewal_interval(&self) -> Duration {
        sure(&self.settings, self.granted) / TRIES_IN_TIME
    }

    /// When to renew next.
    pub(super) fn renew_at(&self) -> Instant {
        self.asked_at + self.renewal_interval()
    }

    /// The earliest end at a server that has heard nothing since the latest confirmed request.
    pub(super) fn ends_at(&self) -> Instant {
        self.asked_at + self.ttl
    }

    /// When the lease is given up, and the holder must know, if no answer has come.
    pub(super) fn given_up_at(&self) -> Instant {
        let margin = effective_margin(self.settings.margin, self.renewal_interval());
        let last = self.until.checked_sub(margin).unwrap_or(self.until);
        self.searched_until.map_or(last, |end| end.min(last))
    }

    /// A renewal that was sent at `asked_at` or later was answered.
    pub(super) fn renewed(&mut self, asked_at: Instant, ttl: Duration) {
        (self.asked_at, self.ttl) = (asked_at, ttl);
        self.until = asked_at + sure(&self.settings, ttl);
        self.searched_until = None;
    }

    /// The connection is gone, so the whole lease counts.
    pub(super) fn broken(&mut self, now: Instant) {
        self.until = self.ends_at();
        self.searched_until = self.settings.reclaim.map(|reclaim| now + reclaim);
    }
}

/// How long a lease of this length is certain: a server that hears nothing may free it before its end.
fn sure(settings: &Settings, ttl: Duration) -> Duration {
    ttl.min(settings.read_timeout)
}

/// How long before its end a lease is given up: as much of this margin as there is room for between two renewals.
pub(super) fn effective_margin(margin: Duration, renewal_interval: Duration) -> Duration {
    margin.min(renewal_interval)
}

/// How long one of this many servers may take to answer if all are to be tried before the end.
pub(super) fn share(end: Instant, now: Instant, servers: u32, most: Duration) -> Duration {
    let left = end.saturating_duration_since(now);
    left.checked_div(servers).unwrap_or(left).min(most)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;
    use tokio::time::Instant;

    use super::{Backoff, Patience, Schedule, Settings, share};
    use crate::error::{ClientError, Refusal};

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

    /// The first time at once, and again only after a while in the queue.
    #[rstest]
    #[case::lost(ClientError::TimedOut, [true, false, true])]
    #[case::too_late(ClientError::Refused(Refusal::LeaseExpired), [true, false, true])]
    #[case::refused(ClientError::Refused(Refusal::MaxWaiters), [false; 3])]
    fn a_client_loses_its_place(#[case] error: ClientError, #[case] want: [bool; 3]) {
        let now = Instant::now();
        let mut patience = Patience::until(now);
        let mut was_in_queue = |ms| {
            let later = now + Duration::from_millis(ms);
            patience.was_in_queue(&error, now, now, later)
        };
        assert_eq!([0, 99, 100].map(&mut was_in_queue), want);
    }

    /// A busy server may be slow to say that it does not lead. After that it is asked like any other.
    #[test]
    fn a_server_that_does_not_lead_has_no_queue() {
        let now = Instant::now();
        let mut patience = Patience::within(seconds(4));
        let mut was_in_queue = |ms| {
            let later = now + Duration::from_millis(ms);
            patience.was_in_queue(&ClientError::Refused(Refusal::NotLeader), now, now, later)
        };
        assert_eq!([0, 100, 3999].map(&mut was_in_queue), [false; 3]);
        assert_eq!([4000, 99, 100].map(&mut was_in_queue), [true, false, true]);
    }

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn limits(margin: u64, reclaim: Option<u64>) -> Settings {
        let reclaim = reclaim.map(seconds);
        Settings { margin: seconds(margin), reclaim, ..Settings::default() }
    }

    /// The lease, and after how many seconds it is renewed, no longer trusted, reported as lost, and no longer looked
    /// for if its connection breaks in second 1.
    #[rstest]
    #[case::short(9, limits(0, None), [3, 9, 9, 9])]
    #[case::longer_than_the_server_listens(69, limits(0, None), [7, 23, 23, 69])]
    #[case::with_a_margin(9, limits(2, None), [3, 9, 7, 7])]
    #[case::at_most_a_third(9, limits(8, None), [3, 9, 6, 6])]
    #[case::looked_for_briefly(9, limits(0, Some(4)), [3, 9, 9, 5])]
    #[case::never_longer_than_the_lease(9, limits(0, Some(40)), [3, 9, 9, 9])]
    fn a_lease_has_its_times_to_renew_and_to_give_up(
        #[case] ttl: u64,
        #[case] limits: Settings,
        #[case] want: [u64; 4],
    ) {
        let begun = Instant::now();
        let mut schedule = Schedule::new(limits.into(), seconds(ttl), begun);
        let times = |schedule: &Schedule| {
            [schedule.renew_at(), schedule.until, schedule.given_up_at()]
                .map(|time| (time - begun).as_secs())
        };
        assert_eq!(times(&schedule), want[..3]);
        schedule.renewed(begun + seconds(100), seconds(ttl));
        assert_eq!(times(&schedule).map(|time| time - 100), want[..3]);
        schedule.broken(begun + seconds(101));
        assert_eq!((schedule.given_up_at() - begun).as_secs() - 100, want[3]);
    }

    #[rstest]
    #[case(9, 3, 3)]
    #[case(9, 1, 5)]
    #[case(9, 0, 5)]
    fn all_servers_get_their_share(#[case] left: u64, #[case] servers: u32, #[case] want: u64) {
        let now = Instant::now();
        assert_eq!(share(now + seconds(left), now, servers, seconds(5)), seconds(want));
        assert_eq!(share(now, now + seconds(1), servers, seconds(5)), Duration::ZERO);
    }
}
