//! Finds the processes that have a device open, as far as `/proc` shows their descriptors to us. Opens no
//! device: the links below `/proc/PID/fd` are read, not followed.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Instant;

use pidlockfile::Pid;
use pidlockfile::process::{self, Stat, is_in_first_namespace};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

use super::flock::FlockHolder;
use super::holder::OutOfSight;
use crate::device::node::{Node, Numbers};
use crate::limits::DESCRIPTORS_OF_A_PROCESS;
use crate::sys::{self, SHOWS_DESCRIPTORS, Seen};

/// The most processes and descriptors that are examined for people.
pub(super) const LOOKS: usize = 1 << 17;

/// The same for a lock, because a client waits for it.
pub(super) const LOOKS_FOR_A_LOCK: usize = 1 << 14;

/// The most threads of a process that are asked for its descriptors.
const THREADS: usize = 64;

/// Whether a process has the device open; `None` if its descriptors are hidden from us, or too many. The device is not
/// opened.
///
/// # Errors
/// We have no descriptor or memory for it now: nothing is known of the process.
pub fn has_open(pid: Pid, node: &Node) -> io::Result<Option<bool>> {
    match Descriptors::of(pid).and_then(|mut descriptors| descriptors.next_of(node)) {
        Ok(number) => Ok(Some(number.is_some())),
        Err(error) if has_gone(&error) => Ok(Some(false)),
        Err(error) => sys::unless_hidden(Err(error)),
    }
}

/// Whether the descriptor or the whole process has gone meanwhile.
pub(super) fn has_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}

/// The descriptors of exactly one process: a later process with its number has others.
#[derive(Debug)]
pub(super) struct Descriptors {
    links: Dir,
    /// Nothing was listed yet, not even the directory itself.
    is_empty: bool,
    /// No descriptor was found yet.
    is_bare: bool,
    /// The thread with the descriptors, if the first one has ended.
    pub(super) thread: Option<i32>,
    /// Whether [`Descriptors::next_of`] could examine every descriptor so far.
    is_complete: bool,
    /// The number of descriptors that it may still examine.
    left: usize,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Descriptors {
    pub(super) fn of(pid: Pid) -> io::Result<Self> {
        if !SHOWS_DESCRIPTORS {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let path = format!("/proc/{pid}/fd");
        let directory = openat(CWD, Path::new(&path), DIRECTORY, Mode::empty())?;
        let (links, left) = (Dir::new(directory)?, DESCRIPTORS_OF_A_PROCESS);
        Ok(Self { links, is_empty: true, is_bare: true, thread: None, is_complete: true, left })
    }

    /// The number of the next descriptor by which the process has a device open; `None` if there is no further one.
    /// Only a limited number of descriptors is examined.
    ///
    /// # Errors
    /// Not all of them are visible.
    pub(super) fn next_of(&mut self, node: &Node) -> io::Result<Option<i32>> {
        while let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            match self.next() {
                None if self.is_complete => return Ok(None),
                None => break,
                Some(Ok((number, seen))) if is_of(&seen, node) => return Ok(Some(number)),
                Some(Ok(_)) => {}
                Some(Err(error)) => self.is_complete &= has_gone(&error),
            }
        }
        Err(io::ErrorKind::PermissionDenied.into())
    }

    /// Whether the same process or thread still has the device open by that descriptor.
    pub(super) fn still_has(&self, number: i32, node: &Node) -> bool {
        let link = CString::new(number.to_string()).ok();
        let seen = link.map(|link| self.look_through(&link));
        seen.is_some_and(|seen| seen.is_ok_and(|seen| is_of(&seen, node)))
    }

    fn look_through(&self, link: &CStr) -> io::Result<Seen> {
        sys::look_through(self.links.fd()?, link)
    }
}

/// The descriptors of another thread of the same process, if one has any: a first thread that has ended has none any
/// more, while the others work on. `fd` is the open `/proc/PID/fd`.
fn of_another_thread(fd: BorrowedFd<'_>) -> io::Result<Option<(i32, Dir)>> {
    let threads = Dir::new(openat(fd, "../task", DIRECTORY, Mode::empty())?)?;
    for thread in threads.take(THREADS) {
        let thread = thread?;
        let Some(thread) = number(thread.file_name()) else { continue };
        let path = format!("../task/{thread}/fd");
        let mut links = match openat(fd, path, DIRECTORY, Mode::empty()) {
            Ok(directory) => Dir::new(directory)?,
            Err(errno) if has_gone(&errno.into()) => continue,
            Err(errno) => return Err(errno.into()),
        };
        if links.by_ref().flatten().any(|link| number(link.file_name()).is_some()) {
            links.rewind();
            return Ok(Some((thread, links)));
        }
    }
    Ok(None)
}

fn number(name: &CStr) -> Option<i32> {
    name.to_str().ok()?.parse().ok()
}

/// Yields the number of each descriptor, and its file.
impl Iterator for Descriptors {
    type Item = io::Result<(i32, Seen)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let link = match self.links.read() {
                Some(Ok(link)) => link,
                Some(Err(errno)) => return Some(Err(errno.into())),
                // The directory of a process that has ended does not list itself. Its threads cannot be looked for: if
                // anybody has looked at it since it ended, it is root's. (Source: `proc_readfd_common` in the kernel's
                // fs/proc/fd.c, `task_dump_owner` in fs/proc/base.c.)
                None if self.is_empty => return None,
                None if std::mem::take(&mut self.is_bare) => {
                    match self.links.fd().map_err(io::Error::from).and_then(of_another_thread) {
                        Ok(other) => {
                            let (thread, links) = other?;
                            (self.thread, self.links) = (Some(thread), links);
                        }
                        Err(error) if has_gone(&error) => return None,
                        Err(error) => return Some(Err(error)),
                    }
                    continue;
                }
                None => return None,
            };
            self.is_empty = false;
            if let Some(number) = number(link.file_name()) {
                self.is_bare = false;
                return Some(self.look_through(link.file_name()).map(|seen| (number, seen)));
            }
        }
    }
}

