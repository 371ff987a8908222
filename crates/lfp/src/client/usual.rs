//! Finds the service at its usual socket, and checks that it can be trusted: in a directory that others may
//! write, any user could listen and answer 200 to everything.

use std::fs::{Metadata, metadata, read_to_string};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use super::{Address, Client, Error};

impl Client {
    /// Connects to the usual socket, if the listener is root (a super-server), this user, or the user
    /// to whom root gave the socket's directory.
    ///
    /// # Errors
    /// [`Error::Unreachable`] where another user listens; and as [`Client::connect`].
    pub fn usual(patience: Duration) -> Result<Self, Error> {
        let address = Address::default();
        let client = Self::connect(&address, patience)?;
        let listener = client.listener().map_err(Error::Unreachable)?;
        if listener.is_some_and(|listener| is_trusted(&address, listener)) {
            Ok(client)
        } else {
            Err(Error::Unreachable(io::ErrorKind::PermissionDenied.into()))
        }
    }
}

/// Whether a listener there may be the service.
pub(crate) fn is_trusted(address: &Address, listener: u32) -> bool {
    let is_chosen = match address {
        Address::Unix(path) => chosen_by_root(path) == Some(listener),
        Address::Tcp(_) => false,
    };
    listener == 0 || listener == nix::unistd::geteuid().as_raw() || is_chosen
}

/// The owner of the socket's directory, if only root can have made or given it: then its own mode
/// matters no more, because another user that puts a socket there does not become the directory's owner.
///
/// In a user namespace (bubblewrap, Flatpak, rootless containers) all users from outside have one number, root too.
/// Then the directory must be closed as well, so that the listener is its owner; the one above may be ours: the user
/// that started the namespace has put it there.
fn chosen_by_root(socket: &Path) -> Option<u32> {
    const OTHERS_WRITE: u32 = 0o022;
    let is_closed = |it: &Metadata| it.permissions().mode() & OTHERS_WRITE == 0;
    let directory = socket.parent()?;
    let above = metadata(directory.parent()?).ok().filter(is_closed)?;
    let directory = metadata(directory).ok()?;
    let is_given = if is_outside(directory.uid()) {
        let own = nix::unistd::geteuid().as_raw();
        is_closed(&directory) && (above.uid() == 0 || above.uid() == own || is_outside(above.uid()))
    } else {
        above.uid() == 0
    };
    is_given.then_some(directory.uid())
}

/// Whether this number stands for all users from outside the user namespace that we are in
/// (user_namespaces(7)). Not where it is a user of the namespace as well.
pub(crate) fn is_outside(uid: u32) -> bool {
    let number = |path| read_to_string(path).ok()?.trim().parse().ok();
    number("/proc/sys/kernel/overflowuid") == Some(uid)
        && read_to_string("/proc/self/uid_map").is_ok_and(|map| !has(&map, uid))
}

/// Whether a user is among those of a namespace. Lines of its first, the first outside, how many.
fn has(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut words = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (Some(Ok(first)), Some(Ok(count))) = (words.next(), words.nth(1)) else { return false };
        uid.checked_sub(first).is_some_and(|offset| offset < count)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::no_namespace("         0          0 4294967295\n", 65_534, true)]
    #[case::one_user("      1000       1000          1\n", 65_534, false)]
    #[case::the_user("      1000       1000          1\n", 1_000, true)]
    #[case::a_container("0 1000 1\n1 100000 65536\n", 65_534, true)]
    #[case::behind("0 1000 1\n1 100000 65536\n", 65_537, false)]
    #[case::not_set_yet("", 0, false)]
    #[case::odd("x 1\n", 0, false)]
    fn users_of_a_namespace(#[case] map: &str, #[case] uid: u32, #[case] expected: bool) {
        assert_eq!(has(map, uid), expected);
    }
}
