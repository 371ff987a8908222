//! Which user owns a number in a range of subordinate users (subuid(5)). A limit for each user counts such a number as
//! its owner: otherwise a user with 65,536 numbers has as many times the limit.
//!
//! Only limits ask. No right comes from the answer: a number in a range of root is not root.

use std::sync::{PoisonError, RwLock};

use crate::sys;

/// The user whom the kernel shows for all those that have no number in our user namespace; also the user `nobody`.
/// Source: `DEFAULT_OVERFLOWUID` in the kernel's include/linux/highuid.h.
pub const OVERFLOW_UID: u32 = 65_534;

/// The part of each file that is read, in bytes. Ranges in the rest are not known.
const FILE_BYTES: u64 = 1024 * 1024;

/// Numbers that one user owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    owner: u32,
}

/// The ranges that were read last, by their first numbers.
static RANGES: RwLock<Vec<Range>> = RwLock::new(Vec::new());

/// Reads the ranges of this machine anew. Before the first call, no number belongs to another user.
pub fn read() {
    let ranges = ranges("/etc/subuid", "/etc/passwd");
    *RANGES.write().unwrap_or_else(PoisonError::into_inner) = ranges;
}

/// For tests: these ranges besides, whatever is read of this machine.
#[cfg(test)]
pub(crate) fn add(subuid: &str) {
    let mut ranges = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    ranges.extend(parse(subuid, ""));
    ranges.sort_by_key(|range| range.first);
}

#[cfg(test)]
static ADDED: RwLock<Vec<Range>> = RwLock::new(Vec::new());

/// The user who counts for this one: the owner of its range, or itself.
#[must_use]
pub fn owner_of(uid: u32) -> u32 {
    #[cfg(test)]
    let uid = owner_in(&ADDED.read().unwrap_or_else(PoisonError::into_inner), uid);
    owner_in(&RANGES.read().unwrap_or_else(PoisonError::into_inner), uid)
}

fn ranges(subuid: &str, passwd: &str) -> Vec<Range> {
    let text = |path: &str| sys::text_of(path.as_ref(), FILE_BYTES).unwrap_or_default();
    let subuid = text(subuid);
    if subuid.is_empty() { Vec::new() } else { parse(&subuid, &text(passwd)) }
}

/// A range that is root's, or of a user without a line in passwd(5), counts as a user of its own.
fn parse(subuid: &str, passwd: &str) -> Vec<Range> {
    let number = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok())?
    };
    let named = |name: &str| {
        let mut users = passwd.lines().map(|line| line.split(':'));
        users.find_map(|mut words| (words.next()? == name).then(|| number(words.nth(1)?))?)
    };
    let range = |line: &str| {
        let mut words = line.split(':').map(str::trim);
        let (user, first, count) = (words.next()?, number(words.next()?)?, number(words.next()?)?);
        let last = first.saturating_add(count.checked_sub(1)?);
        let owner = number(user).or_else(|| named(user)).filter(|owner| *owner != 0);
        Some(Range { first, last, owner: owner.unwrap_or(first) })
    };
    let mut ranges: Vec<Range> = subuid.lines().filter_map(range).collect();
    ranges.sort_by_key(|range| range.first);
    ranges
}

fn owner_in(ranges: &[Range], uid: u32) -> u32 {
    let before = ranges.partition_point(|range| range.first <= uid);
    let range = before.checked_sub(1).and_then(|index| ranges.get(index));
    // Root is nobody else, whatever a range says.
    range.filter(|range| uid != 0 && uid <= range.last).map_or(uid, |range| range.owner)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:\nbad\n";

    #[rstest]
    #[case::below("alice:100000:65536", 99_999, 99_999)]
    #[case::first("alice:100000:65536", 100_000, 1000)]
    #[case::last("alice:100000:65536", 165_535, 1000)]
    #[case::behind("alice:100000:65536", 165_536, 165_536)]
    #[case::her_own("alice:100000:65536", 1000, 1000)]
    #[case::by_number("1001:100000:65536", 100_001, 1001)]
    #[case::two_ranges_of_one("alice:300000:10\nalice:100000:10", 300_009, 1000)]
    #[case::of_two("bob:200000:65536\nalice:100000:65536", 200_000, 1001)]
    #[case::roots_range_is_a_user_of_its_own("root:100000:65536", 100_007, 100_000)]
    #[case::so_is_a_strangers("carol:100000:65536", 100_007, 100_000)]
    #[case::root_is_nobodys("alice:0:65536", 0, 0)]
    #[case::an_empty_range("alice:100000:0", 100_000, 100_000)]
    #[case::up_to_the_last_number("alice:4294967295:9", u32::MAX, 1000)]
    #[case::no_number("alice:+100000:65536", 100_000, 100_000)]
    #[case::cut("alice:100000", 100_000, 100_000)]
    #[case::nothing("", 100_000, 100_000)]
    fn a_number_counts_as_the_owner_of_its_range(
        #[case] subuid: &str,
        #[case] uid: u32,
        #[case] owner: u32,
    ) {
        assert_eq!(owner_in(&parse(subuid, PASSWD), uid), owner);
    }

    #[test]
    fn without_the_files_each_number_is_a_user() {
        assert_eq!(ranges("/nonexistent/subuid", "/nonexistent/passwd"), []);
    }
}
