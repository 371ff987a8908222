//! Which node a device name leads to: every name on the way, and the numbers at its end.
//!
//! The node itself is never opened: opening a serial port moves its modem lines.

use std::collections::VecDeque;
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

use super::name::DeviceName;

/// As many symbolic links as the kernel follows (path_resolution(7)).
const LINKS_FOLLOWED: usize = 40;

/// A device name followed to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail {
    /// Every name the device has on this way, relative to `/dev`: first the one asked for, last
    /// the real node. One entry when the name is no link.
    pub names: Vec<String>,
    /// The other names that are known for the real node, relative to `/dev`: links that were not
    /// on this way.
    pub links: Vec<String>,
    /// The node, unless there is none.
    pub node: Option<Node>,
}

/// A device node as `stat(2)` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The file system it lies on, as major and minor number.
    pub file_system: Numbers,
    /// Its inode number there.
    pub inode: u64,
    /// The device it stands for; absent when it is no device.
    pub device: Option<Numbers>,
}

/// The major and minor number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Which driver.
    pub major: u64,
    /// Which of the driver's devices.
    pub minor: u64,
}

/// Why a name leads to no device below `/dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Astray {
    /// A link on the way leads out of `/dev`.
    Outside,
    /// More links than the kernel would follow.
    Loop,
    /// The name goes through something that is no directory, or cannot be looked at.
    Unreachable,
}

impl Trail {
    /// Adds names that lead to the same node; those already on the way are left out.
    pub fn add_links(&mut self, links: impl IntoIterator<Item = String>) {
        for link in links {
            if !self.names.contains(&link) && !self.links.contains(&link) {
                self.links.push(link);
            }
        }
    }

    /// Every name of the device, the real node first and the one asked for next.
    pub fn every_name(&self) -> impl Iterator<Item = &str> {
        self.names.iter().rev().chain(&self.links).map(String::as_str)
    }

    /// Whether there is a device at its end. Anybody can make a plain file below `/dev/shm`.
    #[must_use]
    pub fn is_device(&self) -> bool {
        self.node.is_some_and(|node| node.device.is_some())
    }

    /// The name of the real node, relative to `/dev`.
    #[must_use]
    pub fn real(&self) -> &str {
        self.names.last().map_or("", String::as_str)
    }
}

impl Numbers {
    /// Splits a `dev_t` as Linux does (makedev(3)).
    fn of(device: u64) -> Self {
        Self { major: nix::sys::stat::major(device), minor: nix::sys::stat::minor(device) }
    }
}

/// Follows a name below `dev_dir` one component at a time.
///
/// A node that does not exist is no error, nor is a link to one: the names are known anyway.
///
/// # Errors
/// [`Astray`] when the way leaves `dev_dir` or does not end.
pub fn follow(dev_dir: &Path, name: &DeviceName) -> Result<Trail, Astray> {
    let mut trail = Trail { names: Vec::new(), links: Vec::new(), node: None };
    let mut real = PathBuf::new();
    let mut rest: VecDeque<PathBuf> = components(name.below_dev())?;
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        if part.as_os_str() == ".." {
            if !real.pop() {
                return Err(Astray::Outside);
            }
            continue;
        }
        let here = real.join(&part);
        let metadata = match std::fs::symlink_metadata(dev_dir.join(&here)) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                real = here;
                real.extend(rest.drain(..).filter(|part| part.as_os_str() != ".."));
                break;
            }
            Err(_) => return Err(Astray::Unreachable),
        };
        if !metadata.is_symlink() {
            trail.node = rest.is_empty().then(|| Node::of(&metadata));
            real = here;
            continue;
        }
        links += 1;
        if links > LINKS_FOLLOWED {
            return Err(Astray::Loop);
        }
        note(&mut trail.names, &rest.iter().fold(here.clone(), |path, part| path.join(part)));
        let target = std::fs::read_link(dev_dir.join(&here)).map_err(|_| Astray::Unreachable)?;
        let target = if target.is_absolute() {
            real = PathBuf::new();
            target.strip_prefix(dev_dir).map_err(|_| Astray::Outside)?.to_owned()
        } else {
            target
        };
        for part in components(&target)?.into_iter().rev() {
            rest.push_front(part);
        }
    }
    note(&mut trail.names, &real);
    if trail.real().is_empty() { Err(Astray::Outside) } else { Ok(trail) }
}

