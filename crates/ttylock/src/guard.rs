//! [`PortLock`], a guard for a port that this process has locked: dropping it releases the port.

use std::error;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use pidlockfile::Pid;

use crate::device::name::{DeviceName, NotADevice};
use crate::layout::Layout;
use crate::lock::holders::Holder;
use crate::lock::table::Table;
use crate::lock::{Answer, Outcome, Request, Weight};

/// How often a busy port is tried again.
const PAUSE: Duration = Duration::from_millis(20);

/// Locks a serial port for this process; if it is busy, returns its holders at once.
///
/// The lock files are written by this process, so its user must have the right to write the lock directory. If users
/// do not have this right, use the crate `lfp`, which asks the service `lfpd`.
///
/// # Errors
/// See [`LockError`].
pub fn lock(port: impl AsRef<Path>) -> Result<PortLock, LockError> {
    lock_in(Layout::native(), port)
}

/// Locks a serial port for this process, and tries for up to `timeout`. Waiters are not served in turn; the
/// crate `lfp` waits in the service's line instead.
///
/// # Errors
/// See [`LockError`].
pub fn lock_timeout(port: impl AsRef<Path>, timeout: Duration) -> Result<PortLock, LockError> {
    retry(timeout, || lock(&port))
}

fn retry(
    timeout: Duration,
    mut attempt: impl FnMut() -> Result<PortLock, LockError>,
) -> Result<PortLock, LockError> {
    let begin = Instant::now();
    loop {
        let left = timeout.saturating_sub(begin.elapsed());
        match attempt() {
            Err(LockError::Busy(_)) if !left.is_zero() => std::thread::sleep(PAUSE.min(left)),
            answer => return answer,
        }
    }
}

/// [`lock`] with other directories.
///
/// # Errors
/// See [`LockError`].
pub fn lock_in(layout: Layout, port: impl AsRef<Path>) -> Result<PortLock, LockError> {
    let name = port.as_ref().to_str().ok_or(LockError::NotADevice)?;
    let device = name.parse().map_err(|NotADevice| LockError::NotADevice)?;
    let request = Request { device, pid: Pid::this() };
    let mut table = Table::new(layout.clone());
    let answer = table.lock(&request);
    match answer.outcome {
        Outcome::Done => Ok(PortLock { layout, request }),
        Outcome::Busy => Err(LockError::Busy(table.holders(&request.device))),
        Outcome::Denied => Err(LockError::Denied(reasons(answer))),
    }
}

fn reasons(answer: Answer) -> Vec<String> {
    let weighty = |weight| matches!(weight, Weight::Notice | Weight::Warning);
    let events = answer.events.into_iter().filter(|event| weighty(event.weight));
    events.map(|event| event.text).collect()
}

/// A serial port that belongs to this process until the value is dropped, or until the process ends.
///
/// A child that was forked does not have the lock, and does not release it.
#[must_use = "the port is released at once"]
pub struct PortLock {
    layout: Layout,
    request: Request,
}

impl fmt::Debug for PortLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortLock").field("request", &self.request).finish_non_exhaustive()
    }
}

impl PortLock {
    /// The port, as a name below `/dev`.
    #[must_use]
    pub fn device(&self) -> &DeviceName {
        &self.request.device
    }
}

impl Drop for PortLock {
    fn drop(&mut self) {
        // A file that cannot be removed is stale when this process has ended.
        if Pid::this() == self.request.pid {
            Table::new(self.layout.clone()).unlock(&self.request);
        }
    }
}

/// Why a port was not locked.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// The path is no name of a device below `/dev`.
    NotADevice,
    /// Another process has the port. These are its known holders.
    Busy(Vec<Holder>),
    /// The lock cannot be written; these are the known reasons.
    Denied(Vec<String>),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotADevice => NotADevice.fmt(f),
            Self::Busy(holders) => f.write_str(&held_by(holders)),
            Self::Denied(reasons) if reasons.is_empty() => {
                f.write_str("the lock cannot be written")
            }
            Self::Denied(reasons) => {
                write!(f, "the lock cannot be written: {}", reasons.join("; "))
            }
        }
    }
}

