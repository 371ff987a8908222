//! The errors of a client, and their words; also those of TLS and its files, because the messages of rustls itself are
//! names from its source. Pure.

use std::time::Duration;
use std::{fmt, io};

use rustls::pki_types::pem;
use rustls::{CertificateError, Error};

use super::terms::{ArgumentError, ServerAddress};

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
    /// A hold without a connection would not last: the server releases it before its lease ends.
    EndsWithConnection {
        /// How long after the end of the connection; zero: at once.
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

    /// The error of `watch` or `value`: a server that does not know the request says no more than `error`.
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
            Self::Protocol(line) if line.starts_with("HTTP/") => {
                f.write_str("an HTTP server: name the port of the lock protocol, by default 6388")
            }
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

/// Why there is no TLS to a server.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum, which may get more variants")]
pub(crate) fn words_of_tls(reason: &Error) -> String {
    let words = match reason {
        Error::InvalidMessage(_) => "the server does not speak TLS",
        Error::InvalidCertificate(problem) => of_certificate(problem),
        Error::NoCertificatesPresented => "the server shows no certificate",
        Error::PeerIncompatible(_) => {
            "no TLS version or cipher in common with the server (TLS 1.2 or 1.3)"
        }
        Error::PeerMisbehaved(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::DecryptError => "the server violates TLS",
        Error::AlertReceived(alert) => {
            // RFC 8446, 6: the numbers have names there.
            return format!("the server ended the TLS handshake (alert {})", u8::from(*alert));
        }
        _ => "TLS with the server failed",
    };
    words.to_owned()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum, which may get more variants")]
fn of_certificate(problem: &CertificateError) -> &'static str {
    match problem {
        CertificateError::UnknownIssuer => {
            "the server's certificate is not signed by a trusted authority; see --tls-ca"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another name; see --tls-name"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet"
        }
        // Also where a trusted authority has the name of a certificate that signed itself.
        CertificateError::BadSignature => {
            "the signature under the server's certificate is wrong; if it signed itself, see --tls-ca"
        }
        CertificateError::BadEncoding => "the server's certificate is damaged",
        CertificateError::Revoked => "the server's certificate is revoked",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the server's certificate is not made for servers (extendedKeyUsage=serverAuth)"
        }
        // webpki has no word of rustls' for this one.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the server shows the certificate of an authority (CA:TRUE) as its own; make it one \
             with basicConstraints=CA:FALSE, or sign another with it"
        }
        _ => {
            "the server's certificate is of an unsupported kind; if it signed itself, see --tls-ca"
        }
    }
}

/// Why a file has no certificates.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum, which may get more variants")]
pub(crate) fn words_of_pem(reason: &pem::Error) -> String {
    match reason {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::MissingSectionEnd { .. } => {
            "the end is missing; is the file cut short?".to_owned()
        }
        pem::Error::NoItemsFound => "it contains nothing of this kind".to_owned(),
        _ => "not a PEM file, or a damaged one".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use rustls::{AlertDescription, CertificateError, Error};

    use super::{ClientError, Refusal, words_of_tls};

    #[test]
    fn a_failure_that_may_pass_is_reported_before_others() {
        let refused = || ClientError::Refused(Refusal::Auth);
        assert!(matches!(ClientError::NoServer.or(refused()), ClientError::Refused(_)));
        assert!(matches!(refused().or(ClientError::TimedOut), ClientError::TimedOut));
        assert!(matches!(ClientError::TimedOut.or(refused()), ClientError::TimedOut));
    }

    /// No name out of somebody's sources gets to people.
    #[rstest]
    #[case(Error::AlertReceived(AlertDescription::HandshakeFailure), "(alert 40)")]
    #[case(Error::InvalidCertificate(CertificateError::BadEncoding), "is damaged")]
    #[case(
        Error::InvalidCertificate(CertificateError::UnhandledCriticalExtension),
        "of an unsupported kind"
    )]
    #[case(
        Error::InvalidCertificate(CertificateError::UnknownRevocationStatus),
        "of an unsupported kind"
    )]
    #[case(Error::NoCertificatesPresented, "shows no certificate")]
    #[case(Error::HandshakeNotComplete, "failed")]
    fn tls_errors_are_told_in_plain_words(#[case] reason: Error, #[case] words: &str) {
        let said = words_of_tls(&reason);
        assert!(said.contains(words), "{said}");
        let is_name = |word: &str| word.chars().skip(1).any(char::is_uppercase) && word != "TLS";
        assert!(!said.split(|c: char| !c.is_alphabetic()).any(is_name), "{said}");
    }
}
