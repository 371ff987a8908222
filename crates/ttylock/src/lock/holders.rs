//! Finds the holders of a device, with scheme and time: everything that can be seen without opening the port.
//! Changes nothing.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pidlockfile::process::{lives, real_user};
use pidlockfile::{Pid, ascii};

pub use super::holder::{Holder, OutOfSight, Scheme, Standing, Survey, held_by};
pub use super::open::{has_open, out_of_sight};

use super::exclusive::{Closing, Duplicate};
use super::flock::{Completeness, FlockHolder, Flocks};
use super::kernel_list::Listing;
use super::names;
use super::open::{LOOKS, openers};
use crate::device::DeviceName;
use crate::device::node::{Node, follow};

impl Scheme {
    /// The scheme of a lock file with this name.
    pub(super) fn of_file(path: PathBuf) -> Self {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if names::is_by_number(name) { Self::Svr4(path) } else { Self::Uucp(path) }
    }
}

impl Holder {
    /// The holder of a flock. If the process that took it has ended, a process that inherited the descriptor holds
    /// it.
    pub(super) fn by_flock(device: &str, holder: FlockHolder) -> Self {
        let shown = Self::unknown(device, Scheme::Flock);
        match holder {
            FlockHolder::Process(pid) => {
                let mut shown = Self::process(device, Scheme::Flock, pid);
                if shown.standing == Standing::Stale {
                    shown.standing = Standing::Unknown;
                }
                shown
            }
            FlockHolder::Unnamed { .. } => Self { command: Some(format!("({holder})")), ..shown },
            FlockHolder::Unseen => shown,
        }
    }

    /// A process that holds a device without a lock file.
    fn process(device: &str, scheme: Scheme, pid: Pid) -> Self {
        Self {
            pid: Some(pid),
            user: real_user(pid),
            command: command(pid),
            standing: if lives(pid) { Standing::Alive } else { Standing::Stale },
            ..Self::unknown(device, scheme)
        }
    }
}

/// The holders of a device by flock. If none is seen, the kernel's list was incomplete and the device may be open, that
/// is reported: a LOCK would be refused for the same reason.
fn by_flock(device: &str, node: &Node, listing: &Listing, may_be_open: bool) -> Vec<Holder> {
    let found = listing.holders(node);
    match listing.completeness {
        Completeness::Partial(shortage) if found.is_empty() && may_be_open => {
            let command = Some(format!("({shortage})"));
            vec![Holder { command, ..Holder::unknown(device, Scheme::Flock) }]
        }
        Completeness::Partial(_) | Completeness::Whole => {
            found.into_iter().map(|holder| Holder::by_flock(device, holder)).collect()
        }
    }
}

/// All processes that have a device open, with or without locks, as far as they are visible.
#[must_use]
pub fn openers_of(dev_dir: &Path, device: &DeviceName) -> Vec<Holder> {
    let resolved = follow(dev_dir, device).ok();
    let Some((name, node)) = resolved.as_ref().and_then(|it| Some((it.real(), it.node?))) else {
        return Vec::new();
    };
    let openers = openers(&[node], LOOKS, None).found;
    openers.into_iter().map(|(pid, _)| Holder::process(name, Scheme::Open, pid)).collect()
}

/// All processes that have serial devices open, with the name of each device, as far as they are visible.
#[must_use]
pub fn all_openers(dev_dir: &Path) -> Vec<(String, Pid)> {
    let devices = serial_devices(dev_dir);
    let nodes: Vec<Node> = devices.iter().map(|(_, node)| *node).collect();
    let found = openers(&nodes, LOOKS, None).found.into_iter();
    found.filter_map(|(pid, number)| Some((devices.get(number)?.0.clone(), pid))).collect()
}

/// A process that was seen to open a device.
#[must_use]
pub fn opener(device: &str, pid: Pid) -> Holder {
    Holder::process(device, Scheme::Open, pid)
}

/// Tells whether a device that processes have open is exclusive ([`Scheme::Exclusive`]). No device is opened for
/// that: the descriptors of the processes are duplicated for a moment, as far as the kernel permits it.
pub fn tell_exclusive(dev_dir: &Path, holders: &mut Vec<Holder>) {
    let mut more = Vec::new();
    for holder in holders.iter_mut().filter(|it| it.scheme.file().is_none()) {
        let node = |name: &str| follow(dev_dir, &name.parse().ok()?).ok()?.node;
        let (Some(pid), Some(node)) = (holder.pid, node(&holder.device)) else { continue };
        let seen =
            Duplicate::of(pid, &node, Closing::AtOnce).ok().and_then(|it| it.is_exclusive().ok());
        match (seen, &holder.scheme) {
            (Some(true), Scheme::Open) => holder.scheme = Scheme::Exclusive,
            // It has both.
            (Some(true), _) => more.push(Holder { scheme: Scheme::Exclusive, ..holder.clone() }),
            (Some(false) | None, _) => {}
        }
    }
    holders.extend(more);
}

/// The serial devices below `dev_dir`: name and node of each. Pseudo-terminals and consoles are left out, because
/// programs do not usually lock them.
#[must_use]
pub fn serial_devices(dev_dir: &Path) -> Vec<(String, Node)> {
    let mut devices: Vec<(String, Node)> = fs::read_dir(dev_dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| is_serial(name))?;
            let metadata = entry.metadata().ok().filter(|m| m.file_type().is_char_device())?;
            Some((name, Node::of(&metadata)))
        })
        .collect();
    devices.sort_by(|a, b| a.0.cmp(&b.0));
    devices
}

