//! Links to a device in `/dev` itself, which people make by hand.
//!
//! An administrator's `/dev/modem` is in no database, and nothing leads from `ttyS0` back to it. So the links
//! of `/dev` are read (not those of its subdirectories, which belong to udev).

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use super::name::DeviceName;
use super::node::{ResolvedDevice, follow};
use super::udev::absent;
use crate::dialects::forms::base;

/// The most links that are read; further ones are left out.
const LINKS: usize = 256;

/// Links of `/dev` itself that every system has, and that lead to no port: those of every
/// init system (`dev_setup` in systemd's src/shared/dev-setup.c), and `log`, the socket of syslog.
const OF_EVERY_SYSTEM: [&str; 6] = ["core", "fd", "stdin", "stdout", "stderr", "log"];

/// The links of one device directory.
#[derive(Debug)]
pub struct Links(Vec<Link>);

/// The name of a link, and its target.
type Link = (String, String);

impl Links {
    /// Reads them.
    ///
    /// # Errors
    /// An error of the system, if the directory cannot be read.
    pub fn of(dev_dir: &Path) -> io::Result<Self> {
        let mut links = Vec::new();
        for entry in std::fs::read_dir(dev_dir)? {
            let entry = entry?;
            let is_link = entry.file_type().is_ok_and(|it| it.is_symlink());
            if links.len() == LINKS || !is_link || is_of_every_system(&entry.file_name()) {
                continue;
            }
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            let texts = (entry.file_name().into_string(), target.into_os_string().into_string());
            if let (Ok(name), Ok(target)) = texts {
                links.push((name, target));
            }
        }
        Ok(Self(links))
    }

    /// The names of all links that lead to the real node of the device, in one hop or several, relative to `dev_dir`.
    #[must_use]
    pub fn to(&self, dev_dir: &Path, resolved: &ResolvedDevice) -> Vec<String> {
        let mut wanted = vec![base(resolved.real()).to_owned()];
        let mut found: Vec<String> = Vec::new();
        // Each round finds the links to the links of the previous round.
        while let Some(target) = wanted.pop() {
            for (name, _) in self.0.iter().filter(|(_, end)| base(end) == target) {
                if !found.contains(name) && leads(dev_dir, name, resolved) {
                    found.push(name.clone());
                    wanted.push(name.clone());
                }
            }
        }
        found
    }
}

fn is_of_every_system(name: &OsStr) -> bool {
    OF_EVERY_SYSTEM.iter().any(|known| name == *known)
}

/// The directories in which udev makes links to serial devices: by their identity, and by the place where they are
/// plugged in.
pub(super) const BY_UDEV: [&str; 2] = ["serial/by-id", "serial/by-path"];

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
            let entry = entry?;
            // Most lead to other nodes.
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            let ends_there = |name: &String| target.file_name() == Some(base(name).as_ref());
            if resolved.names.iter().any(ends_there) {
                let name = entry.file_name().into_string().map(|name| format!("{below}/{name}"));
                found.extend(name.ok().filter(|name| leads(dev_dir, name, resolved)));
            }
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
        let links = Links::of(path).unwrap();
        let to = |name| sorted(links.to(path, &resolved(path, name)));
        assert_eq!(to("ttyS0"), ["fax", "modem"]);
        assert_eq!(to("fax"), ["fax", "modem"]);
        assert_eq!(to("ttyS1"), ["mouse"]);
        assert_eq!(to("pts/0"), ["terminal"]);
        assert_eq!(to("0"), [""; 0]);
        // Not even read, whatever they lead to.
        for name in OF_EVERY_SYSTEM {
            let _ = fs::remove_file(path.join(name));
            symlink("ttyS1", path.join(name)).unwrap();
        }
        assert_eq!(Links::of(path).unwrap().to(path, &resolved(path, "ttyS1")), ["mouse"]);
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
}
