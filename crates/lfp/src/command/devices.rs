//! Devices as people write them, and holders by device. People write `/dev/NAME`, `NAME`, and any path or link that leads
//! into `/dev`; a device has many names, and a lock file under each of them. Looks at names, links and the current
//! directory; never at a port.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ttylock::{
    DeviceName, Holder, Links, NAME_BYTES, ResolvedDevice, Scheme, Standing, follow,
    serial_devices, udev_links,
};

use super::row::printable;
use crate::client::Waiter;

/// Where udev has links. Locks are made by the last part of their names.
const LINK_DIRECTORIES: [&str; 2] = ["serial/by-id", "serial/by-path"];

/// A device and its holders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListedDevice {
    /// The name of the real node, relative to `/dev`; where there is none, what the lock files
    /// say.
    pub(super) name: String,
    /// Its other names, relative to `/dev`.
    pub(super) others: Vec<String>,
    /// Whether there is a node.
    pub(super) exists: bool,
    /// Its holders, living ones first. Each is named as the device is.
    pub(super) holders: Vec<Holder>,
    /// Its waiters in the service's line.
    pub(super) waiters: Vec<Waiter>,
}

/// What the names of devices are looked up in.
#[derive(Debug)]
pub(super) struct NameIndex<'a> {
    dev_dir: &'a Path,
    udev_dir: &'a Path,
    links: Option<Links>,
    /// The links below [`LINK_DIRECTORIES`]: squashed, and as they are.
    by_id: Vec<(String, String)>,
}

impl<'a> NameIndex<'a> {
    pub(super) fn new(dev_dir: &'a Path, udev_dir: &'a Path) -> Self {
        let (links, by_id) = (Links::of(dev_dir).ok(), by_id(dev_dir));
        Self { dev_dir, udev_dir, links, by_id }
    }

    /// Puts the holders of one device together, devices with living holders first, free ones last. Each device that was
    /// asked for is there, even without holders.
    pub(super) fn group(
        &mut self,
        asked: &[DeviceName],
        holders: Vec<Holder>,
    ) -> Vec<ListedDevice> {
        let mut devices: Vec<ListedDevice> = Vec::new();
        for name in asked {
            let found = follow(self.dev_dir, name).ok().filter(|resolved| resolved.node.is_some());
            match found {
                Some(resolved) => _ = self.found(&mut devices, resolved),
                None if devices.iter().any(|device| device.name == name.as_str()) => {}
                None => devices.push(ListedDevice::named(name.as_str().to_owned(), false)),
            }
        }
        let mut of_files = HashMap::new();
        let mut rest = Vec::new();
        for holder in holders {
            let file = lock_file(&holder);
            match self.node(&holder.device) {
                Some(resolved) => {
                    let device = self.found(&mut devices, resolved);
                    file.and_then(|file| of_files.insert(file, device.name.clone()));
                    device.add(holder);
                }
                None => rest.push((file, holder)),
            }
        }
        // Of the names of a device that is away, the likeliest one of its node comes first.
        rest.sort_by_key(|(_, holder)| unlikeliness(holder));
        for (file, holder) in rest {
            let named = file.and_then(|file| of_files.get(&file));
            let its = |it: &&mut ListedDevice| Some(&it.name) == named || it.is_meant_by(&holder);
            let name = match devices.iter_mut().find(its) {
                Some(device) => {
                    device.add(holder);
                    device.name.clone()
                }
                None => {
                    let mut device = ListedDevice::named(holder.device.clone(), false);
                    device.add(holder);
                    let name = device.name.clone();
                    devices.push(device);
                    name
                }
            };
            file.and_then(|file| of_files.insert(file, name));
        }
        for device in &mut devices {
            device.holders.sort_by_key(|holder| holder.standing != Standing::Alive);
        }
        devices.sort_by_key(ListedDevice::rank);
        devices
    }

