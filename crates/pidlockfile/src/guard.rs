//! [`try_lock`], for programs that want one lock file: takes it or not, and a guard releases
//! it when it is dropped.

use std::path::Path;

use crate::directory::Directory;
use crate::draft::{NewFile, Published};
use crate::errno::Errno;
use crate::error::{Error, Step};
use crate::exchange::Attempt;
use crate::found::Found;
use crate::name::Name;
use crate::process::{Pid, lives};

/// How often the lock is looked at again when others change it between a look and a step.
const ATTEMPTS: usize = 16;
/// More than any lock file that has a process number in its first line.
const CONTENT_BYTES: usize = 1024;
/// The start of the temporary file's name.
const PREFIX: &str = "pidlockfile";

/// Takes a lock file for this process. `None`: somebody has it.
///
/// The file has the process number in ten digits and a newline, as UUCP, minicom and many daemons
/// write it, and is world-readable. A lock whose process is gone is broken. A file that names no process, or is no
/// plain file, counts as held. The directory must exist, and others must not be able to remove files of this user
/// in it (`/run/lock` is sticky).
///
/// # Errors
/// [`Error::step`] and the system's reason, if the directory cannot be opened or written.
pub fn try_lock(path: impl AsRef<Path>) -> Result<Option<PidLock>, Error> {
    let path = path.as_ref();
    let no_name = || Error::new(Step::Prepare, path, Errno::INVAL);
    let name = path.file_name().and_then(|name| name.to_str()).and_then(Name::new);
    let name = name.ok_or_else(no_name)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = Directory::open(parent.unwrap_or(Path::new(".")))?;
    let pid = Pid::this();
    let content = format!("{pid:>10}\n");
    let claim = NewFile::new(content.as_bytes(), PREFIX);
    for _ in 0..ATTEMPTS {
        if let Some(lock) = directory.publish(&name, &claim)? {
            return Ok(Some(PidLock { directory, name, lock, pid }));
        }
        let opened = match directory.read(&name, CONTENT_BYTES)? {
            Found::Nothing => continue,
            Found::Obstacle(_) => return Ok(None),
            Found::File(opened) => opened,
        };
        let first = opened.content().split(|byte| *byte == b'\n').next().unwrap_or_default();
        if Pid::parse(first.trim_ascii()).map_or(true, lives) {
            return Ok(None);
        }
        match directory.replace(&name, opened, &claim)? {
            Attempt::Done(lock) => {
                return Ok(Some(PidLock { directory, name, lock, pid }));
            }
            Attempt::Changed | Attempt::Contended => {}
        }
    }
    Ok(None)
}

/// A lock file that belongs to this process until the value is dropped.
///
/// A child that was forked does not have the lock, and does not release it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = tempfile::tempdir()?;
/// let path = scratch.path().join("backup.pid");
/// let lock = pidlockfile::try_lock(&path)?.ok_or("busy")?;
/// assert!(pidlockfile::try_lock(&path)?.is_none());
/// drop(lock);
/// assert!(!path.exists());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released at once"]
pub struct PidLock {
    directory: Directory,
    name: Name,
    lock: Published,
    pid: Pid,
}

impl Drop for PidLock {
    fn drop(&mut self) {
        if Pid::this() != self.pid {
            return;
        }
        let _ = self.directory.withdraw_patiently(&self.name, &self.lock, PREFIX);
    }
}

#[cfg(test)]
mod tests {
    use super::try_lock;
    use rstest::rstest;
    use std::fs;

    #[test]
    fn a_guarded_lock_is_held_until_the_guard_is_dropped() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("job.lock");
        let lock = try_lock(&path).unwrap().unwrap();
        let own = format!("{:>10}\n", std::process::id());
        assert_eq!(fs::read_to_string(&path).unwrap(), own);
        assert!(try_lock(&path).unwrap().is_none());
        drop(lock);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[rstest]
    #[case::gone("   4194305\n", true)]
    #[case::gone_with_more("4194305\nminicom root\n", true)]
    #[case::alive(&format!("{:>10}\n", std::process::id()), false)]
    #[case::nobody_named("", false)]
    #[case::no_number("who knows\n", false)]
    fn only_the_lock_of_a_process_that_is_gone_is_broken(
        #[case] content: &str,
        #[case] ours: bool,
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("job.lock");
        fs::write(&path, content).unwrap();
        let lock = try_lock(&path).unwrap();
        assert_eq!(lock.is_some(), ours);
        drop(lock);
        assert_eq!(path.exists(), !ours);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(try_lock(scratch.path().join("none/job.lock")).is_err());
        assert!(try_lock(scratch.path()).unwrap().is_none());
        assert!(try_lock("..").is_err());
    }
}
