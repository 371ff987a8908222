//! The rule of grants, the same for every store: what a request asks of a key, and whether the holders of the
//! key and all earlier requests leave room for it.
//!
//! A request becomes a hold as soon as all earlier requests that still exist leave room for it. So no request
//! overtakes another: a reader that comes after a waiting writer has that writer before it. And neither kind starves:
//! the head of the queue waits for holders only.
//!
//! Pure.

use super::terms::Limit;

/// What a request asks of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// The holders of a key and the earlier requests, as far as they count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    slots: u64,
    shared: u64,
}

impl Ahead {
    /// The holders of a key, all of one kind, as all holders of a key are.
    #[must_use]
    pub const fn holders(count: u64, are_sharing: bool) -> Self {
        if are_sharing {
            Self { slots: 0, shared: count }
        } else {
            Self { slots: count, shared: 0 }
        }
    }

    /// The same, and one more request.
    #[must_use]
    pub const fn and(self, claim: Claim) -> Self {
        match claim {
            Claim::Slot(_) => Self { slots: self.slots.saturating_add(1), ..self },
            Claim::Shared => Self { shared: self.shared.saturating_add(1), ..self },
        }
    }

    /// Whether a request behind them is a hold.
    #[must_use]
    pub const fn leaves_room_for(self, claim: Claim) -> bool {
        match claim {
            Claim::Slot(limit) => self.shared == 0 && self.slots < limit.count(),
            Claim::Shared => self.slots == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Requests in order: w asks for a lock alone, r to share it, 2 for one of two slots. Capitals hold it.
    #[rstest]
    #[case::alone("W")]
    #[case::one_writer_after_the_other("Ww")]
    #[case::readers_share("RRR")]
    #[case::a_writer_keeps_readers_out("Wrr")]
    #[case::readers_keep_a_writer_out("RRw")]
    #[case::no_reader_overtakes_a_writer("RRwrr")]
    #[case::nor_does_a_writer("RRwrw")]
    #[case::slots("22x")]
    fn holders_in_order(#[case] all: &str) {
        let pool = Claim::Slot(Limit::new(2).unwrap());
        let mut ahead = Ahead::default();
        for one in all.chars() {
            let (claim, holds) = match one {
                'W' | 'w' => (Claim::LOCK, one == 'W'),
                'R' | 'r' => (Claim::Shared, one == 'R'),
                _ => (pool, one == '2'),
            };
            assert_eq!(ahead.leaves_room_for(claim), holds, "{one} of {all}");
            ahead = ahead.and(claim);
        }
    }

    #[rstest]
    #[case(0, false, true, true)]
    #[case(0, true, true, true)]
    #[case(1, false, false, false)]
    #[case(1, true, false, true)]
    fn holders_of_one_kind(
        #[case] count: u64,
        #[case] sharing: bool,
        #[case] writer: bool,
        #[case] reader: bool,
    ) {
        let ahead = Ahead::holders(count, sharing);
        assert_eq!(ahead.leaves_room_for(Claim::LOCK), writer);
        assert_eq!(ahead.leaves_room_for(Claim::Shared), reader);
    }
}
