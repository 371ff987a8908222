//! `lfp run --exclusive`: while the command has a device open, nobody else can open it (`TIOCEXCL`).
//!
//! The kernel tells of each opening of the node (inotify(7)). Then a descriptor of the command is duplicated, and
//! the device is made exclusive by that. The duplicate is closed at once: a serial port has to see the
//! command's last close, which lets DTR fall and ends the exclusive mode. A pseudo-terminal has no such lines,
//! and keeps the mode as long as its far end is open: there it is opened once more, kept open until the command
//! has closed it, and the mode is ended. No other device is ever opened.

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

/// What is told of a node.
const OF_NODE: AddWatchFlags = AddWatchFlags::IN_OPEN.union(AddWatchFlags::IN_CLOSE);

/// What is told of its directory: an adapter that is pulled out and comes back has another node, which
/// may be read a moment later.
const OF_DIRECTORY: AddWatchFlags =
    AddWatchFlags::IN_CREATE.union(AddWatchFlags::IN_ATTRIB).union(AddWatchFlags::IN_MOVED_TO);

/// Looking that finds nothing new takes at most one part in so many of the time: anybody who may open a device that
/// is not exclusive yet can do so without end.
const SHARE: u32 = 10;

/// No rest is longer, also where the machine has stood still during a look.
const REST: Duration = Duration::from_secs(1);

/// As many times are events read before they are acted upon. Others may cause more while we read.
const READS: usize = 64;

/// The devices of a command, exclusive while it has them open.
pub(super) struct Exclusion {
    events: Inotify,
    ports: Vec<Port>,
    /// Whether to look without having been told anything: the command may have inherited a device.
    is_first: bool,
    /// No look before.
    rests_until: Option<Instant>,
}

/// One of them.
struct Port {
    device: DeviceName,
    command: Pid,
    path: PathBuf,
    mode: Mode,
    is_told: bool,
}

/// What we have made of it.
enum Mode {
    /// Nothing.
    Shared,
    /// Exclusive until its last close.
    Exclusive,
    /// Exclusive until this ends it.
    Kept(Duplicate),
}

impl Exclusion {
    /// Begins to watch devices for the process that is to become the command. What cannot be watched is said, and
    /// remains locked as without.
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

    /// Readable when something has happened; none while we rest.
    pub(super) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.rests_until.is_none().then(|| self.events.as_fd())
    }

    /// Acts on what has happened. Tells when this is to be called again; none: when the bell rings.
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
            // Its node may be another one by now, or none.
            let _ = port.watch(&self.events);
            news |= port.look();
        }
        let rest = if news { 1 } else { SHARE - 1 };
        let rest = begin.elapsed().saturating_mul(rest).min(REST);
        self.rests_until = Instant::now().checked_add(rest);
        Some(rest)
    }

    /// The lock is about to be released: what the command has left open is anybody's again.
    pub(super) fn end(self) {
        self.ports.into_iter().for_each(Port::end);
    }
}

impl Port {
    /// The node of the device that is locked. None: there is none.
    fn of(request: &Request) -> Option<Self> {
        let dev_dir = layout().dev_dir;
        let resolved = follow(&dev_dir, &request.device).ok()?;
        let device = DeviceName::parse(resolved.real().as_bytes()).ok()?;
        let path = dev_dir.join(resolved.real());
        Some(Self { device, command: request.pid, path, mode: Mode::Shared, is_told: false })
    }

    /// Has the kernel tell of its openings, and of another node in its place. What is watched already stays so.
    fn watch(&self, events: &Inotify) -> nix::Result<()> {
        let is_lasting = self.node().is_some_and(|node| !is_pseudo_terminal(&node));
        if let Some(directory) = self.path.parent().filter(|_| is_lasting) {
            let _ = events.add_watch(directory, OF_DIRECTORY);
        }
        events.add_watch(&self.path, OF_NODE).map(drop)
    }

    /// Its node, which may be another one than before.
    fn node(&self) -> Option<Node> {
        follow(&layout().dev_dir, &self.device).ok()?.node
    }

    /// Makes it exclusive if the command, or a process that descends from it, has it open. Tells whether it has
    /// opened or closed it.
    fn look(&mut self) -> bool {
        let Some(node) = self.node() else { return false };
        let parent = |child: Pid| Pid::new(process::stat(child)?.parent);
        let is_ours = |pid: Pid| process::is_in_line(pid, self.command, parent);
        let seen = match Duplicate::of_any(&node, is_ours) {
            // Of a command whose descriptors are hidden this much is seen.
            Err(NoDuplicate::NotOpen) => Duplicate::of(self.command, &node),
            seen => seen,
        };
        let was_shared = matches!(self.mode, Mode::Shared);
        let done = match seen {
            Ok(_) if matches!(self.mode, Mode::Kept(_)) => Ok(()),
            Ok(duplicate) if is_pseudo_terminal(&node) => self.keep(&duplicate),
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

    /// The command has ended. Whatever it has started may still have it open.
    fn end(mut self) {
        if let (Mode::Exclusive, Some(node)) = (&self.mode, self.node()) {
            let _ = Duplicate::of_any(&node, |_| true).map(|it| it.end_exclusive());
        }
        self.share();
    }

    /// Says, once, what is in the way.
    fn cannot(&mut self, why: &Hindrance) {
        let Some(why) = why.words() else { return };
        if !std::mem::replace(&mut self.is_told, true) {
            let name = printable(self.device.as_str());
            warn(&format!("/dev/{name}: locked, but not exclusive: {why}"));
        }
    }
}

/// What keeps a device from being exclusive.
enum Hindrance {
    Unwatched(Errno),
    NotDuplicated(NoDuplicate),
}

impl Hindrance {
    /// None: nothing to speak of.
    fn words(&self) -> Option<String> {
        match self {
            Self::Unwatched(Errno::EACCES) => {
                Some("only who may read it is told when it is opened".to_owned())
            }
            Self::Unwatched(errno) => Some(format!("inotify: {}", errno.desc())),
            Self::NotDuplicated(NoDuplicate::NotOpen) => None,
            Self::NotDuplicated(NoDuplicate::Forbidden) => Some(
                "what the command has open may not be duplicated: it has more rights than lfp, or \
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

    /// Who opens and closes a device without end, as anybody may who may open it, does not have us look without
    /// end: as long as we rest, nothing wakes us.
    #[test]
    fn after_each_look_there_is_a_rest() {
        let terminal = openpty(None, None).unwrap();
        let path = ttyname(&terminal.slave).unwrap();
        let device = path.to_str().unwrap().parse().unwrap();
        // Nobody's process: it has opened nothing.
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
