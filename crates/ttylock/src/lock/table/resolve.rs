//! Which lock files a device has: its node, every other name of it, and their lock_names.

use std::time::SystemTime;

use pidlockfile::Name;

use super::{Stop, Table};
use crate::device::name::DeviceName;
use crate::device::node::{ResolveError, ResolvedDevice, follow};
use crate::device::{links, sysfs, udev};
use crate::lock::names::{LockNames, lock_names};
use crate::lock::{Request, Weight};

/// What can be told of a device before a lock directory is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The real node, as a name below `/dev`: two names of one device have the same.
    pub real: String,
    /// Every lock file that may keep it busy.
    pub files: Vec<Name>,
}

impl Table {
    /// The real name of a device, and the files that may keep it busy.
    pub fn names_of(&mut self, device: &DeviceName) -> Option<Names> {
        let found = follow(&self.places.dev_dir, device).ok().and_then(|mut resolved| {
            self.add_links(&mut resolved);
            let lock_names = lock_names(self.places.system, &resolved).ok()?;
            Some((resolved, lock_names))
        });
        let (resolved, lock_names) = found?;
        let files = lock_names.written.into_iter().chain(lock_names.searched).collect();
        Some(Names { real: resolved.real().to_owned(), files })
    }

    /// Everything that can be known of the names without looking into a lock directory; the device is
    /// looked at unless the caller has done it.
    pub(super) fn names(
        &mut self,
        request: &Request,
        resolved: Option<ResolvedDevice>,
    ) -> Result<(ResolvedDevice, LockNames), Stop> {
        let mut resolved = resolved.map_or_else(|| self.follow(&request.device), Ok)?;
        self.add_links(&mut resolved);
        let lock_names = self.lock_names(&resolved, &request.device)?;
        Ok((resolved, lock_names))
    }

    /// Where the name leads; other names of the same device are not known yet.
    pub(super) fn follow(&mut self, device: &DeviceName) -> Result<ResolvedDevice, Stop> {
        follow(&self.places.dev_dir, device).map_err(|error| {
            let reason = match error {
                ResolveError::Outside => "leads out of the device directory",
                ResolveError::Loop => "is a loop of links",
                ResolveError::Unreachable => "cannot be looked at",
                ResolveError::TooLong => "is a link to more than any device is called",
            };
            self.say(Weight::Notice, format!("refused {}: it {reason}", device.as_str()));
            Stop::Denied
        })
    }

    pub(super) fn lock_names(
        &mut self,
        resolved: &ResolvedDevice,
        asked: &DeviceName,
    ) -> Result<LockNames, Stop> {
        lock_names(self.places.system, resolved).map_err(|_| {
            let device = asked.as_str();
            self.say(Weight::Notice, format!("refused {device}: too long for a lock file name"));
            Stop::Denied
        })
    }

    /// A program is met at the name it was given, which may be any link to the node.
    pub(super) fn add_links(&mut self, resolved: &mut ResolvedDevice) {
        if resolved.node.is_some() {
            let links = self.links.to(&self.places.dev_dir, resolved, SystemTime::now());
            resolved.add_links(links);
        }
        let Some(device) = resolved.node.and_then(|node| node.device) else { return };
        match sysfs::kernel_name(device) {
            Some(name) => resolved.add_links([name]),
            None => resolved.is_known_by_number_only = true,
        }
        match udev::links(&self.places.udev_dir, device) {
            Some(links) => resolved.add_links(links),
            None if !self.links.may_be_made_by_udev() || self.places.udev_dir.exists() => {}
            None => resolved.add_links(links::made_by_udev(&self.places.dev_dir, resolved)),
        }
    }
}
