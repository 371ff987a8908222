//! Asks the authority whether a client may have what it demands, with one look at the device each time.

use ttylock::device::name::DeviceName;
use ttylock::lock::Request;

use super::Service;
use crate::log::Severity;
use crate::peer::{Peer, Stranger};
use crate::protocol::session::Demand;
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
        let granted = authority.grant(processes, peer, demand, |name| table.resolve(name));
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
        let granted =
            authority.grant_taking(processes, peer, request.clone(), |name| table.resolve(name));
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
}
