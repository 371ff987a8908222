//! How far a PASS came whose process was killed. Pure.
//!
//! A lock file is passed by exchanges: each name of the giver's file changes places with a link to the receiver's file,
//! which has a private name. The first name of the lock comes last, and decides: until then, the lock is the giver's,
//! afterwards the receiver's. The giver's links stay under the private names until the end, so that going back needs no
//! new link.

/// The lock to which a name leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leads {
    /// There is no such name.
    Nowhere,
    ToGivers,
    ToReceivers,
    /// Another program has put its file there.
    ToAnothers,
}

/// One name of the lock, and the private name with which it changes places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) name: Leads,
    pub(super) private: Leads,
}

/// What becomes of a name that was met half-way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mending {
    Stays,
    /// It changes places with its private name once more.
    GoesBack,
    /// It leads to the receiver's file, and what had it before is not to be found.
    Goes,
}

impl Pair {
    /// Whether the lock is the receiver's, by its first name. The private name shows that the exchange took place, also if
    /// another program has removed the name since. Without the private name, which somebody may have swept, the name
    /// shows it.
    pub(super) fn is_over(self) -> bool {
        match self.private {
            // Otherwise another process has made that link.
            Leads::ToGivers => self.name != Leads::ToGivers,
            Leads::Nowhere => self.name == Leads::ToReceivers,
            Leads::ToReceivers | Leads::ToAnothers => false,
        }
    }

    /// What becomes of it when the whole lock is the receiver's, or the giver's again. What another program had put there
    /// just before an exchange goes back in any case.
    pub(super) fn mending(self, is_over: bool) -> Mending {
        match (self.name, self.private) {
            (Leads::ToReceivers | Leads::ToGivers, Leads::ToAnothers) => Mending::GoesBack,
            (Leads::ToReceivers, Leads::ToGivers) if !is_over => Mending::GoesBack,
            (Leads::ToReceivers, Leads::Nowhere | Leads::ToReceivers) if !is_over => Mending::Goes,
            (Leads::Nowhere | Leads::ToGivers | Leads::ToReceivers | Leads::ToAnothers, _) => {
                Mending::Stays
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::Leads::{Nowhere, ToAnothers, ToGivers, ToReceivers};
    use super::*;

    #[rstest]
    #[case::not_begun(ToGivers, Nowhere, false, Mending::Stays, Mending::Stays)]
    #[case::has_its_link(ToGivers, ToReceivers, false, Mending::Stays, Mending::Stays)]
    #[case::exchanged(ToReceivers, ToGivers, true, Mending::Stays, Mending::GoesBack)]
    #[case::removed_before(Nowhere, ToReceivers, false, Mending::Stays, Mending::Stays)]
    #[case::removed_afterwards(Nowhere, ToGivers, true, Mending::Stays, Mending::Stays)]
    #[case::taken_afterwards(ToAnothers, ToGivers, true, Mending::Stays, Mending::Stays)]
    #[case::anothers_came_out(ToReceivers, ToAnothers, false, Mending::GoesBack, Mending::GoesBack)]
    #[case::anothers_came_out_on_the_way_back(
        ToGivers,
        ToAnothers,
        false,
        Mending::GoesBack,
        Mending::GoesBack
    )]
    #[case::linked(ToGivers, ToGivers, false, Mending::Stays, Mending::Stays)]
    #[case::swept(ToReceivers, Nowhere, true, Mending::Stays, Mending::Goes)]
    fn a_name_shows_how_far_the_pass_came(
        #[case] name: Leads,
        #[case] private: Leads,
        #[case] is_over: bool,
        #[case] if_over: Mending,
        #[case] otherwise: Mending,
    ) {
        let pair = Pair { name, private };
        assert_eq!(pair.is_over(), is_over);
        assert_eq!([pair.mending(true), pair.mending(false)], [if_over, otherwise]);
    }
}
