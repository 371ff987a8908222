//! The exclusive mode of a terminal (`TIOCEXCL`, ioctl_tty(2)): while it is set, open(2) fails with `EBUSY` except
//! with CAP_SYS_ADMIN. It is set through a duplicate of a descriptor of a process that has the device open
//! (pidfd_getfd(2)). Only pseudo-terminals are ever opened here.
//!
//! The last close of a serial port waits until its bytes are sent, up to half a minute, and that of a file in user space
//! as long as its owner likes. Our close may be the last one if the process closes its own descriptor meanwhile. So a
//! daemon closes duplicates in threads of their own ([`Closing::Apart`]).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use pidlockfile::{Pid, process};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::termios::{ioctl_tiocexcl, ioctl_tiocnxcl, isatty};

use super::open::{Descriptors, LOOKS, has_gone, is_of, openers};
use crate::device::node::{Node, Numbers};
use crate::limits::{CLOSINGS, CLOSINGS_OF_A_USER};
use crate::subordinate::owner_of;
use crate::sys::{self, ProcessHandle};
use crate::thread;

/// A duplicate of another process's descriptor: the same opening of the device. The device stays open as long as the
/// duplicate is kept.
#[derive(Debug)]
pub struct Duplicate {
    /// None only while it is dropped.
    descriptor: Option<OwnedFd>,
    number: i32,
    closing: Closing,
    /// The file system and inode of the node by which the process has opened the device.
    opened_by: (Numbers, u64),
}

/// Why there is no duplicate.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a service acts on each")]
pub enum NoDuplicate {
    /// The process has not opened the device, or has ended, or is ending.
    NotOpen,
    /// Its descriptors are hidden from us or cannot be duplicated: it is another user's process, or a program with
    /// more rights than ours, or the kernel's policy forbids it (`kernel.yama.ptrace_scope`).
    Forbidden,
    /// The system's reason.
    System(io::Error),
}

impl Duplicate {
    /// Duplicates a descriptor by which that process has the device open. The duplicate is closed as `closing` says,
    /// also if it turns out to be of another file.
    ///
    /// The process may close a descriptor and reuse its number at any time. So only the duplicate counts: it is closed
    /// again unless it is a terminal with the device's numbers.
    ///
    /// # Errors
    /// [`NoDuplicate`].
    pub fn of(pid: Pid, node: &Node, closing: Closing) -> Result<Self, NoDuplicate> {
        let found = Self::of_process(pid, node, closing);
        let is_ending = || process::stat(pid).is_none_or(|it| it.is_ending());
        // The descriptors of an ending process are hidden even from its own user.
        if matches!(found, Err(NoDuplicate::Forbidden)) && is_ending() {
            return Err(NoDuplicate::NotOpen);
        }
        found
    }

    fn of_process(pid: Pid, node: &Node, closing: Closing) -> Result<Self, NoDuplicate> {
        let process = ProcessHandle::open(pid)?;
        // The search begins while the handle is held. If the number belongs to another process by now, the handle is
        // of a process that has ended and has nothing to duplicate.
        let mut descriptors = Descriptors::of(pid)?;
        while let Some(number) = descriptors.next_of(node)? {
            let thread = descriptors.thread.map(ProcessHandle::of_thread).transpose()?;
            // A thread that is there now was there when the handle was opened: its number was not another's.
            if thread.is_some() && !descriptors.still_has(number, node) {
                continue;
            }
            let whose = thread.as_ref().unwrap_or(&process);
            if let Some(duplicate) = Self::by_number(whose, number, node, closing)? {
                return Ok(duplicate);
            }
        }
        Err(NoDuplicate::NotOpen)
    }

    /// Duplicates the descriptor with that number, which an earlier search found. `None` if it is not, or no longer,
    /// a descriptor of the device.
    ///
    /// # Errors
    /// [`NoDuplicate`].
    pub fn again(
        pid: Pid,
        number: i32,
        node: &Node,
        closing: Closing,
    ) -> Result<Option<Self>, NoDuplicate> {
        Self::by_number(&ProcessHandle::open(pid)?, number, node, closing)
    }

