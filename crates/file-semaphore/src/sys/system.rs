//! Unix: the name of the machine. `pidlockfile` knows about processes.

use std::ffi::OsString;

/// The machine's name.
pub(crate) fn host_name() -> Option<OsString> {
    nix::unistd::gethostname().ok()
}
