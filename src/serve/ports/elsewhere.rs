//! The threads of `--exclusive` and `--watch-opens` on systems that do not show which process has a port open: there
//! are none.

use pidlockfile::Pid;
use pidlockfile::process::ProcessIdentity;
use ttylock::{Holder, Request, ResolvedDevice, Table};

/// No threads.
#[derive(Debug, Default)]
pub(super) struct PortThreads;

impl PortThreads {
    pub(super) fn locked(&self, _: &ResolvedDevice, _: impl FnOnce() -> ProcessIdentity) {}

    pub(super) fn before_release(&self, _: &Request, _: &mut Table) {}

    pub(super) fn released(&self, _: &str, _: Pid) {}

    pub(super) fn process_gone(&self, _: Pid, _: &mut Table) {}

    pub(super) fn add_openers(&self, _: &mut Vec<Holder>, _: Option<&str>) {}
}
