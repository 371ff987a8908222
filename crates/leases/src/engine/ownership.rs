//! Which connection owns a hold: the one rule. It says what a renewal and the end of a
//! connection change, and when a hold without connections ends. Pure.
//!
//! A hold has an owner, the connection that got it, and at most one renewer, the last other connection that renewed
//! it. If the owner closes and the renewer is still connected, the renewer becomes the owner. Without a renewer the
//! hold is released, at once or after the grace, and a connection that renews it before that becomes its owner. If
//! the renewer closes first, it is forgotten. A hold whose owner is gone without a release or grace (auto-release
//! off, or the owner's server is gone) stays until its lease ends. The connection that renews it for the second time
//! becomes its owner, so a client that renews only once takes nothing with it when it leaves.

use super::request::AutoRelease;
use super::terms::{Moment, Seconds};

/// Which party owns a hold, among parties of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing<P> {
    /// The party that got it, or inherited it.
    pub(super) owner: Option<P>,
    /// The last other party that renewed it.
    pub(super) renewer: Option<P>,
    /// Set when its owner has gone and there was no renewer: the hold stays for this long. It then has neither owner
    /// nor renewer.
    pub(super) grace: Option<Seconds>,
}

/// The effect of a connection's end on a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parting<P> {
    /// None: the connection had nothing to do with this hold.
    Keep,
    /// The hold has this standing from now on.
    Stand(Standing<P>),
    /// The hold is released.
    End,
}

impl<P: Copy + Eq> Standing<P> {
    /// The standing of a hold that was just granted.
    pub(super) const fn of(owner: P) -> Self {
        Self { owner: Some(owner), ..Self::NOBODYS }
    }

    /// The standing of a hold without connections that stays until its lease ends.
    pub(super) const NOBODYS: Self = Self { owner: None, renewer: None, grace: None };

    /// The standing after `who` has renewed with the token. `lives` is called for the owner only.
    pub(super) fn renewed(self, who: P, lives: impl Fn(P) -> bool) -> Self {
        if self.owner == Some(who) {
            return self;
        }
        let is_owned = self.owner.is_some_and(lives);
        if !is_owned && (self.grace.is_some() || self.renewer == Some(who)) {
            return Self::of(who);
        }
        Self { renewer: Some(who), ..self }
    }

    /// The effect of the end of `who`. `lives` is called for the renewer only.
    pub(super) fn parted(
        self,
        who: P,
        auto: AutoRelease,
        grace: Seconds,
        lives: impl Fn(P) -> bool,
    ) -> Parting<P> {
        if self.owner == Some(who) {
            let heir = self.renewer.filter(|renewer| *renewer != who && lives(*renewer));
            return match (heir, auto) {
                (Some(heir), _) => Parting::Stand(Self::of(heir)),
                (None, AutoRelease::Off) => Parting::Stand(Self::NOBODYS),
                (None, AutoRelease::On) if grace == Seconds::ZERO => Parting::End,
                (None, AutoRelease::On) => {
                    Parting::Stand(Self { grace: Some(grace), ..Self::NOBODYS })
                }
            };
        }
        if self.renewer == Some(who) {
            return Parting::Stand(Self { renewer: None, ..self });
        }
        Parting::Keep
    }

    /// The end of a grace that begins `now`; [`Moment::NEVER`] without a grace.
    pub(super) fn lapses(self, now: Moment) -> Moment {
        self.grace.map_or(Moment::NEVER, |grace| now.after(grace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    type Standing = super::Standing<char>;

    const GRACE: Seconds = match Seconds::new(7) {
        Some(grace) => grace,
        None => panic!(),
    };
    const IN_GRACE: Standing = Standing { grace: Some(GRACE), ..Standing::NOBODYS };

    /// `AB` owner and renewer, `-` for nobody.
    fn standing(text: &str) -> Standing {
        let mut parties = text.chars().map(|c| Some(c).filter(|c| *c != '-'));
        let (owner, renewer) = (parties.next().unwrap(), parties.next().unwrap());
        Standing { owner, renewer, grace: None }
    }

    #[rstest]
    #[case::by_the_owner("A-", 'A', "A", "A-")]
    #[case::by_another("A-", 'B', "AB", "AB")]
    #[case::by_a_third("AB", 'C', "ABC", "AC")]
    #[case::by_the_owner_again("AB", 'A', "AB", "AB")]
    #[case::by_the_renewer_again("AB", 'B', "AB", "AB")]
    #[case::nobodys("--", 'B', "B", "-B")]
    #[case::nobodys_again("-B", 'B', "B", "B-")]
    #[case::nobodys_by_a_third("-B", 'C', "BC", "-C")]
    #[case::after_the_owner("A-", 'C', "C", "AC")]
    #[case::after_the_owner_again("AC", 'C', "C", "C-")]
    fn a_renewal_changes_the_owner_by_the_rule(
        #[case] before: &str,
        #[case] who: char,
        #[case] living: &str,
        #[case] after: &str,
    ) {
        let lives = |party| living.contains(party);
        assert_eq!(standing(before).renewed(who, lives), standing(after));
    }

    #[test]
    fn a_client_that_renews_in_the_grace_owns_the_hold() {
        assert_eq!(IN_GRACE.renewed('B', |_| true), standing("B-"));
    }

    #[rstest]
    #[case::owner_alone("A-", 'A', "", Parting::End)]
    #[case::owner_with_renewer("AC", 'A', "C", Parting::Stand(standing("C-")))]
    #[case::owner_with_dead_renewer("AC", 'A', "", Parting::End)]
    #[case::renewer_first("AB", 'B', "A", Parting::Stand(standing("A-")))]
    #[case::renewer_after_the_owner("-B", 'B', "", Parting::Stand(standing("--")))]
    #[case::renewer_after_a_dead_owner("AB", 'B', "", Parting::Stand(standing("A-")))]
    #[case::a_stranger("AB", 'C', "AB", Parting::Keep)]
    #[case::one_that_owned_it_once("B-", 'A', "B", Parting::Keep)]
    fn partings(
        #[case] before: &str,
        #[case] who: char,
        #[case] living: &str,
        #[case] want: Parting<char>,
    ) {
        let lives = |party| living.contains(party);
        let parted = |auto, grace| standing(before).parted(who, auto, grace, lives);
        assert_eq!(parted(AutoRelease::On, Seconds::ZERO), want);
        let instead = |other| if want == Parting::End { Parting::Stand(other) } else { want };
        assert_eq!(parted(AutoRelease::On, GRACE), instead(IN_GRACE));
        assert_eq!(parted(AutoRelease::Off, GRACE), instead(Standing::NOBODYS));
    }

    #[test]
    fn a_hold_lapses_with_its_grace() {
        let now = Moment::from_micros(5);
        assert_eq!(standing("A-").lapses(now), Moment::NEVER);
        assert_eq!(IN_GRACE.lapses(now), now.after(GRACE));
    }
}
