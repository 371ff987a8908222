//! A ticket that this front-end made, or that one of its connections renewed.

use super::keys::Ticket;
use leases::{ConnId, Grant, Moment, Refusal, Token};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The state of one of our tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the queue.
    Waiting,
    /// It has its turn, which is being recorded.
    Promoting,
    Held,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The hold was recorded by a write sent at this moment.
    Granted(Moment),
    Refused(Refusal),
}

/// When this front-end must end a hold. Only etcd counts: until the hold is ended there, it is a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    /// The end of a lease that this front-end wrote.
    pub(super) lease: Moment,
    /// The end of a grace that this front-end wrote.
    pub(super) grace: Moment,
    /// When the end is tried, or tried again.
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
    /// Its latest known mod revision.
    pub(super) revision: i64,
    pub(super) ticket: Ticket,
    pub(super) place: Place,
    pub(super) conn: ConnId,
    pub(super) since: Moment,
    pub(super) ends: Ends,
    pub(super) wake: Option<oneshot::Sender<End>>,
    /// No client wants it any more: it is released as soon as it is a hold.
    pub(super) unwanted: bool,
}

/// The condition of a guarded change of a ticket.
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
