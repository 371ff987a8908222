//! Finds the node to which a device name leads, with every name on the way and the device numbers.
//!
//! The node itself is never opened: opening a serial port moves its modem lines.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

pub(crate) use super::{Access, Node, Numbers, ResolveError, ResolvedDevice};

use super::DeviceName;
use crate::limits::LINK_PARTS;
use crate::sys::{self, Seen};

/// The most symbolic links that are followed: as many as the kernel follows (path_resolution(7)).
const LINKS_FOLLOWED: usize = 40;

/// Follows a name below `dev_dir` one component at a time.
///
/// A node that does not exist is no error, nor is a link to one: the names are known anyway.
///
/// # Errors
/// [`ResolveError`] when the way leaves `dev_dir` or does not end.
pub fn follow(dev_dir: &Path, name: &DeviceName) -> Result<ResolvedDevice, ResolveError> {
    let mut resolved = ResolvedDevice::default();
    let mut way = Way { directories: Vec::new() };
    let mut real = PathBuf::new();
    let mut rest: VecDeque<PathBuf> = components(name.below_dev())?;
    let mut said = Said::default();
    while let Some(part) = rest.pop_front() {
        if part.as_os_str() == ".." {
            if !real.pop() {
                return Err(ResolveError::Outside);
            }
            way.directories.pop();
            continue;
        }
        let here = real.join(&part);
        let seen = match sys::look_at(&dev_dir.join(&here)) {
            Ok(seen) => seen,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                real = here;
                real.extend(rest.drain(..).filter(|part| part.as_os_str() != ".."));
                break;
            }
            Err(_) => return Err(ResolveError::Unreachable),
        };
        if way.is_mounted_over(&seen) {
            return Err(ResolveError::Unreachable);
        }
        if !seen.is_link() {
            resolved.node = rest.is_empty().then(|| seen.node());
            resolved.access = rest.is_empty().then(|| seen.access());
            way.enter(&seen);
            real = here;
            continue;
        }
        if way.is_open_to_others() {
            // Any user can make names that lead here.
            resolved.names.clear();
        } else {
            note(
                &mut resolved.names,
                &rest.iter().fold(here.clone(), |path, part| path.join(part)),
            );
        }
        let target =
            std::fs::read_link(dev_dir.join(&here)).map_err(|_| ResolveError::Unreachable)?;
        let parts = said.parts_of(&target)?;
        if target.is_absolute() {
            real = PathBuf::new();
            way.directories.clear();
            let target = target.strip_prefix(dev_dir).map_err(|_| ResolveError::Outside)?;
            prepend(&mut rest, components(target)?);
        } else {
            prepend(&mut rest, parts);
        }
    }
    note(&mut resolved.names, &real);
    if resolved.real().is_empty() { Err(ResolveError::Outside) } else { Ok(resolved) }
}

fn prepend(rest: &mut VecDeque<PathBuf>, parts: VecDeque<PathBuf>) {
    for part in parts.into_iter().rev() {
        rest.push_front(part);
    }
}

/// The length of the links on the way. It is limited before anything is examined.
#[derive(Debug, Default)]
struct Said {
    links: usize,
    parts: usize,
}

impl Said {
    fn parts_of(&mut self, target: &Path) -> Result<VecDeque<PathBuf>, ResolveError> {
        self.links = self.links.saturating_add(1);
        if self.links > LINKS_FOLLOWED {
            return Err(ResolveError::Loop);
        }
        let relative = target.strip_prefix("/").unwrap_or(target);
        let parts = components(relative)?;
        self.parts = self.parts.saturating_add(parts.len());
        if self.parts > LINK_PARTS { Err(ResolveError::TooLong) } else { Ok(parts) }
    }
}

/// The directories on the way.
#[derive(Debug)]
struct Way {
    directories: Vec<Passed>,
}

#[derive(Clone, Copy, Debug)]
struct Passed {
    file_system: Numbers,
    /// Whether users other than root and this one may change its content, or that of a directory above it.
    open_to_others: bool,
}

impl Way {
    fn is_open_to_others(&self) -> bool {
        self.directories.last().is_some_and(|passed| passed.open_to_others)
    }

    /// The owner of a directory may mount a file system over it, and a file system in user space may never answer.
    /// Such a directory is not followed.
    fn is_mounted_over(&self, seen: &Seen) -> bool {
        self.directories
            .last()
            .is_some_and(|passed| passed.open_to_others && passed.file_system != seen.file_system)
    }

    fn enter(&mut self, seen: &Seen) {
        let open_to_others = self.is_open_to_others() || seen.is_open_to_others();
        self.directories.push(Passed { file_system: seen.file_system, open_to_others });
    }
}

impl Seen {
    pub(super) fn is_directory(&self) -> bool {
        self.kind() == FileType::Directory
    }

    fn is_link(&self) -> bool {
        self.kind() == FileType::Symlink
    }

