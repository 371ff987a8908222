//! A device as a value: the name by which a client calls it, its node, its numbers. Below are its node, and its other names.
//! Pure.

pub(crate) mod absent;
pub(crate) mod node;
pub(crate) mod other_names;

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use crate::limits::NAME_BYTES;

/// A device name that has passed every check: relative to `/dev`, printable ASCII without
/// blanks, without empty, `.` or `..` components.
///
/// ```
/// use ttylock::DeviceName;
/// # fn main() -> Result<(), ttylock::NotADevice> {
/// let port: DeviceName = "/dev/serial/by-id/usb-x".parse()?;
/// assert_eq!(port.as_str(), "serial/by-id/usb-x");
/// assert!(DeviceName::parse(b"../etc/passwd").is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceName(String);

/// The name is not one that a client may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it has one meaning")]
pub struct NotADevice;

impl fmt::Display for NotADevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the name of a device: /dev/NAME, printable ASCII without blanks")
    }
}

impl std::error::Error for NotADevice {}

impl DeviceName {
    /// Checks a client's spelling: `/dev/NAME` or `NAME`, subdirectories allowed.
    ///
    /// # Errors
    /// [`NotADevice`] for other roots, empty names and components, `.` and `..`, names of more
    /// than [`NAME_BYTES`] bytes, and bytes outside printable ASCII.
    pub fn parse(spelling: &[u8]) -> Result<Self, NotADevice> {
        if spelling.len() > NAME_BYTES || !spelling.iter().all(u8::is_ascii_graphic) {
            return Err(NotADevice);
        }
        let text = std::str::from_utf8(spelling).map_err(|_| NotADevice)?;
        let rest = text.strip_prefix("/dev/").unwrap_or(text);
        if rest.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(NotADevice);
        }
        Ok(Self(rest.to_owned()))
    }

    /// The path below `/dev`, such as `ttyS0` or `serial/by-id/usb-X`.
    #[must_use]
    pub fn below_dev(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.0.as_bytes()))
    }

    /// The same as text, for names and for the log.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceName {
    type Err = NotADevice;

    /// As [`DeviceName::parse`].
    fn from_str(spelling: &str) -> Result<Self, NotADevice> {
        Self::parse(spelling.as_bytes())
    }
}

/// A device name followed to its end.
///
/// ```no_run
/// # fn main() -> Result<(), ttylock::NotADevice> {
/// use std::path::Path;
///
/// let modem = ttylock::follow(Path::new("/dev"), &"/dev/modem".parse()?);
/// if let Ok(device) = modem {
///     println!("{} is {}: {:?}", device.names.join(" and "), device.real(), device.node);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResolvedDevice {
    /// Every name the device has on this way, relative to `/dev`: first the one asked for, last the real node. One
    /// entry when the name is no link. Links in directories that other users may write, and links to them, are left
    /// out: any user could make any number of names there.
    pub names: Vec<String>,
    /// The other known names of the real node, relative to `/dev`: links that were not on this way.
    pub links: Vec<String>,
    /// The node, if there is one.
    pub node: Option<Node>,
    /// The kind and permissions of the node, if there is one.
    pub access: Option<Access>,
    /// The kernel's own name of the device, relative to `/dev`. Without it, other nodes of the same device are found only
    /// by its number.
    pub kernel_name: Option<String>,
    /// If there is no node: the existing ports that share a lock file with this device.
    pub namesakes: Vec<ResolvedDevice>,
}

/// A device node as `stat(2)` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a caller may have its own stat(2)")]
pub struct Node {
    /// The file system it lies on, as major and minor number.
    pub file_system: Numbers,
    /// Its inode number there.
    pub inode: u64,
    /// The numbers of the device; `None` if it is not a device.
    pub device: Option<Numbers>,
}