    /// Duplicates a descriptor of any wanted process that has the device open, as far as these processes are visible.
    ///
    /// # Errors
    /// [`NoDuplicate`]; of several reasons, the last one that says more than that the device is not open.
    pub fn of_any(
        node: &Node,
        wanted: impl Fn(Pid) -> bool,
        closing: impl Fn(Pid) -> Closing,
    ) -> Result<Self, NoDuplicate> {
        let openers = openers(&[*node], LOOKS, None);
        let mut why = NoDuplicate::NotOpen;
        if !openers.has_ended {
            why = NoDuplicate::System(io::ErrorKind::TimedOut.into());
        }
        for (pid, _) in openers.found {
            if !wanted(pid) {
                continue;
            }
            match Self::of(pid, node, closing(pid)) {
                Err(NoDuplicate::NotOpen) => {}
                Err(reason) => why = reason,
                found => return found,
            }
        }
        Err(why)
    }

    /// Duplicates one descriptor of a process. `None` if it is not, or no longer, a descriptor of the device.
    fn by_number(
        process: &ProcessHandle,
        number: i32,
        node: &Node,
        closing: Closing,
    ) -> Result<Option<Self>, NoDuplicate> {
        if !closing.has_room() {
            return Err(NoDuplicate::System(io::ErrorKind::WouldBlock.into()));
        }
        let Some(descriptor) = process.duplicate(number)? else { return Ok(None) };
        // From here on it is closed in the requested way, whatever file it is.
        let opened_by = (node.file_system, node.inode);
        let mut duplicate = Self { descriptor: Some(descriptor), number, closing, opened_by };
        let seen = sys::look_into(duplicate.open()?).map_err(NoDuplicate::System)?;
        duplicate.opened_by = (seen.file_system, seen.inode);
        let is_it = node.device.is_some() && is_of(&seen, node) && isatty(duplicate.open()?);
        Ok(is_it.then_some(duplicate))
    }

    /// Opens the same device once more, for a pseudo-terminal only: opening a serial port would move its modem lines.
    /// A duplicate shares the opening of the process, so the kernel reports no close while it is kept.
    ///
    /// # Errors
    /// An error of the system: `EBUSY` if it is exclusive already.
    pub fn opened_again(&self) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{}", self.open()?.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let descriptor = Some(openat(CWD, path.as_str(), flags, Mode::empty())?);
        Ok(Self { descriptor, number: -1, ..*self })
    }

    /// The number of the original descriptor in its process.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.number
    }

    /// Whether the process has opened this very node of the device, and not another one with the same number.
    #[must_use]
    pub fn is_by(&self, node: &Node) -> bool {
        self.opened_by == (node.file_system, node.inode)
    }

    /// Whether only a process with CAP_SYS_ADMIN can open the device now, for whatever reason.
    ///
    /// # Errors
    /// An error of the system.
    pub fn is_exclusive(&self) -> io::Result<bool> {
        sys::is_exclusive(self.open()?)
    }

    /// From now on only processes with CAP_SYS_ADMIN can open the device. False if that was so before: another
    /// program has set the mode, and it is not ours to end.
    ///
    /// # Errors
    /// An error of the system.
    pub fn make_exclusive(&self) -> io::Result<bool> {
        let was_shared = !self.is_exclusive()?;
        if was_shared {
            ioctl_tiocexcl(self.open()?)?;
        }
        Ok(was_shared)
    }

    /// Every process with the right to do so can open the device again.
    ///
    /// # Errors
    /// An error of the system.
    pub fn end_exclusive(&self) -> io::Result<()> {
        Ok(ioctl_tiocnxcl(self.open()?)?)
    }

    fn open(&self) -> io::Result<&OwnedFd> {
        self.descriptor.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for Duplicate {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take() {
            self.closing.close(descriptor);
        }
    }
}

impl From<io::Error> for NoDuplicate {
    fn from(error: io::Error) -> Self {
        if has_gone(&error) {
            Self::NotOpen
        } else if error.kind() == io::ErrorKind::PermissionDenied {
            Self::Forbidden
        } else {
            Self::System(error)
        }
    }
}

