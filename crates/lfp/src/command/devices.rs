//! Which holders are of one device: a device has many names, and a lock file under each of them.
//! Looks at names and links; never at a port.

use std::path::Path;
use std::time::SystemTime;

use super::output::printable;
use ttylock::device::links::Links;
use ttylock::device::name::DeviceName;
use ttylock::device::node::{Trail, follow};
use ttylock::device::udev;
use ttylock::lock::who::{Holder, Standing};

/// Where udev has links by the last part of whose name locks are made.
const LINK_DIRECTORIES: [&str; 2] = ["serial/by-id", "serial/by-path"];

/// A device, and who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// The name of the real node, relative to `/dev`; where there is none, what the lock files
    /// say.
    pub(super) name: String,
    /// Its other names, relative to `/dev`.
    pub(super) others: Vec<String>,
    /// Who holds it, the living first. Each is named as the device is.
    pub(super) holders: Vec<Holder>,
}

/// What the names of devices are looked up in.
#[derive(Debug)]
pub(super) struct Names<'a> {
    dev_dir: &'a Path,
    udev_dir: &'a Path,
    links: Links,
    now: SystemTime,
}

impl<'a> Names<'a> {
    pub(super) fn new(dev_dir: &'a Path, udev_dir: &'a Path) -> Self {
        Self { dev_dir, udev_dir, links: Links::default(), now: SystemTime::now() }
    }

    /// Every name of the device with this name but this one, the real node's first.
    pub(super) fn beside(&mut self, name: &DeviceName) -> Vec<String> {
        let Ok(trail) = follow(self.dev_dir, name) else { return Vec::new() };
        let mut names = self.every_name(trail);
        names.retain(|other| other != name.as_str());
        names
    }

    /// Puts the holders of one device together, those first that somebody alive holds.
    pub(super) fn group(&mut self, holders: Vec<Holder>) -> Vec<Device> {
        let mut devices: Vec<Device> = Vec::new();
        let mut rest = Vec::new();
        for holder in holders {
            match self.node(&holder.device) {
                Some(trail) => self.found(&mut devices, trail, holder),
                None => rest.push(holder),
            }
        }
        for holder in rest {
            match devices.iter_mut().find(|device| device.is_meant_by(&holder)) {
                Some(device) => device.add(holder),
                None => devices.push(Device::held_by(holder.device.clone(), holder)),
            }
        }
        for device in &mut devices {
            device.holders.sort_by_key(|holder| holder.standing != Standing::Alive);
        }
        devices
            .sort_by_key(|device| device.holders.iter().all(|it| it.standing != Standing::Alive));
        devices
    }

    /// Adds a holder to the device that the trail leads to.
    fn found(&mut self, devices: &mut Vec<Device>, trail: Trail, holder: Holder) {
        let known = devices.iter_mut().find(|device| device.name == trail.real());
        if let Some(device) = known {
            device.also_called(trail.names);
            device.add(holder);
        } else {
            let mut device = Device::held_by(trail.real().to_owned(), holder);
            device.also_called(self.every_name(trail));
            devices.push(device);
        }
    }

    /// Follows what a lock file's name says of its device, to a node that is there. The name is
    /// the device's or its last part only, or has `_` where the device's has `/`.
    fn node(&self, named: &str) -> Option<Trail> {
        let below = |directory: &&str| {
            let prefix = directory.replace('/', "_") + "_";
            format!("{directory}/{}", named.strip_prefix(&prefix).unwrap_or(named))
        };
        [named.to_owned(), named.replace('_', "/")]
            .into_iter()
            .chain(LINK_DIRECTORIES.iter().map(below))
            .filter_map(|name| DeviceName::parse(name.as_bytes()).ok())
            .filter_map(|name| follow(self.dev_dir, &name).ok())
            .find(|trail| trail.node.is_some())
    }

    fn every_name(&mut self, mut trail: Trail) -> Vec<String> {
        if let Some(numbers) = trail.node.and_then(|node| node.device) {
            trail.add_links(udev::links(self.udev_dir, numbers));
        }
        let by_hand = self.links.to(self.dev_dir, &trail, self.now);
        trail.add_links(by_hand);
        trail.every_name().map(str::to_owned).collect()
    }
}

impl Device {
    fn held_by(name: String, holder: Holder) -> Self {
        let mut device = Self { name, others: Vec::new(), holders: Vec::new() };
        device.add(holder);
        device
    }

    fn add(&mut self, mut holder: Holder) {
        holder.device.clone_from(&self.name);
        if !self.holders.contains(&holder) {
            self.holders.push(holder);
        }
    }

    fn also_called(&mut self, names: Vec<String>) {
        for name in names {
            if name != self.name && !self.others.contains(&name) {
                self.others.push(name);
            }
        }
    }

