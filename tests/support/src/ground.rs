//! Directories of one test's own on this machine, and `lfpd` with options that lead there.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::programs::program;
use crate::until::{LIMIT, until};

/// Directories of the test's own, and the program with options that lead there.
#[derive(Debug)]
pub struct Ground {
    root: tempfile::TempDir,
}

impl Ground {
    /// Empty directories for locks, for locks to be searched, and for the state.
    ///
    /// # Panics
    /// They cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["lock", "other", "state"] {
            std::fs::create_dir(root.path().join(dir)).unwrap();
        }
        Self { root }
    }

    /// What is below the test's own directory.
    #[must_use]
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// The names in the lock directory, in order.
    ///
    /// # Panics
    /// The directory cannot be read.
    #[must_use]
    pub fn locks(&self) -> Vec<String> {
        listing(&self.path("lock"))
    }

    /// `lfpd` with options for these directories.
    #[must_use]
    pub fn command(&self) -> Command {
        // Another build of it, for another kind of machine, is put to the same tests (.ci/targets).
        let other = std::env::var_os("LFPD_PROGRAM").map(PathBuf::from);
        let program = other.unwrap_or_else(|| program("lfpd", "lfpd", &[]));
        let mut command = Command::new(program);
        command.arg("--lock-dir").arg(self.path("lock"));
        command.arg("--search-dir").arg(self.path("other"));
        command.arg("--state-dir").arg(self.path("state"));
        command
    }

    /// The same as a daemon on a Unix socket of this name, with nothing on descriptor 0.
    #[must_use]
    pub fn listening(&self, socket: &str) -> Command {
        let mut command = self.command();
        command.arg("--listen").arg(format!("unix:{}", self.path(socket).display()));
        command.stdin(Stdio::null());
        command
    }
}

/// The names in a directory, in order.
///
/// # Panics
/// It cannot be read.
#[must_use]
pub fn listing(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Makes a file, or a link itself, as if last changed in 1970: what is swept only when it is old is swept then.
///
/// # Errors
/// It is not there any more, or is another user's.
pub fn make_old(path: &Path) -> io::Result<()> {
    let then = Timespec { tv_sec: 1, tv_nsec: 0 };
    let times = Timestamps { last_access: then, last_modification: then };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Waits for a child that ends by itself.
///
/// # Panics
/// It has not ended within [`LIMIT`]; it is killed then.
pub fn ended(mut child: Child) -> ExitStatus {
    let status = until(LIMIT, || child.try_wait().unwrap());
    if status.is_none() {
        let _ = child.kill();
    }
    status.expect("an end in time")
}
