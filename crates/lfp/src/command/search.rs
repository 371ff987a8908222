//! Finds the holders: by the lock files, in `/proc`, and from the service, which sees more.

use std::ffi::OsStr;
use std::path::Path;

use pidlockfile::Pid;

use super::outcome::Failure;
use super::row::{Row, rows};
use crate::client::broker::{Broker, COMMAND_SEARCH, COMPLAINT_SEARCH, Route};
use crate::client::{Client, Error, Waiter};
use ttylock::{
    DeviceName, Holder, Layout, OutOfSight, Standing, Survey, Table, openers_of, tell_exclusive,
};

/// What was found, and how much of it we could see.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Holders, living ones first.
    pub(super) holders: Vec<Holder>,
    /// The waiters in the service's lines.
    pub(super) waiters: Vec<Waiter>,
    /// Whether a service has reported what it sees.
    pub(super) service: ServiceState,
    /// Whether a search of ours did not come to its end.
    pub(super) is_cut_short: bool,
    /// What no search of ours sees.
    pub(super) out_of_sight: OutOfSight,
}

/// Whether a service was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServiceState {
    #[default]
    NotThere,
    Asked,
    /// It is there, and says nothing in time.
    Silent,
}

impl Findings {
    /// Looks at one device, or at all.
    ///
    /// # Errors
    /// Only when the service that was named on the command line does not answer.
    pub(super) fn search(
        &mut self,
        device: Option<&DeviceName>,
        route: &Route,
    ) -> Result<(), Failure> {
        let mut table = Table::new(Layout::native());
        let survey = table.holders(device, COMMAND_SEARCH);
        let Survey { mut holders, is_complete, out_of_sight, .. } = survey;
        merge(&mut holders, self.ask_service(device, route)?);
        tell_exclusive(&Layout::native().dev_dir, &mut holders);
        holders.sort_by_key(|holder| holder.standing != Standing::Alive);
        if let Some(device) = device {
            holders.iter_mut().for_each(|holder| holder.device = device.as_str().to_owned());
        }
        self.holders.extend(holders);
        self.is_cut_short |= !is_complete;
        self.out_of_sight = out_of_sight;
        Ok(())
    }

    /// The holders that the service sees; none where there is no service, or one that has no STAT.
    fn ask_service(
        &mut self,
        device: Option<&DeviceName>,
        route: &Route,
    ) -> Result<Vec<Holder>, Failure> {
        let mut broker = Broker::within(route, Layout::native(), COMMAND_SEARCH);
        if broker.is_direct() {
            return Ok(Vec::new());
        }
        let question = |client: &mut Client| match client.survey_and_waiters(device) {
            Err(Error::Unsupported | Error::Refused) => Ok(None),
            answer => answer.map(Some),
        };
        match broker.ask_service(question) {
            Ok(Some((survey, waiters))) => {
                self.waiters.extend(waiters);
                self.service = self.service.max(ServiceState::Asked);
                return Ok(survey.holders);
            }
            Err(trouble) if *route != Route::Usual => return Err(trouble.failure()),
            Err(trouble) if trouble.has(|error| matches!(error, Error::TimedOut)) => {
                self.service = ServiceState::Silent;
            }
            Ok(None) | Err(_) => {}
        }
        Ok(Vec::new())
    }
}

/// The holders that keep a device busy, for complaints: the living, or else the stale lock files that
/// cannot be taken over, each with what would remove it. Never fails: what cannot be seen is not
/// shown.
pub(super) fn in_the_way(device: &DeviceName) -> Vec<Row> {
    let holders = Table::new(Layout::native()).holders(Some(device), COMPLAINT_SEARCH).holders;
    let (stale, mut living): (Vec<_>, Vec<_>) =
        holders.into_iter().partition(|holder| holder.standing == Standing::Stale);
    living.retain(|holder| holder.standing.is_standing());
    living.dedup_by(|b, a| a.pid == b.pid && a.pid.is_some() && a.device == b.device);
    if living.iter().any(Holder::keeps_out) {
        // A process that merely has it open keeps nobody out: it may be this one, by inheritance.
        living.retain(Holder::keeps_out);
        return rows(&living);
    }
    rows(if stale.is_empty() { &living } else { &stale })
}

