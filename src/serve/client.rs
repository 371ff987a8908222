//! One client, as its connection and the service share it: its session, its user, and what its next turn waits for.

use std::time::Instant;

use pidlockfile::process::ProcessIdentity;
use ttylock::{Answer, Backoff, DeviceName};

use super::admission::{ClientId, Owner, User};
use super::authority::denied;
use crate::peer::Peer;
use crate::protocol::Session;
use crate::protocol::reply::Reply;

/// One client: its session and its user.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) session: Session,
    /// `None` for a stranger, whose session is one refusal.
    pub(super) peer: Option<Peer>,
    pub(super) id: ClientId,
    /// For whom it counts, and whether that is an administrator.
    pub(super) owner: Owner,
    /// The attempts at the request that is being answered.
    pub(super) backoff: Option<Backoff>,
    /// The process for which it waits for a device.
    pub(super) claimant: Option<ProcessIdentity>,
}

impl Client {
    /// The user at the other end, if the kernel shows it. Limits count by [`Client::owner`].
    pub(super) fn user(&self) -> User {
        self.peer.as_ref().and_then(|peer| peer.uid)
    }

    pub(super) fn peer(&self) -> Result<&Peer, Answer> {
        self.peer.as_ref().ok_or_else(|| denied(None))
    }

    pub(super) fn answer(&mut self, reply: Reply) {
        self.backoff = None;
        self.session.answer(&reply);
    }

    /// The attempts at its request. If there was none yet, the first begins now.
    pub(super) fn under_way(&mut self) -> &mut Backoff {
        self.backoff.get_or_insert_with(|| Backoff::since(Instant::now()))
    }

    /// The next attempt at its request is the last.
    pub(super) fn retry_no_more(&mut self) {
        self.backoff = Some(self.under_way().last(Instant::now()));
    }

    /// The client is gone. Cancels a STAT or a LOCK that is being answered; false for other requests.
    pub(super) fn cancel_request(&mut self) -> bool {
        let is_cancelled = self.session.cancel_request();
        if is_cancelled {
            self.backoff = None;
        }
        is_cancelled
    }
}

/// What a connection waits for before its next turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// That the client sends something.
    Reading,
    /// That other connections have their turns. At this moment, in its last turn, it had sent more than one turn reads
    /// or answers.
    Pausing(Instant),
    /// That the client takes its replies. It has taken none since this moment.
    Sending(Instant),
    /// That the client gets the device for which it waits, or an answer without it.
    Waiting,
    /// That the search for the holders of this device, or of any, ends.
    Searching(Option<DeviceName>),
    /// This moment. The last attempt at its request had no answer, and the next one is made then.
    Retrying(Instant),
    /// Nothing: it has no other turn, and is to be closed.
    Over,
}
