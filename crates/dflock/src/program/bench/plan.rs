//! The plan of a load run, and which plans make sense. Pure.

use crate::terms::{Seconds, TermError};
use std::fmt;
use std::time::Duration;

/// The most connections of one run: more do not fit into the ports of one address pair anyway.
pub(super) const MAX_CONNECTIONS: u32 = 60_000;
/// The most requests one connection may have under way.
pub(super) const MAX_DEPTH: u32 = 1_024;
/// The longest key prefix; with the number behind it a key stays far below the protocol's line.
pub(super) const MAX_PREFIX_BYTES: usize = 128;

/// Which keys the connections use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// A key of its own for every lane of every connection: nobody waits for anybody.
    Own,
    /// This many keys for all, taken in turn: the fewer, the more waiting.
    Shared(u32),
}

/// When a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// After this time, counted from the end of the warm-up.
    Time(Duration),
    /// After this many pairs, the warm-up included.
    Pairs(u64),
}

/// A load run. A *pair* is one acquire and the release of what it granted: two round trips.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Simultaneous connections, 1 to 60,000.
    pub(super) connections: u32,
    /// Pairs under way on one connection at once, 1 to 1,024. More than one needs [`Keys::Own`].
    pub(super) depth: u32,
    /// Own or shared keys.
    pub(super) keys: Keys,
    /// Holders a key may have: 1 sends the lock commands, more the semaphore commands.
    pub(super) limit: u32,
    /// Whether each acquire is a reader's: any number of them hold a key together. Needs a limit of 1.
    pub(super) is_shared: bool,
    /// How long an acquire may wait; rounded up to whole seconds, at most [`MAX_TIME`](crate::MAX_TIME).
    pub(super) timeout: Duration,
    /// How long a lease lasts; the same, and not nothing.
    pub(super) ttl: Duration,
    /// When to stop.
    pub(super) length: Length,
    /// Pairs that end within this time after all connections are made are not counted.
    pub(super) warm_up: Duration,
    /// What the keys begin with. No blanks, at most 128 bytes.
    pub(super) key_prefix: String,
}

impl Plan {
    /// How many clients may hold a key together.
    pub(super) const fn holders(&self) -> u32 {
        if self.is_shared { u32::MAX } else { self.limit }
    }

    /// How many different keys the run touches.
    pub(super) fn key_count(&self) -> u32 {
        match self.keys {
            Keys::Own => self.connections.saturating_mul(self.depth),
            Keys::Shared(count) => count,
        }
    }

    /// Whether the run can be done.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        if !(1..=MAX_CONNECTIONS).contains(&self.connections) {
            return Err(PlanError::Connections);
        }
        if !(1..=MAX_DEPTH).contains(&self.depth) {
            return Err(PlanError::Depth);
        }
        if self.keys == Keys::Shared(0) {
            return Err(PlanError::Keys);
        }
        if self.depth > 1 && self.keys != Keys::Own {
            return Err(PlanError::SharedDepth);
        }
        if self.limit == 0 || (self.is_shared && self.limit != 1) {
            return Err(PlanError::Limit);
        }
        Seconds::to_wait(self.timeout).map_err(PlanError::Time)?;
        Seconds::of_lease(self.ttl).map_err(PlanError::Time)?;
        if matches!(self.length, Length::Time(time) if time.is_zero())
            || self.length == Length::Pairs(0)
        {
            return Err(PlanError::Length);
        }
        let bad = |c: char| c.is_whitespace() || c.is_control();
        if self.key_prefix.len() > MAX_PREFIX_BYTES || self.key_prefix.contains(bad) {
            return Err(PlanError::Prefix);
        }
        Ok(())
    }
}

