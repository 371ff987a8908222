//! When a lease is renewed, and until when it is trusted.
//!
//! Never says that a lease is held after its end: its length is counted from before the request was sent, so the
//! lease ends later on the server.

use super::settings::Settings;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Renewals in one lease: two may fail before the end is near.
pub(super) const RENEWALS_PER_LEASE: u32 = 3;

/// The times of one lease. Report each renewal ([`Self::renewed`]), and the loss of the connection
/// ([`Self::broken`]).
#[derive(Clone)]
pub(super) struct Schedule {
    settings: Arc<Settings>,
    /// The length that was granted.
    pub(super) granted: Duration,
    /// A moment before the grant, or its latest answered renewal, was requested. The lease stood after it.
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
        let until = asked_at + ttl.min(settings.read_timeout);
        Self { settings, granted: ttl, asked_at, ttl, until, searched_until: None }
    }

    /// How long a lease of this length is certain: a server that hears nothing may free it before its end.
    fn sure(&self, ttl: Duration) -> Duration {
        ttl.min(self.settings.read_timeout)
    }

    /// The pause between two renewals. Nothing else decides how often a client renews.
    pub(super) fn renewal_interval(&self) -> Duration {
        self.sure(self.granted) / RENEWALS_PER_LEASE
    }

    /// When to renew next.
    pub(super) fn renew_at(&self) -> Instant {
        self.asked_at + self.renewal_interval()
    }

    /// When it ends at a server that has heard nothing since the latest confirmed request, at the earliest.
    pub(super) fn ends_at(&self) -> Instant {
        self.asked_at + self.ttl
    }

    /// When the lease is given up, and the holder must know, if no answer has come.
    pub(super) fn given_up_at(&self) -> Instant {
        let margin = self.settings.margin.min(self.renewal_interval());
        let last = self.until.checked_sub(margin).unwrap_or(self.until);
        self.searched_until.map_or(last, |end| end.min(last))
    }

    /// A renewal that was sent at `asked_at` or later was answered.
    pub(super) fn renewed(&mut self, asked_at: Instant, ttl: Duration) {
        (self.asked_at, self.ttl) = (asked_at, ttl);
        self.until = asked_at + self.sure(ttl);
        self.searched_until = None;
    }

    /// The connection is gone, so the whole lease counts.
    pub(super) fn broken(&mut self, now: Instant) {
        self.until = self.ends_at();
        self.searched_until = self.settings.reclaim.map(|reclaim| now + reclaim);
    }
}

/// How long one of so many servers may take to answer if all are to be tried before the end.
pub(super) fn share(end: Instant, now: Instant, servers: u32, most: Duration) -> Duration {
    let left = end.saturating_duration_since(now);
    left.checked_div(servers).unwrap_or(left).min(most)
}

#[cfg(test)]
mod tests {
    use super::{Schedule, Settings, share};
    use rstest::rstest;
    use std::time::Duration;
    use tokio::time::Instant;

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
