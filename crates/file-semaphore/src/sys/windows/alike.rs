//! Windows: a directory inherits the permissions of the one around it.

use std::io;
use std::path::Path;

use pidlockfile::Directory;

/// Makes the directory if there is none.
pub(crate) fn make_directory_alike(path: &Path, _around: &Directory) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
