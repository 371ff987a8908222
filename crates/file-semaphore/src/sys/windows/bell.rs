//! Windows: a waiter checks every few milliseconds whether it was called.

use std::io;

/// Rung or not: nobody hears it.
#[derive(Debug)]
pub(crate) struct Bell;

impl Bell {
    #[expect(clippy::unnecessary_wraps, reason = "other systems may have no descriptor left")]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    #[expect(clippy::unused_self, reason = "other systems have something to ring")]
    pub(crate) fn ring(&self) {}
}
