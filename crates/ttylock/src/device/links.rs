//! Links to a device in `/dev` itself, which people make by hand.
//!
//! An administrator's `/dev/modem` is in no database, and nothing leads from `ttyS0` back to it. So the links
//! of `/dev` (not of its subdirectories, which belong to udev) are read, and remembered until `/dev` changes.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use nix::dir::{Dir, Type};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use pidlockfile::Status;

use super::name::DeviceName;
use super::node::{ResolvedDevice, follow};
use super::udev::absent;
use crate::directory_stamp::DirectoryStamp;

/// The most links that are remembered; further ones are left out.
const LINKS: usize = 256;

/// The links of one device directory, as last read.
#[derive(Debug, Default)]
pub struct Links {
    known: Option<Known>,
    /// The links that were read while the directory was changing; they are used once.
    unsettled: Vec<Link>,
}

/// The links of a directory in one state of it.
#[derive(Debug)]
struct Known {
    stamp: DirectoryStamp,
    links: Vec<Link>,
    /// Whether an entry has the name of udev's directory.
    has_serial: bool,
}

/// The name of a link, and its target.
type Link = (String, String);

impl Links {
    /// The names of all links that lead to the real node of the device, in one hop or
    /// several, relative to `dev_dir`.
    ///
    /// # Errors
    /// An error of the system, if the directory cannot be read.
    pub fn to(
        &mut self,
        dev_dir: &Path,
        resolved: &ResolvedDevice,
        now: SystemTime,
    ) -> io::Result<Vec<String>> {
        self.refresh(dev_dir, now)?;
        let links = self.known.as_ref().map_or(&self.unsettled, |known| &known.links);
        let mut wanted = vec![base(resolved.real()).to_owned()];
        let mut found: Vec<String> = Vec::new();
        // Each round finds the links to the links of the previous round.
        while let Some(target) = wanted.pop() {
            for (name, _) in links.iter().filter(|(_, end)| base(end) == target) {
                if !found.contains(name) && leads(dev_dir, name, resolved) {
                    found.push(name.clone());
                    wanted.push(name.clone());
                }
            }
        }
        Ok(found)
    }

    /// Whether udev may have made links, as far as the directory is known.
    #[must_use]
    pub(crate) fn may_be_made_by_udev(&self) -> bool {
        self.known.as_ref().is_none_or(|known| known.has_serial)
    }

    /// Reads the links again if the directory has changed since, or just before, the last time.
    ///
    /// # Errors
    /// An error of the system, if that cannot be done.
    pub fn refresh(&mut self, dev_dir: &Path, now: SystemTime) -> io::Result<()> {
        if let (Some(known), Ok(stat)) = (&self.known, Status::of_path(dev_dir)) {
            if DirectoryStamp::of(&stat) == Some(known.stamp) {
                return Ok(());
            }
        }
        *self = Self::default();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut dir = Dir::open(dev_dir, flags, Mode::empty())?;
        // The stamp is taken before the directory is read, so that a change meanwhile is noticed the next time.
        let stamp = Status::of_open(&dir).ok().and_then(|stat| DirectoryStamp::of(&stat));
        let mut links = Vec::new();
        let mut has_serial = false;
        for entry in dir.iter() {
            let entry = entry?;
            has_serial |= entry.file_name().to_bytes() == b"serial";
            if entry.file_type() != Some(Type::Symlink) || links.len() == LINKS {
                continue;
            }
            let Ok(name) = entry.file_name().to_str() else { continue };
            let target = std::fs::read_link(dev_dir.join(name)).unwrap_or_default();
            let Some(target) = target.to_str().map(str::to_owned) else { continue };
            links.push((name.to_owned(), target));
        }
        // A directory that has just changed is read again the next time.
        match stamp.filter(|stamp| stamp.is_settled(now)) {
            Some(stamp) => self.known = Some(Known { stamp, links, has_serial }),
            None => self.unsettled = links,
        }
        Ok(())
    }
}

/// The directories in which udev makes links to serial devices: by their identity, and by the place where they are
/// plugged in.
const BY_UDEV: [&str; 2] = ["serial/by-id", "serial/by-path"];

