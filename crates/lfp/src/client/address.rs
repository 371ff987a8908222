//! The address of a service. Text in, value out. Pure.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Where the service's Unix socket is on an installed system.
pub const UNIX_SOCKET: &str = "/run/lfpd/lfpd.sock";

/// The port that the memo gives the protocol.
const PORT: u16 = 50001;

/// Where a service listens; always on this host.
///
/// ```
/// use lfp::Address;
///
/// assert!("unix:/run/lfpd/lfpd.sock".parse::<Address>().is_ok());
/// assert!("127.0.0.1:50001".parse::<Address>().is_ok());
/// assert!("192.0.2.1:50001".parse::<Address>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A loopback address.
    Tcp(SocketAddr),
}

/// The text is no address of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotAnAddress {
    /// Neither a path nor `unix:PATH` nor `ADDRESS:PORT`.
    Malformed,
    /// A lock for a process of this host cannot be had elsewhere.
    NotThisHost,
}

impl Address {
    /// Where to look for a service, in this order: the Unix socket, by which the service
    /// surely knows who asks, then the memo's TCP port.
    #[must_use]
    pub fn usual() -> [Self; 2] {
        [Self::default(), Self::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))]
    }
}

/// [`UNIX_SOCKET`].
impl Default for Address {
    fn default() -> Self {
        Self::Unix(PathBuf::from(UNIX_SOCKET))
    }
}

impl FromStr for Address {
    type Err = NotAnAddress;

    /// `unix:PATH`, an absolute path, or a numeric loopback address with its port:
    /// `127.0.0.1:50001`, `[::1]:50001`. Names are not looked up.
    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let path = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text));
        if let Some(path) = path {
            let fits = !path.is_empty() && !path.contains('\0');
            return if fits { Ok(Self::Unix(path.into())) } else { Err(NotAnAddress::Malformed) };
        }
        let address: SocketAddr = text.parse().map_err(|_| NotAnAddress::Malformed)?;
        if address.ip().to_canonical().is_loopback() {
            Ok(Self::Tcp(address))
        } else {
            Err(NotAnAddress::NotThisHost)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for NotAnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("needs a path, unix:PATH or ADDRESS:PORT"),
            Self::NotThisHost => f.write_str("locks are for processes of this host only"),
        }
    }
}

impl std::error::Error for NotAnAddress {}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::path("/run/x.sock", "/run/x.sock")]
    #[case::unix("unix:/run/x.sock", "/run/x.sock")]
    #[case::relative("unix:x.sock", "x.sock")]
    #[case::v4("127.0.0.1:50001", "127.0.0.1:50001")]
    #[case::another_loopback("127.1.2.3:1", "127.1.2.3:1")]
    #[case::v6("[::1]:50001", "[::1]:50001")]
    #[case::mapped("[::ffff:127.0.0.1]:9", "[::ffff:127.0.0.1]:9")]
    fn valid_addresses_are_parsed(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
    }

    #[rstest]
    #[case::empty("", NotAnAddress::Malformed)]
    #[case::no_path("unix:", NotAnAddress::Malformed)]
    #[case::nul("/a\0b", NotAnAddress::Malformed)]
    #[case::name("localhost:50001", NotAnAddress::Malformed)]
    #[case::no_port("127.0.0.1", NotAnAddress::Malformed)]
    #[case::too_large("127.0.0.1:65536", NotAnAddress::Malformed)]
    #[case::elsewhere("192.0.2.1:50001", NotAnAddress::NotThisHost)]
    #[case::everywhere("0.0.0.0:50001", NotAnAddress::NotThisHost)]
    #[case::elsewhere_v6("[2001:db8::1]:50001", NotAnAddress::NotThisHost)]
    fn addresses_that_are_malformed_or_remote_are_refused(
        #[case] text: &str,
        #[case] why: NotAnAddress,
    ) {
        assert_eq!(text.parse::<Address>(), Err(why));
    }
}
