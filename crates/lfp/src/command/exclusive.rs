//! `lfp run --exclusive`: while the command has a device open, nobody else can open it (`TIOCEXCL`).
//!
//! The kernel reports each opening of the node (inotify(7)). Then `lfp` duplicates a descriptor of the command, and
//! makes the device exclusive through it. It closes the duplicate at once: the command's close must be the last one
//! of a serial port, so that DTR falls and the exclusive mode ends. A pseudo-terminal has no such lines, and keeps
//! the mode as long as its far end is open. So `lfp` opens a pseudo-terminal itself, keeps it open until the command
//! has closed it, and ends the mode. No other device is ever opened.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use pidlockfile::{Pid, process};
use ttylock::{DeviceName, Duplicate, NoDuplicate, Node, Numbers, Request, follow};

use super::broker::layout;
use super::output::warn;
use super::printable::printable;

/// The events of a node.
const OF_NODE: AddWatchFlags = AddWatchFlags::IN_OPEN.union(AddWatchFlags::IN_CLOSE);

/// The events of its directory: an adapter that is unplugged and comes back has another node, which may become
/// readable a moment later.
const OF_DIRECTORY: AddWatchFlags =
    AddWatchFlags::IN_CREATE.union(AddWatchFlags::IN_ATTRIB).union(AddWatchFlags::IN_MOVED_TO);

/// Looks that find nothing new take at most this share of the time, because any process that may open a device that
/// is not exclusive yet can do so all the time.
const SHARE: u32 = 10;

/// No rest is longer, even if the machine was suspended during a look.
const REST: Duration = Duration::from_secs(1);

/// Events are read at most so many times before they are handled. Others may cause more while we read.
const READS: usize = 64;

/// The devices of a command, exclusive while it has them open.
pub(super) struct Exclusion {
    events: Inotify,
    ports: Vec<Port>,
    /// Whether to look without an event, because the command may have inherited a device.
    is_first: bool,
    /// No look before this moment.
    rests_until: Option<Instant>,
}

/// One of these devices.
struct Port {
    device: DeviceName,
    command: Pid,
    path: PathBuf,
    mode: Mode,
    is_told: bool,
}

/// The mode that we have set.
enum Mode {
    /// None.
    Shared,
    /// Exclusive until its last close.
    Exclusive,
    /// Exclusive until we end it.
    Kept(Duplicate),
}

impl Exclusion {
    /// Begins to watch devices for the process that will become the command. A device that cannot be watched is
    /// reported, and stays locked without being exclusive.
    pub(super) fn watch(requests: &[Request]) -> Option<Self> {
        let events = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC);
        let mut ports: Vec<Port> = requests.iter().filter_map(Port::of).collect();
        ports.retain_mut(|port| {
            let watched = events.as_ref().map_err(|errno| *errno).and_then(|it| port.watch(it));
            watched.map_err(|errno| port.cannot(&Hindrance::Unwatched(errno))).is_ok()
        });
        let (false, Ok(events)) = (ports.is_empty(), events) else { return None };
        Some(Self { events, ports, is_first: true, rests_until: None })
    }

    /// Readable when an event has come; none during a rest.
    pub(super) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.rests_until.is_none().then(|| self.events.as_fd())
    }

    /// Handles the events. Returns when to call this again; none: when the bell rings.
    pub(super) fn look(&mut self) -> Option<Duration> {
        let begin = Instant::now();
        let rest = self.rests_until.and_then(|until| until.checked_duration_since(begin));
        if rest.is_some_and(|rest| !rest.is_zero()) {
            return rest;
        }
        self.rests_until = None;
        let happened = (0..READS).take_while(|_| self.events.read_events().is_ok()).count() > 0;
        let is_first = std::mem::take(&mut self.is_first);
        if !happened && !is_first {
            return None;
        }
        let mut news = false;
        for port in &mut self.ports {
            // It may have another node by now, or none.
            let _ = port.watch(&self.events);
            news |= port.look();
        }
        let rest = if news { 1 } else { SHARE - 1 };
        let rest = begin.elapsed().saturating_mul(rest).min(REST);
        self.rests_until = Instant::now().checked_add(rest);
        Some(rest)
    }

    /// The lock is about to be released: a device that the command has left open is no longer exclusive.
    pub(super) fn end(self) {
        self.ports.into_iter().for_each(Port::end);
    }
}

impl Port {
    /// The node of the locked device, or none.
    fn of(request: &Request) -> Option<Self> {
        let dev_dir = layout().dev_dir;
        let resolved = follow(&dev_dir, &request.device).ok()?;
        let device = DeviceName::parse(resolved.real().as_bytes()).ok()?;
        let path = dev_dir.join(resolved.real());
        Some(Self { device, command: request.pid, path, mode: Mode::Shared, is_told: false })
    }

    /// Asks the kernel to report its openings, and a new node in its place. A device that is watched already stays
    /// so.
    fn watch(&self, events: &Inotify) -> nix::Result<()> {
        let is_lasting = self.node().is_some_and(|node| !is_pseudo_terminal(&node));
        if let Some(directory) = self.path.parent().filter(|_| is_lasting) {
            let _ = events.add_watch(directory, OF_DIRECTORY);
        }
        events.add_watch(&self.path, OF_NODE).map(drop)
    }

