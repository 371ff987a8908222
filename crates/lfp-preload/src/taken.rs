//! The ports that this process has locked by opening them.

use crate::held::Held;

static TAKEN: Held = Held::new();

/// From now on it has this one.
pub(crate) fn add(number: u64) {
    TAKEN.insert(number, this());
}

/// Whether it has the port.
pub(crate) fn has(number: u64) -> bool {
    TAKEN.contains(number, this())
}

/// The same, which it has no more: the lock is released, or goes on as a lock file's.
pub(crate) fn gives_up(number: u64) -> bool {
    TAKEN.remove(number, this())
}

/// Whether there may be something to release at all, for close(2): one read where this process has
/// never had a port, nor one that it descends from.
pub(crate) fn none() -> bool {
    !TAKEN.is_of(this)
}

fn this() -> u32 {
    std::process::id()
}