/// The holders that may be there.
pub(super) fn living(mut holders: Vec<Holder>) -> Vec<Row> {
    holders.retain(|holder| holder.standing.is_standing());
    rows(&holders)
}

/// Programs that have the device open, except this one.
pub(super) fn openers(device: &DeviceName) -> Vec<Row> {
    let mut holders = openers_of(&Layout::native().dev_dir, device);
    holders.retain(|holder| holder.pid != Some(Pid::this()));
    tell_exclusive(&Layout::native().dev_dir, &mut holders);
    rows(&holders)
}

/// Adds what we did not see ourselves. A service names lock files without their directories, and
/// programs without their arguments, so what both see is believed as we see it.
fn merge(holders: &mut Vec<Holder>, more: Vec<Holder>) {
    for new in more {
        let same = |known: &&mut Holder| {
            known.scheme.word() == new.scheme.word()
                && file_name(known) == file_name(&new)
                && (known.pid == new.pid || (known.pid.is_none() && file_name(&new).is_some()))
                && (known.device == new.device || file_name(&new).is_some())
        };
        match holders.iter_mut().find(same) {
            None => holders.push(new),
            Some(known) if known.pid.is_none() && new.pid.is_some() => {
                let scheme = known.scheme.clone();
                *known = new;
                known.scheme = scheme;
            }
            Some(known) => {
                known.user = known.user.or(new.user);
                if known.command.is_none() {
                    known.command = new.command;
                }
            }
        }
    }
}

fn file_name(holder: &Holder) -> Option<&OsStr> {
    holder.scheme.file().and_then(Path::file_name)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rstest::rstest;
    use ttylock::Scheme;

    use super::*;

    fn holder(scheme: Scheme, pid: Option<i64>) -> Holder {
        let mut holder = Holder::new("ttyS0", scheme, Standing::Alive);
        holder.pid = pid.and_then(Pid::new);
        holder
    }

    fn file(path: &str) -> Scheme {
        Scheme::Uucp(PathBuf::from(path))
    }

    #[rstest]
    #[case::same_file(file("/run/lock/LCK..ttyS0"), Some(7), file("LCK..ttyS0"), Some(7), 1)]
    #[case::other_pid(file("/run/lock/LCK..ttyS0"), Some(7), file("LCK..ttyS0"), Some(8), 2)]
    #[case::other_file(file("/run/lock/LCK..ttyS0"), Some(7), file("LCK..ttyS1"), Some(7), 2)]
    #[case::unreadable_to_us(file("/run/lock/LCK..ttyS0"), None, file("LCK..ttyS0"), Some(7), 1)]
    #[case::same_flock(Scheme::Flock, Some(7), Scheme::Flock, Some(7), 1)]
    #[case::other_flock(Scheme::Flock, Some(7), Scheme::Flock, Some(8), 2)]
    #[case::flock_and_open(Scheme::Flock, Some(7), Scheme::Open, Some(7), 2)]
    fn a_holder_seen_by_both_is_shown_once(
        #[case] ours: Scheme,
        #[case] our_pid: Option<i64>,
        #[case] theirs: Scheme,
        #[case] their_pid: Option<i64>,
        #[case] expected: usize,
    ) {
        let mut holders = vec![holder(ours.clone(), our_pid)];
        merge(&mut holders, vec![holder(theirs, their_pid)]);
        assert_eq!(holders.len(), expected);
        assert_eq!(holders[0].scheme, ours);
        assert!(holders.iter().any(|holder| holder.pid == their_pid.and_then(Pid::new)));
    }
}
