//! How long a client can be sure of a hold that it takes, renews and gives back over several
//! connections, by what it was promised alone: and so whether a denial was false, and whether two
//! had one lock.

/// Microseconds by the client's clock.
pub(crate) type Time = u64;

/// One of the client's connections.
pub(crate) type Line = u64;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client closed it: what it owns is given back, or becomes its renewer's.
    Closed,
    /// With `error_draining`: what it owns stays.
    Unavailable,
}

/// One hold.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) fence: u64,
    granted: Time,
    /// It stood at least until then; before `granted` if the client was told when the lease could be over.
    stood: Time,
    /// When the request was sent that was answered last.
    begun: Time,
    /// The end of the lease.
    end: Time,
    grace: Time,
    /// Connections that may own it or be its renewer, the one that was answered last at the end.
    lines: Vec<Line>,
    is_open: bool,
    /// Since then a renewal was not answered.
    unclear: bool,
    /// One of its connections was closed by the client.
    closed: bool,
    /// It was given back, or may have been, or may yet be: what was not answered may still be done.
    given_back: bool,
}

impl Tenure {
    /// Granted on `line`: asked for at `sent`, answered at `now`.
    pub(crate) fn new(
        fence: u64,
        line: Line,
        sent: Time,
        now: Time,
        lease: Time,
        grace: Time,
    ) -> Self {
        Self {
            fence,
            granted: now,
            stood: now.min(sent + lease),
            begun: sent,
            end: sent + lease,
            grace,
            lines: vec![line],
            is_open: true,
            unclear: false,
            closed: false,
            given_back: false,
        }
    }

    /// Until when it stands if nothing more happens.
    fn sure_until(&self) -> Time {
        if self.given_back {
            return self.stood;
        }
        // The connection that was answered last owns it, or is its renewer. Where no connection was
        // closed, nobody gave it back.
        if !self.closed || (self.is_open && !self.unclear) {
            return self.end;
        }
        // A grace begins after that answer.
        self.end.min(self.begun + self.grace)
    }

    /// Time went on to `now`.
    pub(crate) fn pass(&mut self, now: Time) {
        self.stood = self.stood.max(now.min(self.sure_until()));
    }

    /// A renewal on `line`, sent at `sent`, was answered `ok` by `now`.
    pub(crate) fn renewed(&mut self, line: Line, sent: Time, lease: Time) {
        // It stood when that was done.
        self.stood = self.stood.max(sent);
        (self.begun, self.end) = (sent, sent + lease);
        (self.is_open, self.unclear) = (true, false);
        self.lines.retain(|known| *known != line);
        self.lines.push(line);
    }

    /// A renewal on `line`, sent at `sent`, was not answered. It may have been done.
    pub(crate) fn not_renewed(&mut self, line: Line, sent: Time, lease: Time) {
        self.pass(sent);
        self.unclear = true;
        self.end = self.end.min(sent + lease);
        if !self.lines.contains(&line) {
            self.lines.insert(0, line);
        }
    }

    /// A connection is about to end at `now`.
    pub(crate) fn ends(&mut self, now: Time, line: Line, ending: Ending) {
        self.pass(now);
        if self.lines.contains(&line) {
            self.closed |= ending == Ending::Closed;
            self.is_open &= self.lines.last() != Some(&line);
        }
    }

    /// A release is about to be sent at `now`.
    pub(crate) fn gives_back(&mut self, now: Time) {
        self.pass(now);
        self.given_back = true;
    }

    /// Whether it was surely a hold when something was answered at `now`, that is not the answer to a
    /// release.
    pub(crate) fn stands(&self, now: Time) -> bool {
        now < self.stood.max(self.sure_until())
    }

    /// Nothing more is done with it.
    pub(crate) fn finish(&mut self) {
        self.stood = self.stood.max(self.sure_until());
    }
}