/// Nodes with the same number are the same device, except those of pseudo-terminals: each file system of them (each
/// container has one) has numbers of its own.
pub(super) fn is_of(found: &Seen, node: &Node) -> bool {
    let is_of_same_system = found.file_system == node.file_system;
    match node.device {
        Some(device) => {
            found.kind() == FileType::CharacterDevice
                && found.device == device
                && (!device.is_pseudo_terminal() || is_of_same_system)
        }
        None => found.inode == node.inode && is_of_same_system,
    }
}

/// The processes that have one of some nodes open, as far as their descriptors are visible.
#[derive(Debug, Default)]
pub(super) struct Openers {
    /// Each process with the number of the node in the list, once for each node.
    pub(super) found: Vec<(Pid, usize)>,
    /// Whether the search came to its end: in time, and within the limit of descriptors.
    pub(super) has_ended: bool,
    /// Whether all descriptors of all processes were seen.
    is_complete: bool,
}

impl Openers {
    /// A process other than `besides` that has the node with this number open. If none is seen, there may be one that
    /// is not: some processes do not show their descriptors to us, or there are too many.
    pub(super) fn opener(&self, number: usize, besides: Option<Pid>) -> Option<FlockHolder> {
        let is_other = |(pid, of): &&(Pid, usize)| *of == number && Some(*pid) != besides;
        let seen = self.found.iter().find(is_other).map(|(pid, _)| FlockHolder::Process(*pid));
        seen.or((!self.is_complete).then_some(FlockHolder::Unseen))
    }
}

/// Searches all processes for those that have one of the nodes open, within so many processes and descriptors. The
/// search ends at that moment at the latest.
pub(super) fn openers(nodes: &[Node], left: usize, by: Option<Instant>) -> Openers {
    let processes = fs::read_dir("/proc").ok().filter(|_| SHOWS_DESCRIPTORS);
    let is_complete = processes.is_some() && !out_of_sight().of_other_users;
    let mut openers = Openers { is_complete, ..Openers::default() };
    openers.has_ended = openers.search(processes.into_iter().flatten().flatten(), nodes, left, by);
    openers.is_complete &= openers.has_ended;
    openers
}