/// A user; an unknown one counts as one user.
type ProcessUser = Option<u32>;

/// How duplicates are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "at once or later")]
pub enum Closing {
    /// The thread that drops them closes them.
    AtOnce,
    /// Threads of their own close them, because other clients wait for this process. They are counted for the user
    /// whose process had the descriptor.
    Apart(Option<u32>),
}

/// The number of duplicates that are being closed, for each user.
static UNDERWAY: Mutex<BTreeMap<ProcessUser, usize>> = Mutex::new(BTreeMap::new());

impl Closing {
    /// Whether another duplicate can be closed in this way: no user's closings delay those of other users.
    #[must_use]
    pub fn has_room(self) -> bool {
        let Self::Apart(user) = self else { return true };
        let user = user.map(owner_of);
        let underway = UNDERWAY.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = underway.get(&user).copied().unwrap_or_default();
        let all: usize = underway.values().sum();
        of_user < CLOSINGS_OF_A_USER && all < CLOSINGS
    }

    fn close(self, descriptor: OwnedFd) {
        let Self::Apart(user) = self else { return drop(descriptor) };
        let user = user.map(owner_of);
        count(user, 1);
        let close = move || {
            drop(descriptor);
            count(user, -1);
        };
        if thread::start("lfpd-close", close).is_err() {
            // No thread could be started: the descriptor was closed in this one.
            count(user, -1);
        }
    }
}