    /// The device that a name leads to, added if it is new.
    fn found<'d>(
        &mut self,
        devices: &'d mut Vec<ListedDevice>,
        resolved: ResolvedDevice,
    ) -> &'d mut ListedDevice {
        let known = devices.iter().position(|device| device.name == resolved.real());
        let (index, names) = match known {
            Some(index) => (index, resolved.names),
            None => {
                devices.push(ListedDevice::named(resolved.real().to_owned(), true));
                (devices.len().saturating_sub(1), self.every_name(resolved))
            }
        };
        #[expect(clippy::indexing_slicing, reason = "it was found or added just now")]
        let device = &mut devices[index];
        device.also_called(names);
        device
    }

    /// Follows what a lock file's name says of its device, to a node that is there. The name is
    /// the device's or its last part only, or has `_` or `:` where the device's has `/`; and may
    /// have `/` where the device's has `:`, as in links by path.
    fn node(&self, named: &str) -> Option<ResolvedDevice> {
        let squashed = squash(named);
        let links = self.by_id.iter().filter(|(link, _)| *link == squashed);
        [named, &named.replace('_', "/")]
            .into_iter()
            .chain(links.map(|(_, link)| link.as_str()))
            .filter_map(|name| DeviceName::parse(name.as_bytes()).ok())
            .filter_map(|name| follow(self.dev_dir, &name).ok())
            .find(|resolved| resolved.node.is_some())
    }

    fn every_name(&mut self, mut resolved: ResolvedDevice) -> Vec<String> {
        if let Some(numbers) = resolved.node.and_then(|node| node.device) {
            let by_udev = udev_links(self.udev_dir, numbers).unwrap_or_default();
            resolved.add_links(by_udev.unwrap_or_default());
        }
        let by_hand = self.links.as_ref().map(|links| links.to(self.dev_dir, &resolved));
        resolved.add_links(by_hand.unwrap_or_default());
        resolved.every_name().map(str::to_owned).collect()
    }
}

impl ListedDevice {
    fn named(name: String, exists: bool) -> Self {
        Self { name, exists, ..Self::default() }
    }

    /// Those with a living holder come first, then those with another one, then the free ones.
    fn rank(&self) -> u8 {
        let is_alive = self.holders.iter().any(|it| it.standing == Standing::Alive);
        u8::from(!is_alive) + u8::from(self.holders.is_empty())
    }

    pub(super) fn is_held(&self) -> bool {
        self.holders.iter().any(|holder| holder.standing.is_standing())
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

/// The file of a lock, by device and inode. A lock with several names is one file, also when none of them leads to a device
/// any more.
fn lock_file(holder: &Holder) -> Option<(u64, u64)> {
    let file = std::fs::symlink_metadata(holder.scheme.file()?).ok()?;
    Some((file.dev(), file.ino()))
}

/// The more, the less a name is that of a device's node: kernels call serial ports `tty` and so on, links are longer, and
/// device numbers are no names.
fn unlikeliness(holder: &Holder) -> (bool, bool, usize) {
    let name = &holder.device;
    (matches!(holder.scheme, Scheme::Svr4(_)), !name.starts_with("tty"), name.len())
}

/// The links that udev makes, by what lock files may call them: with their directory or without.
fn by_id(dev_dir: &Path) -> Vec<(String, String)> {
    let mut links = Vec::new();
    for directory in LINK_DIRECTORIES {
        let entries = std::fs::read_dir(dev_dir.join(directory)).into_iter().flatten().flatten();
        for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
            let path = format!("{directory}/{name}");
            links.push((squash(&name), path.clone()));
            links.push((squash(&path), path));
        }
    }
    links
}

/// A name with one sign for the three that lock files put in each other's place.
fn squash(name: &str) -> String {
    name.replace(['/', ':'], "_")
}

/// The serial devices below `/dev`.
pub(super) fn serial_names(dev_dir: &Path) -> Vec<DeviceName> {
    let names = serial_devices(dev_dir).into_iter().map(|(name, _)| name);
    names.filter_map(|name| DeviceName::parse(name.as_bytes()).ok()).collect()
}

/// Devices of the same rank by name, `ttyS2` before `ttyS10`.
pub(super) fn sort_by_name(devices: &mut [ListedDevice]) {
    devices.sort_by(|a, b| {
        a.rank().cmp(&b.rank()).then_with(|| natural(&a.name).cmp(&natural(&b.name)))
    });
}

/// What comes before the number at the end, and that number: without its zeros, the longer one is larger.
fn natural(name: &str) -> (&str, usize, &str, &str) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.strip_prefix(stem).unwrap_or_default().trim_start_matches('0');
    (stem, number.len(), number, name)
}

/// The device that a mistyped name may mean.
pub(super) fn suggestion(dev_dir: &Path, name: &str) -> Option<String> {
    let nodes = serial_names(dev_dir).into_iter().map(|name| name.as_str().to_owned());
    nearest(nodes.chain(by_id(dev_dir).into_iter().map(|(_, link)| link)), name)
}

