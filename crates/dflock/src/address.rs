//! The servers of a client: the address of each (`host:port`, `[v6]:port`, `host`, or `unix:/path`), and which of them a
//! key belongs to. Text in, value out. Never resolves a name and never opens a socket. Pure.
//!
//! The choice for a key never changes, because all clients of a fleet must agree, in every language.

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

/// The servers of a client, and how they share the keys. At least one.
///
/// ```
/// # fn main() -> Result<(), dflock::AddressError> {
/// use dflock::Servers;
///
/// // Three servers with one etcd: any of them knows every key.
/// let servers = Servers::AnyOf(vec!["a:6388".parse()?, "b:6388".parse()?, "c:6388".parse()?]);
/// assert_eq!(servers.of(b"nightly").len(), 3);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Servers {
    /// Each has keys of its own, chosen by [`shard()`]; if it is away, so are they. Every client of the fleet lists
    /// the same servers in the same order.
    Shards(Vec<ServerAddress>),
    /// One service at several addresses, such as servers on one etcd. Each knows every key, and if one is away the
    /// next is asked, also for existing holds. Never list servers in this way that do not share their locks: two
    /// clients would get one key, each at its own server.
    AnyOf(Vec<ServerAddress>),
}

impl Servers {
    /// All of them.
    #[must_use]
    pub fn addresses(&self) -> &[ServerAddress] {
        match self {
            Self::Shards(servers) | Self::AnyOf(servers) => servers,
        }
    }

    /// The servers that know this key, in the order in which they are asked. If there are several, the key chooses
    /// the first, as with shards. That spreads the load, and all clients of a key use the same server, which makes
    /// hand-overs cheap.
    #[must_use]
    pub fn of(&self, key: &[u8]) -> Vec<&ServerAddress> {
        let servers = self.addresses();
        let first = shard(key, servers.len()).unwrap_or(0);
        let known = match self {
            Self::Shards(_) => 1,
            Self::AnyOf(servers) => servers.len(),
        };
        servers.iter().cycle().skip(first).take(known).collect()
    }

    /// Whether one server knows both keys.
    pub(super) fn know_both(&self, one: &[u8], other: &[u8]) -> bool {
        self.of(one).first().is_some_and(|server| self.of(other).contains(server))
    }
}

/// The index of the server for a key: CRC-32 (IEEE, as zlib's `crc32`) of the key's bytes, modulo the number of
/// servers, in the order of the user's list. The Go, Python and TypeScript clients compute the same.
///
/// `None` without servers.
#[must_use]
pub fn shard(key: &[u8], servers: usize) -> Option<usize> {
    let servers = u64::try_from(servers).ok()?;
    let index = u64::from(crc32(key)).checked_rem(servers)?;
    usize::try_from(index).ok()
}

/// The reflected polynomial of IEEE 802.3.
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// Bit by bit: keys are short, and hashed once for each connection.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |c, _| step(c)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{AddressError, ServerAddress, Servers, crc32, shard};

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

    // The values are those of Python's zlib.crc32.
    #[rstest]
    #[case(b"", 0)]
    #[case(b"a", 0xe8b7_be43)]
    #[case(b"123456789", 0xcbf4_3926)]
    #[case(b"my-job", 0xa7ab_7190)]
    #[case("schl\u{fc}ssel".as_bytes(), 0xe5fa_94f6)]
    #[case(b"\xff\x00", 0xd2fd_ef8d)]
    fn the_sum_is_that_of_zlib(#[case] key: &[u8], #[case] sum: u32) {
        assert_eq!(crc32(key), sum);
    }

    #[rstest]
    #[case(b"123456789", 0, None)]
    #[case(b"123456789", 1, Some(0))]
    #[case(b"123456789", 2, Some(0))]
    #[case(b"123456789", 3, Some(2))]
    #[case(b"123456789", 7, Some(5))]
    #[case(b"a", 3, Some(0))]
    fn the_index_is_the_sum_modulo_the_servers(
        #[case] key: &[u8],
        #[case] servers: usize,
        #[case] index: Option<usize>,
    ) {
        assert_eq!(shard(key, servers), index);
    }

    #[rstest]
    #[case(b"123456789", "c", "cab")]
    #[case(b"a", "a", "abc")]
    fn a_key_has_one_shard_or_all_servers_from_there(
        #[case] key: &[u8],
        #[case] shard: &str,
        #[case] any: &str,
    ) {
        let servers: Vec<_> = ["a:1", "b:1", "c:1"].map(|text| text.parse().unwrap()).into();
        let hosts = |servers: &Servers| -> String {
            servers.of(key).into_iter().filter_map(|server| server.host()).collect()
        };
        let shards = Servers::Shards(servers.clone());
        assert!(shards.know_both(key, key) && !shards.know_both(b"a", b"123456789"));
        assert!(Servers::AnyOf(servers.clone()).know_both(b"a", b"123456789"));
        assert_eq!(hosts(&Servers::Shards(servers.clone())), shard);
        assert_eq!(hosts(&Servers::AnyOf(servers)), any);
        assert_eq!(hosts(&Servers::Shards(Vec::new())), "");
        assert_eq!(hosts(&Servers::AnyOf(Vec::new())), "");
    }
}
