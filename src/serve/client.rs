//! One client of the service: its session, its peer, and the state of its request.

use std::time::Instant;

use pidlockfile::process::ProcessIdentity;
use ttylock::{Backoff, Outcome};

use super::admission::User;
use super::queue::WaiterId;
use crate::peer::{Peer, Stranger};
use crate::protocol::session::Session;

/// One client: its session and its user.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) session: Session,
    pub(super) peer: Result<Peer, Stranger>,
    pub(super) id: WaiterId,
    /// The attempts of the request that is being answered.
    pub(super) backoff: Option<Backoff>,
    /// The process that it waits for.
    pub(super) holder: Option<ProcessIdentity>,
}

impl Client {
    /// The user at the other end, where the kernel tells.
    pub(super) fn user(&self) -> User {
        self.peer.as_ref().ok().and_then(Peer::uid)
    }

    pub(super) fn answer(&mut self, outcome: Outcome) {
        self.backoff = None;
        self.session.answer(outcome);
    }

    /// The attempts of its request, which begins now unless it has begun.
    pub(super) fn under_way(&mut self) -> &mut Backoff {
        self.backoff.get_or_insert_with(|| Backoff::since(Instant::now()))
    }

    /// The next attempt of its request is the last.
    pub(super) fn retry_no_more(&mut self) {
        self.backoff = Some(self.under_way().used_up());
    }

    pub(super) fn is_on_tcp(&self) -> bool {
        self.peer.as_ref().is_ok_and(Peer::is_on_tcp)
    }

    /// The client is gone: a STAT or a LOCK that is being answered is given up. False for other requests.
    pub(super) fn give_up_request(&mut self) -> bool {
        let gives_up = self.session.give_up();
        if gives_up {
            self.backoff = None;
        }
        gives_up
    }
}
