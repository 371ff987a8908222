//! Finds the user of a TCP socket of this host in the kernel's list of sockets.
//!
//! Source: proc(5), `/proc/net/tcp`: number, local and remote address, state, queues, timer, retransmissions, uid,
//! timeout, inode. Addresses stand there as 32-bit words in host order, the same words that the kernel holds in network
//! order.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes read of `/proc/net/tcp` and of `/proc/net/tcp6`. A connection that is listed behind them has no known user.
pub const PROC_NET_BYTES: u64 = 64 << 20;

/// States of a connection between two living programs: neither listening, nor half open, nor
/// what the kernel keeps of a closed one (whose uid it shows as 0). Source: `net/tcp_states.h`.
const CONNECTED: [u8; 6] = [1, 4, 5, 8, 9, 11];

/// Whether a socket with this state of the kernel is one end of a connection between two living programs.
#[must_use]
pub fn is_connected(state: u8) -> bool {
    CONNECTED.contains(&state)
}

/// The user that has the socket with these two addresses open, `near` its own. `None` where the list does not show it, and
/// until a program has accepted the connection.
#[must_use]
pub fn user(near: SocketAddr, far: SocketAddr) -> Option<u32> {
    let socket = [near, far].map(|end| SocketAddr::new(end.ip().to_canonical(), end.port()));
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|path| {
        let list = BufReader::new(File::open(path).ok()?.take(PROC_NET_BYTES));
        list.lines().map_while(Result::ok).find_map(|line| user_on(&line, socket))
    })
}

/// The user on a line, if the line is about that very socket and a program has it open.
fn user_on(line: &str, socket: [SocketAddr; 2]) -> Option<u32> {
    let mut words = line.split_ascii_whitespace();
    let near = address(words.nth(1)?)?;
    let far = address(words.next()?)?;
    if socket != [near, far] {
        return None;
    }
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    let uid = words.nth(3)?.parse().ok()?;
    // Without an inode no program has it, and the kernel shows root.
    let inode: u64 = words.nth(1)?.parse().ok()?;
    (is_connected(state) && inode != 0).then_some(uid)
}

fn address(word: &str) -> Option<SocketAddr> {
    let (ip, port) = word.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(quad(ip)?)),
        32 => {
            let mut octets = [0; 16];
            for (place, at) in octets.chunks_exact_mut(4).zip((0_usize..32).step_by(8)) {
                place.copy_from_slice(&quad(ip.get(at..at.checked_add(8)?)?)?);
            }
            IpAddr::from(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

fn quad(hexadecimal: &str) -> Option<[u8; 4]> {
    // The standard library's parser takes a leading plus, the kernel writes none.
    let digits = hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit());
    let word = u32::from_str_radix(hexadecimal, 16).ok();
    word.filter(|_| digits).map(u32::to_ne_bytes)
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use rstest::rstest;

    use super::*;

    fn ends(near: &str, far: &str) -> [SocketAddr; 2] {
        [near, far].map(|end| end.parse().unwrap())
    }

    const V4: &str = "   7: 0100007F:9C40 0100007F:C351 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 20 4 30 10 -1";
    const V6: &str = "   7: 00000000000000000000000001000000:9C40 00000000000000000000000001000000:C351 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 20 4 30 10 -1";
    const MAPPED: &str = "   7: 0000000000000000FFFF00000100007F:9C40 0000000000000000FFFF00000100007F:C351 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 20 4 30 10 -1";

    #[rstest]
    #[case::v4(V4, "127.0.0.1:40000", "127.0.0.1:50001", Some(1000))]
    #[case::v6(V6, "[::1]:40000", "[::1]:50001", Some(1000))]
    #[case::dual_stack(MAPPED, "127.0.0.1:40000", "127.0.0.1:50001", Some(1000))]
    #[case::another(V4, "127.0.0.1:40001", "127.0.0.1:50001", None)]
    #[case::the_other_end(V4, "127.0.0.1:50001", "127.0.0.1:40000", None)]
    fn finds_the_socket(
        #[case] line: &str,
        #[case] near: &str,
        #[case] far: &str,
        #[case] uid: Option<u32>,
    ) {
        assert_eq!(user_on(line, ends(near, far)), uid);
    }

    #[rstest]
    #[case::listening(" 01 ", " 0A ")]
    #[case::connecting(" 01 ", " 02 ")]
    #[case::closed(" 01 ", " 06 ")]
    #[case::nobody_holds_it("4242", "0")]
    fn believes_only_open_connections(#[case] from: &str, #[case] to: &str) {
        let line = V4.replacen(from, to, 1);
        assert_ne!(line, V4);
        assert_eq!(user_on(&line, ends("127.0.0.1:40000", "127.0.0.1:50001")), None);
    }

    #[test]
    fn cut_lines_say_nothing_and_never_panic() {
        let socket = ends("127.0.0.1:40000", "127.0.0.1:50001");
        let told = V4.find("4242").unwrap();
        for end in 0..=told {
            assert_eq!(user_on(&V4[..end], socket), None);
        }
        assert_eq!(user_on("  sl  local_address rem_address   st", socket), None);
        assert_eq!(user_on("7: zz:zz zz:zz 01", socket), None);
        assert_eq!(user_on(&V4.replace("0100007F", "+100007F"), socket), None);
    }
}
