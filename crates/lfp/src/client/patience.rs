//! How long a service is waited for, in every program and library of ours, and when a service counts as absent.
//! Pure.
//!
//! Absent is only a service without a socket, or one whose socket refuses connections, or one in a network that has no
//! loopback, where nobody can listen. A queue of connections that is
//! full, a greeting that does not come, or an answer that takes long belongs to a *busy* service: other programs have
//! their locks from it. A program that took a busy service for none would open a port beside its holder, and any user
//! could arrange that with a flood of connections.

use std::io;
use std::time::Duration;

use super::Error;

/// For reaching the service, for its greeting, and for each answer. Longer than a service takes for its slowest LOCK.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// For a release that was not confirmed and is repeated beside other work: the end of the process releases the lock in
/// any case.
pub const RELEASE_PATIENCE: Duration = Duration::from_secs(1);

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