    /// Whether a holder whose name leads to no node holds this device. The last part of a name
    /// may be that of several devices, so the process has to be the same.
    fn is_meant_by(&self, holder: &Holder) -> bool {
        let named = |name: &String| {
            let last = name.rsplit('/').next().unwrap_or(name);
            *name == holder.device
                || last == holder.device
                || name.replace('/', "_") == holder.device
        };
        let same_process =
            || holder.pid.is_some() && self.holders.iter().any(|known| known.pid == holder.pid);
        // A service says names in printable ASCII only.
        printable(&self.name) == printable(&holder.device)
            || (std::iter::once(&self.name).chain(&self.others).any(named) && same_process())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use pidlockfile::Pid;

    use super::*;
    use ttylock::lock::who::Scheme;

    /// Nodes `ttyUSB0` (plain files will do), `ttyS0`, `pts/3` and `usb/3`, with links.
    fn dev() -> tempfile::TempDir {
        let dev = tempfile::tempdir().unwrap();
        let path = dev.path();
        for directory in ["pts", "usb", "serial/by-id"] {
            fs::create_dir_all(path.join(directory)).unwrap();
        }
        for node in ["ttyUSB0", "ttyS0", "pts/3", "usb/3"] {
            fs::write(path.join(node), "").unwrap();
        }
        for link in ["usb-X", "usb-X_2"] {
            symlink("../../ttyUSB0", path.join("serial/by-id").join(link)).unwrap();
        }
        symlink("ttyUSB0", path.join("modem")).unwrap();
        dev
    }

    fn holder(device: &str, pid: i64, standing: Standing) -> Holder {
        Holder {
            device: device.to_owned(),
            scheme: Scheme::Uucp(PathBuf::from(format!("LCK..{device}"))),
            pid: Pid::new(pid),
            user: None,
            owner: None,
            command: None,
            since: None,
            standing,
        }
    }

    /// Name of the device, its other names, and the pids of its holders.
    fn grouped(holders: &[(&str, i64, Standing)]) -> Vec<(String, Vec<String>, Vec<i64>)> {
        let dev = dev();
        let mut names = Names::new(dev.path(), Path::new("/nonexistent"));
        let holders = holders.iter().map(|(name, pid, standing)| holder(name, *pid, *standing));
        let devices = names.group(holders.collect()).into_iter();
        devices
            .map(|device| {
                assert!(device.holders.iter().all(|holder| holder.device == device.name));
                let pids = device.holders.iter().filter_map(|it| it.pid).map(Pid::as_raw);
                (device.name, device.others, pids.map(i64::from).collect())
            })
            .collect()
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_device_is_shown_once_whatever_its_locks_are_called() {
        use Standing::Alive;
        let found = grouped(&[
            ("modem", 7, Alive),
            ("ttyUSB0", 7, Alive),
            ("usb-X", 7, Alive),
            ("serial_by-id_usb-X_2", 7, Alive),
        ]);
        assert_eq!(
            found,
            [(
                "ttyUSB0".to_owned(),
                strings(&["modem", "serial/by-id/usb-X", "serial/by-id/usb-X_2"]),
                vec![7, 7, 7, 7]
            )]
        );
        // Somebody else's lock, by another of its names.
        let found = grouped(&[("ttyUSB0", 7, Alive), ("usb-X", 8, Alive)]);
        assert_eq!(
            found,
            [("ttyUSB0".to_owned(), strings(&["modem", "serial/by-id/usb-X"]), vec![7, 8])]
        );
    }

    #[test]
    fn the_last_part_of_a_name_means_the_device_of_the_same_process() {
        use Standing::Alive;
        let none = Vec::new;
        let found = grouped(&[("3", 7, Alive), ("pts_3", 7, Alive), ("usb/3", 8, Alive)]);
        let expected =
            [("pts/3".to_owned(), none(), vec![7, 7]), ("usb/3".to_owned(), none(), vec![8])];
        assert_eq!(found, expected);
        let found = grouped(&[("3", 9, Alive), ("pts_3", 7, Alive)]);
        let expected = [("pts/3".to_owned(), none(), vec![7]), ("3".to_owned(), none(), vec![9])];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_not_there_keeps_its_name() {
        use Standing::{Alive, Stale};
        let found = grouped(&[
            ("188:0", 1, Stale),
            ("gone", 2, Stale),
            ("gone", 3, Alive),
            ("../../etc/passwd", 4, Alive),
        ]);
        let names: Vec<_> =
            found.iter().map(|(name, _, pids)| (name.as_str(), &pids[..])).collect();
        assert_eq!(names, [("gone", &[3, 2][..]), ("../../etc/passwd", &[4]), ("188:0", &[1])]);
    }

    #[test]
    fn the_living_come_first() {
        use Standing::{Alive, Stale};
        let found = grouped(&[("ttyS0", 1, Stale), ("ttyUSB0", 2, Stale), ("modem", 3, Alive)]);
        let names: Vec<_> =
            found.iter().map(|(name, _, pids)| (name.as_str(), &pids[..])).collect();
        assert_eq!(names, [("ttyUSB0", &[3, 2][..]), ("ttyS0", &[1])]);
    }

    #[test]
    fn other_names_of_a_device() {
        let dev = dev();
        let mut names = Names::new(dev.path(), Path::new("/nonexistent"));
        let mut beside = |name: &str| names.beside(&DeviceName::parse(name.as_bytes()).unwrap());
        assert_eq!(beside("ttyUSB0"), ["modem"]);
        assert_eq!(beside("modem"), ["ttyUSB0"]);
        assert_eq!(beside("serial/by-id/usb-X"), ["ttyUSB0", "modem"]);
        assert_eq!(beside("nothing"), [""; 0]);
    }
}
