//! Which lock files a device has: its node, every other name of it, and their forms.

use std::time::SystemTime;

use pidlockfile::Name;

use super::{Stop, Table};
use crate::device::name::DeviceName;
use crate::device::node::{Astray, Trail, follow};
use crate::device::{links, sysfs, udev};
use crate::lock::names::{Forms, forms};
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
        let found = follow(&self.places.dev_dir, device).ok().and_then(|mut trail| {
            self.add_links(&mut trail);
            let forms = forms(self.places.system, &trail).ok()?;
            Some((trail, forms))
        });
        let (trail, forms) = found?;
        let files = forms.written.into_iter().chain(forms.searched).collect();
        Some(Names { real: trail.real().to_owned(), files })
    }

    /// Everything that can be known of the names without looking into a lock directory.
    pub(super) fn names(&mut self, request: &Request) -> Result<(Trail, Forms), Stop> {
        let mut trail = self.follow(&request.device)?;
        self.add_links(&mut trail);
        let forms = self.forms(&trail, &request.device)?;
        Ok((trail, forms))
    }

    /// Where the name leads; other names of the same device are not known yet.
    pub(super) fn follow(&mut self, device: &DeviceName) -> Result<Trail, Stop> {
        follow(&self.places.dev_dir, device).map_err(|astray| {
            let reason = match astray {
                Astray::Outside => "leads out of the device directory",
                Astray::Loop => "is a loop of links",
                Astray::Unreachable => "cannot be looked at",
                Astray::TooLong => "is a link to more than any device is called",
            };
            self.say(Weight::Notice, format!("refused {}: it {reason}", device.as_str()));
            Stop::Denied
        })
    }

    pub(super) fn forms(&mut self, trail: &Trail, asked: &DeviceName) -> Result<Forms, Stop> {
        forms(self.places.system, trail).map_err(|_| {
            let device = asked.as_str();
            self.say(Weight::Notice, format!("refused {device}: too long for a lock file name"));
            Stop::Denied
        })
    }

    /// A program is met at the name it was given, which may be any link to the node.
    pub(super) fn add_links(&mut self, trail: &mut Trail) {
        if trail.node.is_some() {
            let links = self.links.to(&self.places.dev_dir, trail, SystemTime::now());
            trail.add_links(links);
        }
        let Some(device) = trail.node.and_then(|node| node.device) else { return };
        match sysfs::kernel_name(device) {
            Some(name) => trail.add_links([name]),
            None => trail.is_known_by_number_only = true,
        }
        match udev::links(&self.places.udev_dir, device) {
            Some(links) => trail.add_links(links),
            None if !self.links.may_be_made_by_udev() || self.places.udev_dir.exists() => {}
            None => trail.add_links(links::made_by_udev(&self.places.dev_dir, trail)),
        }
    }
}
