//! The other names of a device's node: the kernel's own, the links of udev, and links that people make by hand.
//!
//! By the kernel's own name, two nodes are recognized as one device: a second `mknod`, or a node that was mounted into a
//! container under another name.
//!
//! `/dev/ttyUSB0` usually has links below `/dev/serial`. A link leads to the node, but not back; udev's
//! database has the way back. Source: `udev_device_get_devlinks_list_entry(3)` and the database files
//! `/run/udev/data/cMAJOR:MINOR`: their lines `S:NAME` name the links.
//!
//! An administrator's `/dev/modem` is in no database, and nothing leads from `ttyS0` back to it. So the links
//! of `/dev` are read (not those of its subdirectories, which belong to udev).

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

use super::DeviceName;
use super::node::{ResolvedDevice, follow};
use super::{Numbers, named_by};
use crate::dialects::forms::base;
use crate::sys::{self, FileClock, FileSystem, NamesVersion};

/// Links from the numbers of character devices to the kernel's names for them. Source: the kernel's
/// Documentation/ABI/testing/sysfs-dev.
const BY_NUMBER: &str = "/sys/dev/char";

/// The kernel's drivers of terminals. Source: proc(5).
const DRIVERS: &str = "/proc/tty/drivers";

/// The kernel's name of a character device, as a name below `/dev`. `None` for pseudo-terminals, which have none, and if
/// neither of the two files is there: such devices are locked by number.
///
/// # Errors
/// An error of the system, if the device may have a name that cannot be read here: without that name, a process that can
/// read it would not meet this lock.
pub(crate) fn kernel_name(device: Numbers) -> io::Result<Option<String>> {
    let link = format!("{BY_NUMBER}/{}:{}", device.major, device.minor);
    name_from(Path::new(&link), Path::new(DRIVERS), device)
}

/// Both files give the same name, so each serves where the other is missing, as in a chroot, or may not be read, as on
/// machines that show `/sys` to root alone.
fn name_from(link: &Path, drivers: &Path, device: Numbers) -> io::Result<Option<String>> {
    if device.is_pseudo_terminal() {
        return Ok(None);
    }
    let by_sysfs = match std::fs::read_link(link) {
        Ok(target) => return Ok(name_in(&target)),
        Err(error) => absent(error),
    };
    let drivers = sys::text_of(drivers, MOST_BYTES).map(Some).or_else(absent)?.unwrap_or_default();
    named_by(&drivers, device).map_or(by_sysfs, |name| Ok(Some(name)))
}

/// The last part, in which `!` stands for `/`.
fn name_in(target: &Path) -> Option<String> {
    let name = target.file_name()?.to_str()?.replace('!', "/");
    DeviceName::parse(name.as_bytes()).ok().map(|name| name.as_str().to_owned())
}

/// The most bytes that are read of an entry of udev's database or of the list of drivers, and the most links of an entry
/// that are believed.
const MOST_BYTES: u64 = 64 * 1024;
const LINKS_OF_AN_ENTRY: usize = 16;

/// The links to a character device, as names below `/dev`. `None` if udev does not know the device.
///
/// # Errors
/// An error of the system, if there is an entry that cannot be read now: its content is unknown.
pub fn udev_links(database: &Path, device: Numbers) -> io::Result<Option<Vec<String>>> {
    let entry = database.join(format!("c{}:{}", device.major, device.minor));
    sys::text_of(&entry, MOST_BYTES).map_or_else(absent, |text| Ok(Some(links_in(&text))))
}

/// A missing entry is no error; one that exists and cannot be read is.
fn absent<T>(error: io::Error) -> io::Result<Option<T>> {
    let nothing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    if nothing.contains(&error.kind()) { Ok(None) } else { Err(error) }
}

fn links_in(entry: &str) -> Vec<String> {
    let names = entry.lines().filter_map(|line| line.strip_prefix("S:"));
    let checked = names.filter_map(|name| DeviceName::parse(name.as_bytes()).ok());
    checked.map(|name| name.as_str().to_owned()).take(LINKS_OF_AN_ENTRY).collect()
}

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
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(dev_dir, flags, Mode::empty())?;
        let mut links = Ok(Vec::new());
        sys::each_entry(&directory, |name, kind| {
            // Not all file systems say what an entry is.
            let may_be_link = matches!(kind, FileType::Symlink | FileType::Unknown);
            let Ok(known) = &mut links else { return };
            if known.len() < LINKS && may_be_link && !is_of_every_system(name) {
                match link(&directory, name) {
                    Ok(link) => known.extend(link),
                    Err(error) => links = Err(error),
                }
            }
        })?;
        links.map(Self)
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

