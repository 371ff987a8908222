//! `--exclusive` on systems that do not show what other processes have open: it is refused. Type-checked, never run so
//! far.

use std::convert::Infallible;
use std::io;

use pidlockfile::Pid;
use pidlockfile::process::ProcessIdentity;
use ttylock::{Layout, ResolvedDevice};

use super::model::Exclusive;
use crate::log::Log;
use crate::serve::authority::Authority;

/// There are none.
#[derive(Debug)]
pub(in crate::serve) struct ExclusivePorts(Infallible);

impl ExclusivePorts {
    pub(in crate::serve) fn start(
        _: &Exclusive,
        _: Layout,
        _: Authority,
        _: Log,
    ) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::serve) fn are_possible_for(&self, _: &ResolvedDevice) -> bool {
        match self.0 {}
    }

    pub(in crate::serve) fn port_locked(&self, _: &ResolvedDevice, _: &ProcessIdentity) {
        match self.0 {}
    }

    pub(in crate::serve) fn is_held_by(&self, _: Pid) -> bool {
        match self.0 {}
    }

    pub(in crate::serve) fn before_release(&self, _: &str, _: Pid) {
        match self.0 {}
    }

    pub(in crate::serve) fn port_released(&self, _: &str) {
        match self.0 {}
    }

    pub(in crate::serve) fn holder_gone(&self, _: impl Fn(&ProcessIdentity) -> bool) {
        match self.0 {}
    }

    pub(in crate::serve) fn end(&self) {
        match self.0 {}
    }
}