/// Two tenures of one lock that were at once, if there are any, and whether one with a greater fence
/// was before another.
pub(crate) fn conflict(tenures: &mut [Tenure]) -> Option<(Tenure, Tenure)> {
    tenures.sort_unstable_by_key(|tenure| tenure.granted);
    // A server that stands still may tell a client so late that another one has the lock by then.
    let sure: Vec<&Tenure> = tenures.iter().filter(|it| it.stood >= it.granted).collect();
    let pair = sure.windows(2).find(|two| {
        let [one, other] = two else { return false };
        one.stood > other.granted || one.fence >= other.fence
    })?;
    Some((pair[0].clone(), pair[1].clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Asked at 100, answered at 110, on line 1; a lease of 1,000.
    fn tenure(grace: Time) -> Tenure {
        Tenure::new(7, 1, 100, 110, 1000, grace)
    }

    #[derive(Clone, Copy)]
    enum Did {
        Renewed(Line, Time, Time),
        NotRenewed(Line, Time, Time),
        Ends(Time, Line, Ending),
        GivesBack(Time),
    }
    use Did::{Ends, GivesBack, NotRenewed, Renewed};
    use Ending::{Closed, Unavailable};

    #[rstest]
    #[case::its_lease(0, &[], 1100)]
    #[case::renewed(0, &[Renewed(1, 500, 2000)], 2500)]
    #[case::shortened(0, &[Renewed(1, 500, 100)], 600)]
    #[case::closed(0, &[Ends(600, 1, Closed)], 600)]
    #[case::closed_with_a_grace(300, &[Ends(200, 1, Closed)], 400)]
    #[case::unavailable(0, &[Ends(600, 1, Unavailable)], 1100)]
    #[case::another_line(0, &[Ends(600, 9, Closed)], 1100)]
    #[case::moved(0, &[Renewed(2, 500, 1000), Ends(600, 1, Closed)], 1500)]
    #[case::moved_and_closed(0, &[Renewed(2, 500, 1000), Ends(600, 2, Closed)], 600)]
    #[case::unclear(0, &[NotRenewed(2, 500, 1000)], 1100)]
    #[case::unclear_and_shorter(0, &[NotRenewed(2, 500, 200)], 700)]
    #[case::unclear_and_closed(0, &[NotRenewed(2, 500, 1000), Ends(600, 1, Closed)], 600)]
    #[case::unclear_and_the_other_closed(0, &[NotRenewed(2, 500, 1000), Ends(600, 2, Closed)], 600)]
    #[case::clear_again(0, &[NotRenewed(2, 500, 9), Ends(505, 2, Closed), Renewed(1, 507, 100)], 607)]
    #[case::given_back(0, &[GivesBack(600)], 600)]
    #[case::not_given_back_yet(0, &[GivesBack(600), Renewed(1, 700, 100)], 700)]
    fn a_tenure_lasts_as_long_as_its_story_says(
        #[case] grace: Time,
        #[case] story: &[Did],
        #[case] want: Time,
    ) {
        let mut it = tenure(grace);
        for did in story {
            match *did {
                Renewed(line, sent, lease) => it.renewed(line, sent, lease),
                NotRenewed(line, sent, lease) => it.not_renewed(line, sent, lease),
                Ends(now, line, ending) => it.ends(now, line, ending),
                GivesBack(now) => it.gives_back(now),
            }
        }
        assert!(it.stands(want - 1) && !it.stands(want), "{it:?}");
        it.finish();
        assert_eq!(it.stood, want);
    }

    #[rstest]
    #[case::one_after_the_other(8, 5, 1100, false)]
    #[case::at_once(8, 5, 1099, true)]
    #[case::fences_go_back(6, 5, 1100, true)]
    #[case::told_too_late(6, 11, 1099, false)]
    fn overlapping_tenures_are_conflicts(
        #[case] fence: u64,
        #[case] delay: Time,
        #[case] granted: Time,
        #[case] is_one: bool,
    ) {
        let mut first = tenure(0);
        first.finish();
        let second = Tenure::new(fence, 2, granted - delay, granted, 10, 0);
        assert_eq!(conflict(&mut [second, first]).is_some(), is_one);
    }
}
