//! The path of a semaphore: which paths are refused, and to which file its links lead.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use pidlockfile::Name;

use crate::error::{Error, PathProblem};
use crate::limits::{LONGEST_NAME, MOST_LINKS};
use crate::sys::may_follow_link;

/// A lock's place: an existing directory (as far as was seen) and a name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) name: Name,
}

/// Checks a path as it was given. Pure.
pub(crate) fn check(path: &Path) -> Result<(), PathProblem> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.iter().all(u8::is_ascii_whitespace) {
        Err(PathProblem::Empty)
    } else if bytes.contains(&0) {
        Err(PathProblem::Nul)
    } else if bytes.windows(2).any(|pair| pair == b"..") {
        Err(PathProblem::Traversal)
    } else {
        Ok(())
    }
}

/// Finds the place of a path: checked, and its last part followed while it is a symbolic link,
/// also to a target that does not exist.
pub(crate) fn resolve(path: &Path) -> Result<Place, Error> {
    let invalid = |problem| Error::InvalidPath { path: path.to_owned(), problem };
    check(path).map_err(invalid)?;
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        let (directory, name) = split(&place).ok_or_else(|| invalid(PathProblem::NoName))?;
        // A look that fails says nothing: opening the directory will say what is wrong.
        let Ok(link) = place.symlink_metadata() else { return plain(directory, name, invalid) };
        if !link.is_symlink() {
            return plain(directory, name, invalid);
        }
        let around = directory.metadata().map_err(|_| invalid(PathProblem::NoDirectory))?;
        if !may_follow_link(&link, &around) {
            return Err(invalid(PathProblem::ForeignLink));
        }
        let target = place.read_link().map_err(|_| invalid(PathProblem::NoName))?;
        place = directory.join(target);
    }
    Err(invalid(PathProblem::LinkLoop))
}

fn plain(
    directory: PathBuf,
    name: &OsStr,
    invalid: impl Fn(PathProblem) -> Error,
) -> Result<Place, Error> {
    if name.len() > LONGEST_NAME {
        return Err(invalid(PathProblem::TooLong));
    }
    let name = Name::new(name).ok_or_else(|| invalid(PathProblem::NoName))?;
    if directory.is_dir() {
        Ok(Place { directory, name })
    } else {
        Err(invalid(PathProblem::NoDirectory))
    }
}

/// Directory and last part. A path that ends with a slash names a directory, not a lock.
fn split(path: &Path) -> Option<(PathBuf, &OsStr)> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let backslash = cfg!(windows) && (bytes.ends_with(b"\\") || bytes.ends_with(b"\\."));
    if bytes.ends_with(b"/") || bytes.ends_with(b"/.") || backslash {
        return None;
    }
    let name = path.file_name()?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Some((directory.unwrap_or(Path::new(".")).to_owned(), name))
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
