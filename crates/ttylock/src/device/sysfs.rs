//! The kernel's own name for a device, by which two nodes are recognized as one device: a second `mknod`, or
//! a node that was mounted into a container under another name.

use std::io;
use std::path::Path;

use super::name::DeviceName;
use super::node::Numbers;
use super::udev::absent;

/// Links from the numbers of character devices to the kernel's names for them. Source: the kernel's
/// Documentation/ABI/testing/sysfs-dev.
const BY_NUMBER: &str = "/sys/dev/char";

/// The kernel's drivers of terminals. Source: proc(5).
const DRIVERS: &str = "/proc/tty/drivers";

/// The kernel's name of a character device, as a name below `/dev`. `None` for pseudo-terminals, which are in neither of
/// the two, and if both are missing.
///
/// # Errors
/// An error of the system, if the name cannot be read.
pub(crate) fn kernel_name(device: Numbers) -> io::Result<Option<String>> {
    let link = format!("{BY_NUMBER}/{}:{}", device.major, device.minor);
    match std::fs::read_link(link) {
        Ok(target) => Ok(name_in(&target)),
        Err(error) if Path::new(BY_NUMBER).exists() => absent(error),
        // As in a chroot. A process that can never read either finds the other nodes by number.
        Err(_) => Ok(std::fs::read_to_string(DRIVERS).ok().and_then(|it| name_by(&it, device))),
    }
}

/// A line is `usbserial /dev/ttyUSB 188 0-511 serial`, and the device 188:3 is `ttyUSB3` then.
fn name_by(drivers: &str, device: Numbers) -> Option<String> {
    drivers.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let [path, major, minors, kind] = std::array::from_fn(|_| words.next());
        let (first, last) = minors?.split_once('-').unwrap_or((minors?, minors?));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        let unit = device.minor.checked_sub(first).filter(|_| device.minor <= last)?;
        let is_it = kind? == "serial" && major?.parse() == Ok(device.major);
        is_it.then_some(format!("{}{unit}", path?.strip_prefix("/dev/")?))
    })
}

/// The last part, in which `!` stands for `/`.
fn name_in(target: &Path) -> Option<String> {
    let name = target.file_name()?.to_str()?.replace('!', "/");
    DeviceName::parse(name.as_bytes()).ok().map(|name| name.as_str().to_owned())
}

#[cfg(test)]
mod tests {
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
    fn names_by_driver(#[case] major: u64, #[case] minor: u64, #[case] name: Option<&str>) {
        let drivers = "\
usbserial            /dev/ttyUSB    188 0-511 serial
serial               /dev/ttyS      4 64-95 serial
ttyAMA               /dev/ttyAMA    204 64 serial
pty_slave            /dev/pts      136 0-1048575 pty:slave
unknown              /dev/tty        4 1-63 console
";
        assert_eq!(name_by(drivers, Numbers { major, minor }).as_deref(), name);
    }

    #[test]
    fn an_unknown_device_number_has_no_name() {
        assert_eq!(kernel_name(Numbers { major: 136, minor: 0 }).unwrap(), None);
    }
}
