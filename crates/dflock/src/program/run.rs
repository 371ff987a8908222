//! `dflock run`: holds a lease while a command runs, and stops the command before the lease ends.

use super::args::Run;
use super::ask;
use super::complain;
use super::outcome::Failure;
use super::step;
use super::sys::{Attended, told_to_end_as_process_1};
use crate::{Client, Lease, Loss};
use std::ffi::OsString;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// What KILL may take, so that the command is gone when the lease ends and not a little later.
const KILL_TIME: Duration = Duration::from_millis(200);

/// How long before the end of a lease that cannot be renewed the command is told to stop.
pub(super) fn margin(run: &Run) -> Duration {
    Duration::from_secs(run.grace.into()) + KILL_TIME
}

/// As much of the margin as there is room for (see `Settings::margin`), less the time to die.
fn grace(run: &Run, lease: &Lease) -> Duration {
    margin(run).min(lease.renewal_interval()).saturating_sub(KILL_TIME)
}

pub(super) async fn run(run: &Run, client: Client, json: bool) -> Result<u8, Failure> {
    // Until the lock is ours, signals end this process as they end any other, and the place in
    // the line with it.
    let lease = tokio::select! {
        lease = ask::lease(&run.claimed, &client, json) => lease?,
        code = told_to_end_as_process_1() => return code,
    };
    let Some(lease) = lease else { return not_granted(run, &client, json).await };
    let granted_at = Instant::now();
    match start(run, &lease) {
        Ok(command) => {
            let grace = grace(run, &lease);
            let hold_until = run.hold_for.map(|s| granted_at + Duration::from_secs(s.into()));
            Held { lease, command, grace, hold_until }.see_through(json).await
        }
        Err(failure) => give_up(lease, failure).await,
    }
}

/// Nothing was started: what went wrong matters more than whether the release went well.
async fn give_up(lease: Lease, failure: Failure) -> Result<u8, Failure> {
    let _ = lease.release().await;
    Err(failure)
}

async fn not_granted(run: &Run, client: &Client, json: bool) -> Result<u8, Failure> {
    let failure = ask::not_granted(&run.claimed, client, json).await;
    match run.busy_exit_code {
        None => Err(failure),
        Some(code) => {
            complain(&failure, json);
            Ok(code)
        }
    }
}

fn start(run: &Run, lease: &Lease) -> Result<Attended, Failure> {
    let fence = lease.fence().map(|fence| OsString::from(fence.to_string()));
    let token = OsString::from(lease.token().as_str());
    let mut additions = vec![("DFLOCK_KEY", run.claimed.key.as_os_str()), ("DFLOCK_TOKEN", &token)];
    if let Some(fence) = &fence {
        additions.push(("DFLOCK_FENCE", fence));
    }
    step::command(&run.command, &additions)
        .and_then(Attended::start)
        .map_err(|error| Failure::System("starting the command", error))
}

/// A running command under a held lease.
struct Held {
    lease: Lease,
    command: Attended,
    grace: Duration,
    /// The lock is to be held until then, even if the command ends sooner.
    hold_until: Option<Instant>,
}

impl Held {
    async fn see_through(mut self, json: bool) -> Result<u8, Failure> {
        match self.wait().await {
            Err(loss) => {
                complain(&Failure::Lost(loss), json);
                self.command.stop(self.grace).await;
                Ok(Failure::Lost(loss).exit_code())
            }
            Ok(code) => {
                self.linger().await;
                if let Err(error) = self.lease.release().await {
                    complain(&Failure::Client(error), json);
                }
                Ok(code)
            }
        }
    }

    /// Until the command ends or the lease is lost.
    async fn wait(&mut self) -> Result<u8, Loss> {
        loop {
            if let Some(code) = self.command.end(&self.lease)? {
                return Ok(code);
            }
            tokio::select! {
                biased;
                loss = self.lease.lost() => return Err(loss),
                () = self.command.stirred() => {}
            }
        }
    }

    /// Holds on without the command, until the time has passed or somebody wants an end.
    async fn linger(&mut self) {
        let Some(until) = self.hold_until else { return };
        tokio::select! {
            () = sleep_until(until.into()) => {}
            _ = self.lease.lost() => {}
            () = self.command.told_to_end() => {}
        }
    }
}