impl Openers {
    /// Whether it came to its end.
    fn search(
        &mut self,
        processes: impl Iterator<Item = fs::DirEntry>,
        nodes: &[Node],
        mut left: usize,
        by: Option<Instant>,
    ) -> bool {
        let mut goes_on = || {
            left = left.saturating_sub(1);
            left > 0 && by.is_none_or(|by| Instant::now() < by)
        };
        for process in processes {
            let name = process.file_name();
            let Some(pid) = name.to_str().and_then(|name| Pid::parse(name.as_bytes()).ok()) else {
                continue;
            };
            if !goes_on() {
                return false;
            }
            let descriptors = match Descriptors::of(pid) {
                Ok(descriptors) => descriptors,
                Err(error) => {
                    self.is_complete &= has_gone(&error);
                    // Source: proc_pid_stat(5), `tty_nr`: every user may read it of every process, so gettys and logins
                    // are visible to all.
                    if let Some(terminal) = terminal_led_by(pid) {
                        self.add(pid, nodes, |node| node.device == Some(terminal));
                    }
                    continue;
                }
            };
            for descriptor in descriptors {
                match descriptor {
                    Ok((_, seen)) => self.add(pid, nodes, |node| is_of(&seen, node)),
                    Err(error) => self.is_complete &= has_gone(&error),
                }
                if !goes_on() {
                    return false;
                }
            }
        }
        true
    }

    /// Adds a process with the nodes that it has open.
    fn add(&mut self, pid: Pid, nodes: &[Node], is_open: impl Fn(&Node) -> bool) {
        for (number, _) in (0..).zip(nodes).filter(|(_, node)| is_open(node)) {
            let mut of_it = self.found.iter().rev().take_while(|(last, _)| *last == pid);
            if !of_it.any(|(_, known)| *known == number) {
                self.found.push((pid, number));
            }
        }
    }
}

/// The controlling terminal of a session's first process.
fn terminal_led_by(pid: Pid) -> Option<Numbers> {
    terminal_in(&process::stat(pid)?, pid)
}

fn terminal_in(stat: &Stat, pid: Pid) -> Option<Numbers> {
    let leads = stat.terminal != 0 && stat.session == u64::from(pid.as_raw().unsigned_abs());
    leads.then(|| sys::numbers(stat.terminal))
}

/// Which holders this process cannot see now, wherever it searches. The one answer for all who tell people that nobody holds
/// a device.
#[must_use]
pub fn out_of_sight() -> OutOfSight {
    // Only Linux has pid namespaces.
    let outside = cfg!(target_os = "linux") && !is_in_first_namespace();
    OutOfSight { outside, of_other_users: !sys::examines_all(outside) }
}

/// Opens the file that its argument names, and works on in a second thread when the first one has ended.
#[cfg(test)]
const OTHER_THREAD: &str = "
import ctypes, os, sys, threading
file = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
threading.Thread(target=sys.stdin.buffer.raw.read).start()
ctypes.CDLL(None).pthread_exit(None)
";