/// A plan that cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanError {
    /// Connections out of range.
    Connections,
    /// Depth out of range.
    Depth,
    /// No key at all.
    Keys,
    /// Pipelined requests on shared keys: a blocked acquire would hold back the release it waits
    /// for, for ever.
    SharedDepth,
    /// A semaphore without slots.
    Limit,
    /// A lease or a time to wait that the protocol has no room for.
    Time(TermError),
    /// A run of no time or no pairs.
    Length,
    /// A key prefix that is too long or holds blanks.
    Prefix,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time(error) => return error.fmt(f),
            Self::Connections => "connections must be 1 to 60000",
            Self::Depth => "the pipelining depth must be 1 to 1024",
            Self::Keys => "there must be at least one key",
            Self::SharedDepth => {
                "shared keys need a pipelining depth of 1: requests of one connection are served \
                 in order, so an acquire would wait for a release behind it"
            }
            Self::Limit => "the semaphore limit must be at least 1, and 1 for shared locks",
            Self::Length => "the run must last at least one pair or some time",
            Self::Prefix => "the key prefix must be at most 128 bytes, without blanks",
        })
    }
}

impl std::error::Error for PlanError {}

#[cfg(test)]
mod tests {
    use super::{Keys, Length, MAX_CONNECTIONS, MAX_DEPTH, MAX_PREFIX_BYTES, Plan, PlanError};
    use crate::{MAX_TIME, TermError};
    use rstest::rstest;
    use std::time::Duration;

    fn plan(change: impl FnOnce(&mut Plan)) -> Plan {
        let mut plan = Plan {
            connections: 1,
            depth: 1,
            keys: Keys::Own,
            limit: 1,
            is_shared: false,
            timeout: Duration::from_secs(30),
            ttl: Duration::from_secs(33),
            length: Length::Time(Duration::from_secs(1)),
            warm_up: Duration::ZERO,
            key_prefix: "bench".to_owned(),
        };
        change(&mut plan);
        plan
    }

    #[rstest]
    #[case(plan(|_| ()), Ok(()))]
    #[case(plan(|p| p.connections = 0), Err(PlanError::Connections))]
    #[case(plan(|p| p.connections = MAX_CONNECTIONS), Ok(()))]
    #[case(plan(|p| p.connections = MAX_CONNECTIONS + 1), Err(PlanError::Connections))]
    #[case(plan(|p| p.depth = 0), Err(PlanError::Depth))]
    #[case(plan(|p| p.depth = MAX_DEPTH), Ok(()))]
    #[case(plan(|p| p.depth = MAX_DEPTH + 1), Err(PlanError::Depth))]
    #[case(plan(|p| p.keys = Keys::Shared(0)), Err(PlanError::Keys))]
    #[case(plan(|p| p.keys = Keys::Shared(1)), Ok(()))]
    #[case(plan(|p| (p.depth, p.keys) = (2, Keys::Shared(9))), Err(PlanError::SharedDepth))]
    #[case(plan(|p| p.limit = 0), Err(PlanError::Limit))]
    #[case(plan(|p| (p.limit, p.is_shared) = (2, true)), Err(PlanError::Limit))]
    #[case(plan(|p| p.is_shared = true), Ok(()))]
    #[case(plan(|p| p.ttl = Duration::ZERO), Err(PlanError::Time(TermError::Ttl)))]
    #[case(plan(|p| p.ttl = MAX_TIME), Ok(()))]
    #[case(plan(|p| p.ttl = Duration::MAX), Err(PlanError::Time(TermError::TimeLong)))]
    #[case(plan(|p| p.timeout = Duration::MAX), Err(PlanError::Time(TermError::TimeLong)))]
    #[case(plan(|p| p.length = Length::Time(Duration::ZERO)), Err(PlanError::Length))]
    #[case(plan(|p| p.length = Length::Pairs(0)), Err(PlanError::Length))]
    #[case(plan(|p| p.length = Length::Pairs(1)), Ok(()))]
    #[case(plan(|p| p.key_prefix = "a b".into()), Err(PlanError::Prefix))]
    #[case(plan(|p| p.key_prefix = "x".repeat(MAX_PREFIX_BYTES)), Ok(()))]
    #[case(plan(|p| p.key_prefix = "x".repeat(MAX_PREFIX_BYTES + 1)), Err(PlanError::Prefix))]
    fn only_plans_that_can_be_done_pass(
        #[case] plan: Plan,
        #[case] outcome: Result<(), PlanError>,
    ) {
        assert_eq!(plan.check(), outcome);
    }
}