/// The links of udev that lead to the node of the device, read one by one: for machines without its database, such as
/// containers and machines with mdev.
///
/// # Errors
/// An error of the system, if one of its directories cannot be read.
pub(crate) fn made_by_udev(dev_dir: &Path, resolved: &ResolvedDevice) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for below in BY_UDEV {
        let Some(entries) =
            std::fs::read_dir(dev_dir.join(below)).map_or_else(absent, |it| Ok(Some(it)))?
        else {
            continue;
        };
        for entry in entries.take(LINKS) {
            let name = entry?.file_name().into_string().map(|name| format!("{below}/{name}"));
            found.extend(name.ok().filter(|name| leads(dev_dir, name, resolved)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn leads(dev_dir: &Path, link: &str, resolved: &ResolvedDevice) -> bool {
    let name = DeviceName::parse(link.as_bytes());
    let end = name.ok().and_then(|name| follow(dev_dir, &name).ok());
    end.is_some_and(|end| end.real() == resolved.real())
}

fn base(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, base)| base)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn resolved(dev: &Path, name: &str) -> ResolvedDevice {
        follow(dev, &DeviceName::parse(name.as_bytes()).unwrap()).unwrap()
    }

    fn sorted(mut names: Vec<String>) -> Vec<String> {
        names.sort();
        names
    }

    #[test]
    fn every_link_to_a_node_is_found_in_any_number_of_hops() {
        let dev = tempfile::tempdir().unwrap();
        let path = dev.path();
        fs::create_dir(path.join("pts")).unwrap();
        for node in ["ttyS0", "ttyS1", "pts/0", "0"] {
            fs::write(path.join(node), "").unwrap();
        }
        symlink("ttyS0", path.join("modem")).unwrap();
        symlink(path.join("modem"), path.join("fax")).unwrap();
        symlink("ttyS1", path.join("mouse")).unwrap();
        symlink("pts/0", path.join("terminal")).unwrap();
        symlink("/proc/self/fd/0", path.join("stdin")).unwrap();
        symlink("round", path.join("round")).unwrap();
        let mut links = Links::default();
        let now = SystemTime::now();
        let mut to = |name| sorted(links.to(path, &resolved(path, name), now).unwrap());
        assert_eq!(to("ttyS0"), ["fax", "modem"]);
        assert_eq!(to("fax"), ["fax", "modem"]);
        assert_eq!(to("ttyS1"), ["mouse"]);
        assert_eq!(to("pts/0"), ["terminal"]);
        assert_eq!(to("0"), [""; 0]);
    }

    #[test]
    fn the_links_of_udev_are_read_where_it_has_no_database() {
        let dev = tempfile::tempdir().unwrap();
        let path = dev.path();
        fs::write(path.join("ttyUSB0"), "").unwrap();
        fs::write(path.join("ttyUSB1"), "").unwrap();
        for (directory, link) in [("by-id", "usb-X"), ("by-path", "pci-0:1"), ("by-x", "usb-Z")] {
            let directory = path.join("serial").join(directory);
            fs::create_dir_all(&directory).unwrap();
            symlink("../../ttyUSB0", directory.join(link)).unwrap();
            symlink("../../ttyUSB1", directory.join("other")).unwrap();
        }
        let links = made_by_udev(path, &resolved(path, "ttyUSB0")).unwrap();
        assert_eq!(links, ["serial/by-id/usb-X", "serial/by-path/pci-0:1"]);
    }

    #[test]
    fn links_made_later_are_noticed() {
        let dev = tempfile::tempdir().unwrap();
        let path = dev.path();
        fs::write(path.join("ttyS0"), "").unwrap();
        let later = SystemTime::now() + 2 * crate::directory_stamp::SETTLED;
        let mut links = Links::default();
        assert_eq!(links.to(path, &resolved(path, "ttyS0"), later).unwrap(), [""; 0]);
        symlink("ttyS0", path.join("modem")).unwrap();
        assert_eq!(links.to(path, &resolved(path, "ttyS0"), later).unwrap(), ["modem"]);
    }
}
