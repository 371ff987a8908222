//! The rule of grants: what a request asks of a key, and whether the holders of the key leave room for it.
//!
//! A request becomes a hold when it is the first in the queue and the holders leave room for it. So no request overtakes
//! another: a reader that comes after a waiting writer has that writer before it. And neither kind starves: the head of
//! the queue waits for holders only.
//!
//! Pure.

use super::terms::Limit;

/// What a request asks of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a journal writes every kind")]
pub enum Claim {
    /// One of this many slots; a lock has only one.
    Slot(Limit),
    /// A lock that is shared with other requests of this kind: the lock of a reader.
    Shared,
}

impl Claim {
    /// A lock for one holder alone.
    pub const LOCK: Self = Self::Slot(Limit::ONE);

    /// The number of slots that the key must have. A shared lock is a lock.
    #[must_use]
    pub const fn limit(self) -> Limit {
        match self {
            Self::Slot(limit) => limit,
            Self::Shared => Limit::ONE,
        }
    }

    /// Whether other requests may hold the lock, too.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared)
    }

    /// Whether holders of a key, all of one kind, leave room for it.
    pub(super) const fn joins(self, holders: u64, are_sharing: bool) -> bool {
        match self {
            Self::Slot(limit) if !are_sharing => holders < limit.count(),
            Self::Slot(_) => holders == 0,
            Self::Shared => are_sharing || holders == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, false, true, true, true)]
    #[case(0, true, true, true, true)]
    #[case(1, false, false, false, true)]
    #[case(2, false, false, false, false)]
    #[case(1, true, false, true, false)]
    fn holders_of_one_kind(
        #[case] count: u64,
        #[case] sharing: bool,
        #[case] writer: bool,
        #[case] reader: bool,
        #[case] one_of_two: bool,
    ) {
        let joins = |claim: Claim| claim.joins(count, sharing);
        let pool = Claim::Slot(Limit::new(2).unwrap());
        assert_eq!(
            (joins(Claim::LOCK), joins(Claim::Shared), joins(pool)),
            (writer, reader, one_of_two)
        );
    }
}
