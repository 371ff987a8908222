//! The errors of a client, and their words. Pure.

use super::address::ServerAddress;
use super::terms::ArgumentError;
use std::fmt;
use std::io;
use std::time::Duration;

/// A server's refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// `error`: the token holds nothing, or the server does not understand the request.
    Error,
    /// `error_auth`: the auth token is missing or wrong.
    Auth,
    /// `error_max_locks`: the server has no room for another key.
    MaxLocks,
    /// `error_max_waiters`: the queue of the key is full.
    MaxWaiters,
    /// `error_limit_mismatch`: the key exists with another limit.
    LimitMismatch,
    /// `error_not_enqueued`: wait without an enqueue before it.
    NotEnqueued,
    /// `error_already_enqueued`: a second enqueue on one connection.
    AlreadyEnqueued,
    /// `error_lease_expired`: granted, but the lease was over before the client asked.
    LeaseExpired,
    /// `error_draining`: the server is shutting down.
    Draining,
    /// `error_not_leader`, from a cluster of the Go server: another server of the list leads. The address behind it is
    /// not used: it may be one at which this client cannot reach that server, or one that was never named to it.
    NotLeader,
}

const NOT_LEADER: &str = "error_not_leader";

const WORDS: [(Refusal, &str, &str); 10] = [
    (Refusal::Error, "error", "not held, or not understood"),
    (Refusal::Auth, "error_auth", "the server refused the auth token, or needs one"),
    (Refusal::MaxLocks, "error_max_locks", "the server has no room for another key"),
    (Refusal::MaxWaiters, "error_max_waiters", "too many are waiting for this key"),
    (Refusal::LimitMismatch, "error_limit_mismatch", "the key is in use with another limit"),
    (Refusal::NotEnqueued, "error_not_enqueued", "not in the queue"),
    (Refusal::AlreadyEnqueued, "error_already_enqueued", "in the queue already"),
    (Refusal::LeaseExpired, "error_lease_expired", "the lease ended before the client took it"),
    (Refusal::Draining, "error_draining", "the server is shutting down"),
    (Refusal::NotLeader, NOT_LEADER, "the server does not lead its cluster"),
];

impl Refusal {
    /// The refusal of a status word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let word = match word.split_once(' ') {
            Some((NOT_LEADER, _leader)) => NOT_LEADER,
            Some(_) | None => word,
        };
        WORDS.iter().find(|(_, known, _)| *known == word).map(|(refusal, _, _)| *refusal)
    }

    /// The status word.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (Self, &'static str, &'static str) {
        WORDS.into_iter().find(|(refusal, _, _)| *refusal == self).unwrap_or((self, "error", ""))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().2)
    }
}

/// Why a client call failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// A key, token or number that the protocol cannot express. Nothing was sent.
    InvalidArgument(ArgumentError),
    /// No connection to this server.
    Connect {
        /// The address of the server.
        server: ServerAddress,
        /// The reason from the system or TLS.
        error: io::Error,
    },
    /// The connection broke, or the server closed it, before the answer came.
    Broken(io::Error),
    /// No answer in time.
    TimedOut,
    /// The server refused the request.
    Refused(Refusal),
    /// An answer that the protocol does not have (shortened, control characters escaped).
    Protocol(String),
    /// A hold without a connection would not last: the server releases it so long after the connection has closed,
    /// before its lease ends.
    EndsWithConnection {
        /// Zero: at once.
        after: Duration,
    },
    /// The server has no shared locks, or cannot record another hold. Its answer is the same in both cases.
    NotShared,
    /// The server does not know this request, which is needed to watch a key: it is too old.
    NotWatched(&'static str),
    /// The settings name no server.
    NoServer,
    /// The TLS settings cannot be used.
    Tls(String),
}

impl ClientError {
    pub(super) fn protocol(line: &str) -> Self {
        Self::Protocol(line.chars().take(80).flat_map(char::escape_debug).collect())
    }

    /// Whether the same request may succeed on another connection: it was not refused. A missing certificate or
    /// permission does not pass by itself.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Connect { error, .. } => !matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied
            ),
            Self::Broken(_)
            | Self::TimedOut
            | Self::Refused(Refusal::Draining | Refusal::NotLeader) => true,
            Self::InvalidArgument(_)
            | Self::Refused(_)
            | Self::Protocol(_)
            | Self::EndsWithConnection { .. }
            | Self::NotShared
            | Self::NotWatched(_)
            | Self::NoServer
            | Self::Tls(_) => false,
        }
    }

    /// The server cannot carry the request out; another one of the same service can.
    pub(super) fn is_for_another_server(&self) -> bool {
        matches!(self, Self::Refused(Refusal::NotLeader))
    }

    /// The token holds nothing.
    pub(super) fn not_held() -> Self {
        Self::Refused(Refusal::Error)
    }

    /// The same, or the server does not know the request.
    pub(super) fn is_not_held(&self) -> bool {
        matches!(self, Self::Refused(Refusal::Error))
    }

    /// The lease was over before the client could use it.
    pub(super) fn is_expired(&self) -> bool {
        matches!(self, Self::Refused(Refusal::LeaseExpired))
    }

    /// Whether this answer to a renewal says that the lease is over.
    pub(super) fn is_end_of_lease(&self) -> bool {
        matches!(self, Self::Refused(Refusal::Error | Refusal::LeaseExpired))
    }

    /// Of `watch` or `value`: a server that does not know the request says no more than `error`.
    pub(super) fn of_watching(self, request: &'static str) -> Self {
        if self.is_not_held() { Self::NotWatched(request) } else { self }
    }

    /// What is reported if one server failed with this and another with that. As long as one of them may come back, it
    /// is worth trying again.
    pub(super) fn or(self, other: Self) -> Self {
        if self.is_passing() { self } else { other }
    }

    pub(super) fn closed() -> Self {
        Self::Broken(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server"))
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArgument(error) => error.fmt(f),
            Self::Connect { server, error } => write!(f, "cannot connect to {server}: {error}"),
            Self::Broken(error) => write!(f, "connection lost: {error}"),
            Self::TimedOut => f.write_str("the server does not answer"),
            Self::Refused(refusal) => write!(f, "{refusal} ({})", refusal.word()),
            Self::Protocol(line) => write!(f, "not a dflockd answer: {line}"),
            Self::EndsWithConnection { after: Duration::ZERO } => {
                f.write_str("the server releases the lock when this connection closes")
            }
            Self::EndsWithConnection { after } => {
                let after_s = after.as_secs();
                write!(
                    f,
                    "the server releases the lock {after_s} seconds after this connection closes"
                )
            }
            Self::NotShared => f.write_str(
                "the server refuses a shared lock: it does not know the request `rl`, or cannot record another hold",
            ),
            Self::NotWatched(request) => {
                write!(f, "the server cannot be watched: it does not know the request `{request}`")
            }
            Self::NoServer => f.write_str("no server is named"),
            Self::Tls(what) => write!(f, "TLS: {what}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<ArgumentError> for ClientError {
    fn from(error: ArgumentError) -> Self {
        Self::InvalidArgument(error)
    }
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientError, Refusal};

    #[test]
    fn a_failure_that_may_pass_is_reported_before_others() {
        let refused = || ClientError::Refused(Refusal::Auth);
        assert!(matches!(ClientError::NoServer.or(refused()), ClientError::Refused(_)));
        assert!(matches!(refused().or(ClientError::TimedOut), ClientError::TimedOut));
        assert!(matches!(ClientError::TimedOut.or(refused()), ClientError::TimedOut));
    }
}
