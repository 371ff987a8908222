//! `--watch-opens` on systems that do not report which process opens a file: there is none. Type-checked, never run so
//! far.

use std::convert::Infallible;
use std::sync::MutexGuard;

use super::openers::{Openers, Wish};

/// There are none.
#[derive(Clone, Debug)]
pub(in crate::serve) struct OpenPorts(Infallible);

impl OpenPorts {
    pub(in crate::serve) fn openers(&self) -> MutexGuard<'_, Openers> {
        match self.0 {}
    }

    pub(in crate::serve) fn wake(&self) {
        match self.0 {}
    }

    pub(in crate::serve) fn next_wish(&self) -> Option<Wish> {
        match self.0 {}
    }
}