/// A process that has this file open, and a first thread that has ended.
#[cfg(test)]
pub(super) fn other_thread_with(file: &Path) -> std::process::Child {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    let mut python = Command::new("python3");
    python.args(["-c", OTHER_THREAD]).arg(file).stdin(Stdio::piped());
    let child = python.spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
        assert!(Instant::now() < deadline, "its first thread has not ended");
        std::thread::yield_now();
    }
    child
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::process::Command;

    use rstest::rstest;
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    fn node_of(file: &impl std::os::fd::AsFd) -> Node {
        let file = fs::File::from(file.as_fd().try_clone_to_owned().unwrap());
        Node::of(&file.metadata().unwrap())
    }

    #[test]
    fn a_process_with_many_descriptors_is_examined_up_to_a_limit() {
        let (many, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let (open, closed) = (node_of(&other), node_of(&tempfile::tempfile().unwrap()));
        let copies = |_| OwnedFd::from(many.try_clone().unwrap());
        let _copies: Vec<OwnedFd> = (0..100).map(copies).collect();
        assert_eq!(has_open(Pid::this(), &open).unwrap(), Some(true));
        assert_eq!(has_open(Pid::this(), &closed).unwrap(), Some(false));
        let mut limited = Descriptors::of(Pid::this()).unwrap();
        limited.left = 100;
        let hidden = limited.next_of(&closed).unwrap_err();
        assert!(!has_gone(&hidden) && !sys::is_lack_of_room(&hidden), "{hidden}");
    }

    #[rstest]
    #[case::serial_port_in_a_container(4, 7, true)]
    #[case::same_pseudo_terminal(136, 6, true)]
    #[case::pseudo_terminal_of_a_container(136, 7, false)]
    fn the_same_number_is_the_same_device_except_for_pseudo_terminals(
        #[case] major: u64,
        #[case] file_system: u64,
        #[case] is_same: bool,
    ) {
        let (kind, device) = (0o020_000, Some(Numbers { major, minor: 0 }));
        let node = Node { file_system: Numbers { major: 0, minor: 6 }, inode: 3, device };
        let found = Seen {
            mode: kind | 0o600,
            owner: 0,
            group: 0,
            file_system: Numbers { major: 0, minor: file_system },
            inode: 3,
            device: Numbers { major, minor: 0 },
        };
        assert_eq!(is_of(&found, &node), is_same);
    }

    /// The errors of an ended process, a hidden one, and a lack of our own resources are kept apart.
    #[rstest]
    #[case::ended(Errno::NOENT, [true, false])]
    #[case::ends(Errno::SRCH, [true, false])]
    #[case::anothers(Errno::ACCESS, [false, false])]
    #[case::no_descriptor(Errno::MFILE, [false, true])]
    #[case::no_descriptor_of_the_machine(Errno::NFILE, [false, true])]
    #[case::no_memory(Errno::NOMEM, [false, true])]
    fn an_error_says_why_a_process_cannot_be_examined(
        #[case] errno: Errno,
        #[case] why: [bool; 2],
    ) {
        let error = errno.into();
        assert_eq!([has_gone(&error), sys::is_lack_of_room(&error)], why);
    }

    /// Also for an ordinary user, if somebody has looked at the process between its end and its parent's wait(2).
    #[rstest]
    fn a_process_that_has_ended_has_nothing_open(#[values(false, true)] is_looked_at: bool) {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::new(child.id().into()).unwrap();
        let node = node_of(&tempfile::tempfile().unwrap());
        let mut found = Descriptors::of(pid).unwrap();
        child.kill().unwrap();
        if is_looked_at {
            let zombie = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(rustix::process::Pid::from_child(&child)), zombie).unwrap();
            fs::metadata(format!("/proc/{pid}/fd")).unwrap();
        }
        child.wait().unwrap();
        assert_eq!(found.next_of(&node).unwrap(), None);
        assert!(has_gone(&Descriptors::of(pid).unwrap_err()));
        assert_eq!(has_open(pid, &node).unwrap(), Some(false));
    }

    #[test]
    #[ignore = "needs root: tests/run"]
    fn a_process_with_a_first_thread_that_has_ended_has_its_files_open() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut child = other_thread_with(file.path());
        let pid = Pid::new(child.id().into()).unwrap();
        let (open, closed) = (node_of(&file), node_of(&tempfile::tempfile().unwrap()));
        let told = |node| has_open(pid, node).unwrap();
        let opener = openers(&[open], LOOKS, None).opener(0, Some(Pid::this()));
        let seen = (told(&open), told(&closed), opener);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, (Some(true), Some(false), Some(FlockHolder::Process(pid))));
    }

    /// With `hidepid`, processes of other users are not even listed, so nothing shows that some were left out.
    #[test]
    #[ignore = "needs root: tests/run"]
    fn where_processes_are_hidden_nothing_is_closed() {
        const HIDDEN: &str = "LFPD_TEST_HIDDEN";
        if std::env::var_os(HIDDEN).is_some() {
            let node = node_of(&tempfile::tempfile().unwrap());
            assert_eq!(openers(&[node], LOOKS, None).opener(0, None), Some(FlockHolder::Unseen));
            return;
        }
        let again = "exec 9<\"$0\" && mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=65534 \
                     --regid=65534 --clear-groups /proc/self/fd/9 --include-ignored --exact \"$1\"";
        let mut hidden = Command::new("unshare");
        hidden.args(["--mount", "sh", "-c", again]).arg(std::env::current_exe().unwrap());
        hidden.arg("lock::open::tests::where_processes_are_hidden_nothing_is_closed");
        let hidden = hidden.env(HIDDEN, "").output().unwrap();
        let said = String::from_utf8_lossy(&hidden.stdout);
        assert!(hidden.status.success() && said.contains("1 passed"), "{hidden:?}");
    }

    /// On a machine with more than can be examined in time, the device is never reported as closed.
    #[test]
    fn a_search_stops_at_its_limit_and_is_incomplete() {
        let node = node_of(&tempfile::tempfile().unwrap());
        let openers = openers(&[node], 3, None);
        assert!(!openers.has_ended);
        assert_eq!(openers.opener(0, None), Some(FlockHolder::Unseen));
    }

    #[rstest]
    #[case::getty("12 (agetty) S 1 12 12 1088", Some((4, 64)))]
    #[case::pseudo_terminal("12 (sh) S 1 12 12 34816", Some((136, 0)))]
    #[case::large_minor("12 (sh) S 1 12 12 1083646", Some((136, 510)))]
    #[case::odd_name("12 (a) S 1 1) S 1 12 12 1088", Some((4, 64)))]
    #[case::not_the_leader("12 (sh) S 1 12 11 1088", None)]
    #[case::no_terminal("12 (cron) S 1 12 12 0", None)]
    fn the_terminal_of_a_session_is_seen(#[case] begin: &str, #[case] numbers: Option<(u64, u64)>) {
        let stat = format!("{begin} -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4242 9");
        let stat = Stat::parse(stat.as_bytes()).unwrap();
        let expected = numbers.map(|(major, minor)| Numbers { major, minor });
        assert_eq!(terminal_in(&stat, Pid::new(12).unwrap()), expected);
    }

    /// Each case runs this test again, in such a place. A process without the capability is root all the same.
    #[rstest]
    #[case::a_container("unshare --pid --fork --mount-proc", "outside")]
    #[case::an_ordinary_user("setpriv --reuid=65534 --regid=65534 --clear-groups", "users")]
    #[case::a_user_in_a_container(
        "unshare --pid --fork --mount-proc setpriv --reuid=65534 --regid=65534 --clear-groups",
        "outside,users"
    )]
    #[case::root_without_the_capability(
        "setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace",
        "users"
    )]
    #[case::root_of_users("unshare --user --map-root-user", "users")]
    #[case::root_of_users_in_a_container(
        "unshare --user --map-root-user --pid --fork --mount-proc",
        "outside"
    )]
    #[ignore = "needs root: tests/run"]
    fn each_place_hides_what_it_hides(#[case] place: &str, #[case] hidden: &str) {
        const INSIDE: &str = "LFPD_TEST_OUT_OF_SIGHT";
        if std::env::var_os(INSIDE).is_some() {
            println!("[{}]", out_of_sight().word().unwrap_or("nothing"));
            return;
        }
        // An ordinary user cannot run a program below root's directories, but one that is open.
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let again = format!(
            "exec 9<\"$0\"; exec {place} /proc/self/fd/9 --include-ignored --nocapture --exact {test}"
        );
        let mut sh = Command::new("sh");
        sh.args(["-c", &again]).arg(std::env::current_exe().unwrap()).env(INSIDE, "");
        let told = sh.output().unwrap();
        let said = String::from_utf8_lossy(&told.stdout);
        // Around it is what is hidden from root here, which is nothing on a machine of its own.
        let here = out_of_sight();
        let expected = OutOfSight::from_word(hidden);
        let both = OutOfSight {
            outside: here.outside || expected.outside,
            of_other_users: here.of_other_users || expected.of_other_users,
        };
        assert!(said.contains(&format!("[{}]", both.word().unwrap_or("nothing"))), "{told:?}");
    }
}
