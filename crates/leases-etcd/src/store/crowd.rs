//! The limit on the number of keys. etcd reads all keys to count them, so it is not asked before each new
//! key: a call creates only a limited number of keys, and every call that writes has a revision of its own.

use super::batch::MOST;

/// By how many revisions other front-ends may be ahead of this one.
const AHEAD: i64 = 8;

#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// The last count and its revision. The same call may have made further keys.
    counted: Option<(i64, i64)>,
    /// The newest revision seen here.
    newest: i64,
}

impl Crowd {
    pub(super) fn count(&mut self, revision: i64, keys: i64) {
        self.counted = self.counted.max(Some((revision, keys)));
        self.newest = self.newest.max(revision);
    }

    /// Whether there were certainly at most `most` keys at this revision, without asking etcd.
    pub(super) fn has_room(&mut self, revision: i64, most: usize) -> bool {
        self.newest = self.newest.max(revision);
        self.is_below(most, revision)
    }

    /// Whether that is likely for a key made now.
    pub(super) fn will_have_room(&self, most: usize) -> bool {
        self.is_below(most, self.newest.saturating_add(AHEAD))
    }

    fn is_below(&self, most: usize, revision: i64) -> bool {
        let Some((as_of, keys)) = self.counted.filter(|(as_of, _)| *as_of <= revision) else {
            return false;
        };
        let calls = (revision - as_of).saturating_add(1);
        let made = calls.saturating_mul(i64::try_from(MOST).unwrap_or(i64::MAX));
        usize::try_from(keys.saturating_add(made)).is_ok_and(|keys| keys <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::never_counted(&[], 10, false)]
    #[case::others_of_the_same_call(&[(10, 900)], 10, true)]
    #[case::might_be_too_many(&[(10, 901)], 10, false)]
    #[case::a_call_later(&[(10, 800)], 11, true)]
    #[case::calls_of_anybody(&[(10, 800)], 12, false)]
    #[case::the_newest_counts(&[(10, 0), (90, 800), (50, 5)], 91, true)]
    #[case::the_most_of_one_call(&[(10, 901), (10, 5)], 10, false)]
    #[case::before_it_was_counted(&[(10, 0)], 9, false)]
    fn an_earlier_count_tells_whether_there_is_room(
        #[case] counts: &[(i64, i64)],
        #[case] revision: i64,
        #[case] has: bool,
    ) {
        let mut crowd = Crowd::default();
        counts.iter().for_each(|(revision, keys)| crowd.count(*revision, *keys));
        assert_eq!(crowd.has_room(revision, 1000), has);
    }

    /// 100,000 keys under a cap of 200,000, a hundred a call. They are counted again only when their number may
    /// have doubled.
    #[test]
    fn keys_are_counted_again_only_when_they_may_have_doubled() {
        let (mut crowd, mut counted) = (Crowd::default(), 0);
        for keys in 0..100_000 {
            let revision = keys / 100;
            if !crowd.will_have_room(200_000) && !crowd.has_room(revision, 200_000) {
                crowd.count(revision, keys);
                counted += 1;
            }
        }
        assert_eq!(counted, 1);
    }
}