impl error::Error for LockError {}

/// `held by minicom (process 4711)`: the holders that keep others out, in words.
#[must_use]
pub fn held_by(holders: &[Holder]) -> String {
    let keeps_out = holders.iter().filter(|holder| holder.keeps_out());
    let name = |holder: &Holder| match (&holder.command, holder.pid) {
        (Some(command), Some(pid)) => format!("{command} (process {pid})"),
        (None, Some(pid)) => format!("process {pid}"),
        (Some(command), None) => command.clone(),
        (None, None) => "another process".to_owned(),
    };
    let mut names: Vec<String> = keeps_out.map(name).collect();
    names.dedup();
    match names.is_empty() {
        true => "held by another process".to_owned(),
        false => format!("held by {}", names.join(", ")),
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
    use super::{LockError, lock_in, retry};
    use crate::layout::Layout;
    use rstest::rstest;
    use std::path::Path;
    use std::time::Duration;

    fn layout(root: &Path) -> Layout {
        for name in ["dev", "lock", "state", "udev"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        Layout {
            dev_dir: root.join("dev"),
            lock_dir: root.join("lock"),
            search_dirs: Vec::new(),
            state_dir: root.join("state"),
            udev_dir: root.join("udev"),
            ..Layout::native()
        }
    }

    #[test]
    fn a_guard_holds_the_port_until_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        let file = root.path().join("lock/LCK..ttyW0");
        let port = lock_in(layout.clone(), "/dev/ttyW0").unwrap();
        assert_eq!(port.device().as_str(), "ttyW0");
        assert!(file.exists());
        drop(port);
        assert!(!file.exists());
    }

    #[test]
    fn the_error_names_the_holder() {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        // The parent of this process lives as long as the test.
        let holder = std::os::unix::process::parent_id();
        std::fs::write(root.path().join("lock/LCK..ttyW0"), format!("{holder:>10}\n")).unwrap();
        let error = lock_in(layout, "ttyW0").unwrap_err();
        assert!(matches!(error, LockError::Busy(_)), "{error:?}");
        assert!(error.to_string().ends_with(&format!("(process {holder})")), "{error}");
    }

    #[test]
    fn a_port_that_becomes_free_is_got_before_the_time_is_up() {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        let file = root.path().join("lock/LCK..ttyW0");
        std::fs::write(&file, format!("{:>10}\n", std::os::unix::process::parent_id())).unwrap();
        let mut attempts = 0;
        let port = retry(Duration::from_secs(60), || {
            attempts += 1;
            if attempts == 3 {
                std::fs::remove_file(&file).unwrap();
            }
            lock_in(layout.clone(), "/dev/ttyW0")
        });
        assert_eq!((port.unwrap().device().as_str(), attempts), ("ttyW0", 3));
    }

    #[test]
    fn a_port_that_stays_busy_is_an_error_when_the_time_is_up() {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        let holder = std::os::unix::process::parent_id();
        std::fs::write(root.path().join("lock/LCK..ttyW0"), format!("{holder:>10}\n")).unwrap();
        let error =
            retry(Duration::from_millis(30), || lock_in(layout.clone(), "ttyW0")).unwrap_err();
        assert!(matches!(error, LockError::Busy(_)), "{error:?}");
    }

    #[rstest]
    #[case("/etc/passwd")]
    #[case("/dev/../etc/passwd")]
    #[case("")]
    fn other_paths_are_no_devices(#[case] port: &str) {
        let root = tempfile::tempdir().unwrap();
        let error = lock_in(layout(root.path()), port).unwrap_err();
        assert!(matches!(error, LockError::NotADevice), "{error:?}");
    }
}
