//! Checks which user listens at the usual addresses. Any user can listen on the TCP port while the service does not, and
//! on the Unix socket's path if its directory is open to all, and could answer 200 to everything.

use std::fs::{Metadata, metadata, read_to_string};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use nix::unistd::User;

use super::{Address, Client, Error};

/// The users that the service is meant to run as.
const SERVICE_USERS: [&str; 2] = ["lfpd", "uucp"];

impl Client {
    /// Connects to the usual socket, if the listener is root (a super-server), this user, or the user
    /// to whom root gave the socket's directory.
    ///
    /// # Errors
    /// [`Error::Untrusted`] where another user listens; and as [`Client::connect`].
    pub fn usual(patience: Duration) -> Result<Self, Error> {
        Self::connect(&Address::default(), patience)?.of_users(&[])
    }

    /// This connection, if the listener is root (a super-server), this user, or the service's user.
    pub(crate) fn of_a_service(self) -> Result<Self, Error> {
        self.of_users(&SERVICE_USERS)
    }

    fn of_users(self, names: &[&str]) -> Result<Self, Error> {
        let Some(listener) = self.listener().map_err(Error::Unreachable)? else {
            return Err(Error::Untrusted("the user of the listener is unknown".to_owned()));
        };
        let is_it = |name: &&str| matches!(User::from_name(name), Ok(Some(it)) if it.uid.as_raw() == listener);
        if is_trusted(&self.address, listener) || names.iter().any(is_it) {
            return Ok(self);
        }
        let who = if is_outside(listener) {
            format!(
                "may be any user outside this user namespace (uid {listener}), and users other than root and the owner \
                 can write the socket's directory"
            )
        } else {
            format!("is uid {listener}, neither root nor the service's user")
        };
        Err(Error::Untrusted(format!("the listener {who} (--server asks it nevertheless)")))
    }
}

/// Whether a listener there may be the service.
fn is_trusted(address: &Address, listener: u32) -> bool {
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
fn is_outside(uid: u32) -> bool {
    let number = |path| read_to_string(path).ok()?.trim().parse().ok();
    number("/proc/sys/kernel/overflowuid") == Some(uid)
        && read_to_string("/proc/self/uid_map").is_ok_and(|map| !has(&map, uid))
}

/// Whether a user is among those of a namespace. Each line of the map has the first user inside, the first one outside, and
/// how many there are.
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
