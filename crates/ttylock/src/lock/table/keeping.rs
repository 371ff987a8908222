//! The start of a daemon: it keeps its lock files open, and removes stale locks.

use std::path::Path;
use std::time::SystemTime;

use pidlockfile::process::ProcessIdentity;
use pidlockfile::{Found, Name};

use super::{LOCK_MODE, TEMPORARY, Table};
use crate::device::name::DeviceName;
use crate::device::node::{ResolvedDevice, follow};
use crate::dialects::Dialect;
use crate::dialects::content::READ_LIMIT;
use crate::limits::{KEPT_FILES, KEPT_WITHOUT_DEVICE};
use crate::lock::directories::Place;
use crate::lock::flock::Flocks;
use crate::lock::flock_guards::FlockGuards;
use crate::lock::{Weight, names};

/// The most records that are examined at the start of a daemon.
const RECORDS_SWEPT: usize = 10_000;

impl Table {
    /// For a process that lives longer than one session. From now on, up to `limit` lock files stay open with
    /// `flock(2)` on them: those that it writes, and those that an earlier daemon wrote. Every lock in the directory
    /// for writing is examined, and those of dead processes are removed. Call [`Table::gone`] when a holder has
    /// ended.
    pub fn keep_open(&mut self, limit: usize) {
        self.guards = FlockGuards::up_to(limit);
        let Ok(open) = self.open() else {
            // The error is reported when it matters.
            return self.events.clear();
        };
        self.settle_all(&open.own);
        // Removes drafts of processes that were killed while they wrote a lock.
        let _ = open.own.directory.sweep(TEMPORARY, SystemTime::now());
        self.forget_what_is_gone(&open.own);
        match Flocks::of_one_who_lives_long() {
            Ok(flocks) => self.flocks = flocks,
            Err(error) => self.say(
                Weight::Warning,
                format!(
                    "no thread for reading the kernel's locks, so clients wait for it: {error}"
                ),
            ),
        }
        self.watch_all(&open.own);
    }

    /// Keeps a lock of a living holder open that an earlier daemon has written.
    pub(super) fn keep_of_earlier(&mut self, own: &Place, name: &Name, who: &ProcessIdentity) {
        let Ok(Found::File(judged)) = own.directory.read(name, READ_LIMIT) else { return };
        let form = self.layout.dialect.content.write(who.pid);
        let (dialect, dev_dir) = (self.layout.dialect, &self.layout.dev_dir);
        let room = |name: &Name| room(trail_of(dialect, dev_dir, name).as_ref());
        self.guards.adopt(own, name, &judged, who, (LOCK_MODE, &form), room);
    }

    /// Removes records of locks that do not exist any more: killed services have left them.
    fn forget_what_is_gone(&mut self, own: &Place) {
        for name in self.records().names_of_records(RECORDS_SWEPT) {
            let file = self.records().file_of(&name);
            if !own.may_hold(&name) {
                // Unless the record is about another lock by now. A file that is no record is removed.
                match file {
                    Some(file) => self.records().sweep(&name, file),
                    None => self.records().forget(&name),
                }
            }
        }
    }
}

/// The number of kept lock files above which another one is not kept open; it depends on the device.
pub(super) fn room(resolved: Option<&ResolvedDevice>) -> usize {
    resolved.filter(|resolved| resolved.is_device()).map_or(KEPT_WITHOUT_DEVICE, |_| KEPT_FILES)
}

/// The device that a lock file is named after.
fn trail_of(dialect: &Dialect, dev_dir: &Path, name: &Name) -> Option<ResolvedDevice> {
    let device =
        DeviceName::parse(names::device_of(dialect, name.as_str(), &[])?.as_bytes()).ok()?;
    follow(dev_dir, &device).ok()
}
