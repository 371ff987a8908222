//! What a client that watches a key has seen, whatever becomes of its connections. Pure.

use super::backoff::Patience;
use super::dialogue::refused;
use super::error::{ClientError, Refusal};
use super::schedule::RENEWALS_PER_LEASE;
use leases::wire::{self, Seen};
use std::time::{Duration, Instant};

/// A watched server is asked again after this time at the latest, so that one that is gone is noticed.
const MOST: Duration = Duration::from_secs(20);
/// A server that was seen is looked for this long: more than a program runs.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// The holder of a key. Of several (readers, or a semaphore) the one that got it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The fence of its grant; see [`super::Lease::fence`].
    pub fence: u64,
    /// How long it had held the key when the server answered, as far as the server knew.
    pub age: Duration,
    /// How many hold the key: at least one.
    pub holders: u32,
    /// What it calls itself, for people: [`super::Settings::name`].
    pub name: Option<String>,
    /// What it tells programs, such as its address: [`super::Settings::value`].
    pub value: Option<String>,
}

/// Stands for what a server told: the same for the same on every server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tag(String);

/// An answer to `watch`: the holder, or nothing for a key that is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    tag: Tag,
    holder: Option<Holder>,
}

impl Sight {
    /// Reads the answer.
    pub(super) fn read(line: &str) -> Result<Self, ClientError> {
        let seen = wire::read_sight(line);
        let (tag, seen) = seen.ok_or_else(|| refused(line).of_watching("watch"))?;
        let holder = seen.map(|Seen { fence, age_ms, holders, name, value }| Holder {
            fence,
            age: Duration::from_millis(age_ms),
            holders,
            name,
            value,
        });
        Ok(Self { tag: Tag(tag.to_owned()), holder })
    }
}

/// How long a server may wait for a change before it answers in any case.
pub(super) fn period(read_timeout: Duration) -> Duration {
    (read_timeout / RENEWALS_PER_LEASE).min(MOST)
}

/// See the module. Tell it of each answer, and ask it after each attempt that failed.
pub(super) struct Observer {
    last: Option<Tag>,
    patience: Option<Patience>,
}

impl Observer {
    pub(super) fn new() -> Self {
        Self { last: None, patience: None }
    }

    /// The tag of what it saw last.
    pub(super) fn last(&self) -> Option<&str> {
        self.last.as_ref().map(|tag| tag.0.as_str())
    }

    /// An answer has come. What is to be told, if it is another than before.
    #[expect(clippy::option_option, reason = "no news, and that nobody holds it")]
    pub(super) fn sees(&mut self, sight: Sight, now: Instant) -> Option<Option<Holder>> {
        self.patience = now.checked_add(FOR_EVER).map(Patience::until);
        let is_new = self.last.as_ref() != Some(&sight.tag);
        self.last = Some(sight.tag);
        is_new.then_some(sight.holder)
    }

    /// The pause before the next attempt, if there is to be one. Before the first answer a server is looked for so
    /// long, and afterwards for ever.
    pub(super) fn comes_again_after(
        &mut self,
        error: &ClientError,
        limit: Duration,
        now: Instant,
    ) -> Option<Duration> {
        let patience = self.patience.get_or_insert_with(|| Patience::until(now + limit));
        // Others may have come back before us and fill the server for a moment.
        let is_full = matches!(error, ClientError::Refused(Refusal::MaxWaiters));
        let pause = if is_full && self.last.is_some() {
            patience.pause(now)
        } else {
            patience.outlasts(error, now)
        };
        if pause.is_none() {
            self.patience = None;
        }
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::{FOR_EVER, Holder, Observer, Sight, period};
    use crate::error::{ClientError, Refusal};
    use rstest::rstest;
    use std::time::{Duration, Instant};

    fn held(fence: u64, name: Option<&str>, value: Option<&str>) -> Option<Holder> {
        let [name, value] = [name, value].map(|text| text.map(str::to_owned));
        Some(Holder { fence, age: Duration::from_millis(1500), holders: 2, name, value })
    }

    #[rstest]
    #[case("free 0123456789abcdef", None)]
    #[case("held 01 7 1500 2 - -", held(7, None, None))]
    #[case("held 01 7 1500 2 a%20b %2D", held(7, Some("a b"), Some("-")))]
    #[case("held 01 7 1500 2 %C3%A9 [::1]:80", held(7, Some("\u{e9}"), Some("[::1]:80")))]
    fn answers_are_parsed(#[case] line: &str, #[case] holder: Option<Holder>) {
        assert_eq!(Sight::read(line).unwrap().holder, holder);
    }

    #[rstest]
    #[case("error", "the server cannot be watched: it does not know the request `watch`")]
    #[case("error_max_waiters", "too many are waiting for this key (error_max_waiters)")]
    #[case("ok 1", "not a dflockd answer: ok 1")]
    #[case("free", "not a dflockd answer: free")]
    #[case("held 01 7 1500 2 -", "not a dflockd answer: held 01 7 1500 2 -")]
    #[case("held 01 x 1500 2 - -", "not a dflockd answer: held 01 x 1500 2 - -")]
    #[case("held 01 7 1500 2 - %2", "not a dflockd answer: held 01 7 1500 2 - %2")]
    fn refusals_and_malformed_answers_are_errors(#[case] line: &str, #[case] words: &str) {
        assert_eq!(Sight::read(line).unwrap_err().to_string(), words);
    }

    #[test]
    fn the_same_state_is_told_once() {
        let mut observer = Observer::new();
        let now = Instant::now();
        let mut sees = |line| observer.sees(Sight::read(line).unwrap(), now).map(|it| it.is_some());
        assert_eq!(sees("free 01"), Some(false));
        assert_eq!(sees("free 01"), None);
        assert_eq!(sees("held 02 7 1500 2 - -"), Some(true));
        assert_eq!(sees("held 02 7 9500 2 - -"), None);
        assert_eq!(sees("free 01"), Some(false));
        assert_eq!(observer.last(), Some("01"));
    }

    /// At first a server is looked for during the limit, and once it was seen for ever.
    #[test]
    fn a_server_that_has_answered_once_is_looked_for_without_limit() {
        let (mut observer, begun) = (Observer::new(), Instant::now());
        let limit = Duration::from_secs(10);
        let again = |observer: &mut Observer, error: &ClientError, seconds| {
            let now = begun + Duration::from_secs(seconds);
            observer.comes_again_after(error, limit, now).is_some()
        };
        let full = ClientError::Refused(Refusal::MaxWaiters);
        assert!(again(&mut observer, &ClientError::Silent, 0));
        assert!(again(&mut observer, &ClientError::Silent, 9));
        assert!(!again(&mut observer, &full, 9));
        assert!(again(&mut observer, &ClientError::Silent, 9));
        assert!(!again(&mut observer, &ClientError::Silent, 30));
        observer.sees(Sight::read("free 01").unwrap(), begun);
        assert!(again(&mut observer, &ClientError::Silent, FOR_EVER.as_secs() - 1));
        assert!(again(&mut observer, &full, 1000));
        assert!(!again(&mut observer, &ClientError::NotWatched("watch"), 1000));
    }

    #[rstest]
    #[case(23_000, 7_666)]
    #[case(600_000, 20_000)]
    fn periods(#[case] read_timeout: u64, #[case] want: u64) {
        let [read_timeout, want] = [read_timeout, want].map(Duration::from_millis);
        assert_eq!(period(read_timeout).as_millis(), want.as_millis());
    }
}