fn is_of_every_system(name: &CStr) -> bool {
    OF_EVERY_SYSTEM.iter().any(|known| name.to_bytes() == known.as_bytes())
}

/// `None` if it is no link, or if it or its target is no text.
fn link(directory: impl AsFd, name: &CStr) -> io::Result<Option<Link>> {
    let target = sys::unless_hidden(rustix::fs::readlinkat(directory, name, Vec::new()))?;
    let text = |target: CString| Some((name.to_str().ok()?.to_owned(), target.into_string().ok()?));
    Ok(target.and_then(text))
}

/// The directories of links that a process has read, in one device directory. From the second time on, a directory is read
/// again only if its names may have changed. A link cannot get another target without a change of a name.
#[derive(Debug, Default)]
pub(crate) struct LinkDirectories(BTreeMap<&'static str, ReadLinks>);

#[derive(Debug)]
struct ReadLinks {
    directory: PathBuf,
    links: Links,
    /// The directory has these as long as it has this version.
    version: Option<NamesVersion>,
}

impl LinkDirectories {
    /// As [`Links::of`], of a directory below this one.
    pub(crate) fn links(&mut self, dev_dir: &Path, below: &'static str) -> io::Result<&Links> {
        let known = self.0.remove(below);
        let clock = FileClock::now();
        // Many processes read it once only.
        let version = known.as_ref().and_then(|it| NamesVersion::of_path(&it.directory));
        let is_unchanged = |it: &ReadLinks| version.is_some() && it.version == version;
        let read = match known.filter(is_unchanged) {
            Some(known) => known,
            None => {
                let directory = dev_dir.join(below);
                let links = Links::of(&directory)?;
                let counts = |it: &NamesVersion| {
                    it.counts(clock) && FileSystem::of_path(&directory).lists_exactly()
                };
                ReadLinks { links, version: version.filter(counts), directory }
            }
        };
        Ok(&self.0.entry(below).or_insert(read).links)
    }
}

/// The directories in which udev makes links to serial devices: by their identity, and by the place where they are
/// plugged in.
pub(super) const BY_UDEV: [&str; 2] = ["serial/by-id", "serial/by-path"];

/// The links of udev that lead to the node of the device, read one by one: for a device that its database does not have, as
/// on machines without a database, such as containers and machines with mdev.
///
/// # Errors
/// An error of the system, if one of its directories cannot be read.
pub(crate) fn made_by_udev(
    read: &mut LinkDirectories,
    dev_dir: &Path,
    resolved: &ResolvedDevice,
) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for below in BY_UDEV {
        let links = read.links(dev_dir, below).map_or_else(absent, |it| Ok(Some(it)))?;
        // Most lead to other nodes.
        let ends_there = |end: &str| resolved.names.iter().any(|name| base(name) == base(end));
        let links = links.into_iter().flat_map(|Links(links)| links);
        for (name, _) in links.filter(|(_, end)| ends_there(end)) {
            let name = format!("{below}/{name}");
            found.extend(leads(dev_dir, &name, resolved).then_some(name));
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
    use std::time::{Duration, Instant};

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::usual("../../devices/pnp0/00:00/tty/ttyS0", Some("ttyS0"))]
    #[case::in_a_directory("../../devices/virtual/x/cpu!0!msr", Some("cpu/0/msr"))]
    #[case::odd("../../devices/a b", None)]
    #[case::nothing("..", None)]
    fn reads_names(#[case] target: &str, #[case] name: Option<&str>) {
        assert_eq!(name_in(Path::new(target)).as_deref(), name);
    }

    #[rstest]
    #[case::one_of_many(188, 3, Some("ttyUSB3"))]
    #[case::from_another_number_on(4, 65, Some("ttyS1"))]
    #[case::the_only_one(204, 64, Some("ttyAMA0"))]
    #[case::no_serial_port(4, 1, None)]
    #[case::of_no_driver(4, 96, None)]
    #[case::pseudo_terminal(136, 0, None)]
    #[case::of_a_driver_with_a_blank(240, 2, Some("ttyX2"))]
    fn names_by_driver(#[case] major: u64, #[case] minor: u64, #[case] name: Option<&str>) {
        assert_eq!(named_by(DRIVERS_OF_A_MACHINE, Numbers { major, minor }).as_deref(), name);
    }

    const DRIVERS_OF_A_MACHINE: &str = "\
usbserial            /dev/ttyUSB    188 0-511 serial
serial               /dev/ttyS      4 64-95 serial
ttyAMA               /dev/ttyAMA    204 64 serial
pty_slave            /dev/pts      136 0-1048575 pty:slave
unknown              /dev/tty        4 1-63 console
odd driver           /dev/ttyX     240 0-3 serial
";

    /// A process that may not read `/sys` must meet one that may.
    #[rstest]
    #[case::by_driver(188, 3, true, Some(Some("ttyUSB3")))]
    #[case::pseudo_terminal(136, 0, true, Some(None))]
    #[case::of_no_driver(10, 200, true, None)]
    #[case::without_the_drivers(188, 3, false, None)]
    fn a_name_that_sysfs_hides_is_read_elsewhere_or_nothing_is_locked(
        #[case] major: u64,
        #[case] minor: u64,
        #[case] has_drivers: bool,
        #[case] name: Option<Option<&str>>,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (hidden, drivers) = (directory.path().join("x"), directory.path().join("drivers"));
        // Not a link, so it cannot be read as one: an error other than "not there".
        fs::create_dir(&hidden).unwrap();
        if has_drivers {
            fs::write(&drivers, DRIVERS_OF_A_MACHINE).unwrap();
        }
        let found = name_from(&hidden, &drivers, Numbers { major, minor });
        assert_eq!(found.ok(), name.map(|it| it.map(str::to_owned)));
        let missing = name_from(&directory.path().join("y"), &drivers, Numbers { major, minor });
        assert_eq!(missing.unwrap(), name.flatten().map(str::to_owned));
    }

    #[test]
    fn an_unknown_device_number_has_no_name() {
        assert_eq!(kernel_name(Numbers { major: 136, minor: 0 }).unwrap(), None);
    }

    #[rstest]
    #[case::usual("S:serial/by-path/p\nS:serial/by-id/usb-X\nL:0\nI:1\nE:ID=S:x\n", &["serial/by-path/p", "serial/by-id/usb-X"])]
    #[case::hostile("S:../../etc/passwd\nS:a b\nS:\nS:gps0\n", &["gps0"])]
    #[case::none("L:0\n", &[])]
    #[case::empty("", &[])]
    fn reads_links(#[case] entry: &str, #[case] links: &[&str]) {
        assert_eq!(links_in(entry), links);
    }

    #[test]
    fn links_are_bounded() {
        let entry: String = (0..100).map(|number| format!("S:link{number}\n")).collect();
        assert_eq!(links_in(&entry).len(), LINKS_OF_AN_ENTRY);
    }

    #[test]
    fn without_udev_there_are_none() {
        let none = udev_links(Path::new("/nonexistent"), Numbers { major: 188, minor: 0 });
        assert_eq!(none.unwrap(), None);
    }

    /// For example because no descriptor is left, or the disk fails.
    #[test]
    fn an_entry_that_cannot_be_read_is_not_taken_for_none() {
        let database = tempfile::tempdir().unwrap();
        fs::create_dir(database.path().join("c188:0")).unwrap();
        assert!(udev_links(database.path(), Numbers { major: 188, minor: 0 }).is_err());
    }

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
        let mut read = LinkDirectories::default();
        let links = made_by_udev(&mut read, path, &resolved(path, "ttyUSB0")).unwrap();
        assert_eq!(links, ["serial/by-id/usb-X", "serial/by-path/pci-0:1"]);
    }

    /// Whether the directory has been as it is for long, so that it is not read again, or was changed a moment ago.
    #[rstest]
    #[case::long_unchanged(true)]
    #[case::just_changed(false)]
    fn a_link_that_changes_is_read_again(#[case] waits: bool) {
        let dev = tempfile::tempdir().unwrap();
        let path = dev.path();
        let mut read = LinkDirectories::default();
        let by = Instant::now() + Duration::from_secs(60);
        for target in ["ttyS0", "ttyS1", "ttyS2"] {
            let _ = fs::remove_file(path.join("modem"));
            symlink(target, path.join("modem")).unwrap();
            let expected = [("modem".to_owned(), target.to_owned())];
            assert_eq!(read.links(path, "").unwrap().0, expected);
            while waits && FileSystem::of_path(path).lists_exactly() && read.0[""].version.is_none()
            {
                assert!(Instant::now() < by, "it is read each time");
                assert_eq!(read.links(path, "").unwrap().0, expected);
            }
        }
        // It may come back, with the same number.
        fs::remove_dir_all(path).unwrap();
        assert!(read.links(path, "").is_err());
        fs::create_dir(path).unwrap();
        assert_eq!(read.links(path, "").unwrap().0, []);
    }
}
