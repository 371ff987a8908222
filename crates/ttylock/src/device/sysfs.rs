//! The kernel's own name for a device, by which two nodes are recognized as one device: a second `mknod`, or
//! a node that was mounted into a container under another name.

use std::io;
use std::path::Path;

use super::model::{Numbers, named_by};
use super::name::DeviceName;
use super::udev::absent;

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
    let link = Path::new(BY_NUMBER).join(format!("{}:{}", device.major, device.minor));
    name_from(&link, Path::new(DRIVERS), device)
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
    let drivers = std::fs::read_to_string(drivers).map(Some).or_else(absent)?.unwrap_or_default();
    named_by(&drivers, device).map_or(by_sysfs, |name| Ok(Some(name)))
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
        std::fs::create_dir(&hidden).unwrap();
        if has_drivers {
            std::fs::write(&drivers, DRIVERS_OF_A_MACHINE).unwrap();
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
}
