//! The address of a server: `host:port`, `[v6]:port`, `host`, or `unix:/path`. Pure.
//!
//! Text in, value out. Never resolves a name and never opens a socket.

use std::fmt;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;

/// The default port of all dflockd clients.
pub const DEFAULT_PORT: u16 = 6388;

/// The address of one server. The connection resolves the host.
///
/// ```
/// # fn main() -> Result<(), dflock::AddressError> {
/// use dflock::ServerAddress;
///
/// let server: ServerAddress = "locks.example:6388".parse()?;
/// assert_eq!(server.host(), Some("locks.example"));
/// assert_eq!("unix:/run/dflockd.sock".parse::<ServerAddress>()?.host(), None);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerAddress {
    /// A host name or an address without brackets, and a port.
    Tcp {
        /// Host name, IPv4 or IPv6 address.
        host: String,
        /// TCP port, 1 to 65535.
        port: u16,
    },
    /// The path of a Unix stream socket.
    Unix(PathBuf),
}

impl ServerAddress {
    /// The default address of the existing clients.
    #[must_use]
    pub fn local_default() -> Self {
        Self::Tcp { host: "127.0.0.1".to_owned(), port: DEFAULT_PORT }
    }

    /// The host as TLS must verify it; nothing for a Unix socket.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Tcp { host, .. } => Some(host),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why a text is not the address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// The host or the path is empty.
    Empty,
    /// The part after the colon is not a port from 1 to 65535.
    Port,
    /// A bracket without its pair, or text between bracket and colon.
    Bracket,
    /// Blanks or control characters.
    Character,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the host or path is empty",
            Self::Port => "the port must be a number from 1 to 65535",
            Self::Bracket => "brackets belong around an IPv6 address only, as in [::1]:6388",
            Self::Character => "blanks and control characters are not allowed",
        })
    }
}

impl std::error::Error for AddressError {}

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(AddressError::Empty),
                _ if path.contains('\0') => Err(AddressError::Character),
                _ => Ok(Self::Unix(PathBuf::from(path))),
            };
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(AddressError::Character);
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(inside) => inside.split_once(']').ok_or(AddressError::Bracket)?,
            None if text.contains(['[', ']']) => return Err(AddressError::Bracket),
            None => match text.find(':').filter(|first| text.rfind(':') == Some(*first)) {
                Some(colon) => text.split_at(colon),
                // A bare IPv6 address has many colons and therefore no port.
                None => (text, ""),
            },
        };
        if host.is_empty() {
            return Err(AddressError::Empty);
        }
        let port = match port.strip_prefix(':') {
            Some(port) => parse_port(port)?,
            None if port.is_empty() => DEFAULT_PORT,
            None => return Err(AddressError::Bracket),
        };
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

fn parse_port(text: &str) -> Result<u16, AddressError> {
    let port = text.parse::<NonZeroU16>().ok().filter(|_| !text.starts_with('+'));
    port.map(NonZeroU16::get).ok_or(AddressError::Port)
}

#[cfg(test)]
mod tests {
    use super::{AddressError, ServerAddress};
    use rstest::rstest;

    #[rstest]
    #[case("127.0.0.1:6388", "127.0.0.1:6388")]
    #[case("localhost", "localhost:6388")]
    #[case("::1", "[::1]:6388")]
    #[case("[::1]", "[::1]:6388")]
    #[case("[fe80::1%eth0]:7000", "[fe80::1%eth0]:7000")]
    #[case("locks.example:1", "locks.example:1")]
    #[case("locks.example:65535", "locks.example:65535")]
    #[case("unix:/run/dflockd/socket", "unix:/run/dflockd/socket")]
    fn an_address_reads_back_as_its_full_form(#[case] text: &str, #[case] full: &str) {
        let address: ServerAddress = text.parse().unwrap();
        assert_eq!(address.to_string(), full);
        assert_eq!(full.parse::<ServerAddress>().unwrap(), address);
    }

    #[rstest]
    #[case("", AddressError::Empty)]
    #[case(":6388", AddressError::Empty)]
    #[case("[]:6388", AddressError::Empty)]
    #[case("unix:", AddressError::Empty)]
    #[case("unix:/a\0b", AddressError::Character)]
    #[case("host:", AddressError::Port)]
    #[case("host:0", AddressError::Port)]
    #[case("host:65536", AddressError::Port)]
    #[case("host:+1", AddressError::Port)]
    #[case("host:-1", AddressError::Port)]
    #[case("host:1x", AddressError::Port)]
    #[case("[::1", AddressError::Bracket)]
    #[case("[::1]6388", AddressError::Bracket)]
    #[case("::1]:6388", AddressError::Bracket)]
    #[case("two words:1", AddressError::Character)]
    #[case("tab\t:1", AddressError::Character)]
    fn a_bad_address_says_what_is_wrong(#[case] text: &str, #[case] error: AddressError) {
        assert_eq!(text.parse::<ServerAddress>(), Err(error));
    }
}
