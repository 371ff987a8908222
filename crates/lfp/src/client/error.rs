//! Why a service gave no answer: a closed list, its words, and when a service counts as absent. Pure.
//!
//! A service is absent only if it has no socket, if its socket refuses connections, or if the network has no loopback, so
//! that nobody can listen. If the queue of connections is full, no greeting comes, or an answer takes long, the service
//! is *busy*: other programs have their locks from it. A program that took a busy service for an absent one would open a
//! port beside its holder, and any user could arrange that with a flood of connections.

use std::{fmt, io};

/// Why there is no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Nobody listens there, or we may not ask.
    Unreachable(io::Error),
    /// The reply did not come in time. Whether the request was obeyed is not known.
    TimedOut,
    /// The connection ended before the reply. Whether the request was obeyed is not known.
    Closed,
    /// The connection failed. Whether the request was obeyed is not known.
    Broken(io::Error),
    /// The listener does not speak the protocol, or says more than [`REPLY_LIMIT`](super::REPLY_LIMIT) bytes.
    Protocol,
    /// Another user listens there who may not be the service, for this reason.
    Untrusted(String),
    /// 550 instead of a greeting: the service refuses this client.
    Refused,
    /// 421: the service is shutting down, or serves too many already.
    Dismissed,
    /// 202, 500 or 502: the service does not know this command.
    Unsupported,
    /// A code that is no answer to what was asked.
    Unexpected(u16),
}

impl Error {
    pub(super) fn of(error: io::Error) -> Self {
        let is = |kinds: &[io::ErrorKind]| kinds.contains(&error.kind());
        if is(&[io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut]) {
            Self::TimedOut
        } else if is(&[io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset]) {
            Self::Closed
        } else {
            Self::Broken(error)
        }
    }

    /// Whether the service may have obeyed the request.
    pub(crate) const fn leaves_in_doubt(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Closed | Self::Broken(_) | Self::Protocol)
    }

    /// Whether another try may succeed: the service is being restarted, or busy.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Closed | Self::Broken(_) | Self::Dismissed)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) if self.is_absence() => {
                write!(f, "the lock file service cannot be reached (is lfpd running?): {error}")
            }
            Self::Unreachable(error) => {
                write!(f, "the lock file service cannot be reached: {error}")
            }
            Self::TimedOut => f.write_str("the service gave no reply in time"),
            Self::Closed => f.write_str("the connection to the service ended before the reply"),
            Self::Broken(error) => write!(f, "the connection to the service failed: {error}"),
            Self::Protocol => {
                f.write_str("the program that answers there is not a lock file service")
            }
            Self::Untrusted(why) => f.write_str(why),
            Self::Refused => f.write_str("the service refuses this client"),
            Self::Dismissed => f.write_str("the service is shutting down or has too many clients"),
            Self::Unsupported => f.write_str("the service does not know this command"),
            Self::Unexpected(code) => write!(f, "an unexpected reply, code {code}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Unreachable(error) | Self::Broken(error) = self { Some(error) } else { None }
    }
}

impl Error {
    /// Whether surely no service is there.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, NetworkUnreachable, NotFound};
        let kinds = [NotFound, ConnectionRefused, NetworkUnreachable];
        matches!(self, Self::Unreachable(error) if kinds.contains(&error.kind()))
    }

    /// Whether a service is there and has no time: it may have the lock for another process.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        use io::ErrorKind::{ConnectionReset, Interrupted, TimedOut, WouldBlock};
        // A queue of connections that stays full, as unix(7) and tcp(7) report it.
        let full = [WouldBlock, TimedOut, ConnectionReset, Interrupted];
        matches!(self, Self::TimedOut | Self::Closed | Self::Broken(_) | Self::Dismissed)
            || matches!(self, Self::Unreachable(error) if full.contains(&error.kind()))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::no_socket(Error::Unreachable(io::ErrorKind::NotFound.into()), true, false)]
    #[case::refused(Error::Unreachable(io::ErrorKind::ConnectionRefused.into()), true, false)]
    #[case::no_loopback(Error::Unreachable(io::ErrorKind::NetworkUnreachable.into()), true, false)]
    #[case::ports_used_up(Error::Unreachable(io::ErrorKind::AddrNotAvailable.into()), false, false)]
    #[case::full_queue(Error::Unreachable(io::ErrorKind::WouldBlock.into()), false, true)]
    #[case::full_queue_of_tcp(Error::Unreachable(io::ErrorKind::TimedOut.into()), false, true)]
    #[case::silent(Error::TimedOut, false, true)]
    #[case::too_many_clients(Error::Dismissed, false, true)]
    #[case::hangs_up(Error::Closed, false, true)]
    #[case::not_permitted(Error::Unreachable(io::ErrorKind::PermissionDenied.into()), false, false)]
    #[case::no_service(Error::Protocol, false, false)]
    #[case::denied(Error::Refused, false, false)]
    fn a_busy_service_is_not_absent(
        #[case] error: Error,
        #[case] absent: bool,
        #[case] busy: bool,
    ) {
        assert_eq!((error.is_absence(), error.is_busy()), (absent, busy), "{error}");
    }
}