fn count(user: ProcessUser, change: isize) {
    let mut underway = UNDERWAY.lock().unwrap_or_else(PoisonError::into_inner);
    let left = underway.get(&user).copied().unwrap_or_default().saturating_add_signed(change);
    if left == 0 {
        underway.remove(&user);
    } else {
        underway.insert(user, left);
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::process::{Child, Command};
    use std::thread;
    use std::time::{Duration, Instant};

    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    use nix::pty::{OpenptyResult, openpty};

    use super::*;

    /// A process that has only this file, as its standard input.
    struct Opener(Child);

    impl Opener {
        fn of(input: impl AsFd) -> Self {
            let input = input.as_fd().try_clone_to_owned().unwrap();
            let opener = Self(Command::new("sleep").arg("1000").stdin(input).spawn().unwrap());
            // qemu-user does not wait for it as vfork(2) does: it may still be this program, with all descriptors
            // that are open here.
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

    fn duplicate_of(opener: &Opener, file: impl AsFd) -> Result<Duplicate, NoDuplicate> {
        Duplicate::of(opener.pid(), &node_of(file), Closing::AtOnce)
    }

    fn at_once(_: Pid) -> Closing {
        Closing::AtOnce
    }

    #[test]
    fn a_terminal_is_duplicated() {
        let (near, other) = (terminal(), terminal());
        let opener = Opener::of(&near.slave);
        let duplicate = duplicate_of(&opener, &near.slave).unwrap();
        assert_eq!(node_of(duplicate.open().unwrap()), node_of(&near.slave));
        let not_open = duplicate_of(&opener, &other.slave);
        assert!(matches!(not_open, Err(NoDuplicate::NotOpen)), "{not_open:?}");
        let anybodys = Duplicate::of_any(&node_of(&near.slave), |pid| pid == opener.pid(), at_once);
        assert!(anybodys.is_ok(), "{anybodys:?}");
        let nobodys = Duplicate::of_any(&node_of(&near.slave), |_| false, at_once);
        assert!(matches!(nobodys, Err(NoDuplicate::NotOpen)), "{nobodys:?}");
    }

    #[test]
    #[ignore = "needs root: tests/run"]
    fn a_terminal_of_another_thread_than_the_first_is_duplicated() {
        if ProcessHandle::of_thread(nix::unistd::gettid().as_raw()).is_err() {
            return eprintln!("this kernel has no handles of threads");
        }
        let near = terminal();
        let path = nix::unistd::ttyname(&near.slave).unwrap();
        let opener = Opener(crate::lock::open::other_thread_with(&path));
        let duplicate = duplicate_of(&opener, &near.slave).unwrap();
        assert_eq!(node_of(duplicate.open().unwrap()), node_of(&near.slave));
    }

    #[test]
    fn the_exclusive_mode_is_set_and_ended() {
        let near = terminal();
        let opener = Opener::of(&near.slave);
        let duplicate = duplicate_of(&opener, &near.slave).unwrap();
        assert!(!duplicate.is_exclusive().unwrap());
        assert!(duplicate.make_exclusive().unwrap() && duplicate.is_exclusive().unwrap());
        assert!(!duplicate.make_exclusive().unwrap(), "it was before");
        duplicate.end_exclusive().unwrap();
        assert!(!duplicate.is_exclusive().unwrap());
    }

    /// Neither a file nor another device is duplicated.
    #[test]
    fn only_a_terminal_is_duplicated() {
        let (file, null) = (tempfile::tempfile().unwrap(), File::open("/dev/null").unwrap());
        for input in [file, null] {
            let opener = Opener::of(&input);
            let found = duplicate_of(&opener, &input);
            assert!(matches!(found, Err(NoDuplicate::NotOpen)), "{input:?}: {found:?}");
        }
    }

    /// Between the look and the duplication, the process may have reused the number.
    #[test]
    fn a_duplicate_of_another_file_is_not_kept() {
        let (near, other) = (terminal(), terminal());
        let file = tempfile::tempfile().unwrap();
        for swapped in [other.slave.as_fd(), other.master.as_fd(), file.as_fd()] {
            let opener = Opener::of(swapped);
            let process = ProcessHandle::open(opener.pid()).unwrap();
            let found = Duplicate::by_number(&process, 0, &node_of(&near.slave), Closing::AtOnce);
            let found = found.unwrap();
            assert!(found.is_none(), "{swapped:?}");
        }
    }

    #[test]
    fn a_process_that_has_ended_has_nothing_to_duplicate() {
        let near = terminal();
        let mut opener = Opener::of(&near.slave);
        let process = ProcessHandle::open(opener.pid()).unwrap();
        opener.0.kill().unwrap();
        opener.0.wait().unwrap();
        let found = Duplicate::by_number(&process, 0, &node_of(&near.slave), Closing::AtOnce);
        assert!(matches!(found, Err(NoDuplicate::NotOpen)), "{found:?}");
        assert!(fs::metadata(format!("/proc/{}", opener.pid())).is_err());
    }

    /// The last close of a device or of a file in user space may take any time; the searching thread must not wait
    /// for it.
    #[test]
    fn a_duplicate_is_closed_by_another_thread() {
        let near = terminal();
        let opener = Opener::of(&near.slave);
        let ours = |number: i32| fs::read_link(format!("/proc/self/fd/{number}"));
        let user = Some(4_294_967_001);
        let found = Duplicate::again(opener.pid(), 0, &node_of(&near.slave), Closing::Apart(user));
        let duplicate = found.unwrap().expect("the device");
        let number = duplicate.open().unwrap().as_raw_fd();
        let name = ours(number).unwrap();
        drop(duplicate);
        let begin = Instant::now();
        while ours(number).is_ok_and(|link| link == name) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it stays open");
            thread::yield_now();
        }
    }

    /// A user with files that are never closed gets only a share of the threads.
    #[test]
    fn closings_are_bounded_for_each_user() {
        let (one, other) = (Some(4_294_967_002), Some(4_294_967_003));
        for _ in 0..CLOSINGS_OF_A_USER {
            assert!(Closing::Apart(one).has_room());
            count(one, 1);
        }
        assert!(!Closing::Apart(one).has_room() && Closing::Apart(other).has_room());
        assert!(Closing::AtOnce.has_room());
        count(one, -1);
        assert!(Closing::Apart(one).has_room());
        (1..CLOSINGS_OF_A_USER).for_each(|_| count(one, -1));
        assert!(!UNDERWAY.lock().unwrap().contains_key(&one));
    }
}
