//! The exclusive mode of a terminal (`TIOCEXCL`, ioctl_tty(2)): as long as it is set, open(2) fails with `EBUSY`
//! for everybody but CAP_SYS_ADMIN. It is set by a duplicate of a descriptor of a process that has the
//! device open (pidfd_getfd(2)). Opens no device but pseudo-terminals.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use pidlockfile::Pid;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::open::{NoLook, OpenLook, Progress, is_of, openers};
use crate::device::node::Node;
use crate::sys::{self, ProcessHandle};

/// What another process has open, in this process: the same opening of the device, by a descriptor of our own. The
/// device stays open as long as it is kept.
#[derive(Debug)]
pub struct Duplicate(OwnedFd);

/// Why there is no duplicate.
#[derive(Debug)]
pub enum NoDuplicate {
    /// The process has not opened the device, or has ended.
    NotOpen,
    /// What it has open is not shown to us, or may not be duplicated: another user's process, a program
    /// that has more rights than we have, or a policy of the kernel (`kernel.yama.ptrace_scope`).
    Forbidden,
    /// The system's reason.
    System(io::Error),
}

impl Duplicate {
    /// Duplicates a descriptor by which that process has the device open.
    ///
    /// The process may close it and open something else under its number at any time. So what counts is the
    /// duplicate: whatever it is of is looked at, and anything but a terminal with the device's numbers is
    /// closed again.
    ///
    /// # Errors
    /// [`NoDuplicate`].
    pub fn of(pid: Pid, node: &Node) -> Result<Self, NoDuplicate> {
        let process = ProcessHandle::open(pid)?;
        // Begun while the handle is held: if the number is another process's by now, the handle is of one that
        // has ended, and has nothing to duplicate.
        let mut look = OpenLook::begin(pid, node)?;
        loop {
            match look.step() {
                (_, Progress::More) => {}
                (_, Progress::Told(Some(false))) => return Err(NoDuplicate::NotOpen),
                (_, Progress::Told(None)) => return Err(NoDuplicate::Forbidden),
                (_, Progress::Told(Some(true))) => {
                    let number = look.descriptor().unwrap_or(-1);
                    if let Some(duplicate) = Self::by_number(&process, number, node)? {
                        return Ok(duplicate);
                    }
                }
            }
        }
    }

    /// Duplicates a descriptor by which any process that is wanted has the device open, as far as we are shown
    /// who has.
    ///
    /// # Errors
    /// [`NoDuplicate`]; of several reasons the last one that says more than that it is not open.
    pub fn of_any(node: &Node, wanted: impl Fn(Pid) -> bool) -> Result<Self, NoDuplicate> {
        let mut why = NoDuplicate::NotOpen;
        for (pid, _) in openers(&|found| found.is_of(node)) {
            if !wanted(pid) {
                continue;
            }
            match Self::of(pid, node) {
                Err(NoDuplicate::NotOpen) => {}
                Err(reason) => why = reason,
                found => return found,
            }
        }
        Err(why)
    }

    /// Duplicates one descriptor of a process. None: it is not of the device, or not any more.
    fn by_number(
        process: &ProcessHandle,
        number: i32,
        node: &Node,
    ) -> Result<Option<Self>, NoDuplicate> {
        let Some(descriptor) = process.duplicate(number)? else { return Ok(None) };
        let seen = sys::look_into(&descriptor).map_err(NoDuplicate::System)?;
        let is_it = node.device.is_some() && is_of(&seen, node) && sys::is_terminal(&descriptor);
        Ok(is_it.then_some(Self(descriptor)))
    }

    /// The same device by an opening of our own, for a pseudo-terminal only: a serial port would move its modem
    /// lines. A duplicate shares the opening of the process, so that the kernel tells of no close while it is
    /// kept.
    ///
    /// # Errors
    /// The system's: `EBUSY` where it is exclusive already.
    pub fn opened_again(&self) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, path.as_str(), flags, Mode::empty())?))
    }

    /// Nobody but CAP_SYS_ADMIN can open the device from now on.
    ///
    /// # Errors
    /// The system's.
    pub fn set_exclusive(&self) -> io::Result<()> {
        sys::set_exclusive(&self.0)
    }

    /// Everybody who may can open the device again.
    ///
    /// # Errors
    /// The system's.
    pub fn end_exclusive(&self) -> io::Result<()> {
        sys::end_exclusive(&self.0)
    }
}

impl From<NoLook> for NoDuplicate {
    fn from(why: NoLook) -> Self {
        match why {
            NoLook::Ended => Self::NotOpen,
            NoLook::Hidden => Self::Forbidden,
            NoLook::NoRoom => Self::System(io::ErrorKind::OutOfMemory.into()),
        }
    }
}

