//! Checks which user listens at the usual addresses. Any user can listen on the TCP port while the service
//! does not, and on the Unix socket's path if its directory is open to all, and could answer 200 to
//! everything. So unless the user named the address, the listener must be root (a super-server), the
//! service's user, or our own user.

use super::denial::Reason;
use crate::client::{Address, is_outside, is_trusted};

/// The users that the service is meant to run as.
const SERVICE_USERS: [&str; 2] = ["lfpd", "uucp"];

/// Why a listener is not asked, by its user as the kernel tells it ([`crate::client::Client::listener`]).
pub(super) fn doubt(address: &Address, listener: Option<u32>) -> Option<Reason> {
    let Some(listener) = listener else {
        return Some("the user of the listener is unknown".to_owned());
    };
    let mut service = SERVICE_USERS.iter().filter_map(users::get_user_by_name);
    if is_trusted(address, listener) || service.any(|user| user.uid() == listener) {
        return None;
    }
    let who = if is_outside(listener) {
        format!(
            "may be any user outside this user namespace (uid {listener}), and users other than root and the owner \
             can write the socket's directory"
        )
    } else {
        format!("is uid {listener}, neither root nor the service's user")
    };
    Some(format!("the listener {who} (--server asks it nevertheless)"))
}
