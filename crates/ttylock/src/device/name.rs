//! The name by which a client calls a device: a path below /dev that does not lead out of it. Pure.

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
}