/// A name below `/dev` that is no text has no lock file name either: left out.
fn note(names: &mut Vec<String>, path: &Path) {
    if let Some(text) = path.to_str().filter(|text| !names.iter().any(|name| name == text)) {
        names.push(text.to_owned());
    }
}

fn components(path: &Path) -> Result<VecDeque<PathBuf>, Astray> {
    path.components()
        .filter(|part| !matches!(part, Component::CurDir))
        .map(|part| match part {
            Component::Normal(_) | Component::ParentDir => Ok(PathBuf::from(part.as_os_str())),
            Component::RootDir | Component::Prefix(_) | Component::CurDir => Err(Astray::Outside),
        })
        .collect()
}

impl Node {
    /// The node behind what `lstat(2)` found.
    #[must_use]
    pub fn of(metadata: &std::fs::Metadata) -> Self {
        let kind = metadata.file_type();
        let is_device = kind.is_char_device() || kind.is_block_device();
        Self {
            file_system: Numbers::of(metadata.st_dev()),
            inode: metadata.st_ino(),
            device: is_device.then(|| Numbers::of(metadata.st_rdev())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rstest::rstest;

    use super::*;

    /// A private `/dev`: a node (a plain file will do), and links to it of every kind.
    fn dev() -> tempfile::TempDir {
        let dev = tempfile::tempdir().unwrap();
        let path = dev.path();
        fs::write(path.join("ttyS0"), "").unwrap();
        fs::create_dir_all(path.join("serial/by-id")).unwrap();
        fs::create_dir_all(path.join("pts")).unwrap();
        fs::write(path.join("pts/3"), "").unwrap();
        symlink("ttyS0", path.join("modem")).unwrap();
        symlink(path.join("ttyS0"), path.join("absolute")).unwrap();
        symlink("modem", path.join("twice")).unwrap();
        symlink("../../ttyS0", path.join("serial/by-id/usb-X")).unwrap();
        symlink("serial", path.join("series")).unwrap();
        symlink("gone", path.join("dangling")).unwrap();
        symlink("/etc/passwd", path.join("outside")).unwrap();
        symlink("../outside", path.join("climbs")).unwrap();
        symlink("loop-b", path.join("loop-a")).unwrap();
        symlink("loop-a", path.join("loop-b")).unwrap();
        symlink(".", path.join("self")).unwrap();
        dev
    }

    #[rstest]
    #[case::plain("ttyS0", &["ttyS0"], true)]
    #[case::below("pts/3", &["pts/3"], true)]
    #[case::link("modem", &["modem", "ttyS0"], true)]
    #[case::absolute_link("absolute", &["absolute", "ttyS0"], true)]
    #[case::two_links("twice", &["twice", "modem", "ttyS0"], true)]
    #[case::by_id("serial/by-id/usb-X", &["serial/by-id/usb-X", "ttyS0"], true)]
    #[case::linked_directory("series/by-id/usb-X", &["series/by-id/usb-X", "serial/by-id/usb-X", "ttyS0"], true)]
    #[case::through_itself("self/ttyS0", &["self/ttyS0", "ttyS0"], true)]
    #[case::absent("ttyUSB7", &["ttyUSB7"], false)]
    #[case::absent_below("usb/tts/0", &["usb/tts/0"], false)]
    #[case::dangling("dangling", &["dangling", "gone"], false)]
    fn follows(#[case] name: &str, #[case] names: &[&str], #[case] exists: bool) {
        let dev = dev();
        let trail = follow(dev.path(), &DeviceName::parse(name.as_bytes()).unwrap()).unwrap();
        assert_eq!(trail.names, names);
        assert_eq!(trail.node.is_some(), exists);
    }

    #[rstest]
    #[case::outside("outside", Astray::Outside)]
    #[case::climbs("climbs", Astray::Outside)]
    #[case::endless("loop-a", Astray::Loop)]
    #[case::dev_itself("self", Astray::Outside)]
    #[case::through_a_node("ttyS0/x", Astray::Unreachable)]
    fn refuses(#[case] name: &str, #[case] astray: Astray) {
        let dev = dev();
        let found = follow(dev.path(), &DeviceName::parse(name.as_bytes()).unwrap());
        assert_eq!(found, Err(astray));
    }

    #[test]
    fn a_real_device_has_numbers() {
        let trail = follow(Path::new("/dev"), &DeviceName::parse(b"null").unwrap()).unwrap();
        assert_eq!(trail.node.unwrap().device, Some(Numbers { major: 1, minor: 3 }));
    }
}
