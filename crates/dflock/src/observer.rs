//! What a client that watches a key has seen, whatever becomes of its connections.

use super::dialogue::refused;
use super::error::ClientError;
use super::schedule::RENEWALS_PER_LEASE;
use leases::wire::{self, Seen};
use std::time::Duration;

/// A watched server is asked again after this time at the latest, so that one that is gone is noticed.
const MOST: Duration = Duration::from_secs(20);

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

/// An answer to `watch`: the holder, or nothing for a key that is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    /// Stands for what the server told: the same for the same on every server.
    tag: String,
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
        Ok(Self { tag: tag.to_owned(), holder })
    }

    /// What is to be told, if it is another than the last one seen.
    pub(super) fn told_after(self, last: &mut Option<String>) -> Option<Option<Holder>> {
        let is_new = last.as_ref() != Some(&self.tag);
        *last = Some(self.tag);
        is_new.then_some(self.holder)
    }
}

/// How long a server may wait for a change before it answers in any case.
pub(super) fn period(read_timeout: Duration) -> Duration {
    (read_timeout / RENEWALS_PER_LEASE).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::{Holder, Sight, period};
    use rstest::rstest;
    use std::time::Duration;

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
        let mut last = None;
        let mut sees =
            |line| Sight::read(line).unwrap().told_after(&mut last).map(|it| it.is_some());
        assert_eq!(sees("free 01"), Some(false));
        assert_eq!(sees("free 01"), None);
        assert_eq!(sees("held 02 7 1500 2 - -"), Some(true));
        assert_eq!(sees("held 02 7 9500 2 - -"), None);
        assert_eq!(sees("free 01"), Some(false));
        assert_eq!(last.as_deref(), Some("01"));
    }

    #[rstest]
    #[case(23_000, 7_666)]
    #[case(600_000, 20_000)]
    fn periods(#[case] read_timeout: u64, #[case] want: u64) {
        let [read_timeout, want] = [read_timeout, want].map(Duration::from_millis);
        assert_eq!(period(read_timeout).as_millis(), want.as_millis());
    }
}
