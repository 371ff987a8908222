//! Whose the service at the usual addresses is. Any user can listen on the TCP port as long as the
//! service does not, and at the Unix socket's path where its directory was left open to all; he
//! could answer 200 to everything. So a listener that we were not told to ask must be root's (a
//! super-server), the service's, or our own.

use std::fs::{File, metadata};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::limits::PROC_NET_BYTES;

/// The users that the service is meant to run as.
const SERVICE_USERS: [&str; 2] = ["lfpd", "uucp"];

/// Why a listener is not asked: a printable line.
pub(super) type Doubt = String;

/// Looks at whoever listens at a Unix socket, as the kernel tells it ([`crate::client::Client::listener`]).
/// Besides those whom we trust on any address, root may have given the directory to a user that
/// the service runs as here.
///
/// # Errors
/// [`Doubt`] when it is a stranger, or is not to be learned.
pub(super) fn trusted_socket(path: &Path, owner: Option<u32>) -> Result<(), Doubt> {
    let Some(owner) = owner else { return Err("whoever listens there is unknown".to_owned()) };
    if is_trusted(owner) || chosen_by_root(path) == Some(owner) {
        Ok(())
    } else {
        Err(stranger(owner))
    }
}

/// The owner of the socket's directory, if only root can have made or given it: then its own mode
/// matters no more, because whoever else puts a socket there does not become its owner.
fn chosen_by_root(socket: &Path) -> Option<u32> {
    const OTHERS_WRITE: u32 = 0o022;
    let directory = socket.parent()?;
    let above = metadata(directory.parent()?).ok()?;
    let closed = above.uid() == 0 && above.permissions().mode() & OTHERS_WRITE == 0;
    let directory = metadata(directory).ok().filter(|_| closed)?;
    Some(directory.uid())
}

/// Looks at whoever listens on a port of this host, on any address. To be asked *after* connecting:
/// then whoever has taken the connection either still listens, or has gone and is nobody we trust.
///
/// # Errors
/// [`Doubt`] when one of them is a stranger, or none can be seen.
pub(super) fn trusted_port(port: u16) -> Result<(), Doubt> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let owners: Vec<u32> = tables.iter().flat_map(|table| owners(table, port)).collect();
    if owners.is_empty() {
        return Err("nobody can be seen to listen there".to_owned());
    }
    match owners.into_iter().find(|owner| !is_trusted(*owner)) {
        None => Ok(()),
        Some(owner) => Err(stranger(owner)),
    }
}

fn stranger(owner: u32) -> Doubt {
    format!(
        "uid {owner} listens there, which is neither root nor the service's user (--server asks \
         it nevertheless)"
    )
}

fn is_trusted(owner: u32) -> bool {
    let service = || SERVICE_USERS.iter().filter_map(users::get_user_by_name);
    owner == 0
        || owner == nix::unistd::geteuid().as_raw()
        || service().any(|user| user.uid() == owner)
}

fn owners(table: &str, port: u16) -> Vec<u32> {
    let Ok(file) = File::open(table) else { return Vec::new() };
    let lines = BufReader::new(file.take(PROC_NET_BYTES)).lines();
    lines.map_while(Result::ok).filter_map(|line| owner_in(&line, port)).collect()
}

/// The owner of the socket on this line, if it listens on that port. Source: proc(5),
/// `/proc/net/tcp`: number, local and remote address, state (10 is LISTEN), queues, timer,
/// retransmissions, uid.
fn owner_in(line: &str, port: u16) -> Option<u32> {
    const LISTEN: &str = "0A";
    let mut words = line.split_ascii_whitespace();
    let (_, local) = words.nth(1)?.rsplit_once(':')?;
    let state = words.nth(1)?;
    let listens = state == LISTEN && u16::from_str_radix(local, 16) == Ok(port);
    if listens { words.nth(3)?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::loopback(
        "   0: 0100007F:C351 00000000:0000 0A 00000000:00000000 00:00000000 00000000   990        0 23 1 0 100 0 0 10 0",
        Some(990)
    )]
    #[case::everywhere(
        "   1: 00000000:C351 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 23 1 0",
        Some(0)
    )]
    #[case::v6(
        "   2: 00000000000000000000000001000000:C351 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 23",
        Some(1000)
    )]
    #[case::other_port(
        "   0: 0100007F:C352 00000000:0000 0A 00000000:00000000 00:00000000 00000000   990        0 23",
        None
    )]
    #[case::connected(
        "   0: 0100007F:C351 0100007F:9000 01 00000000:00000000 00:00000000 00000000   990        0 23",
        None
    )]
    #[case::heading(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
        None
    )]
    #[case::cut("   0: 0100007F:C351 00000000:0000 0A", None)]
    #[case::empty("", None)]
    fn reads_the_table(#[case] line: &str, #[case] owner: Option<u32>) {
        assert_eq!(owner_in(line, 50001), owner);
    }
}