/// `ttyS0`, `ttyUSB0`, `ttyACM0`, `rfcomm0`, but not `tty1`.
fn is_serial(name: &str) -> bool {
    let kind = name.strip_prefix("tty").or_else(|| name.strip_prefix("cua")).unwrap_or(name);
    name.starts_with("rfcomm")
        || (kind != name && kind.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// Holders by flock of the devices, from one reading of the kernel's list, and programs that merely have one of them
/// open, from one search. Both end at that moment at the latest. Also returns whether they came to their ends.
pub(super) fn without_lock_files(
    devices: &[(String, Node)],
    flocks: &mut Flocks,
    by: Instant,
) -> (Vec<Holder>, bool) {
    if devices.is_empty() {
        return (Vec::new(), true);
    }
    let nodes: Vec<Node> = devices.iter().map(|(_, node)| *node).collect();
    // The processes first: their number is bounded, that of the locks is not.
    let openers = openers(&nodes, LOOKS, Some(by));
    let listing = flocks.listing(by);
    let is_whole = listing.completeness == Completeness::Whole;
    let by_flock = |(number, (name, node)): (usize, &(String, Node))| {
        by_flock(name, node, &listing, openers.opener(number, None).is_some())
    };
    let mut holders: Vec<Holder> = devices.iter().enumerate().flat_map(by_flock).collect();
    for (pid, number) in openers.found {
        let Some((name, _)) = devices.get(number) else { continue };
        let listed = |holder: &Holder| holder.pid == Some(pid) && holder.device == *name;
        if !holders.iter().any(listed) {
            holders.push(Holder::process(name, Scheme::Open, pid));
        }
    }
    (holders, is_whole && openers.has_ended)
}

/// The name of a process in printable ASCII, as the kernel keeps it (proc(5), `comm`); `None` without one. The command
/// line is not read: where it stands, the process may have put a page that takes for ever.
#[must_use]
pub fn command(pid: Pid) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(one_line(&name)).filter(|name| !name.is_empty())
}

/// What a process says of itself (`comm` and `cmdline`, proc(5)) as one line of printable ASCII: a space for each end
/// of a word, none at the end.
#[must_use]
pub fn one_line(bytes: &[u8]) -> String {
    let shown = |byte: &u8| match byte {
        0 | b'\n' => ' ',
        byte => ascii(char::from(*byte)),
    };
    let text: String = bytes.iter().map(shown).collect();
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::flock::Shortage;
    use super::*;

    #[rstest]
    #[case("ttyS0", true)]
    #[case("ttyUSB12", true)]
    #[case("ttyACM0", true)]
    #[case("cuaS0", true)]
    #[case("rfcomm0", true)]
    #[case("tty", false)]
    #[case("tty1", false)]
    #[case("ptmx", false)]
    #[case("null", false)]
    fn serial_lines_are_known_by_name(#[case] name: &str, #[case] serial: bool) {
        assert_eq!(is_serial(name), serial);
    }

    /// The device is reported neither as held nor as free.
    #[test]
    fn an_incomplete_list_is_reported_with_the_user_of_most_locks() {
        let node = Node::of(&fs::metadata("/dev/null").unwrap());
        let uid = real_user(Pid::this()).unwrap();
        let completeness = Completeness::Partial(Shortage::TooLong(Some(uid)));
        let listing = Listing { completeness, ..Listing::default() };
        let text = format!("(too many kernel locks to see all, most of them of uid {uid})");
        let expected = Holder { command: Some(text), ..Holder::unknown("ttyS0", Scheme::Flock) };
        assert_eq!(by_flock("ttyS0", &node, &listing, true), [expected]);
        // A LOCK would be granted, too.
        assert_eq!(by_flock("ttyS0", &node, &listing, false), []);
        let whole = Listing { completeness: Completeness::Whole, ..listing };
        assert_eq!(by_flock("ttyS0", &node, &whole, true), []);
    }

    #[test]
    fn a_process_has_a_name() {
        use std::io::{Read, Write};
        use std::process::{Command, Stdio};
        let piped = || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut cat = piped().unwrap();
        // When it answers, it has become the program, under qemu-user as well.
        cat.stdin.as_ref().unwrap().write_all(b"x").unwrap();
        cat.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let pid = Pid::new(cat.id().into()).unwrap();
        assert_eq!(command(pid).as_deref(), Some("cat"));
        cat.kill().unwrap();
        cat.wait().unwrap();
        assert_eq!(command(pid), None);
    }

    #[rstest]
    #[case::name(b"cu\n", "cu")]
    #[case::words(b"cu\0-l\0ttyS0\0", "cu -l ttyS0")]
    #[case::no_word(b"cu\0\0-l\0", "cu  -l")]
    #[case::hostile(b"\x1b[2J\xff\tx\0", "?[2J??x")]
    #[case::nothing(b"", "")]
    fn what_a_process_says_is_one_line(#[case] bytes: &[u8], #[case] line: &str) {
        assert_eq!(one_line(bytes), line);
    }
}