impl From<io::Error> for NoDuplicate {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::PermissionDenied {
            return Self::Forbidden;
        }
        match NoLook::because(&error) {
            NoLook::Ended => Self::NotOpen,
            NoLook::Hidden | NoLook::NoRoom => Self::System(error),
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::process::{Child, Command};
    use std::thread;
    use std::time::{Duration, Instant};

    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    use nix::pty::{OpenptyResult, openpty};

    use super::*;

    /// A process that has this, and nothing else, for its input.
    struct Opener(Child);

    impl Opener {
        fn of(input: impl AsFd) -> Self {
            let input = input.as_fd().try_clone_to_owned().unwrap();
            let opener = Self(Command::new("sleep").arg("1000").stdin(input).spawn().unwrap());
            // qemu-user does not wait for it as vfork(2) does: it may be this program still, and have all that is
            // open in here.
            let begin = Instant::now();
            while opener.name() != "sleep\n" {
                assert!(begin.elapsed() < Duration::from_secs(60), "{}", opener.name());
                thread::yield_now();
            }
            opener
        }

        fn pid(&self) -> Pid {
            Pid::new(self.0.id().into()).unwrap()
        }

        fn name(&self) -> String {
            fs::read_to_string(format!("/proc/{}/comm", self.pid())).unwrap()
        }
    }

    impl Drop for Opener {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A pseudo-terminal that no process started from here inherits.
    fn terminal() -> OpenptyResult {
        let terminal = openpty(None, None).unwrap();
        for end in [&terminal.master, &terminal.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        }
        terminal
    }

    fn node_of(file: impl AsFd) -> Node {
        let file = File::from(file.as_fd().try_clone_to_owned().unwrap());
        Node::of(&file.metadata().unwrap())
    }

    #[test]
    fn a_terminal_is_duplicated() {
        let (near, other) = (terminal(), terminal());
        let opener = Opener::of(&near.slave);
        let duplicate = Duplicate::of(opener.pid(), &node_of(&near.slave)).unwrap();
        assert_eq!(node_of(&duplicate.0), node_of(&near.slave));
        assert!(duplicate.set_exclusive().is_ok() && duplicate.end_exclusive().is_ok());
        let not_open = Duplicate::of(opener.pid(), &node_of(&other.slave));
        assert!(matches!(not_open, Err(NoDuplicate::NotOpen)), "{not_open:?}");
        let anybodys = Duplicate::of_any(&node_of(&near.slave), |pid| pid == opener.pid());
        assert!(anybodys.is_ok(), "{anybodys:?}");
        let nobodys = Duplicate::of_any(&node_of(&near.slave), |_| false);
        assert!(matches!(nobodys, Err(NoDuplicate::NotOpen)), "{nobodys:?}");
    }

    /// Neither a file nor a device that is no terminal.
    #[test]
    fn what_is_no_terminal_is_not_duplicated() {
        let (file, null) = (tempfile::tempfile().unwrap(), File::open("/dev/null").unwrap());
        for input in [file, null] {
            let opener = Opener::of(&input);
            let found = Duplicate::of(opener.pid(), &node_of(&input));
            assert!(matches!(found, Err(NoDuplicate::NotOpen)), "{input:?}: {found:?}");
        }
    }

    /// Between the look and the duplication the process may have put something else under the number.
    #[test]
    fn what_was_put_in_its_place_is_not_kept() {
        let (near, other) = (terminal(), terminal());
        let file = tempfile::tempfile().unwrap();
        for swapped in [other.slave.as_fd(), other.master.as_fd(), file.as_fd()] {
            let opener = Opener::of(swapped);
            let process = ProcessHandle::open(opener.pid()).unwrap();
            let found = Duplicate::by_number(&process, 0, &node_of(&near.slave)).unwrap();
            assert!(found.is_none(), "{swapped:?}");
        }
    }

    #[test]
    fn who_has_ended_has_nothing_to_duplicate() {
        let near = terminal();
        let mut opener = Opener::of(&near.slave);
        let process = ProcessHandle::open(opener.pid()).unwrap();
        opener.0.kill().unwrap();
        opener.0.wait().unwrap();
        let found = Duplicate::by_number(&process, 0, &node_of(&near.slave));
        assert!(matches!(found, Err(NoDuplicate::NotOpen)), "{found:?}");
        assert!(fs::metadata(format!("/proc/{}", opener.pid())).is_err());
    }
}