    /// Its node, which may have changed.
    fn node(&self) -> Option<Node> {
        follow(&layout().dev_dir, &self.device).ok()?.node
    }

    /// Makes it exclusive if the command, or a process that descends from it, has it open. Returns whether that has
    /// changed.
    fn look(&mut self) -> bool {
        let Some(node) = self.node() else { return false };
        let parent = |child: Pid| Pid::new(process::stat(child)?.parent);
        let is_ours = |pid: Pid| process::is_in_line(pid, self.command, parent);
        let seen = match Duplicate::of_any(&node, is_ours) {
            // For a command with hidden descriptors, this gives the reason.
            Err(NoDuplicate::NotOpen) => Duplicate::of(self.command, &node),
            seen => seen,
        };
        let was_shared = matches!(self.mode, Mode::Shared);
        let done = match seen {
            Ok(_) if matches!(self.mode, Mode::Kept(_)) => Ok(()),
            Ok(duplicate) if is_pseudo_terminal(&node) => self.keep(&duplicate),
            // The command has made it exclusive itself, or has done so after us.
            Ok(duplicate) if duplicate.is_exclusive().is_ok_and(|is_set| is_set) => Ok(()),
            Ok(duplicate) => {
                self.mode = Mode::Exclusive;
                duplicate.set_exclusive().map_err(NoDuplicate::System)
            }
            Err(why) => {
                self.share();
                Err(why)
            }
        };
        if let Err(why) = done {
            self.cannot(&Hindrance::NotDuplicated(why));
        }
        was_shared != matches!(self.mode, Mode::Shared)
    }

    fn keep(&mut self, duplicate: &Duplicate) -> Result<(), NoDuplicate> {
        match duplicate.opened_again().and_then(|kept| kept.set_exclusive().map(|()| kept)) {
            Ok(kept) => {
                self.mode = Mode::Kept(kept);
                Ok(())
            }
            // The command has made it exclusive itself.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
            Err(error) => Err(NoDuplicate::System(error)),
        }
    }

    /// The command does not have it open any more.
    fn share(&mut self) {
        if let Mode::Kept(duplicate) = std::mem::replace(&mut self.mode, Mode::Shared) {
            let _ = duplicate.end_exclusive();
        }
    }

    /// The command has ended. Processes that it has started may still have the device open.
    fn end(mut self) {
        if let (Mode::Exclusive, Some(node)) = (&self.mode, self.node()) {
            let _ = Duplicate::of_any(&node, |_| true).map(|it| it.end_exclusive());
        }
        self.share();
    }

    /// Reports an obstacle once.
    fn cannot(&mut self, why: &Hindrance) {
        let Some(why) = why.words() else { return };
        if !std::mem::replace(&mut self.is_told, true) {
            let name = printable(self.device.as_str());
            warn(&format!("/dev/{name}: locked, but not exclusive: {why}"));
        }
    }
}

/// The reason why a device is not exclusive.
enum Hindrance {
    Unwatched(Errno),
    NotDuplicated(NoDuplicate),
}

impl Hindrance {
    /// None: not worth reporting.
    fn words(&self) -> Option<String> {
        match self {
            Self::Unwatched(Errno::EACCES) => {
                Some("only users who may read the port can see when it is opened".to_owned())
            }
            Self::Unwatched(errno) => Some(format!("inotify: {}", errno.desc())),
            Self::NotDuplicated(NoDuplicate::NotOpen) => None,
            Self::NotDuplicated(NoDuplicate::Forbidden) => Some(
                "the command's descriptors cannot be duplicated: it has more rights than lfp, or \
                 the kernel forbids it (kernel.yama.ptrace_scope)"
                    .to_owned(),
            ),
            Self::NotDuplicated(NoDuplicate::System(error)) => {
                error.raw_os_error().map(|number| Errno::from_raw(number).desc().to_owned())
            }
        }
    }
}

fn is_pseudo_terminal(node: &Node) -> bool {
    node.device.is_some_and(Numbers::is_pseudo_terminal)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::pty::openpty;
    use nix::unistd::ttyname;

    use super::*;

    /// A program that opens and closes a device all the time does not keep us busy: during a rest, no event wakes us.
    #[test]
    fn a_device_is_examined_again_only_after_a_pause() {
        let terminal = openpty(None, None).unwrap();
        let path = ttyname(&terminal.slave).unwrap();
        let device = path.to_str().unwrap().parse().unwrap();
        // A process that has opened nothing.
        let pid = Pid::new(i32::MAX.into()).unwrap();
        let mut exclusion = Exclusion::watch(&[Request { device, pid }]).unwrap();
        for _ in 0..3 {
            drop(File::open(&path).unwrap());
            let rest = exclusion.look().expect("a rest");
            assert!(!rest.is_zero() && exclusion.bell().is_none());
            // As if it had only just begun.
            exclusion.rests_until = Instant::now().checked_add(rest + Duration::from_secs(60));
            drop(File::open(&path).unwrap());
            assert!(exclusion.look().is_some_and(|told| told > rest) && exclusion.bell().is_none());
            exclusion.rests_until = None;
        }
        assert!(exclusion.look().is_some(), "what has happened meanwhile is not forgotten");
        exclusion.rests_until = None;
        assert_eq!(exclusion.look(), None, "nothing of what it does itself is news");
        assert!(exclusion.bell().is_some(), "nothing has happened: it waits for the bell");
    }
}
