//! The two rules: whether the holders of a key leave room for a request, and which connection owns a hold. Pure.
//!
//! A request becomes a hold when it is the first in the queue and the holders leave room for it. So no request overtakes
//! another: a reader that comes after a waiting writer stands behind that writer. And neither kind starves: the head of
//! the queue waits for holders only.
//!
//! A hold has an owner, the connection that got it, and at most one renewer, the last other connection that renewed
//! it. If the owner closes and the renewer is still connected, the renewer becomes the owner. Without a renewer the
//! hold is released, at once or after the grace, and a connection that renews it before that becomes its owner. If
//! the renewer closes first, it is forgotten. A hold whose owner is gone without a release or grace (auto-release
//! off, or the owner's server is gone) stays until its lease ends. The connection that renews it for the second time
//! becomes its owner, so a client that renews only once takes nothing with it when it leaves.

use super::scalars::{Limit, Moment, Seconds};

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

    /// Whether other requests of this kind may hold the lock at the same time.
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

/// What becomes of a connection's holds when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "on or off")]
pub enum AutoRelease {
    /// They are released.
    On,
    /// They stay until they are released by token or their leases end.
    Off,
}

/// Which party owns a hold, among parties of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ownership<P> {
    /// The party that got it, or inherited it.
    pub(super) owner: Option<P>,
    /// The last other party that renewed it.
    pub(super) renewer: Option<P>,
    /// Set when its owner has gone and there was no renewer: the hold stays for this long. It then has neither owner
    /// nor renewer.
    pub(super) grace: Option<Seconds>,
}

impl<P: Copy + Eq> Ownership<P> {
    /// The ownership of a hold that was just granted.
    pub(super) const fn of(owner: P) -> Self {
        Self { owner: Some(owner), ..Self::UNOWNED }
    }

    /// The ownership of a hold without connections that stays until its lease ends.
    pub(super) const UNOWNED: Self = Self { owner: None, renewer: None, grace: None };

    /// The ownership after `who` has renewed with the token.
    pub(super) fn renewed(self, who: P) -> Self {
        if self.owner == Some(who) {
            return self;
        }
        if self.owner.is_none() && (self.grace.is_some() || self.renewer == Some(who)) {
            return Self::of(who);
        }
        Self { renewer: Some(who), ..self }
    }

    /// The ownership after the end of `who`, its owner or renewer; `None` if the hold is released.
    pub(super) fn after_end_of(self, who: P, auto: AutoRelease, grace: Seconds) -> Option<Self> {
        if self.owner != Some(who) {
            return Some(Self { renewer: None, ..self });
        }
        match (self.renewer, auto) {
            (Some(heir), _) => Some(Self::of(heir)),
            (None, AutoRelease::Off) => Some(Self::UNOWNED),
            (None, AutoRelease::On) if grace == Seconds::ZERO => None,
            (None, AutoRelease::On) => Some(Self { grace: Some(grace), ..Self::UNOWNED }),
        }
    }

    /// The end of a grace that begins `now`; [`Moment::NEVER`] without a grace.
    pub(super) fn lapses(self, now: Moment) -> Moment {
        self.grace.map_or(Moment::NEVER, |grace| now.after(grace))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

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

    type Ownership = super::Ownership<char>;

    const GRACE: Seconds = match Seconds::new(7) {
        Some(grace) => grace,
        None => panic!(),
    };
    const IN_GRACE: Ownership = Ownership { grace: Some(GRACE), ..Ownership::UNOWNED };

    /// `AB` owner and renewer, `-` for nobody.
    fn ownership(text: &str) -> Ownership {
        let mut parties = text.chars().map(|c| Some(c).filter(|c| *c != '-'));
        let (owner, renewer) = (parties.next().unwrap(), parties.next().unwrap());
        Ownership { owner, renewer, grace: None }
    }

    #[rstest]
    #[case::by_the_owner("A-", 'A', "A-")]
    #[case::by_another("A-", 'B', "AB")]
    #[case::by_a_third("AB", 'C', "AC")]
    #[case::by_the_owner_again("AB", 'A', "AB")]
    #[case::by_the_renewer_again("AB", 'B', "AB")]
    #[case::nobodys("--", 'B', "-B")]
    #[case::nobodys_again("-B", 'B', "B-")]
    #[case::nobodys_by_a_third("-B", 'C', "-C")]
    fn a_renewal_changes_the_owner_by_the_rule(
        #[case] before: &str,
        #[case] who: char,
        #[case] after: &str,
    ) {
        assert_eq!(ownership(before).renewed(who), ownership(after));
    }

    #[test]
    fn a_client_that_renews_in_the_grace_owns_the_hold() {
        assert_eq!(IN_GRACE.renewed('B'), ownership("B-"));
    }

    #[rstest]
    #[case::owner_alone("A-", 'A', None)]
    #[case::owner_with_renewer("AC", 'A', Some("C-"))]
    #[case::renewer_first("AB", 'B', Some("A-"))]
    #[case::renewer_after_the_owner("-B", 'B', Some("--"))]
    fn partings(#[case] before: &str, #[case] who: char, #[case] want: Option<&str>) {
        let parted = |auto, grace| ownership(before).after_end_of(who, auto, grace);
        let want = want.map(ownership);
        assert_eq!(parted(AutoRelease::On, Seconds::ZERO), want);
        assert_eq!(parted(AutoRelease::On, GRACE), want.or(Some(IN_GRACE)));
        assert_eq!(parted(AutoRelease::Off, GRACE), want.or(Some(Ownership::UNOWNED)));
    }

    #[test]
    fn a_hold_lapses_with_its_grace() {
        let now = Moment::from_micros(5);
        assert_eq!(ownership("A-").lapses(now), Moment::NEVER);
        assert_eq!(IN_GRACE.lapses(now), now.after(GRACE));
    }
}
