//! Windows: nothing is known of the calling process, so there is no warning.

use pidlockfile::Pid;

/// It is not known to be.
pub(super) fn short_lived(_caller: Pid) -> Option<String> {
    None
}
