//! Checks which user listens at the usual addresses. Any user can listen on the TCP port while the service
//! does not, and on the Unix socket's path if its directory is open to all, and could answer 200 to
//! everything. So unless the user named the address, the listener must be root (a super-server), the
//! service's user, or our own user.

use std::path::Path;

use crate::client::{chosen_by_root, is_outside};

/// The users that the service is meant to run as.
const SERVICE_USERS: [&str; 2] = ["lfpd", "uucp"];

/// Why a listener is not asked: a printable line.
pub(super) type Doubt = String;

/// Checks the user that listens at a Unix socket, as the kernel tells it ([`crate::client::Client::listener`]).
/// Besides the users that are trusted on any address, root may have given the directory to the user of the
/// service here.
///
/// # Errors
/// [`Doubt`] when it is a stranger, or is not to be learned.
pub(super) fn trusted_socket(path: &Path, owner: Option<u32>) -> Result<(), Doubt> {
    let Some(owner) = owner else { return Err("the owner of the listener is unknown".to_owned()) };
    if is_trusted(owner) || chosen_by_root(path) == Some(owner) {
        Ok(())
    } else {
        Err(stranger(owner))
    }
}

/// Checks the user that has accepted a TCP connection on this host. The listener on the port does not
/// show that: it may be another one by now.
///
/// # Errors
/// [`Doubt`] when it is a stranger, or is not to be learned.
pub(super) fn trusted_port(owner: Option<u32>) -> Result<(), Doubt> {
    match owner {
        None => Err("no listener can be seen there".to_owned()),
        Some(owner) if is_trusted(owner) => Ok(()),
        Some(owner) => Err(stranger(owner)),
    }
}

fn stranger(owner: u32) -> Doubt {
    if is_outside(owner) {
        return format!(
            "the listener may be any user outside this user namespace (uid {owner}), and users other than root and \
             the owner can write the socket's directory (--server asks it nevertheless)"
        );
    }
    format!(
        "the listener is uid {owner}, neither root nor the service's user (--server asks it \
         nevertheless)"
    )
}

fn is_trusted(owner: u32) -> bool {
    let service = || SERVICE_USERS.iter().filter_map(users::get_user_by_name);
    owner == 0
        || owner == nix::unistd::geteuid().as_raw()
        || service().any(|user| user.uid() == owner)
}
