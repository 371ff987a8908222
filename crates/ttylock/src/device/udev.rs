//! Links that udev has made to a device, which other programs may use as its name.
//!
//! `/dev/ttyUSB0` usually has links below `/dev/serial`. A link leads to the node, but not back; udev's
//! database has the way back. Source: `udev_device_get_devlinks_list_entry(3)` and the database files
//! `/run/udev/data/cMAJOR:MINOR`: their lines `S:NAME` name the links.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::name::DeviceName;
use super::node::Numbers;

/// As much of a database entry as is read, in bytes, and as many links as are believed.
const ENTRY_BYTES: u64 = 64 * 1024;
const LINKS_OF_AN_ENTRY: usize = 16;

/// The links to a character device, as names below `/dev`. `None` if udev does not know the device.
///
/// # Errors
/// An error of the system, if there is an entry that cannot be read now: its content is unknown.
pub fn udev_links(database: &Path, device: Numbers) -> io::Result<Option<Vec<String>>> {
    let entry = database.join(format!("c{}:{}", device.major, device.minor));
    let mut text = Vec::new();
    match File::open(entry).and_then(|file| file.take(ENTRY_BYTES).read_to_end(&mut text)) {
        Ok(_) => Ok(Some(links_in(&String::from_utf8_lossy(&text)))),
        Err(error) => absent(error),
    }
}

/// A missing entry is no error; one that exists and cannot be read is.
pub(super) fn absent<T>(error: io::Error) -> io::Result<Option<T>> {
    let nothing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    if nothing.contains(&error.kind()) { Ok(None) } else { Err(error) }
}

fn links_in(entry: &str) -> Vec<String> {
    let names = entry.lines().filter_map(|line| line.strip_prefix("S:"));
    let checked = names.filter_map(|name| DeviceName::parse(name.as_bytes()).ok());
    checked.map(|name| name.as_str().to_owned()).take(LINKS_OF_AN_ENTRY).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

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
        std::fs::create_dir(database.path().join("c188:0")).unwrap();
        assert!(udev_links(database.path(), Numbers { major: 188, minor: 0 }).is_err());
    }
}
