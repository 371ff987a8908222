//! Asks the authority whether a request is allowed, with one look at the device each time, and whether its
//! user has too many locks already.

use pidlockfile::Pid;
use ttylock::{Contended, DeviceName, Outcome, Request};

use super::Service;
use crate::limits::FILES_PER_USER;
use crate::log::Severity;
use crate::peer::{Peer, Stranger};
use crate::protocol::command::Demand;
use crate::serve::authority::{Granted, Refused};
use crate::serve::client::Client;

impl Service {
    pub(super) fn grant(
        &mut self,
        peer: &Result<Peer, Stranger>,
        demand: Demand,
    ) -> Option<(Demand, Option<Granted>)> {
        let peer = peer.as_ref().ok()?;
        let device = demand.device().clone();
        let Self { authority, processes, table, .. } = self;
        let granted = authority.grant(processes, peer, demand, table);
        granted.map_err(|refused| self.tell_refused(peer, &device, refused)).ok()
    }

    /// The right to what was granted before, for another attempt.
    pub(super) fn grant_again(
        &mut self,
        peer: &Result<Peer, Stranger>,
        request: &Request,
    ) -> Option<Granted> {
        let peer = peer.as_ref().ok()?;
        let Self { authority, processes, table, .. } = self;
        let granted = authority.grant_taking(processes, peer, request.clone(), table);
        granted.map_err(|refused| self.tell_refused(peer, &request.device, refused)).ok()
    }

    fn tell_refused(&mut self, peer: &Peer, device: &DeviceName, refused: Refused) {
        match refused {
            Refused::Process(pid, refusal) => {
                let device = device.as_str();
                self.tell_of(
                    peer.uid(),
                    Severity::Notice,
                    format_args!("{peer}: refused to name process {pid} for {device}: {refusal}"),
                );
            }
            Refused::Device(answer) => self.tell_events(peer, answer.events),
        }
    }

    /// The right that was granted in this very moment; for an attempt that comes later, a new one.
    pub(super) fn right(
        &mut self,
        client: &Client,
        granted: Option<Granted>,
        request: &Request,
    ) -> Option<Granted> {
        granted.or_else(|| self.grant_again(&client.peer, request))
    }

    pub(super) fn holds_too_many(&mut self, client: &Client) -> bool {
        let table = &self.table;
        let held = self.quota.files(client.user(), |who| table.watched().count_of(who));
        let foreseen = self.files_foreseen(client.user(), FILES_PER_USER.saturating_sub(held));
        let is_root = client.user() == Some(0);
        let files = held.saturating_add(if is_root { 0 } else { foreseen });
        if files < FILES_PER_USER {
            return false;
        }
        self.tell_of(
            client.user(),
            Severity::Notice,
            format_args!("refused: the processes of this user already have {files} lock files"),
        );
        true
    }

    pub(super) fn note_holder(
        &mut self,
        client: &Client,
        pid: Pid,
        outcome: &Result<Outcome, Contended>,
    ) {
        // A session watches no process.
        if !matches!(outcome, Ok(Outcome::Done)) || self.table.watched().is_empty() {
            return;
        }
        let who = self.table.machine().identify(pid);
        if self.table.watched().count_of(&who) > 0 {
            self.quota.note(client.user(), who);
        }
    }
}
