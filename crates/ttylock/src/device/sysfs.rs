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

/// The kernel's name of a character device, as a name below `/dev`. `None` if that file system is missing, and for
/// pseudo-terminals, which are not in it.
///
/// # Errors
/// An error of the system, if the name cannot be read.
pub(crate) fn kernel_name(device: Numbers) -> io::Result<Option<String>> {
    let link = format!("{BY_NUMBER}/{}:{}", device.major, device.minor);
    match std::fs::read_link(link) {
        Ok(target) => Ok(name_in(&target)),
        // A process that can never read it finds the other nodes by number.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => absent(error),
    }
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

    #[test]
    fn an_unknown_device_number_has_no_name() {
        assert_eq!(kernel_name(Numbers { major: 136, minor: 0 }).unwrap(), None);
    }
}