/// The kind of a node, its owner and its permissions, as `stat(2)` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a caller may have its own stat(2)")]
pub struct Access {
    /// Kind and permission bits (`st_mode`).
    pub mode: u32,
    /// The user who owns it.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

impl Access {
    /// Whether it is a character device, as every port is.
    #[must_use]
    pub fn is_character_device(&self) -> bool {
        // inode(7): S_IFMT, S_IFCHR.
        self.mode & 0o170_000 == 0o020_000
    }
}

/// The major and minor number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "these two identify a device")]
pub struct Numbers {
    /// Which driver.
    pub major: u64,
    /// Which of the driver's devices.
    pub minor: u64,
}

impl Numbers {
    /// Whether it is the near end of a pseudo-terminal. Source: admin-guide/devices.txt.
    #[must_use]
    pub fn is_pseudo_terminal(self) -> bool {
        (136..=143).contains(&self.major)
    }
}

/// The name of a device by the content of `/proc/tty/drivers`. By the line `usbserial /dev/ttyUSB 188 0-511 serial`,
/// the device 188:3 is `ttyUSB3`. `None` if no driver of serial ports has the device.
pub(super) fn named_by(drivers: &str, device: Numbers) -> Option<String> {
    drivers.lines().find_map(|line| {
        // The name of a driver may have blanks.
        let mut words = line.split_ascii_whitespace().rev();
        let [kind, minors, major, path] = std::array::from_fn(|_| words.next());
        let (first, last) = minors?.split_once('-').unwrap_or((minors?, minors?));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        let unit = device.minor.checked_sub(first).filter(|_| device.minor <= last)?;
        let name = path?.strip_prefix("/dev/")?;
        let is_it = kind? == "serial" && major?.parse() == Ok(device.major);
        is_it.then(|| format!("{name}{unit}"))
    })
}

/// Whether a driver of serial ports has this device, by the content of `/proc/tty/drivers`.
#[must_use]
pub fn has_serial_driver(drivers: &str, device: Numbers) -> bool {
    named_by(drivers, device).is_some()
}

/// Why a name leads to no device below `/dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveError {
    /// A link on the way leads out of `/dev`.
    Outside,
    /// More links than the kernel would follow.
    Loop,
    /// The links are longer than any device name needs.
    TooLong,
    /// A part of the name is not a directory, or cannot be examined.
    Unreachable,
}

impl ResolvedDevice {
    /// Adds names that lead to the same node; those already on the way are left out.
    pub fn add_links(&mut self, links: impl IntoIterator<Item = String>) {
        for link in links {
            if !self.names.contains(&link) && !self.links.contains(&link) {
                self.links.push(link);
            }
        }
    }

    /// Every name of the device: the real node, the kernel's own name if that is another, the one asked for, and the others.
    pub fn every_name(&self) -> impl Iterator<Item = &str> {
        let (real, way) = self.names.split_last().map_or((None, &[][..]), |(r, w)| (Some(r), w));
        let kernels = self.kernel_name.iter().filter(move |it| Some(*it) != real);
        let first = real.into_iter().chain(kernels);
        first.chain(way).chain(&self.links).map(String::as_str)
    }

