//! `lfp run --exclusive`: while the command has a device open, nobody else can open it (`TIOCEXCL`).
//!
//! The kernel reports each opening of the node (inotify(7)). Then `lfp` duplicates a descriptor of the command, and
//! makes the device exclusive through it. It closes the duplicate at once: the command's close must be the last one
//! of a serial port, so that DTR falls and the exclusive mode ends. A pseudo-terminal has no such lines, and keeps
//! the mode as long as its far end is open. So `lfp` opens a pseudo-terminal itself, keeps it open until the command
//! has closed it, and ends the mode. No other device is ever opened.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use pidlockfile::{Pid, process, words_of};
use ttylock::{
    Closing, DeviceName, Duplicate, Examined, Layout, NoDuplicate, Node, Numbers, PortWatch,
    Request, Trigger, follow,
};

use super::outcome::warn;
use super::row::printable;

/// The devices of a command, exclusive while it has them open.
pub(super) struct Exclusion {
    watch: PortWatch,
    ports: BTreeMap<String, CommandPort>,
}

/// One of these devices.
struct CommandPort {
    device: DeviceName,
    command: Pid,
    mode: Mode,
    /// The command has it open by the watched node, so its close is reported.
    is_watched: bool,
    has_warned: bool,
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
        let mut ports: BTreeMap<String, CommandPort> =
            requests.iter().filter_map(CommandPort::of).collect();
        let watch = PortWatch::of(&Layout::native().dev_dir);
        let mut watch = watch.map_err(|error| warn(&format!("--exclusive: {error}"))).ok()?;
        ports.retain(|name, port| {
            let watched = watch.add(name, Instant::now());
            watched.map_err(|error| port.warn(why_unwatched(&error))).is_ok()
        });
        watch.keep_only(|name| ports.contains_key(name));
        (!ports.is_empty()).then_some(Self { watch, ports })
    }

    /// Readable when an event has come; none while events rest.
    pub(super) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.watch.bell()
    }

    /// Examines the devices that are due. Returns when to call this again without an event.
    pub(super) fn examine_due(&mut self) -> Option<Duration> {
        let mut now = Instant::now();
        self.watch.read_events(now);
        while let Some((name, trigger)) = self.watch.due(now) {
            let port = self.ports.get_mut(&name);
            let result = port.map_or(Examined::Unchanged, |port| port.examine(trigger));
            let began = std::mem::replace(&mut now, Instant::now());
            self.watch.examined(&name, result, began, now);
        }
        self.watch.next_moment().map(|moment| moment.saturating_duration_since(now))
    }

    /// The lock is about to be released: a device that the command has left open is no longer exclusive.
    pub(super) fn end(self) {
        self.ports.into_values().for_each(CommandPort::end);
    }
}

impl CommandPort {
    /// The name of the locked device's node, if it has one, and the device.
    fn of(request: &Request) -> Option<(String, Self)> {
        let resolved = follow(&Layout::native().dev_dir, &request.device).ok()?;
        let name = resolved.real().to_owned();
        let device = DeviceName::parse(name.as_bytes()).ok()?;
        let (command, mode) = (request.pid, Mode::Shared);
        Some((name, Self { device, command, mode, is_watched: false, has_warned: false }))
    }

    /// Its node, which may have changed.
    fn node(&self) -> Option<Node> {
        follow(&Layout::native().dev_dir, &self.device).ok()?.node
    }

    /// Makes it exclusive if the command, or a process that descends from it, has it open.
    fn examine(&mut self, trigger: Trigger) -> Examined {
        let was_shared = matches!(self.mode, Mode::Shared);
        if trigger == Trigger::Timer && self.is_watched && !was_shared {
            return Examined::Unchanged;
        }
        let Some(node) = self.node() else { return Examined::Unchanged };
        let done = self.duplicate(&node).and_then(|duplicate| {
            self.is_watched = duplicate.is_by(&node);
            self.make_exclusive(&node, &duplicate).map_err(NoDuplicate::System)
        });
        if let Err(why) = done {
            if !matches!(why, NoDuplicate::System(_)) {
                self.share();
            }
            self.warn(why_not_duplicated(&why));
        }
        let is_shared = matches!(self.mode, Mode::Shared);
        if was_shared == is_shared { Examined::Unchanged } else { Examined::Changed }
    }

    fn duplicate(&self, node: &Node) -> Result<Duplicate, NoDuplicate> {
        let is_ours = |pid: Pid| process::is_in_line(pid, self.command, process::parent);
        match Duplicate::of_any(node, is_ours, |_| Closing::AtOnce) {
            // For a command with hidden descriptors, this gives the reason.
            Err(NoDuplicate::NotOpen) => Duplicate::of(self.command, node, Closing::AtOnce),
            found => found,
        }
    }

    fn make_exclusive(&mut self, node: &Node, duplicate: &Duplicate) -> io::Result<()> {
        if matches!(self.mode, Mode::Kept(_)) {
            return Ok(());
        }
        if !is_pseudo_terminal(node) {
            // Otherwise the command has made it exclusive itself, or has done so after us.
            if duplicate.make_exclusive()? {
                self.mode = Mode::Exclusive;
            }
            return Ok(());
        }
        match duplicate.opened_again().and_then(|kept| kept.make_exclusive().map(|_| kept)) {
            Ok(kept) => self.mode = Mode::Kept(kept),
            // The command has made it exclusive itself.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => return Err(error),
        }
        Ok(())
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
            let any = Duplicate::of_any(&node, |_| true, |_| Closing::AtOnce);
            let _ = any.map(|it| it.end_exclusive());
        }
        self.share();
    }

    /// Reports an obstacle once.
    fn warn(&mut self, why: Option<String>) {
        let Some(why) = why else { return };
        if !std::mem::replace(&mut self.has_warned, true) {
            let name = printable(self.device.as_str());
            warn(&format!("/dev/{name}: locked, but not exclusive: {why}"));
        }
    }
}

fn why_unwatched(error: &io::Error) -> Option<String> {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Some("only users who may read the port can see when it is opened".to_owned());
    }
    Some(format!("its openings cannot be watched: {}", system_words(error)?))
}

/// None: not worth reporting.
fn why_not_duplicated(why: &NoDuplicate) -> Option<String> {
    match why {
        NoDuplicate::NotOpen => None,
        NoDuplicate::Forbidden => Some(
            "the command's descriptors cannot be duplicated: it has more rights than lfp, or \
             the kernel forbids it (kernel.yama.ptrace_scope)"
                .to_owned(),
        ),
        NoDuplicate::System(error) => system_words(error),
    }
}

/// `None` for an error that is not the system's.
fn system_words(error: &io::Error) -> Option<String> {
    error.raw_os_error().map(|_| words_of(error))
}

fn is_pseudo_terminal(node: &Node) -> bool {
    node.device.is_some_and(Numbers::is_pseudo_terminal)
}
