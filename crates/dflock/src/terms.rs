//! Checked values of a client: the servers and their addresses, keys, tokens, lengths of leases. Text in, value out:
//! never resolves a name and never opens a socket. Pure.

use std::fmt;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub use leases::wire::{Kind, MAX_LINE_BYTES};

/// A key that every server accepts: 1 to 256 bytes without blank, tab, carriage return or newline.
///
/// ```
/// use dflock::Key;
///
/// assert!(Key::new("nightly-report").is_ok());
/// assert!(Key::new("nightly report").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// Checks the bytes of a key.
    ///
    /// # Errors
    /// The broken rule.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, ArgumentError> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Err(ArgumentError::KeyEmpty);
        }
        if bytes.len() > MAX_LINE_BYTES {
            return Err(ArgumentError::KeyLong);
        }
        if bytes.iter().any(|byte| b" \t\r\n".contains(byte)) {
            return Err(ArgumentError::KeyBlank);
        }
        Ok(Self(bytes))
    }

    /// The bytes as they go over the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// For messages: control characters and bytes that are not text are escaped.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).escape_debug().fmt(f)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// The proof of a grant. It gives the right to renew and release, so `Debug` never shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Checks the text of a token: printable ASCII without blanks, at most 128 bytes.
    ///
    /// # Errors
    /// [`ArgumentError::Token`].
    pub fn new(text: impl Into<String>) -> Result<Self, ArgumentError> {
        let text = text.into();
        if text.is_empty() || text.len() > 128 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(ArgumentError::Token);
        }
        Ok(Self(text))
    }

    /// The text as received from the server.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The longest time to wait and the longest lease: 2,147,483,647 seconds, 68 years. All servers accept it.
pub const MAX_TIME: Duration = Duration::from_secs(2_147_483_647);

/// The time to wait for something, in whole seconds, as the protocol has it. A part of a second counts as a whole one.
pub(super) fn seconds_to_wait(time: Duration) -> Result<u32, ArgumentError> {
    if time > MAX_TIME {
        return Err(ArgumentError::TimeLong);
    }
    let count = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(count).map_err(|_| ArgumentError::TimeLong)
}

/// The whole seconds of the length of a lease, which is never zero.
pub(super) fn seconds_of_lease(time: Option<Duration>) -> Result<Option<u32>, ArgumentError> {
    let count = time.map(seconds_to_wait).transpose()?;
    if count == Some(0) { Err(ArgumentError::Ttl) } else { Ok(count) }
}

/// A number of the protocol or of the command line.
pub(super) fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

/// A value that the protocol cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentError {
    /// An empty key.
    KeyEmpty,
    /// A key longer than 256 bytes.
    KeyLong,
    /// A key with a blank, tab, carriage return or newline.
    KeyBlank,
    /// No key where at least one is needed.
    KeyMissing,
    /// A key that is named twice.
    KeyTwice,
    /// A token that no server can have sent.
    Token,
    /// A lease of zero length.
    Ttl,
    /// A timeout or a lease longer than [`MAX_TIME`].
    TimeLong,
    /// A semaphore with 0 slots.
    Limit,
    /// A value that does not fit on its line.
    Value,
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KeyEmpty => "the key is empty",
            Self::KeyLong => "the key is longer than 256 bytes",
            Self::KeyBlank => "the key contains a blank, tab or line end",
            Self::KeyMissing => "no key is named",
            Self::KeyTwice => "a key is named twice",
            Self::Token => "not a token: 32 hexadecimal digits",
            Self::Ttl => "the lease must be longer than nothing",
            Self::TimeLong => "the time is longer than 2147483647 seconds (68 years)",
            Self::Limit => "the limit must be at least 1",
            Self::Value => {
                "a value is 1 to 256 bytes without control characters, and without blanks at its ends"
            }
        })
    }
}

impl std::error::Error for ArgumentError {}

/// What a client wants to hold, and for how long without a renewal: `None` stands for the server's default.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) ttl: Option<Duration>,
}

/// What a server must know to renew or release a hold.
#[derive(Clone)]
pub(super) struct Proof {
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) token: Token,
}

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
    use super::{
        AddressError, ArgumentError, Key, MAX_LINE_BYTES, MAX_TIME, ServerAddress, Servers, Token,
        crc32, seconds_of_lease, seconds_to_wait, shard,
    };
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case(b"k".to_vec(), None)]
    #[case(vec![b'k'; MAX_LINE_BYTES], None)]
    #[case(b"\x00\xff\xc2\xa0".to_vec(), None)]
    #[case(b"".to_vec(), Some(ArgumentError::KeyEmpty))]
    #[case(vec![b'k'; MAX_LINE_BYTES + 1], Some(ArgumentError::KeyLong))]
    #[case(b"a b".to_vec(), Some(ArgumentError::KeyBlank))]
    #[case(b"a\tb".to_vec(), Some(ArgumentError::KeyBlank))]
    #[case(b"a\rb".to_vec(), Some(ArgumentError::KeyBlank))]
    #[case(b"a\nb".to_vec(), Some(ArgumentError::KeyBlank))]
    fn a_key_is_what_fits_on_its_line(
        #[case] bytes: Vec<u8>,
        #[case] error: Option<ArgumentError>,
    ) {
        assert_eq!(Key::new(bytes).err(), error);
    }

    #[test]
    fn a_key_is_shown_without_its_control_characters() {
        assert_eq!(Key::new("a\u{1b}[2J").unwrap().to_string(), "a\\u{1b}[2J");
    }

    #[rstest]
    #[case("")]
    #[case("a b")]
    #[case("a\nr")]
    #[case("\u{e9}")]
    fn a_token_with_a_line_end_or_non_ascii_is_refused(#[case] text: &str) {
        assert_eq!(Token::new(text).err(), Some(ArgumentError::Token));
    }

    const TICK: Duration = Duration::from_nanos(1);

    #[rstest]
    #[case(Duration::ZERO, Ok(0), Err(ArgumentError::Ttl))]
    #[case(TICK, Ok(1), Ok(1))]
    #[case(Duration::from_secs(1), Ok(1), Ok(1))]
    #[case(Duration::from_millis(1001), Ok(2), Ok(2))]
    #[case(MAX_TIME - TICK, Ok(2_147_483_647), Ok(2_147_483_647))]
    #[case(MAX_TIME, Ok(2_147_483_647), Ok(2_147_483_647))]
    #[case(MAX_TIME + TICK, Err(ArgumentError::TimeLong), Err(ArgumentError::TimeLong))]
    #[case(Duration::MAX, Err(ArgumentError::TimeLong), Err(ArgumentError::TimeLong))]
    fn times_are_rounded_up_to_whole_seconds(
        #[case] time: Duration,
        #[case] to_wait: Result<u32, ArgumentError>,
        #[case] of_lease: Result<u32, ArgumentError>,
    ) {
        assert_eq!(seconds_to_wait(time), to_wait);
        assert_eq!(seconds_of_lease(Some(time)), of_lease.map(Some));
    }

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
