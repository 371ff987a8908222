//! Windows: a waiter checks every few milliseconds whether it was called.

use std::io;

/// Rung or not: nobody hears it.
#[derive(Debug)]
pub(crate) struct Bell;

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn ring(&self) {}
}