fn nearest(known: impl Iterator<Item = String>, name: &str) -> Option<String> {
    /// The most letters that may be wrong; small letters for capitals are not counted.
    const WRONG: usize = 2;
    let name = name.to_lowercase();
    known
        .map(|known| (strsim::damerau_levenshtein(&known.to_lowercase(), &name), known))
        .filter(|(wrong, _)| *wrong <= WRONG)
        .min()
        .map(|(_, known)| known)
}

/// The most symbolic links that are followed: as many as the kernel follows (path_resolution(7)).
const LINKS_FOLLOWED: usize = 40;

/// Reads a device as it was typed. `NAME` and `DIRECTORY/NAME` are below `/dev`; what begins with
/// `./`, `../` or `/` is a path, and links are followed until they lead into `/dev`. What is a link there
/// stays one: its name is locked as well.
///
/// # Errors
/// A sentence for people: it leads elsewhere, or cannot be a device's name.
pub(super) fn device(text: &str) -> Result<DeviceName, String> {
    if let Ok(name) = DeviceName::parse(text.as_bytes()) {
        return Ok(name);
    }
    if !["/", "./", "../"].iter().any(|start| text.starts_with(start)) {
        return Err(not_a_name());
    }
    let current = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let path = led_into(Path::new("/dev"), &current.join(text))?;
    let path = path.to_str().ok_or_else(not_a_name)?;
    DeviceName::parse(path.as_bytes()).map_err(|_| not_a_name())
}

fn not_a_name() -> String {
    format!(
        "needs the name of a node below /dev, or a link to one: printable ASCII without blanks, \
         at most {NAME_BYTES} bytes"
    )
}