    /// Whether the name leads to a device. Any user can make a plain file below `/dev/shm`.
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::absolute("/dev/ttyS1", "ttyS1")]
    #[case::bare("ttyS1", "ttyS1")]
    #[case::below_a_directory("/dev/pts/3", "pts/3")]
    #[case::by_id("/dev/serial/by-id/usb-X_Y-if00-port0", "serial/by-id/usb-X_Y-if00-port0")]
    #[case::bare_below("pts/3", "pts/3")]
    #[case::dots_inside("tty..S", "tty..S")]
    #[case::percent("/dev/%n%s", "%n%s")]
    fn valid_device_names_are_parsed(#[case] spelling: &str, #[case] below: &str) {
        assert_eq!(DeviceName::parse(spelling.as_bytes()).unwrap().as_str(), below);
    }

    #[rstest]
    #[case::empty(b"")]
    #[case::only_dev(b"/dev/")]
    #[case::dev_itself(b"/dev")]
    #[case::other_root(b"/tmp/ttyS1")]
    #[case::root(b"/")]
    #[case::dot(b".")]
    #[case::dot_dot(b"..")]
    #[case::climbs(b"/dev/../etc/passwd")]
    #[case::climbs_bare(b"../etc/passwd")]
    #[case::climbs_below(b"pts/../../etc")]
    #[case::dot_inside(b"/dev/./ttyS1")]
    #[case::double_slash(b"/dev//ttyS1")]
    #[case::inner_double_slash(b"pts//1")]
    #[case::trailing_slash(b"/dev/pts/")]
    #[case::blank(b"tty S1")]
    #[case::tab(b"tty\tS1")]
    #[case::nul(b"tty\0S1")]
    #[case::newline(b"tty\nS1")]
    #[case::escape(b"tty\x1b[2J")]
    #[case::delete(b"tty\x7f")]
    #[case::latin1(b"tty\xe9")]
    #[case::utf8("tty\u{e9}".as_bytes())]
    fn invalid_device_names_are_refused(#[case] spelling: &[u8]) {
        assert_eq!(DeviceName::parse(spelling), Err(NotADevice));
    }

    #[test]
    fn a_refusal_says_what_a_device_is_called() {
        assert!(NotADevice.to_string().contains("/dev/NAME"));
    }

    #[rstest]
    #[case::at_the_limit(NAME_BYTES, true)]
    #[case::one_over(NAME_BYTES + 1, false)]
    fn the_length_of_a_device_name_is_bounded(#[case] length: usize, #[case] fits: bool) {
        assert_eq!(DeviceName::parse(&vec![b'x'; length]).is_ok(), fits);
    }

    const DRIVERS: &str = "\
/dev/tty             /dev/tty        5       0 system:/dev/tty
/dev/console         /dev/console    5       1 system:console
/dev/ptmx            /dev/ptmx       5       2 system
serial               /dev/ttyS       4 64-111 serial
usbserial            /dev/ttyUSB   188 0-511 serial
ttyone               /dev/ttyone   240       7 serial
pty_slave            /dev/pts      136 0-1048575 pty:slave
unknown              /dev/tty        4 1-63 console
short serial
";

    #[rstest]
    #[case::in_range(188, 511, true)]
    #[case::behind(188, 512, false)]
    #[case::single(240, 7, true)]
    #[case::beside(240, 8, false)]
    #[case::console(4, 1, false)]
    #[case::pseudo_terminal(136, 5, false)]
    #[case::nobodys(99, 0, false)]
    fn ports_are_known_by_the_list_of_drivers(
        #[case] major: u64,
        #[case] minor: u64,
        #[case] expected: bool,
    ) {
        assert_eq!(has_serial_driver(DRIVERS, Numbers { major, minor }), expected);
    }

    #[rstest]
    #[case::a_port(0o020_660, true)]
    #[case::a_disk(0o060_660, false)]
    #[case::a_link(0o120_777, false)]
    #[case::a_file(0o100_660, false)]
    fn the_kind_of_a_node_is_in_its_mode(#[case] mode: u32, #[case] is_character_device: bool) {
        let access = Access { mode, user: 0, group: 0 };
        assert_eq!(access.is_character_device(), is_character_device);
    }

    #[test]
    fn each_name_is_known_once_and_a_plain_file_is_no_device() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let plain = Node { file_system: Numbers { major: 0, minor: 5 }, inode: 1, device: None };
        let mut resolved = ResolvedDevice {
            names: names(&["modem", "ttyS0"]),
            node: Some(plain),
            ..ResolvedDevice::default()
        };
        resolved.add_links(names(&["modem", "by-id/x", "ttyS0", "by-id/x"]));
        assert_eq!(resolved.links, ["by-id/x"]);
        assert!(!resolved.is_device());
        resolved.node = Some(Node { device: Some(Numbers { major: 4, minor: 64 }), ..plain });
        assert!(resolved.is_device());
    }
}
