//! Whose a hold is: what a renewal and the end of a connection make of a ticket. Pure.
//!
//! A hold has an owner, the connection that got it, and at most one renewer, the last other
//! connection that renewed it. The owner's end gives the hold back unless the renewer lives, which
//! is the owner then; the renewer's end is forgotten while the owner lives.

use super::keys::{Front, Party, Ticket};
use crate::engine::{AutoRelease, Ttl};

/// What the end of a connection makes of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parting {
    /// It is no concern of this ticket.
    Keep,
    /// The ticket is to say this.
    Write(Ticket),
    /// The hold is given back.
    End,
}

impl Ticket {
    /// What the ticket says after `who` renewed it at `keeper`.
    pub(super) fn renewed(
        self,
        who: Party,
        keeper: Front,
        ttl: Ttl,
        lives: impl Fn(Party) -> bool,
    ) -> Self {
        let mut ticket = Self { keeper, ttl, ..self };
        match self.owner {
            Some(owner) if owner == who => {}
            Some(owner) if lives(owner) => ticket.renewer = Some(who),
            Some(_) | None => {
                ticket.owner = Some(who);
                ticket.renewer = self.renewer.filter(|renewer| *renewer != who);
            }
        }
        ticket
    }

    /// What becomes of the ticket when `who` has gone.
    pub(super) fn parted(
        self,
        who: Party,
        auto: AutoRelease,
        lives: impl Fn(Party) -> bool,
    ) -> Parting {
        let lives = |party: &Party| *party != who && lives(*party);
        let end = match auto {
            AutoRelease::On => Parting::End,
            AutoRelease::Off => Parting::Keep,
        };
        if self.owner == Some(who) {
            return match self.renewer.filter(lives) {
                Some(next) => Parting::Write(Self { owner: Some(next), renewer: None, ..self }),
                None => end,
            };
        }
        if self.renewer == Some(who) {
            return match self.owner.filter(lives) {
                Some(_) => Parting::Write(Self { renewer: None, ..self }),
                None => end,
            };
        }
        Parting::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Stage;
    use super::*;
    use rstest::rstest;

    const HERE: Front = Front(1);
    const THERE: Front = Front(2);

    const fn conn(front: Front, serial: u64) -> Party {
        Party { front, serial }
    }

    const A: Party = conn(HERE, 1);
    const B: Party = conn(HERE, 2);
    const C: Party = conn(THERE, 3);

    fn ticket(owner: Option<Party>, renewer: Option<Party>) -> Ticket {
        Ticket { stage: Stage::Held, keeper: HERE, owner, renewer, ttl: Ttl::new(9).unwrap() }
    }

    #[rstest]
    #[case::by_the_owner(Some(A), None, A, &[A], Some(A), None)]
    #[case::by_another(Some(A), None, B, &[A, B], Some(A), Some(B))]
    #[case::by_a_third(Some(A), Some(B), C, &[A, B, C], Some(A), Some(C))]
    #[case::by_the_owner_again(Some(A), Some(B), A, &[A, B], Some(A), Some(B))]
    #[case::after_the_owner(Some(A), None, C, &[C], Some(C), None)]
    #[case::nobodys(None, None, B, &[B], Some(B), None)]
    #[case::the_renewer_after_the_owner(Some(A), Some(B), B, &[B], Some(B), None)]
    fn renewals(
        #[case] owner: Option<Party>,
        #[case] renewer: Option<Party>,
        #[case] who: Party,
        #[case] living: &[Party],
        #[case] owner_after: Option<Party>,
        #[case] renewer_after: Option<Party>,
    ) {
        let ttl = Ttl::new(5).unwrap();
        let after = ticket(owner, renewer).renewed(who, THERE, ttl, |p| living.contains(&p));
        assert_eq!((after.owner, after.renewer), (owner_after, renewer_after));
        assert_eq!((after.keeper, after.ttl), (THERE, ttl));
    }

    #[rstest]
    #[case::owner_alone(Some(A), None, A, &[], Parting::End)]
    #[case::owner_with_renewer(Some(A), Some(C), A, &[C], Parting::Write(ticket(Some(C), None)))]
    #[case::owner_with_dead_renewer(Some(A), Some(C), A, &[], Parting::End)]
    #[case::renewer_first(Some(A), Some(B), B, &[A], Parting::Write(ticket(Some(A), None)))]
    #[case::renewer_last(Some(A), Some(B), B, &[], Parting::End)]
    #[case::a_stranger(Some(A), Some(B), C, &[], Parting::Keep)]
    #[case::who_owned_it_once(Some(B), None, A, &[B], Parting::Keep)]
    fn partings(
        #[case] owner: Option<Party>,
        #[case] renewer: Option<Party>,
        #[case] who: Party,
        #[case] living: &[Party],
        #[case] want: Parting,
    ) {
        let lives = |party: Party| living.contains(&party);
        assert_eq!(ticket(owner, renewer).parted(who, AutoRelease::On, lives), want);
        let off = ticket(owner, renewer).parted(who, AutoRelease::Off, lives);
        assert_eq!(off, if want == Parting::End { Parting::Keep } else { want });
    }
}
