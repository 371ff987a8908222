//! Chooses one of several servers for a key. Pure. This never changes, because all clients of a fleet must agree, in
//! every language.

use super::address::ServerAddress;

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
    use super::{Servers, crc32, shard};
    use rstest::rstest;

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