/// Follows links from `path` until a name directly or deeper below `dev` is reached.
fn led_into(dev: &Path, path: &Path) -> Result<PathBuf, String> {
    let mut path = path.to_owned();
    for _ in 0..=LINKS_FOLLOWED {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { break };
        // The directory's own links and dots are the kernel's business.
        let Ok(directory) = directory.canonicalize() else { break };
        let here = directory.join(name);
        if here.starts_with(dev) && here != dev {
            return Ok(here);
        }
        let Ok(target) = std::fs::read_link(&here) else { break };
        path = directory.join(target);
    }
    Err("leads to no device below /dev".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use pidlockfile::Pid;
    use rstest::rstest;

    use super::*;

    /// Nodes `ttyUSB0` (plain files will do), `ttyS0`, `pts/3` and `usb/3`, with links.
    fn dev() -> tempfile::TempDir {
        let dev = tempfile::tempdir().unwrap();
        let path = dev.path();
        for directory in ["pts", "usb", "serial/by-id", "serial/by-path"] {
            fs::create_dir_all(path.join(directory)).unwrap();
        }
        for node in ["ttyUSB0", "ttyS0", "pts/3", "usb/3"] {
            fs::write(path.join(node), "").unwrap();
        }
        for link in ["usb-X", "usb-X_2"] {
            symlink("../../ttyUSB0", path.join("serial/by-id").join(link)).unwrap();
        }
        symlink("../../ttyUSB0", path.join("serial/by-path/pci-0:00:1.0")).unwrap();
        symlink("ttyUSB0", path.join("modem")).unwrap();
        dev
    }

    /// A lock, given as name, pid and possibly `stale`: `ttyS0 7`, `ttyS0 7 stale`.
    fn holder(text: &str) -> Holder {
        let words: Vec<&str> = text.split(' ').collect();
        let scheme = Scheme::Uucp(PathBuf::from(format!("LCK..{}", words[0])));
        let standing = if words.len() > 2 { Standing::Stale } else { Standing::Alive };
        let mut holder = Holder::new(words[0], scheme, standing);
        holder.pid = Pid::new(words[1].parse().unwrap());
        holder
    }

    #[test]
    fn names_are_in_natural_order() {
        let lock =
            |holder: Holder| ListedDevice { holders: vec![holder], ..ListedDevice::default() };
        let mut devices: Vec<ListedDevice> = [
            "ttyS10",
            "ttyS2",
            "ttyUSB0",
            "ttyS02",
            "rfcomm18446744073709551616",
            "rfcomm9",
            "modem",
        ]
        .map(|name| ListedDevice::named(name.to_owned(), true))
        .into();
        devices.push(ListedDevice { name: "ttyS11".to_owned(), ..lock(holder("ttyS11 7 stale")) });
        devices.push(ListedDevice { name: "ttyZ1".to_owned(), ..lock(holder("ttyZ1 7")) });
        sort_by_name(&mut devices);
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        let expected = [
            "ttyZ1",
            "ttyS11",
            "modem",
            "rfcomm9",
            "rfcomm18446744073709551616",
            "ttyS02",
            "ttyS2",
            "ttyS10",
            "ttyUSB0",
        ];
        assert_eq!(names, expected);
    }

    /// The names that were asked for, the locks, and the result: each device with its other names and the pids of its
    /// holders.
    #[rstest]
    #[case::all_lock_names(&[], &["modem 7", "ttyUSB0 7", "usb-X 7", "serial_by-id_usb-X_2 7"],
        &["ttyUSB0, modem, serial/by-id/usb-X, serial/by-id/usb-X_2: 7 7 7 7"])]
    #[case::somebody_elses_by_another_name(&[], &["ttyUSB0 7", "usb-X 8"],
        &["ttyUSB0, modem, serial/by-id/usb-X: 7 8"])]
    #[case::the_last_part_is_of_the_same_process(&[], &["3 7", "pts_3 7", "usb/3 8"],
        &["pts/3: 7 7", "usb/3: 8"])]
    #[case::the_last_part_of_another_process(&[], &["3 9", "pts_3 7"], &["pts/3: 7", "3: 9"])]
    #[case::missing_devices_keep_their_names(
        &[], &["188:0 1 stale", "gone 2 stale", "gone 3", "../../etc/passwd 4"],
        &["gone: 3 2", "../../etc/passwd: 4", "188:0: 1"])]
    #[case::the_living_come_first(&[], &["ttyS0 1 stale", "ttyUSB0 2 stale", "modem 3"],
        &["ttyUSB0, modem: 3 2", "ttyS0: 1"])]
    #[case::asked_by_its_node(&["ttyUSB0"], &[], &["ttyUSB0, modem: "])]
    #[case::asked_by_two_names(&["modem", "ttyUSB0"], &[], &["ttyUSB0, modem: "])]
    #[case::asked_by_udevs_link(&["serial/by-id/usb-X"], &["ttyUSB0 7"],
        &["ttyUSB0, serial/by-id/usb-X, modem: 7"])]
    #[case::asked_for_nothing_twice(&["nothing", "nothing"], &[], &["nothing: "])]
    // Programs replace slashes by colons, and a link may have colons of its own.
    #[case::a_link_with_colons(&[], &["ttyUSB0 7", "pci-0/00/1.0 7",
        "serial_by-path_pci-0/00/1.0 7", "serial/by-path/pci-0/00/1.0 7"],
        &["ttyUSB0, modem, serial/by-path/pci-0:00:1.0: 7 7 7 7"])]
    fn a_device_is_shown_once_under_all_its_names(
        #[case] asked: &[&str],
        #[case] locks: &[&str],
        #[case] expected: &[&str],
    ) {
        let dev = dev();
        let mut names = NameIndex::new(dev.path(), Path::new("/nonexistent"));
        let asked = asked.iter().map(|name| DeviceName::parse(name.as_bytes()).unwrap());
        let holders = locks.iter().map(|text| holder(text)).collect();
        let devices = names.group(&asked.collect::<Vec<_>>(), holders).into_iter();
        let shown = devices.map(|device| {
            assert!(device.holders.iter().all(|holder| holder.device == device.name));
            let pids = device.holders.iter().map(|it| it.pid.unwrap().to_string());
            let names = [std::slice::from_ref(&device.name), &*device.others].concat().join(", ");
            format!("{names}: {}", pids.collect::<Vec<_>>().join(" "))
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    /// The adapter is pulled out: no name leads to a node any more. Another board of the same process has a file of its own.
    #[test]
    fn the_names_of_a_device_that_is_away_are_one_device() {
        let (dev, locks) = (dev(), tempfile::tempdir().unwrap());
        let path = |name: &str| locks.path().join(name);
        fs::write(path("LCK..ttyUSB9"), "").unwrap();
        fs::write(path("LCK..ttyUSB8"), "").unwrap();
        fs::hard_link(path("LCK..ttyUSB9"), path("LCK..a-board")).unwrap();
        fs::hard_link(path("LCK..ttyUSB9"), path("LCK..serial_by-id_usb-Y")).unwrap();
        fs::hard_link(path("LCK..ttyUSB9"), path("LK.005.188.009")).unwrap();
        // One link leads to the other adapter by now.
        fs::hard_link(path("LCK..ttyUSB8"), path("LCK..ttyUSB0")).unwrap();
        let lock = |device: &str, name: &str| {
            let is_by_number = name.starts_with("LK.");
            let scheme = if is_by_number { Scheme::Svr4 } else { Scheme::Uucp };
            let mut holder = Holder::new(device, scheme(path(name)), Standing::Alive);
            holder.pid = Pid::new(7);
            holder
        };
        let holders = vec![
            lock("188:9", "LK.005.188.009"),
            lock("a-board", "LCK..a-board"),
            lock("serial_by-id_usb-Y", "LCK..serial_by-id_usb-Y"),
            lock("ttyUSB8", "LCK..ttyUSB8"),
            lock("ttyUSB9", "LCK..ttyUSB9"),
            lock("ttyUSB0", "LCK..ttyUSB0"),
        ];
        let mut names = NameIndex::new(dev.path(), Path::new("/nonexistent"));
        let shown = names.group(&[], holders).into_iter();
        let shown: Vec<_> = shown.map(|it| (it.name, it.exists, it.holders.len())).collect();
        let expected = [("ttyUSB0", true, 2), ("ttyUSB9", false, 4)];
        assert_eq!(shown, expected.map(|(name, exists, locks)| (name.to_owned(), exists, locks)));
    }

    #[rstest]
    #[case::one_letter("ttyUSB1", Some("ttyUSB0"))]
    #[case::swapped("ttyUBS0", Some("ttyUSB0"))]
    #[case::small_letters("ttyusb0", Some("ttyUSB0"))]
    #[case::of_a_link("serial/by-id/usb-Y", Some("serial/by-id/usb-X"))]
    #[case::nothing_like_it("printer", None)]
    fn a_mistyped_device_suggests_the_nearest_one(#[case] name: &str, #[case] meant: Option<&str>) {
        let known = ["ttyS10", "ttyUSB0", "ttyUSB3", "serial/by-id/usb-X"].map(String::from);
        assert_eq!(nearest(known.into_iter(), name).as_deref(), meant);
    }

    #[rstest]
    #[case::absolute("/dev/ttyS1", "ttyS1")]
    #[case::bare("ttyS1", "ttyS1")]
    #[case::below("serial/by-id/x", "serial/by-id/x")]
    #[case::dots_on_the_way("/dev/../dev/ttyS1", "ttyS1")]
    #[case::two_slashes("/dev//ttyS1", "ttyS1")]
    fn spellings_of_a_device_are_accepted(#[case] text: &str, #[case] name: &str) {
        assert_eq!(device(text).unwrap().as_str(), name);
    }

    #[rstest]
    #[case::elsewhere("/etc/passwd")]
    #[case::climbs("../ttyS0")]
    #[case::here("./ttyS0")]
    #[case::dev_itself("/dev")]
    #[case::dev_as_link("/dev/.")]
    #[case::empty("")]
    #[case::blank("tty S0")]
    #[case::nowhere("/no/such/directory/ttyS0")]
    fn spellings_of_no_device_are_refused(#[case] text: &str) {
        assert!(device(text).is_err(), "{text}");
    }

    #[test]
    fn links_are_followed_into_the_directory_and_no_further() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let dev = place.join("dev");
        fs::create_dir_all(dev.join("serial")).unwrap();
        symlink("../ttyS0", dev.join("serial/gps")).unwrap();
        symlink(dev.join("serial/gps"), place.join("one")).unwrap();
        symlink("one", place.join("two")).unwrap();
        symlink("three", place.join("three")).unwrap();
        symlink("/etc/passwd", place.join("other")).unwrap();
        let into = |name: &str| led_into(&dev, &place.join(name));
        assert_eq!(into("one"), Ok(dev.join("serial/gps")));
        assert_eq!(into("two"), Ok(dev.join("serial/gps")));
        assert_eq!(into("dev/ttyS7"), Ok(dev.join("ttyS7")), "one that is not there");
        for name in ["three", "other", "none", "dev"] {
            assert!(into(name).is_err(), "{name}");
        }
    }
}
