//! What only the command asks of a [`Broker`]: to hand locks over, to release those of others, and which processes wait.

use std::time::Duration;

use nix::unistd::geteuid;

use super::outcome::{Failure, NO_FORCE, Reason, nobodys, supposed_reasons};
use super::report::living;
use crate::client::PATIENCE;
use crate::client::broker::{Broker, Trouble, advice};
use ttylock::{DeviceName, Outcome, Pass, Request};

/// For giving back what the service may have taken for a request that it has not answered: its caller has waited long
/// enough.
const UNANSWERED_PATIENCE: Duration = Duration::from_millis(100);

impl Broker {
    /// Whether the service says that no process has a lock of the device. Its numbers of processes may be those of another
    /// container.
    pub(super) fn knows_no_holder(&mut self, device: &DeviceName) -> bool {
        let has_none = |holders| living(holders).iter().all(|row| row.living_holder().is_none());
        !self.is_direct() && has_none(self.holders(device)) && self.client.is_some()
    }

    /// Releases what the service may have taken for a request that it has not answered. Only for a process that surely
    /// did not have the device before, and not after a refusal: the process may have got the lock by another request.
    pub(super) fn release_unanswered(&mut self, request: &Request) {
        if self.may_have_taken {
            self.close_connection();
            self.be_patient(UNANSWERED_PATIENCE);
            let _ = self.unlock(request);
        }
        self.be_patient(PATIENCE);
    }

    pub(super) fn lock(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        self.lock_within(request, Duration::ZERO)
    }

    /// Releases the lock of another user's process, for users that may do so.
    pub(super) fn force(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        let outcome = self.ask(
            |client| client.force(&request.device, request.pid),
            |files| files.unlock_files(request),
        );
        let is_refused = matches!(outcome, Ok(Outcome::Denied)) && !self.is_direct();
        if is_refused && !geteuid().is_root() {
            self.reasons = vec![NO_FORCE.to_owned()];
        }
        outcome
    }

    /// Hands a lock over. Why it was not permitted is said of the receiver.
    pub(super) fn pass(&mut self, pass: &Pass) -> Result<Outcome, Trouble> {
        self.ask(
            |client| client.pass(&pass.device, pass.from, pass.to),
            |files| {
                let answer = files.table.pass(pass);
                files.outcome_of(answer)
            },
        )
    }

    /// Whether surely no service is there, which alone has a queue. Waits for it as long as for an answer.
    pub(super) fn lacks_service(&mut self) -> bool {
        self.is_direct() || self.client().is_err_and(|trouble| trouble.is_absence)
    }

    /// Whether somebody stands in the service's line for a device.
    pub(super) fn is_waited_for(&mut self, device: &DeviceName) -> bool {
        if self.is_direct() {
            return false;
        }
        let waiters = self.ask_service(|client| client.waiters(Some(device)));
        waiters.is_ok_and(|waiters| !waiters.is_empty())
    }

    /// Why a request was denied, as far as it is known here.
    pub(super) fn why_denied(&self, request: &Request) -> Vec<Reason> {
        if !self.reasons.is_empty() {
            self.reasons.clone()
        } else if self.is_direct() {
            nobodys(request.pid).into_iter().collect()
        } else {
            supposed_reasons(request)
        }
    }
}

impl Trouble {
    /// Why nothing was done, and what to do about it.
    pub(super) fn failure(&self) -> Failure {
        let foremost = self.failures.get(self.foremost());
        let is_busy = foremost.is_some_and(|(_, error)| error.is_busy());
        let advice = foremost.and_then(|(address, error)| advice(address, error));
        let mut reasons: Vec<Reason> = self.reasons().into_iter().chain(advice).collect();
        if is_busy {
            return Failure::unreachable("the lock file service does not answer", reasons);
        }
        let direct =
            "--direct uses the lock files without the service, for users who may write them";
        reasons.push(direct.to_owned());
        Failure::unreachable("no lock file service can be reached", reasons)
    }

    /// For people.
    pub(super) fn reasons(&self) -> Vec<Reason> {
        self.failures.iter().map(|(address, error)| format!("{address}: {error}")).collect()
    }
}
