//! What all Unixes have: signals, process groups, terminals, users by number.

mod attended;
mod child;
mod signals;
mod terminal;

pub(in crate::program) use attended::Attended;
pub(in crate::program) use child::Tie;
pub(in crate::program) use signals::{Signals as Endings, told_to_end};

use nix::unistd::{User, geteuid, gethostname};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use tokio::time::sleep;

/// How often is looked whether anybody reads standard output.
const OUTPUT_PERIOD: Duration = Duration::from_secs(1);

/// An argument as the server is to have it.
pub(in crate::program) fn bytes(argument: &OsStr) -> Option<&[u8]> {
    Some(argument.as_bytes())
}

/// Ends when nobody reads standard output any more. May be given up and called again.
pub(in crate::program) async fn output_closed() {
    while wrapcmd::wait_while_read(Duration::ZERO) {
        sleep(OUTPUT_PERIOD).await;
    }
}

/// The user of this process: a name, or a number that has none.
pub(in crate::program) fn user() -> String {
    let uid = geteuid();
    User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |it| it.name)
}

/// What this machine calls itself.
pub(in crate::program) fn host() -> String {
    gethostname().unwrap_or_default().to_string_lossy().into_owned()
}
