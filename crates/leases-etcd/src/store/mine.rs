//! A ticket that this front-end made, or that one of its connections renewed.

use super::keys::Ticket;
use leases::{ConnId, Grant, Moment, Refusal, Token};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Where one of our tickets is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the queue.
    Waiting,
    /// It has its turn; that is being written down.
    Promoting,
    Held,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The hold was written down by a write sent at this moment.
    Granted(Moment),
    Refused(Refusal),
}

/// When this front-end is to end a hold. What etcd says is what counts: until it is ended there, it
/// is a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    /// The end of a lease that was written here.
    pub(super) lease: Moment,
    /// The end of a grace that was written here.
    pub(super) grace: Moment,
    /// When it is to be tried, or tried again.
    pub(super) rings: Moment,
}

impl Ends {
    pub(super) const NEVER: Self = Self::with_lease(Moment::NEVER);

    pub(super) const fn with_lease(lease: Moment) -> Self {
        Self { lease, grace: Moment::NEVER, rings: lease }
    }

    pub(super) fn first(&self) -> Moment {
        self.lease.min(self.grace)
    }
}

/// A ticket that this front-end made, or that one of its connections renewed.
#[derive(Debug)]
pub(super) struct Mine {
    pub(super) key: Arc<[u8]>,
    pub(super) nonce: u64,
    pub(super) create: i64,
    /// Its mod revision, as far as known.
    pub(super) revision: i64,
    pub(super) ticket: Ticket,
    pub(super) place: Place,
    pub(super) conn: ConnId,
    pub(super) since: Moment,
    pub(super) ends: Ends,
    pub(super) wake: Option<oneshot::Sender<End>>,
    /// Nobody wants it any more: it is given back when it is a hold.
    pub(super) unwanted: bool,
}

/// What a guarded change of a ticket rests on.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) key: Arc<[u8]>,
    pub(super) revision: i64,
    pub(super) create: i64,
}

impl Mine {
    pub(super) fn known(&self) -> Known {
        Known { key: Arc::clone(&self.key), revision: self.revision, create: self.create }
    }

    pub(super) fn grant(&self) -> Grant {
        let token = Token::new(u64::try_from(self.create).unwrap_or(0), self.nonce);
        Grant { token, ttl: self.ticket.ttl, expires: self.ends.lease }
    }
}