    pub(super) fn is_open_to_others(&self) -> bool {
        let trusted = || self.owner == 0 || self.owner == rustix::process::geteuid().as_raw();
        self.is_directory() && (self.mode & 0o002 != 0 || !trusted())
    }

    fn access(&self) -> Access {
        Access { mode: self.mode, user: self.owner, group: self.group }
    }

    fn node(&self) -> Node {
        let is_device = matches!(self.kind(), FileType::CharacterDevice | FileType::BlockDevice);
        let Self { file_system, inode, .. } = *self;
        Node { file_system, inode, device: is_device.then_some(self.device) }
    }
}

/// A name that is not text has no lock file name, so it is left out.
fn note(names: &mut Vec<String>, path: &Path) {
    if let Some(text) = path.to_str().filter(|text| !names.iter().any(|name| name == text)) {
        names.push(text.to_owned());
    }
}

fn components(path: &Path) -> Result<VecDeque<PathBuf>, ResolveError> {
    path.components()
        .filter(|part| !matches!(part, Component::CurDir))
        .map(|part| match part {
            Component::Normal(_) | Component::ParentDir => Ok(PathBuf::from(part.as_os_str())),
            Component::RootDir | Component::Prefix(_) | Component::CurDir => {
                Err(ResolveError::Outside)
            }
        })
        .collect()
}

impl ResolvedDevice {
    /// Whether it is surely no port: it is no character device, or the null device.
    #[must_use]
    pub fn is_no_port(&self) -> bool {
        let numbers = self.node.and_then(|node| node.device);
        let is_null = || numbers.is_some() && numbers == sys::null_device();
        self.access.is_some_and(|access| !access.is_character_device() || is_null())
    }
}

impl Node {
    /// The node behind what `lstat(2)` found.
    #[must_use]
    pub fn of(metadata: &std::fs::Metadata) -> Self {
        Seen::from(metadata).node()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

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
    fn links_are_followed_to_the_node(
        #[case] name: &str,
        #[case] names: &[&str],
        #[case] exists: bool,
    ) {
        let dev = dev();
        let resolved = follow(dev.path(), &DeviceName::parse(name.as_bytes()).unwrap()).unwrap();
        assert_eq!(resolved.names, names);
        assert_eq!(resolved.node.is_some(), exists);
    }

    #[rstest]
    #[case::outside("outside", ResolveError::Outside)]
    #[case::climbs("climbs", ResolveError::Outside)]
    #[case::endless("loop-a", ResolveError::Loop)]
    #[case::dev_itself("self", ResolveError::Outside)]
    #[case::through_a_node("ttyS0/x", ResolveError::Unreachable)]
    fn links_that_leave_dev_or_loop_are_refused(#[case] name: &str, #[case] error: ResolveError) {
        let dev = dev();
        let found = follow(dev.path(), &DeviceName::parse(name.as_bytes()).unwrap());
        assert_eq!(found, Err(error));
    }

    #[rstest]
    #[case::at_the_limit(LINK_PARTS - 1, true)]
    #[case::one_over(LINK_PARTS + 1, false)]
    fn the_parts_of_all_links_are_bounded(#[case] parts: usize, #[case] fits: bool) {
        let dev = dev();
        let path = dev.path();
        // Each link goes down and up again.
        let target = |parts: usize| format!("{}ttyS0", "pts/../".repeat((parts - 1) / 2));
        symlink(target(parts), path.join("long")).unwrap();
        symlink("long", path.join("to-long")).unwrap();
        let found = follow(path, &DeviceName::parse(b"to-long").unwrap());
        assert_eq!(found.map(|resolved| resolved.names.len()).ok(), fits.then_some(3));
    }

    /// Any user can make names in a directory that is open to all; they do not count as names of the device.
    #[rstest]
    #[case::a_link("shm/a", &["ttyS0"])]
    #[case::a_chain("shm/b", &["ttyS0"])]
    #[case::by_a_good_link("shared/b", &["ttyS0"])]
    #[case::out_and_by_a_good_link("shm/c", &["modem", "ttyS0"])]
    #[case::a_directory_in_it("shm/own/a", &["ttyS0"])]
    #[case::a_file("shm/file", &["shm/file"])]
    fn names_that_anybody_can_make_do_not_count(#[case] name: &str, #[case] names: &[&str]) {
        let dev = dev();
        let path = dev.path();
        fs::create_dir_all(path.join("shm/own")).unwrap();
        fs::set_permissions(path.join("shm"), fs::Permissions::from_mode(0o1777)).unwrap();
        symlink("../ttyS0", path.join("shm/a")).unwrap();
        symlink("a", path.join("shm/b")).unwrap();
        symlink("../modem", path.join("shm/c")).unwrap();
        symlink("../../ttyS0", path.join("shm/own/a")).unwrap();
        fs::write(path.join("shm/file"), "").unwrap();
        symlink("shm", path.join("shared")).unwrap();
        let resolved = follow(path, &DeviceName::parse(name.as_bytes()).unwrap()).unwrap();
        assert_eq!(resolved.names, names);
    }
}
