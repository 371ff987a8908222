//! Finds the user at the other end of a TCP connection on this host, in the kernel's list of sockets.
//!
//! Source: proc(5), `/proc/net/tcp`: number, local and remote address, state, queues, timer, retransmissions,
//! uid, timeout, inode. Addresses stand there as 32-bit words in host order, the same words that the kernel
//! holds in network order.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::limits::PROC_NET_BYTES;

/// The user that has accepted the connection, to be asked when something was received on it: before,
/// nobody may have. `None` when the list does not tell.
pub(super) fn owner(near: SocketAddr, far: SocketAddr) -> Option<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| owner_in(table, near, far))
}

fn owner_in(table: &str, near: SocketAddr, far: SocketAddr) -> Option<u32> {
    let lines = BufReader::new(File::open(table).ok()?.take(PROC_NET_BYTES)).lines();
    // The other end sees the two ends the other way round.
    let ends: Vec<[String; 2]> =
        forms(far).into_iter().zip(forms(near)).map(|(local, remote)| [local, remote]).collect();
    lines.map_while(Result::ok).find_map(|line| owner_on(&line, &ends))
}

/// An address as the two lists have it: by its own family, and mapped into the other.
fn forms(address: SocketAddr) -> [String; 2] {
    let words = |octets: &[u8]| -> String {
        let words = octets.chunks_exact(4).filter_map(<[u8]>::first_chunk::<4>);
        words.map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect()
    };
    let (ip, port) = (address.ip().to_canonical(), address.port());
    let (own, wide) = match ip {
        IpAddr::V4(ip) => (words(&ip.octets()), ip.to_ipv6_mapped()),
        IpAddr::V6(ip) => (words(&ip.octets()), ip),
    };
    let wide: Ipv6Addr = wide;
    [format!("{own}:{port:04X}"), format!("{}:{port:04X}", words(&wide.octets()))]
}

fn owner_on(line: &str, ends: &[[String; 2]]) -> Option<u32> {
    let mut words = line.split_ascii_whitespace();
    let (local, remote) = (words.nth(1)?, words.next()?);
    if !ends.iter().any(|[near, far]| near == local && far == remote) {
        return None;
    }
    let owner = words.nth(4)?.parse().ok()?;
    let inode: u64 = words.nth(1)?.parse().ok()?;
    // Without an inode nobody has taken it, and the kernel shows root.
    (inode != 0).then_some(owner)
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use rstest::rstest;

    use super::*;

    const V4: &str = "   7: 0100007F:C351 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 20 4 30 10 -1";
    const V6: &str = "   7: 00000000000000000000000001000000:C351 00000000000000000000000001000000:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0";
    const MAPPED: &str = "   7: 0000000000000000FFFF00000100007F:C351 0000000000000000FFFF00000100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0";
    const LISTENS: &str = "   7: 0100007F:C351 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0";
    const NOT_TAKEN: &str = "   7: 0100007F:C351 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0";

    #[rstest]
    #[case::v4(V4, "127.0.0.1:40000", "127.0.0.1:50001", Some(1000))]
    #[case::v6(V6, "[::1]:40000", "[::1]:50001", Some(1000))]
    #[case::dual_stack(MAPPED, "127.0.0.1:40000", "127.0.0.1:50001", Some(1000))]
    #[case::our_own_end(V4, "127.0.0.1:50001", "127.0.0.1:40000", None)]
    #[case::another_connection(V4, "127.0.0.1:40001", "127.0.0.1:50001", None)]
    #[case::only_listens(LISTENS, "127.0.0.1:40000", "127.0.0.1:50001", None)]
    #[case::nobody_has_it(NOT_TAKEN, "127.0.0.1:40000", "127.0.0.1:50001", None)]
    #[case::cut("   7: 0100007F:C351 0100007F:9C40 01", "127.0.0.1:40000", "127.0.0.1:50001", None)]
    #[case::empty("", "127.0.0.1:40000", "127.0.0.1:50001", None)]
    fn the_owner_of_the_other_end_is_found(
        #[case] line: &str,
        #[case] near: SocketAddr,
        #[case] far: SocketAddr,
        #[case] owner: Option<u32>,
    ) {
        let ends: Vec<_> = forms(far).into_iter().zip(forms(near)).map(|(a, b)| [a, b]).collect();
        assert_eq!(owner_on(line, &ends), owner);
    }
}
