//! How people may write a device: `/dev/NAME`, `NAME`, and any path or link that leads into `/dev`. Looks at
//! links and at the current directory; never at a port.

use std::path::{Path, PathBuf};

use ttylock::{DeviceName, NAME_BYTES};

/// As many symbolic links as the kernel follows (path_resolution(7)).
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

    use rstest::rstest;

    use super::*;

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
