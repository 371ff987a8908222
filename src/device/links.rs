//! The links in `/dev` itself that lead to a device: those that people make by hand.
//!
//! An administrator's `/dev/modem` is in no database, and nothing leads from `ttyS0` back to it.
//! So the links of `/dev` (not of its subdirectories, which are udev's) are read, and remembered
//! until `/dev` changes.

use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::dir::{Dir, Type};
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, fstat};

use super::name::DeviceName;
use super::node::{Trail, follow};

/// As many links as are remembered; more are left out.
const LINKS: usize = 256;

/// A directory that changed less than this before it was read may change again without its time
/// of change moving: file systems keep time in steps of a few milliseconds.
const SETTLED: Duration = Duration::from_secs(1);

/// The links of one device directory, as last read.
#[derive(Debug, Default)]
pub struct Links {
    read: Option<(SystemTime, Vec<Link>)>,
}

/// A link, and what it says at its end.
#[derive(Clone, Debug)]
struct Link {
    name: String,
    target: String,
}

impl Links {
    /// The names of all links that lead to the real node at the end of the trail, in one hop or
    /// several, relative to `dev_dir`.
    pub fn to(&mut self, dev_dir: &Path, trail: &Trail, now: SystemTime) -> Vec<String> {
        self.refresh(dev_dir, now);
        let links = self.read.as_ref().map(|(_, links)| links.as_slice()).unwrap_or_default();
        let mut wanted = vec![base(trail.real()).to_owned()];
        let mut found: Vec<String> = Vec::new();
        // Each round finds the links to those of the round before.
        while let Some(target) = wanted.pop() {
            for link in links.iter().filter(|link| base(&link.target) == target) {
                if !found.contains(&link.name) && leads(dev_dir, &link.name, trail) {
                    found.push(link.name.clone());
                    wanted.push(link.name.clone());
                }
            }
        }
        found
    }

    fn refresh(&mut self, dev_dir: &Path, now: SystemTime) {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        if let (Some((changed, _)), Ok(metadata)) = (&self.read, std::fs::metadata(dev_dir)) {
            if metadata.modified().is_ok_and(|modified| modified == *changed) {
                return;
            }
        }
        self.read = None;
        let Ok(mut dir) = Dir::open(dev_dir, flags, Mode::empty()) else { return };
        // Before the reading, so that what changes meanwhile is noticed the next time.
        let changed = fstat(&dir).ok().and_then(|stat| modified(&stat));
        let mut links = Vec::new();
        for entry in dir.iter().flatten() {
            if entry.file_type() != Some(Type::Symlink) || links.len() == LINKS {
                continue;
            }
            let Ok(name) = entry.file_name().to_str() else { continue };
            let target = std::fs::read_link(dev_dir.join(name)).unwrap_or_default();
            let Some(target) = target.to_str().map(str::to_owned) else { continue };
            links.push(Link { name: name.to_owned(), target });
        }
        let settled = |changed| now.duration_since(changed).is_ok_and(|age| age >= SETTLED);
        // One that has not settled is read again the next time.
        let changed = changed.filter(|changed| settled(*changed));
        self.read = Some((changed.unwrap_or(SystemTime::UNIX_EPOCH), links));
    }
}

fn modified(stat: &nix::sys::stat::FileStat) -> Option<SystemTime> {
    let seconds = u64::try_from(stat.st_mtime).ok()?;
    let nanoseconds = u32::try_from(stat.st_mtime_nsec).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds))
}

fn leads(dev_dir: &Path, link: &str, trail: &Trail) -> bool {
    let name = DeviceName::parse(link.as_bytes());
    let end = name.ok().and_then(|name| follow(dev_dir, &name).ok());
    end.is_some_and(|end| end.real() == trail.real())
}

fn base(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, base)| base)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn trail(dev: &Path, name: &str) -> Trail {
        follow(dev, &DeviceName::parse(name.as_bytes()).unwrap()).unwrap()
    }

    fn sorted(mut names: Vec<String>) -> Vec<String> {
        names.sort();
        names
    }

    #[test]
    fn every_link_to_a_node_is_found_in_any_number_of_hops() {
        let dev = tempfile::tempdir().unwrap();
        let path = dev.path();
        fs::create_dir(path.join("pts")).unwrap();
        for node in ["ttyS0", "ttyS1", "pts/0", "0"] {
            fs::write(path.join(node), "").unwrap();
        }
        symlink("ttyS0", path.join("modem")).unwrap();
        symlink(path.join("modem"), path.join("fax")).unwrap();
        symlink("ttyS1", path.join("mouse")).unwrap();
        symlink("pts/0", path.join("terminal")).unwrap();
        symlink("/proc/self/fd/0", path.join("stdin")).unwrap();
        symlink("round", path.join("round")).unwrap();
        let mut links = Links::default();
        let mut to = |name| sorted(links.to(path, &trail(path, name), SystemTime::now()));
        assert_eq!(to("ttyS0"), ["fax", "modem"]);
        assert_eq!(to("fax"), ["fax", "modem"]);
        assert_eq!(to("ttyS1"), ["mouse"]);
        assert_eq!(to("pts/0"), ["terminal"]);
        assert_eq!(to("0"), [""; 0]);
    }

    #[test]
    fn links_made_later_are_noticed() {
        let dev = tempfile::tempdir().unwrap();
        let path = dev.path();
        fs::write(path.join("ttyS0"), "").unwrap();
        let later = SystemTime::now() + 2 * SETTLED;
        let mut links = Links::default();
        assert_eq!(links.to(path, &trail(path, "ttyS0"), later), [""; 0]);
        symlink("ttyS0", path.join("modem")).unwrap();
        assert_eq!(links.to(path, &trail(path, "ttyS0"), later), ["modem"]);
    }
}
