//! The lock table against the contract: every rule of "What is found", "LOCK" and "UNLOCK" in a
//! private root directory, with real files and real processes.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{setgid, setuid};
use pidlockfile::Pid;
use rstest::rstest;
use testbed::{Holder, LIMIT, listing, own, until};
use ttylock::{
    Content, DeviceName, Dialect, Layout, Outcome, Pass, Request, Table, Weight,
    limits::{KEPT_FILES, KEPT_WITHOUT_DEVICE, LOCKS_FOR_INVENTED, NAMES_OF_A_LOCK},
};

/// A private machine: `/dev` with a node and links to it, a lock directory and another one.
struct Machine {
    root: tempfile::TempDir,
    os: &'static str,
    _turn: MutexGuard<'static, ()>,
}

/// One test at a time. A program that another test starts has our open files, and their `flock(2)`, until its
/// execve(2). And all tests see the same list of kernel locks, to which some add hundreds.
static TURN: Mutex<()> = Mutex::new(());

impl Machine {
    fn new() -> Self {
        Self::of("linux")
    }

    fn of(os: &'static str) -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["dev/pts", "dev/serial/by-id", "lock", "other", "state"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = Self { root, os, _turn: turn };
        for node in ["ttyS0", "ttyS1", "pts/3", "cua0"] {
            fs::write(machine.path("dev").join(node), "").unwrap();
        }
        symlink("ttyS0", machine.path("dev/modem")).unwrap();
        symlink("../../ttyS0", machine.path("dev/serial/by-id/usb-X")).unwrap();
        machine
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    fn lock_file(&self, name: &str) -> PathBuf {
        self.path("lock").join(name)
    }

    fn table(&self) -> Table {
        Table::new(layout_of(self))
    }

    fn lock(&self, device: &str, pid: u32) -> Outcome {
        self.table().lock(&request(device, pid)).outcome()
    }

    fn unlock(&self, device: &str, pid: u32) -> Outcome {
        self.table().unlock(&request(device, pid)).outcome()
    }

    fn names(&self) -> Vec<String> {
        listing(&self.path("lock"))
    }

    /// Checks that no lock has left a file or a record.
    fn assert_free(&self) {
        assert_eq!((self.names(), records(self)), (Vec::new(), Vec::new()));
    }
}

fn layout_of(machine: &Machine) -> Layout {
    let mut layout = layout_below(machine.root.path());
    layout.dialect = Dialect::by_name(machine.os).unwrap();
    layout.search_dirs = vec![machine.path("other")];
    layout
}

/// Of such a machine, as a process of its own that a test starts finds it.
fn layout_below(root: &Path) -> Layout {
    let mut layout = Layout::of(Dialect::by_name("linux").unwrap());
    layout.dev_dir = root.join("dev");
    layout.lock_dir = root.join("lock");
    layout.search_dirs = Vec::new();
    layout.state_dir = root.join("state");
    layout.udev_dir = root.join("udev");
    layout
}

/// The same, with the devices of the host.
fn with_devices_of_the_host(mut layout: Layout) -> Layout {
    layout.dev_dir = "/dev".into();
    layout
}

/// The same, where this directory is searched, too.
fn searching(mut layout: Layout, directory: PathBuf) -> Layout {
    layout.search_dirs = vec![directory];
    layout
}

/// The links in the state directory that are records. What else is there is none: the gate.
fn record_links(machine: &Machine) -> Vec<PathBuf> {
    let entries = listing(&machine.path("state")).into_iter();
    entries.map(|name| machine.path("state").join(name)).filter(|it| it.is_symlink()).collect()
}

fn text_of(record: &Path) -> String {
    fs::read_link(record).unwrap().into_os_string().into_string().unwrap()
}

/// The names of the locks on record.
fn records(machine: &Machine) -> Vec<String> {
    let names_of = |record: &PathBuf| {
        let text = text_of(record);
        let (_, names) = text.split_once(" names=").unwrap();
        names.split('/').map(str::to_owned).collect::<Vec<_>>()
    };
    let mut names: Vec<_> = record_links(machine).iter().flat_map(names_of).collect();
    names.sort();
    names
}

/// The record of the lock that has this name.
fn record_of(machine: &Machine, name: &str) -> PathBuf {
    let has_it = |it: &PathBuf| text_of(it).split(['/', '=']).any(|it| it == name);
    record_links(machine).into_iter().find(has_it).unwrap()
}

/// Records that are about locks that may be just being taken are not swept.
fn age_records(machine: &Machine) {
    for record in record_links(machine) {
        testbed::make_old(&record).unwrap();
    }
}

/// A daemon begins a minute later: what killed processes have left is swept.
fn sweep(machine: &Machine) {
    for draft in machine.names().iter().filter(|name| name.ends_with(".tmp")) {
        age(&machine.lock_file(draft), 61);
    }
    age_records(machine);
    machine.table().keep_open(0);
}

fn device(name: &str) -> DeviceName {
    DeviceName::parse(name.as_bytes()).unwrap()
}

fn pid(number: u32) -> Pid {
    Pid::new(number.into()).unwrap()
}

fn request(name: &str, number: u32) -> Request {
    Request { device: device(name), pid: pid(number) }
}

fn pass(name: &str, from: u32, to: u32) -> Pass {
    Pass { device: device(name), from: pid(from), to: pid(to) }
}

/// A pid that no process has.
fn dead() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

fn decimal(pid: u32) -> Vec<u8> {
    format!("{pid:>10}\n").into_bytes()
}

fn age(path: &Path, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

#[rstest]
#[case::empty_young(b"", 0, Outcome::Busy)]
#[case::empty_old(b"", 31, Outcome::Done)]
#[case::garbage_young(b"hello\n", 0, Outcome::Busy)]
#[case::garbage_old(b"hello\n", 31, Outcome::Done)]
#[case::pid_zero_young(b"         0\n", 0, Outcome::Busy)]
#[case::pid_zero_old(b"         0\n", 31, Outcome::Done)]
#[case::negative_old(b"        -1\n", 31, Outcome::Done)]
#[case::short_young(b"\x01", 20, Outcome::Busy)]
fn unreadable_words_are_busy_while_young(
    #[case] content: &[u8],
    #[case] seconds: u64,
    #[case] outcome: Outcome,
) {
    let machine = Machine::new();
    let file = machine.lock_file("LCK..ttyS0");
    fs::write(&file, content).unwrap();
    age(&file, seconds);
    assert_eq!(machine.lock("ttyS0", own()), outcome);
}

/// `PID` is a living process. The files are ten minutes old, so that nobody is about to write them.
#[rstest]
#[case::fhs("      PID\n")]
#[case::dos("PID\r\n")]
#[case::newline_first("\nPID\n")]
#[case::sign("+PID\n")]
#[case::host("PID:box\n")]
#[case::comma("PID,x\n")]
#[case::words("PID minicom root\n")]
#[case::nul("PID\0")]
fn text_is_read_as_other_programs_read_it(#[case] content: &str) {
    let machine = Machine::new();
    let holder = Holder::new();
    let file = machine.lock_file("LCK..ttyS0");
    let content = content.replace("PID", &holder.pid().to_string());
    fs::write(&file, &content).unwrap();
    age(&file, 600);
    assert_eq!(machine.lock("ttyS0", own()), Outcome::Busy);
    let seen = machine.table().holders(Some(&device("ttyS0")), LIMIT).holders;
    assert_eq!(seen.iter().map(|it| it.pid).collect::<Vec<_>>(), [Some(pid(holder.pid()))]);
    machine.table().keep_open(KEPT_FILES);
    assert_eq!(fs::read_to_string(&file).unwrap(), content);
    drop(holder);
    assert_eq!(machine.lock("ttyS0", own()), Outcome::Done);
}

/// An exclusive lock of an open file description, in Python.
const OFD_LOCK: &str =
    "fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0))";

/// As Python's fasteners does it: an empty file, which is locked by `fcntl(2)`, or by an open file description.
#[rstest]
#[case::posix("fcntl.lockf(file, fcntl.LOCK_EX)", true)]
#[case::posix_shared("fcntl.lockf(file, fcntl.LOCK_SH)", true)]
#[case::open_file_description(OFD_LOCK, false)]
fn a_lock_by_fcntl_counts_as_flock_does(
    #[case] lock: &str,
    #[case] is_named: bool,
    #[values(b"".as_slice(), b"hello\n", b"   4194304\n")] content: &[u8],
) {
    let machine = Machine::new();
    let file = machine.lock_file("LCK..ttyS0");
    fs::write(&file, content).unwrap();
    age(&file, 600);
    let holder = fcntl_holder(&file, lock);
    let answer = machine.table().lock(&request("ttyS0", own()));
    assert_eq!(answer.outcome(), Outcome::Busy);
    let by = if is_named {
        format!("pid {}", holder.pid())
    } else {
        "a process that is not named".to_owned()
    };
    let by = format!("is stale, but a lock on it is held by {by}");
    assert!(answer.events.iter().any(|event| event.text.contains(&by)), "{:?}", answer.events);
    let seen = machine.table().holders(Some(&device("ttyS0")), LIMIT).holders;
    let keeps_out = |it: &&ttylock::Holder| it.keeps_out();
    let pids: Vec<_> = seen.iter().filter(keeps_out).map(|it| it.pid).collect();
    assert_eq!(pids, [is_named.then(|| pid(holder.pid()))], "{seen:?}");
    for stale in seen.iter().filter(|it| it.scheme.file().is_some()) {
        assert!(machine.table().remove_stale(stale).is_err());
    }
    machine.table().keep_open(KEPT_FILES);
    assert_eq!(fs::read(&file).unwrap(), content);
    drop(holder);
    assert_eq!(machine.lock("ttyS0", own()), Outcome::Done);
}

/// Whoever may read a lock file of the service can have such a lock, without a name. It must not block the port.
#[test]
fn a_shared_lock_of_an_open_file_description_is_ignored() {
    let machine = Machine::new();
    let file = machine.lock_file("LCK..ttyS0");
    fs::write(&file, decimal(dead())).unwrap();
    let _holder = fcntl_holder(&file, &OFD_LOCK.replace("F_WRLCK", "F_RDLCK"));
    assert_eq!(machine.lock("ttyS0", own()), Outcome::Done);
}

/// On the port itself, as on a lock file.
#[rstest]
#[case::posix("fcntl.lockf(file, fcntl.LOCK_EX)", true)]
#[case::posix_shared("fcntl.lockf(file, fcntl.LOCK_SH)", true)]
#[case::open_file_description(OFD_LOCK, false)]
fn a_lock_by_fcntl_on_the_port_counts(#[case] lock: &str, #[case] is_named: bool) {
    let machine = Machine::new();
    let holder = fcntl_holder(&machine.path("dev/ttyS0"), lock);
    assert_eq!(machine.lock("ttyS0", own()), Outcome::Busy);
    let seen = machine.table().holders(Some(&device("ttyS0")), LIMIT).holders;
    let keeps_out = |it: &&ttylock::Holder| it.keeps_out();
    let pids: Vec<_> = seen.iter().filter(keeps_out).map(|it| it.pid).collect();
    assert_eq!(pids, [is_named.then(|| pid(holder.pid()))], "{seen:?}");
    if is_named {
        assert_eq!(machine.lock("ttyS0", holder.pid()), Outcome::Done);
    }
}

/// A process that locks a file by this line of Python.
fn fcntl_holder(path: &Path, lock: &str) -> Holder {
    let path = path.display();
    let line = format!(
        "import fcntl, struct, sys; file = open('{path}', 'r+'); {lock}; print('held', flush=True); sys.stdin.read()"
    );
    Holder::speaking(Command::new("/usr/bin/python3").args(["-c", &line]))
}

/// The clocks of machines that share a directory differ by seconds. What is further ahead was never written then.
#[rstest]
#[case::ahead_by_a_second(1, Outcome::Busy)]
#[case::ahead_by_a_day(86_400, Outcome::Done)]
#[case::ahead_by_a_century(36_525 * 86_400, Outcome::Done)]
fn an_empty_file_from_the_future_does_not_stay_young(#[case] ahead: u64, #[case] outcome: Outcome) {
    let machine = Machine::new();
    let file = machine.lock_file("LCK..ttyS0");
    File::create(&file)
        .unwrap()
        .set_modified(SystemTime::now() + Duration::from_secs(ahead))
        .unwrap();
    assert_eq!(machine.lock("ttyS0", own()), outcome);
}

#[rstest]
#[case::link("LCK..ttyS0")]
#[case::link_under_a_searched_name("lk..ttyS0")]
fn links_are_busy_and_never_followed(#[case] name: &str) {
    let machine = Machine::new();
    let target = machine.path("precious");
    fs::write(&target, decimal(dead())).unwrap();
    symlink(&target, machine.lock_file(name)).unwrap();
    assert_eq!(machine.lock("ttyS0", own()), Outcome::Busy);
    assert_eq!(machine.unlock("ttyS0", dead()), Outcome::Busy);
    assert_eq!(fs::read_link(machine.lock_file(name)).unwrap(), target);
    assert!(target.exists());
}

/// They make the port busy and stay, and nothing blocks. Of a huge file only the start is read.
#[rstest]
#[case::dangling_link(|path: &Path| symlink("/nowhere/at/all", path).unwrap())]
#[case::fifo(|path: &Path| nix::unistd::mkfifo(path, Mode::from_bits_truncate(0o666)).unwrap())]
#[case::directory(|path: &Path| fs::create_dir(path).unwrap())]
#[case::huge_file(|path: &Path| File::create(path).unwrap().set_len(1 << 40).unwrap())]
fn planted_things_are_busy(#[case] plant: fn(&Path)) {
    let machine = Machine::new();
    plant(&machine.lock_file("LCK..ttyS0"));
    assert_eq!(machine.lock("ttyS0", own()), Outcome::Busy);
    assert_eq!(machine.names(), ["LCK..ttyS0"]);
}

/// All names of one device meet, whichever is asked for first.
#[rstest]
#[case::link_then_node("modem", "ttyS0")]
#[case::node_then_link("ttyS0", "modem")]
#[case::by_id_then_link("serial/by-id/usb-X", "modem")]
#[case::link_then_by_id("modem", "serial/by-id/usb-X")]
#[case::pair("cua0", "ttyS0")]
fn one_device_has_one_lock(#[case] first: &str, #[case] second: &str) {
    let machine = Machine::new();
    let holder = Holder::new();
    assert_eq!(machine.lock(first, own()), Outcome::Done);
    let names = machine.names();
    assert_eq!(machine.lock(second, holder.pid()), Outcome::Busy);
    assert_eq!(machine.names(), names);
    assert_eq!(machine.unlock(second, holder.pid()), Outcome::Busy);
    assert_eq!(machine.unlock(first, own()), Outcome::Done);
    assert_eq!(machine.names(), [""; 0]);
}

#[test]
fn a_conflict_on_the_last_name_gives_back_the_first_ones() {
    let machine = Machine::new();
    fs::write(machine.lock_file("LCK..pts:3"), decimal(own())).unwrap();
    assert_eq!(machine.lock("pts/3", dead()), Outcome::Busy);
    assert_eq!(machine.names(), ["LCK..pts:3"]);
}

/// Writes a record of a lock anew, with another text.
fn forge(machine: &Machine, name: &str, change: impl FnOnce(String) -> String) {
    let record = record_of(machine, name);
    let text = text_of(&record);
    fs::remove_file(&record).unwrap();
    symlink(change(text), &record).unwrap();
}

/// The number of a dead holder was given to a new process: our record tells them apart. Or the lock survived a reboot on
/// a disk.
#[rstest]
#[case::of_an_earlier_process("start=")]
#[case::of_another_boot("boot=")]
fn a_reused_pid_does_not_hold_the_lock_of_its_predecessor(#[case] word: &str) {
    let machine = Machine::new();
    let holder = Holder::new();
    assert_eq!(machine.lock("ttyS0", holder.pid()), Outcome::Done);
    assert_eq!(records(&machine), ["LCK..modem", "LCK..ttyS0"]);
    forge(&machine, "LCK..ttyS0", |text| text.replace(word, &format!("{word}9")));
    assert_eq!(machine.lock("ttyS0", own()), Outcome::Done);
}

#[test]
fn without_a_record_a_living_pid_is_believed() {
    let machine = Machine::new();
    let holder = Holder::new();
    assert_eq!(machine.lock("ttyS0", holder.pid()), Outcome::Done);
    fs::remove_file(record_of(&machine, "LCK..ttyS0")).unwrap();
    assert_eq!(machine.lock("ttyS0", own()), Outcome::Busy);
}

#[test]
fn a_record_of_another_file_is_not_believed() {
    let machine = Machine::new();
    let holder = Holder::new();
    assert_eq!(machine.lock("ttyS0", holder.pid()), Outcome::Done);
    forge(&machine, "LCK..ttyS0", |text| text.replace("start=", "start=9"));
    // The same pid takes the port by itself, as a program that knows nothing of us would.
    fs::remove_file(machine.lock_file("LCK..ttyS0")).unwrap();
    fs::write(machine.lock_file("LCK..ttyS0"), decimal(holder.pid())).unwrap();
    assert_eq!(machine.lock("ttyS0", own()), Outcome::Busy);
}

#[test]
fn unlock_clears_what_the_dead_left() {
    let machine = Machine::new();
    fs::write(machine.lock_file("LCK..ttyS0"), decimal(dead())).unwrap();
    fs::write(machine.path("other/LK.ttyS0"), decimal(own())).unwrap();
    assert_eq!(machine.unlock("ttyS0", own()), Outcome::Done);
    assert_eq!(machine.names(), [""; 0]);
    assert_eq!(listing(&machine.path("other")), [""; 0]);
}

/// The adapter is pulled out while it, or a link to it, was locked: the links and the node are gone. An ordinary user
/// without the service has no records.
#[rstest]
#[case::a_node("ttyS1", &["ttyS1"], 1)]
#[case::a_link("serial/by-id/usb-X", &["modem", "serial/by-id/usb-X", "ttyS0"], 5)]
fn an_unplugged_device_can_be_unlocked_with_all_its_names(
    #[case] name: &str,
    #[case] gone: &[&str],
    #[case] files: usize,
    #[values(true, false)] has_records: bool,
) {
    let machine = Machine::new();
    if !has_records {
        fs::remove_dir_all(machine.path("state")).unwrap();
    }
    assert_eq!(machine.lock(name, own()), Outcome::Done);
    assert_eq!(machine.names().len(), files);
    gone.iter().for_each(|it| fs::remove_file(machine.path("dev").join(it)).unwrap());
    assert_eq!(machine.unlock(name, own()), Outcome::Done);
    fs::create_dir_all(machine.path("state")).unwrap();
    machine.assert_free();
}

/// The adapter came back under another number while its link was locked: the link leads to another node. As long as the old
/// node is there and locked, the lock is that port's. If it is gone, or somebody else's by now, the lock is the link's.
#[rstest]
#[case::untouched(&[], false, Outcome::Busy, &["LCK..modem", "LCK..serial:by-id:usb-X", "LCK..serial_by-id_usb-X", "LCK..ttyS0", "LCK..usb-X"])]
#[case::unplugged(&[], true, Outcome::Done, &[])]
#[case::relocked(&["LCK..ttyS0"], false, Outcome::Done, &["LCK..ttyS0"])]
fn a_link_that_leads_elsewhere_can_be_unlocked_with_all_its_names(
    #[case] relocked: &[&str],
    #[case] is_unplugged: bool,
    #[case] outcome: Outcome,
    #[case] left: &[&str],
) {
    let machine = Machine::new();
    let device = "serial/by-id/usb-X";
    assert_eq!(machine.lock(device, own()), Outcome::Done);
    assert_eq!(machine.names().len(), 5);
    for link in ["dev/modem", "dev/serial/by-id/usb-X"] {
        fs::remove_file(machine.path(link)).unwrap();
        symlink(machine.path("dev/ttyS1"), machine.path(link)).unwrap();
    }
    for name in relocked {
        fs::remove_file(machine.lock_file(name)).unwrap();
        assert_eq!(machine.lock("ttyS0", own()), Outcome::Done);
    }
    if is_unplugged {
        fs::remove_file(machine.path("dev/ttyS0")).unwrap();
    }
    assert_eq!(machine.unlock(device, own()), outcome);
    assert_eq!(machine.names(), left);
    if !left.is_empty() {
        assert_eq!(machine.unlock("ttyS0", own()), Outcome::Done);
    }
    assert_eq!(machine.names(), [""; 0]);
}

/// A program that opens another link of the device is met, and meets us: udev knows the links.
/// The device is a real one, linked into the private `/dev`.
#[test]
fn links_known_to_udev_are_taken_with_the_device() {
    let machine = Machine::new();
    fs::create_dir(machine.path("udev")).unwrap();
    fs::write(machine.path("udev/c1:3"), "S:serial/by-id/usb-Y\nL:0\n").unwrap();
    let table = || Table::new(with_devices_of_the_host(layout_below(machine.root.path())));
    let foreign = machine.lock_file("LCK..serial_by-id_usb-Y");
    let holder = Holder::new();
    fs::write(&foreign, decimal(holder.pid())).unwrap();
    assert_eq!(table().lock(&request("null", own())).outcome(), Outcome::Busy);
    assert_eq!(machine.names(), ["LCK..serial_by-id_usb-Y"]);
    drop(holder);
    assert_eq!(table().lock(&request("null", own())).outcome(), Outcome::Done);
    let names = ["LCK..null", "LCK..serial:by-id:usb-Y", "LCK..serial_by-id_usb-Y", "LCK..usb-Y"];
    assert_eq!(machine.names(), names);
    // Unplugged, udev has forgotten it as well.
    fs::remove_file(machine.path("udev/c1:3")).unwrap();
    assert_eq!(table().unlock(&request("null", own())).outcome(), Outcome::Done);
    assert_eq!(machine.names(), [""; 0]);
}

#[test]
fn a_lock_directory_that_is_not_there_is_denied() {
    let machine = Machine::new();
    fs::remove_dir(machine.path("lock")).unwrap();
    let answer = machine.table().lock(&request("ttyS0", own()));
    assert_eq!(answer.outcome(), Outcome::Denied);
    assert_eq!(answer.events.len(), 1);
    assert_eq!(machine.unlock("ttyS0", own()), Outcome::Denied);
}

#[test]
fn links_out_of_the_device_directory_are_denied() {
    let machine = Machine::new();
    symlink("/etc/passwd", machine.path("dev/evil")).unwrap();
    assert_eq!(machine.lock("evil", own()), Outcome::Denied);
    assert_eq!(machine.names(), [""; 0]);
}

/// A shell takes a flock through flock(1) on its own descriptor: who took it is gone, and it is
/// held all the same.
#[test]
fn a_flock_without_its_taker_is_busy_and_not_stale() {
    let machine = Machine::new();
    let script =
        format!("exec 3<>{}; flock 3; echo; exec sleep 600", machine.path("dev/ttyS1").display());
    let _shell = Holder::speaking(Command::new("sh").args(["-c", &script]));
    assert_eq!(machine.lock("ttyS1", own()), Outcome::Busy);
    let found = machine.table().holders(Some(&device("ttyS1")), LIMIT).holders;
    let flocks: Vec<_> = found.iter().filter(|h| h.scheme.word() == "flock").collect();
    assert_eq!(flocks.len(), 1, "{found:?}");
    assert_eq!(flocks[0].standing.word(), "unknown");
}

/// What anybody may put into a directory that is only searched, like `/tmp`, blocks a port only if
/// it is a lock of the process that it names, or of root's.
#[test]
#[ignore = "needs root: tests/run"]
fn planted_claims_in_a_directory_open_to_all_block_nothing() {
    let machine = Machine::new();
    fs::set_permissions(machine.path("other"), Permissions::from_mode(0o1777)).unwrap();
    let planted = |name: &str| machine.path("other").join(name);
    fs::create_dir(planted("LCK..ttyS1")).unwrap();
    symlink("x", planted("lk..ttyS1")).unwrap();
    fs::write(planted("LK.ttyS1"), decimal(own())).unwrap();
    std::os::unix::fs::chown(planted("LK.ttyS1"), Some(65534), None).unwrap();
    assert_eq!(machine.lock("ttyS1", own()), Outcome::Done);
    assert_eq!(machine.unlock("ttyS1", own()), Outcome::Done);
    assert_eq!(machine.names(), [""; 0]);

    // They are shown as what they are: the process that is named has no part in it.
    let shown = |name: &str| -> Vec<(&str, bool)> {
        let holders = machine.table().holders(Some(&device(name)), LIMIT).holders;
        holders.iter().map(|it| (it.standing.word(), it.keeps_out())).collect()
    };
    assert_eq!(shown("ttyS1"), [("ignored", false); 3]);
    let all = machine.table().holders(None, LIMIT).holders;
    assert!(all.iter().all(|holder| holder.standing.word() == "ignored"), "{all:?}");

    let holder = Holder::new();
    fs::write(planted("LCK..pts_3"), decimal(holder.pid())).unwrap();
    assert_eq!(shown("pts/3"), [("alive", true)]);
    assert_eq!(machine.lock("pts/3", own()), Outcome::Busy, "root's own is believed");
}

/// A file system in user space may never answer: what its owner has put where we search is not
/// looked into.
#[test]
#[ignore = "needs root: tests/run"]
fn directories_of_others_are_not_searched() {
    let machine = Machine::new();
    let holder = Holder::new();
    fs::write(machine.path("other/LCK..ttyS1"), decimal(holder.pid())).unwrap();
    std::os::unix::fs::chown(machine.path("other"), Some(1000), None).unwrap();
    assert_eq!(machine.lock("ttyS1", own()), Outcome::Done);
    assert_eq!(machine.unlock("ttyS1", own()), Outcome::Done);
    std::os::unix::fs::chown(machine.path("other"), Some(0), None).unwrap();
    assert_eq!(machine.lock("ttyS1", own()), Outcome::Busy);
}

/// Runs a test in a mount namespace of its own.
fn with_own_mounts<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let alone = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        test()
    };
    std::thread::spawn(alone).join().unwrap()
}

fn make_node(machine: &Machine, name: &str, major: u64, minor: u64) {
    let number = makedev(major, minor);
    mknod(&machine.path(name), SFlag::S_IFCHR, Mode::empty(), number).unwrap();
}

/// Neither what is mounted, or linked, where others may write: a directory of root's is searched
/// there, but not what lies over it.
#[rstest]
#[case::a_directory(false, Outcome::Busy)]
#[case::mounted_over(true, Outcome::Done)]
#[ignore = "needs root: tests/run"]
fn a_mount_where_others_may_write_is_not_searched(#[case] mounted: bool, #[case] outcome: Outcome) {
    let test = move || {
        let machine = Machine::new();
        fs::set_permissions(machine.path("other"), Permissions::from_mode(0o1777)).unwrap();
        let below = machine.path("other/lockdev");
        fs::create_dir(&below).unwrap();
        if mounted {
            mount(Some("t"), &below, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        }
        let holder = Holder::new();
        fs::write(below.join("LCK..ttyS1"), decimal(holder.pid())).unwrap();
        let layout = searching(layout_of(&machine), below.clone());
        let answer = Table::new(layout).lock(&request("ttyS1", own()));
        if mounted {
            nix::mount::umount(&below).unwrap();
        }
        answer.outcome()
    };
    assert_eq!(with_own_mounts(test), outcome);
}

/// Without its record, a lock looks dead in another pid namespace.
#[test]
#[ignore = "needs root: tests/run"]
fn a_lock_that_cannot_be_recorded_is_refused() {
    let test = || {
        let machine = Machine::new();
        let state = layout_of(&machine).state_dir;
        // With room for nothing but the directory itself and the gate.
        let options = Some("nr_inodes=2,mode=0755");
        mount(Some("t"), &state, Some("tmpfs"), MsFlags::empty(), options).unwrap();
        machine.table().keep_open(0);
        let outcome = machine.lock("ttyS1", own());
        let names = machine.names();
        nix::mount::umount(&state).unwrap();
        (outcome, names)
    };
    assert_eq!(with_own_mounts(test), (Outcome::Denied, Vec::new()));
}

/// Two nodes of one device: a second `mknod`, or a mount of the node under another name.
#[rstest]
#[case::with_a_name_of_the_kernels(1, 3, "LCK..null")]
#[case::without_one(136, 4095, "LCK.136.4095")]
#[ignore = "needs root: tests/run"]
fn two_nodes_of_one_device_have_one_lock(
    #[case] major: u64,
    #[case] minor: u64,
    #[case] common: &str,
) {
    let machine = Machine::new();
    for name in ["dev/one", "dev/other"] {
        make_node(&machine, name, major, minor);
    }
    let holder = Holder::new();
    assert_eq!(machine.lock("one", holder.pid()), Outcome::Done);
    assert!(machine.names().contains(&common.to_owned()), "{:?}", machine.names());
    assert_eq!(machine.lock("other", own()), Outcome::Busy);
    assert_eq!(machine.unlock("one", holder.pid()), Outcome::Done);
    assert_eq!(machine.names(), [""; 0]);
}

/// In a chroot without sysfs, a node with a name of its own, and a lock that was taken outside by the kernel's name.
#[test]
#[ignore = "needs root: tests/run"]
fn a_node_without_sysfs_has_the_name_of_its_driver() {
    let test = || {
        let (machine, holder) = (Machine::new(), Holder::new());
        let drivers = machine.path("drivers");
        fs::write(&drivers, "usbserial            /dev/ttyUSB      1 0-511 serial\n").unwrap();
        let none = None::<&str>;
        mount(Some(&drivers), "/proc/tty/drivers", none, MsFlags::MS_BIND, none).unwrap();
        mount(Some("t"), "/sys", Some("tmpfs"), MsFlags::empty(), none).unwrap();
        make_node(&machine, "dev/gsm", 1, 3);
        fs::write(machine.path("lock/LCK..ttyUSB3"), decimal(holder.pid())).unwrap();
        machine.lock("gsm", own())
    };
    assert_eq!(with_own_mounts(test), Outcome::Busy);
}

/// The longest names that are taken leave a record.
#[test]
fn the_record_of_a_lock_with_many_long_names_fits() {
    let machine = Machine::new();
    for number in 0..30 {
        let link = format!("dev/{number}{}", "x".repeat(240));
        symlink("ttyS1", machine.path(&link)).unwrap();
    }
    let holder = Holder::new();
    let answer = machine.table().lock(&request("ttyS1", holder.pid()));
    assert_eq!(answer.outcome(), Outcome::Done);
    assert!(answer.events.iter().all(|event| event.weight == Weight::Info), "{answer:?}");
    let names = machine.names();
    assert!(names.len() <= NAMES_OF_A_LOCK, "{}", names.len());
    assert_eq!(records(&machine), names);
    assert_eq!(machine.unlock("ttyS1", holder.pid()), Outcome::Done);
    assert_eq!(machine.names(), [""; 0]);
}

/// The name of a lock file is its record's as well; what is longer leaves nothing at all.
#[rstest]
#[case::with_a_pid_and_random_digits_no_file_name(238, Outcome::Done)]
#[case::longest(250, Outcome::Done)]
#[case::one_over(251, Outcome::Denied)]
fn a_long_name_is_locked_with_its_record_or_refused(
    #[case] length: usize,
    #[case] outcome: Outcome,
) {
    let machine = Machine::new();
    let holder = Holder::new();
    let device = "x".repeat(length);
    let answer = machine.table().lock(&request(&device, holder.pid()));
    assert_eq!(answer.outcome(), outcome, "{answer:?}");
    let of_a_lock = [format!("LCK..{device}")];
    let expected = if outcome == Outcome::Done { &of_a_lock[..] } else { &[] };
    assert_eq!(machine.names(), expected);
    assert_eq!(records(&machine), expected);
    assert_eq!(machine.unlock(&device, holder.pid()), outcome);
    machine.assert_free();
}

/// A process of a user who may read lock files, with `flock(2)` on one of them.
fn flocker(machine: &Machine, file: &Path, uid: u32) -> Holder {
    fs::set_permissions(machine.root.path(), Permissions::from_mode(0o755)).unwrap();
    Holder::flocking(file, uid)
}

/// Every user who may read a stale lock can hold `flock(2)` on it for ever. That decides nothing: not of LOCK, not
/// of UNLOCK, not for a daemon, not where locks are only searched. The log names the process that held it.
#[rstest]
#[case::in_its_place("lock/LCK..ttyS1", false)]
#[case::under_a_second_name("lock/lk..ttyS1", false)]
#[case::where_it_is_searched("other/LCK..ttyS1", false)]
#[case::at_a_daemon("lock/LCK..ttyS1", true)]
#[ignore = "needs root: tests/run"]
fn an_outsiders_flock_on_a_stale_lock_decides_nothing(
    #[case] file: &str,
    #[case] daemon: bool,
    #[values(false, true)] unlock: bool,
) {
    let machine = Machine::new();
    let file = machine.path(file);
    fs::write(&file, decimal(dead())).unwrap();
    let outsider = flocker(&machine, &file, 65_534);
    let mut table = machine.table();
    if daemon {
        table.keep_open(16);
    }
    let request = request("ttyS1", own());
    let answer = if unlock { table.unlock(&request) } else { table.lock(&request) };
    assert_eq!(answer.outcome(), Outcome::Done, "{answer:?}");
    let named = format!("the lock of pid {}", outsider.pid());
    assert!(answer.events.iter().any(|event| event.text.contains(&named)), "{answer:?}");
    assert_eq!(machine.names().len(), usize::from(!unlock), "{:?}", machine.names());
    assert!(!machine.path("other/LCK..ttyS1").exists());
}

/// Root's flock counts, and so does that of the owner of the file: a service in a container that shares
/// the lock directory and nothing else. Both are named.
#[rstest]
#[case::root(0, 1000)]
#[case::the_owner(1000, 1000)]
#[ignore = "needs root: tests/run"]
fn a_flock_of_the_service_or_the_owner_counts_and_is_named(#[case] uid: u32, #[case] owner: u32) {
    let machine = Machine::new();
    let file = machine.lock_file("LCK..ttyS1");
    fs::write(&file, decimal(dead())).unwrap();
    std::os::unix::fs::chown(&file, Some(owner), None).unwrap();
    let entitled = flocker(&machine, &file, uid);
    let taker = Some(pid(entitled.pid()));
    let mut table = machine.table();
    let answer = table.lock(&request("ttyS1", own()));
    assert_eq!(answer.outcome(), Outcome::Busy, "{answer:?}");
    assert_eq!(answer.blocker().map(|who| who.pid), taker);
    let named = format!("a lock on it is held by pid {}", entitled.pid());
    assert!(answer.events.iter().any(|event| event.text.contains(&named)), "{answer:?}");
    let found = table.holders(Some(&device("ttyS1")), LIMIT).holders;
    assert!(
        found.iter().any(|holder| holder.scheme.word() == "flock" && holder.pid == taker),
        "{found:?}"
    );
}

/// The user who has started a program counts: whoever has the file locked and becomes a program with the set-user-ID bit
/// has no more right than before.
#[rstest]
#[case::of_root(0)]
#[case::of_the_owner(1000)]
#[ignore = "needs root: tests/run"]
fn the_flock_of_a_set_user_id_program_is_its_users(#[case] owner: u32) {
    let machine = Machine::new();
    let file = machine.lock_file("LCK..ttyS1");
    fs::write(&file, decimal(dead())).unwrap();
    std::os::unix::fs::chown(&file, Some(1000), None).unwrap();
    let (program, line) = (machine.path("raised"), machine.path("line"));
    fs::copy("/bin/cat", &program).unwrap();
    std::os::unix::fs::chown(&program, Some(owner), None).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    fs::write(&line, "runs\n").unwrap();
    fs::set_permissions(machine.root.path(), Permissions::from_mode(0o755)).unwrap();
    let words = [program.to_str().unwrap(), line.to_str().unwrap(), "-"];
    let outsider = Holder::flocking_as(&file, 65_534, &words);
    let answer = machine.table().lock(&request("ttyS1", own()));
    assert_eq!(answer.outcome(), Outcome::Done, "{answer:?}");
    let named = format!("the lock of pid {}", outsider.pid());
    assert!(answer.events.iter().any(|event| event.text.contains(&named)), "{answer:?}");
}

/// The owner can release a lock that a session has taken and closed, whichever process holds its files; also where any
/// user has filled the file system of the lock directory: there is no room for the stand-in of a release past that.
#[rstest]
#[ignore = "needs root: tests/run"]
fn an_outsiders_flock_stops_no_owner(#[values(false, true)] is_full: bool) {
    let test = move || {
        let machine = Machine::new();
        let locks = machine.path("lock");
        if is_full {
            // With room for one file.
            let options = Some("nr_inodes=2,mode=1777");
            mount(Some("t"), &locks, Some("tmpfs"), MsFlags::empty(), options).unwrap();
        }
        let mut table = machine.table();
        assert_eq!(table.lock(&request("ttyS1", own())).outcome(), Outcome::Done);
        let outsider = flocker(&machine, &machine.lock_file("LCK..ttyS1"), 65_534);
        let answer = table.unlock(&request("ttyS1", own()));
        drop((outsider, table));
        let left = (machine.names(), records(&machine));
        let _ = nix::mount::umount2(&locks, nix::mount::MntFlags::MNT_DETACH);
        assert_eq!(answer.outcome(), Outcome::Done, "{answer:?}");
        left
    };
    assert_eq!(with_own_mounts(test), (Vec::new(), Vec::new()));
}

/// Nobody else may open the gate: it could be held as well.
#[test]
fn only_its_owner_may_open_the_gate() {
    let machine = Machine::new();
    fs::write(machine.lock_file("LCK..ttyS1"), decimal(dead())).unwrap();
    assert_eq!(machine.lock("ttyS1", own()), Outcome::Done);
    let mode = fs::metadata(machine.path("state/gate")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn every_system_locks_and_unlocks_in_its_own_form() {
    for system in Dialect::systems() {
        let machine = Machine::of(system.name());
        let holder = Holder::new();
        assert_eq!(machine.lock("ttyS0", own()), Outcome::Done, "{}", machine.os);
        let names = machine.names();
        assert!(!names.is_empty(), "{}", machine.os);
        for name in &names {
            let said = fs::read(machine.lock_file(name)).unwrap();
            let pid = Content::parse(&said).unwrap().pids().next();
            assert_eq!(pid, Some(Pid::this()), "{}: {name}", machine.os);
            // The form of FHS, an integer, and one with the node.
            let lengths = [("linux", 11), ("tru64", 4), ("qnx", 22)];
            let is_right = |(os, length)| os != machine.os || said.len() == length;
            assert!(lengths.into_iter().all(is_right), "{}: {said:?}", machine.os);
        }
        assert_eq!(machine.lock("ttyS0", holder.pid()), Outcome::Busy, "{}", machine.os);
        assert_eq!(machine.unlock("ttyS0", own()), Outcome::Done, "{}", machine.os);
        assert_eq!(machine.names(), [""; 0], "{}", machine.os);
    }
}

/// A stale lock of another user in a sticky directory: stepped over where it is only searched,
/// busy where it stands in the way. Needs root to become somebody else.
#[test]
#[ignore = "needs root: tests/run"]
fn foreign_stale_locks_in_a_sticky_directory() {
    let machine = Machine::new();
    fs::set_permissions(machine.root.path(), Permissions::from_mode(0o755)).unwrap();
    for dir in ["lock", "other"] {
        fs::set_permissions(machine.path(dir), Permissions::from_mode(0o1777)).unwrap();
    }
    fs::write(machine.lock_file("lk..ttyS0"), decimal(dead())).unwrap();
    fs::write(machine.lock_file("LCK..ttyS1"), decimal(dead())).unwrap();
    let root = machine.root.path().to_owned();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--include-ignored", "--exact", "as_nobody_in_a_sticky_directory"])
        .env("LFPD_TEST_ROOT", &root)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(machine.names(), ["LCK..modem", "LCK..ttyS0", "LCK..ttyS1", "lk..ttyS0"]);
}

/// The other half of the test above, run by it as another user.
#[test]
#[ignore = "needs root: tests/run"]
fn as_nobody_in_a_sticky_directory() {
    // Run by itself, it has nothing to do.
    let Some(root) = std::env::var_os("LFPD_TEST_ROOT").map(PathBuf::from) else { return };
    setgid(65534.into()).unwrap();
    setuid(65534.into()).unwrap();
    let mut table = Table::new(layout_below(&root));
    let over = table.lock(&request("ttyS0", own()));
    assert_eq!(over.outcome(), Outcome::Done, "{over:?}");
    assert!(over.events.iter().any(|event| event.text.contains("ignored")), "{over:?}");
    let stuck = table.lock(&request("ttyS1", own()));
    assert_eq!(stuck.outcome(), Outcome::Busy, "{stuck:?}");
    assert!(stuck.events.iter().any(|event| event.text.contains("CAP_FOWNER")), "{stuck:?}");
}

#[test]
fn a_lock_has_its_record_from_the_first_moment_to_the_last() {
    let machine = Machine::new();
    let records = || records(&machine);
    let mut table = machine.table();
    for settled in [false, true] {
        assert_eq!(table.lock(&request("modem", own())).outcome(), Outcome::Done);
        assert_eq!(records(), ["LCK..modem", "LCK..ttyS0"]);
        if settled {
            table.take_events();
        }
        // The names it was written under are known.
        fs::remove_file(machine.path("dev/modem")).unwrap();
        assert_eq!(table.unlock(&request("ttyS0", own())).outcome(), Outcome::Done);
        machine.assert_free();
        table.take_events();
        assert_eq!(records(), [""; 0]);
        symlink("ttyS0", machine.path("dev/modem")).unwrap();
    }
    assert_eq!(table.lock(&request("ttyS1", own())).outcome(), Outcome::Done);
    drop(table);
    assert_eq!(records(), ["LCK..ttyS1"]);
}

/// A machine with the devices of this one.
fn machine_with_devices() -> (Machine, Table) {
    let machine = Machine::new();
    let table = Table::new(with_devices_of_the_host(layout_below(machine.root.path())));
    (machine, table)
}

#[test]
fn invented_names_leave_room_for_devices() {
    let (machine, mut table) = machine_with_devices();
    for number in 1..LOCKS_FOR_INVENTED {
        fs::write(machine.lock_file(&format!("LCK..x{number}")), decimal(own())).unwrap();
    }
    assert_eq!(table.lock(&request("invented1", own())).outcome(), Outcome::Done);
    let answer = table.lock(&request("invented2", own()));
    assert_eq!(answer.outcome(), Outcome::Denied);
    assert!(answer.events.iter().any(|event| event.text.contains("full of locks")));
    assert_eq!(table.lock(&request("null", own())).outcome(), Outcome::Done);
    assert_eq!(table.unlock(&request("invented1", own())).outcome(), Outcome::Done);
    assert_eq!(table.unlock(&request("null", own())).outcome(), Outcome::Done);
    assert_eq!(table.lock(&request("invented2", own())).outcome(), Outcome::Done);
}

/// Whether a daemon holds flock on a lock file.
fn is_kept(machine: &Machine, name: &str) -> bool {
    let file = File::open(machine.lock_file(name)).unwrap();
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err()
}

#[test]
fn invented_names_are_kept_in_half_the_room() {
    let (machine, mut table) = machine_with_devices();
    table.keep_open(KEPT_FILES);
    for number in 0..=KEPT_WITHOUT_DEVICE {
        let device = format!("x{number}");
        assert_eq!(table.lock(&request(&device, own())).outcome(), Outcome::Done);
        let name = format!("LCK..{device}");
        assert_eq!(is_kept(&machine, &name), number < KEPT_WITHOUT_DEVICE);
    }
    assert_eq!(table.lock(&request("null", own())).outcome(), Outcome::Done);
    assert!(is_kept(&machine, "LCK..null"));
}

/// Neither by what an earlier daemon has left.
#[test]
fn a_daemon_that_comes_after_keeps_room_for_devices() {
    let (machine, mut table) = machine_with_devices();
    for number in 0..KEPT_FILES + KEPT_WITHOUT_DEVICE {
        let file = machine.lock_file(&format!("LCK..x{number}"));
        fs::write(&file, decimal(own())).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    }
    table.keep_open(KEPT_FILES);
    assert_eq!(table.lock(&request("null", own())).outcome(), Outcome::Done);
    let names = listing(&machine.path("lock"));
    let kept = names.iter().filter(|name| is_kept(&machine, name)).count();
    assert_eq!(kept, KEPT_WITHOUT_DEVICE + 1);
    assert!(is_kept(&machine, "LCK..null"));
}

#[rstest]
#[case::where_locks_are_written("lock")]
#[case::where_locks_are_searched("other")]
fn records_are_kept_out_of_lock_directories(#[case] state_dir: &str) {
    let machine = Machine::new();
    let mut layout = layout_of(&machine);
    let state_dir = layout.dev_dir.with_file_name(state_dir);
    layout.state_dir.clone_from(&state_dir);
    let mut table = Table::new(layout);
    let answer = table.lock(&request("modem", own()));
    assert_eq!(answer.outcome(), Outcome::Done);
    assert!(answer.events.iter().any(|event| event.text.contains("is a directory of locks")));
    table.take_events();
    let is_link = |name: &String| fs::symlink_metadata(state_dir.join(name)).unwrap().is_symlink();
    assert_eq!(listing(&state_dir).iter().filter(|name| is_link(name)).count(), 0);
    assert_eq!(table.lock(&request("modem", own())).outcome(), Outcome::Busy);
    assert_eq!(table.unlock(&request("modem", own())).outcome(), Outcome::Done);
    assert_eq!(listing(&state_dir), [""; 0]);
}

/// One service takes a lock, another releases it.
#[test]
fn a_lock_that_another_service_released_leaves_no_record() {
    let machine = Machine::new();
    let mut first = machine.table();
    assert_eq!(first.lock(&request("modem", own())).outcome(), Outcome::Done);
    assert_eq!(machine.unlock("modem", own()), Outcome::Done);
    first.take_events();
    assert_eq!(records(&machine), [""; 0]);
}

/// A process that takes a lock over by writing into its file has the lock, whatever the former holder remembers.
#[rstest]
#[case::a_session(0)]
#[case::a_daemon(16)]
fn a_lock_that_was_written_to_since_is_its_writers(#[case] kept: usize) {
    let machine = Machine::new();
    let (first, second) = (Holder::new(), Holder::new());
    let mut table = machine.table();
    if kept > 0 {
        table.keep_open(kept);
    }
    assert_eq!(table.lock(&request("ttyS1", first.pid())).outcome(), Outcome::Done);
    let file = machine.path("lock/LCK..ttyS1");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    fs::write(&file, decimal(second.pid())).unwrap();
    // File systems keep time in steps.
    age(&file, 1);
    assert_eq!(table.unlock(&request("ttyS1", first.pid())).outcome(), Outcome::Busy);
    assert_eq!(fs::read(&file).unwrap(), decimal(second.pid()));
    assert_eq!(table.unlock(&request("ttyS1", second.pid())).outcome(), Outcome::Done);
    assert!(!file.exists());
}

/// Anybody can leave a stale lock in `/tmp` and have it removed by UNLOCK; the process that has the port does not
/// lose its record by that.
#[test]
fn the_record_of_a_lock_that_stands_stays() {
    let machine = Machine::new();
    let holder = Holder::new();
    assert_eq!(machine.lock("modem", holder.pid()), Outcome::Done);
    let before = records(&machine);
    fs::write(machine.path("other/LCK..ttyS0"), decimal(dead())).unwrap();
    assert_eq!(machine.unlock("modem", own()), Outcome::Busy);
    assert_eq!(listing(&machine.path("other")), [""; 0]);
    assert_eq!(records(&machine), before);
}

/// What is only searched, and cleared away as stale, may have been a lock of ours.
#[test]
fn a_stale_lock_goes_with_its_record() {
    let machine = Machine::new();
    assert_eq!(machine.lock("cua1", dead()), Outcome::Done);
    assert_eq!(records(&machine), ["LCK..cua1"]);
    assert_eq!(machine.lock("ttyS1", own()), Outcome::Done);
    assert_eq!(records(&machine), ["LCK..ttyS1"]);
}

/// Where the lock directory is open to all, anybody can make a link in it by the name of a
/// directory that is searched.
#[test]
fn a_link_to_the_records_does_not_turn_them_off() {
    let machine = Machine::new();
    symlink(machine.path("state"), machine.path("lock/modem")).unwrap();
    let layout = searching(layout_of(&machine), machine.path("lock/modem"));
    let answer = Table::new(layout).lock(&request("ttyS1", own()));
    assert_eq!(answer.outcome(), Outcome::Done);
    assert!(answer.events.iter().all(|event| event.weight == Weight::Info), "{answer:?}");
    assert_eq!(records(&machine), ["LCK..ttyS1"]);
}

/// What services left that were killed in mid-step goes when a daemon begins.
#[test]
fn a_daemon_sweeps_what_the_killed_have_left() {
    let machine = Machine::new();
    let holder = Holder::new();
    assert_eq!(machine.lock("ttyS1", holder.pid()), Outcome::Done);
    let inode = fs::metadata(machine.lock_file("LCK..ttyS1")).unwrap().ino();
    let of_another_file = text_of(&record_of(&machine, "LCK..ttyS1"))
        .replace(&format!(":{inode}:"), ":1:")
        .replace("LCK..ttyS1", "LCK..gone");
    symlink(of_another_file, machine.path("state/held.1.2.3")).unwrap();
    age_records(&machine);
    let drafts = [(dead(), 0), (dead(), 61), (own(), 61)].map(|(pid, seconds)| {
        let draft = machine.lock_file(&format!("lfpd.{pid}.{seconds:016x}.tmp"));
        fs::write(&draft, decimal(pid)).unwrap();
        age(&draft, seconds);
        draft
    });
    machine.table().keep_open(KEPT_FILES);
    let left = drafts.map(|draft| draft.exists());
    assert_eq!(left, [true, false, true], "of the young, the dead and the living");
    assert_eq!(records(&machine), ["LCK..ttyS1"]);
}

/// A user that plants more lock files than a daemon lists keeps neither those of the dead that were there when
/// it began, nor those of later ones whose holders die.
#[rstest]
#[ignore = "needs root: tests/run"]
fn planted_locks_keep_no_lock_of_the_dead(#[values(0, 8)] left: usize) {
    let (machine, mut table) = machine_with_devices();
    let left: Vec<PathBuf> =
        (0..left).map(|number| machine.lock_file(&format!("LCK..left{number}"))).collect();
    left.iter().for_each(|file| fs::write(file, decimal(dead())).unwrap());
    for number in 0..1100 {
        let file = machine.lock_file(&format!("LCK..planted{number}"));
        fs::write(&file, decimal(own())).unwrap();
        std::os::unix::fs::chown(&file, Some(1000), None).unwrap();
    }
    table.keep_open(16);
    let left = left.iter().filter(|file| file.exists()).count();
    let holder = Holder::new();
    let ended = pid(holder.pid());
    assert_eq!(table.lock(&request("null", holder.pid())).outcome(), Outcome::Done);
    drop(holder);
    table.remove_locks_of_ended(ended);
    assert_eq!((left, machine.lock_file("LCK..null").exists()), (0, false));
}

/// A program that uses another name of it would not be met. (Needs no device: `/dev/null` is one.)
#[test]
fn without_its_other_names_a_device_is_not_locked() {
    let machine = Machine::new();
    let layout = with_devices_of_the_host(layout_of(&machine));
    let lock = || Table::new(layout.clone()).lock(&request("null", own()));
    fs::create_dir(machine.path("udev")).unwrap();
    assert_eq!(lock().outcome(), Outcome::Done);
    machine.unlock("null", own());
    // What cannot be read as a file stands for what cannot be read just now.
    fs::create_dir(machine.path("udev/c1:3")).unwrap();
    let refused = lock();
    assert_eq!(refused.outcome(), Outcome::Denied);
    assert!(refused.events.iter().any(|event| event.text.contains("other names of null")));
    assert!(machine.names().is_empty(), "{:?}", machine.names());
}

/// A device with five lock files, and two processes for it.
fn five_files() -> (Machine, Holder, Holder) {
    let machine = Machine::new();
    for link in ["gps", "radio", "scale"] {
        symlink("ttyS0", machine.path("dev").join(link)).unwrap();
    }
    (machine, Holder::new(), Holder::new())
}

/// The kinds of calls that change anything, or keep others out.
const CHANGES: [&str; 7] =
    ["renameat2", "linkat", "unlinkat", "symlinkat", "flock", "pwrite64", "fchmod"];

/// Where a deed that searches looks besides.
const SEARCHED: &str = "spool/uucp";

/// One deed in a process of its own, under strace: what it said, if it came to that, and how often it
/// made each kind of call.
fn deed(
    machine: &Machine,
    deed: &str,
    pids: [u32; 2],
    fault: Option<&str>,
) -> (Option<String>, Vec<usize>) {
    traced(machine, deed, pids, fault).status().unwrap();
    let trace = trace(machine);
    let count = |call: &&str| trace.matches(&format!(" {call}(")).count();
    (said(machine), CHANGES.iter().map(count).collect())
}

fn traced(machine: &Machine, deed: &str, pids: [u32; 2], fault: Option<&str>) -> Command {
    let trace = machine.path("trace");
    for left in [&trace, &machine.path("said")] {
        let _ = fs::remove_file(left);
    }
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-o"])
        .arg(&trace)
        .arg("-e")
        .arg(format!("trace={}", CHANGES.join(",")));
    if let Some(faults) = fault {
        // Only a call that is traced can fail, and only those are counted.
        let (faults, file) = faults.split_once('@').unwrap_or((faults, ""));
        let calls = faults.split(' ').map(|it| it.split(':').next().unwrap());
        let calls: Vec<&str> = CHANGES.into_iter().chain(calls).collect();
        strace.arg("-e").arg(format!("trace={}", calls.join(",")));
        for fault in faults.split(' ') {
            strace.arg("-e").arg(format!("inject={fault}"));
        }
        if !file.is_empty() {
            strace.args(["-P", file]);
        }
    }
    strace.arg(std::env::current_exe().unwrap());
    strace.args(["--exact", "one_deed"]).env("LFPD_TEST_ROOT", machine.root.path());
    strace.env("LFPD_TEST_DEED", format!("{deed} {} {}", pids[0], pids[1]));
    strace.stdout(Stdio::null()).stderr(Stdio::null());
    strace
}

fn trace(machine: &Machine) -> String {
    fs::read_to_string(machine.path("trace")).unwrap_or_default()
}

/// What the last deed said.
fn said(machine: &Machine) -> Option<String> {
    fs::read_to_string(machine.path("said")).ok()
}

/// The other half, run by [`deed`].
#[test]
fn one_deed() {
    // Run by itself, it has nothing to do.
    let Some(root) = std::env::var_os("LFPD_TEST_ROOT").map(PathBuf::from) else { return };
    let words = std::env::var("LFPD_TEST_DEED").unwrap();
    let words: Vec<&str> = words.split(' ').collect();
    let pids: Vec<u32> = words.iter().skip(1).map(|word| word.parse().unwrap()).collect();
    let mut layout = layout_below(&root);
    if words[0] == "search" {
        layout = searching(layout, root.join(SEARCHED));
    }
    let mut table = Table::new(layout);
    if words[0].starts_with("daemon") {
        table.keep_open(16);
    }
    let answer = match words[0].trim_start_matches("daemon-") {
        "pass" => table.pass(&pass("ttyS0", pids[0], pids[1])),
        "lock" | "search" => table.lock(&request("ttyS0", pids[0])),
        _ => table.unlock(&request("ttyS0", pids[0])),
    };
    fs::write(root.join("said"), format!("{:?}", answer.outcome())).unwrap();
}

/// PASS, LOCK and UNLOCK of five files, where any call fails, or is the last one before the process is
/// killed: whose the lock is then is told by who can release it, and with him it goes whole.
#[rstest]
#[ignore = "takes minutes: tests/run"]
fn an_operation_that_fails_or_is_killed_leaves_one_of_two_states(
    #[values("pass", "daemon-pass", "lock", "unlock")] what: &str,
    #[values("error=EIO", "signal=KILL")] fault: &str,
) {
    let (machine, giver, receiver) = five_files();
    let pids = [giver.pid(), receiver.pid()];
    let prepare = || {
        if what != "lock" {
            assert_eq!(machine.lock("ttyS0", pids[0]), Outcome::Done);
            assert_eq!(machine.names().len(), 5);
        }
    };
    let clear = |said: Option<&str>, how: &str| {
        let locks = || {
            let mut names = machine.names();
            names.retain(|name| !name.ends_with(".tmp"));
            names
        };
        let before = locks();
        if what.ends_with("pass") {
            assert_eq!(before.len(), 5, "{how}: vacant");
            // What other tests start has our files open until it is on its way, and so their flock(2).
            let unlocked = |pid: &u32| machine.unlock("ttyS0", *pid) == Outcome::Done;
            let whose = || [pids[1], pids[0]].into_iter().find(unlocked);
            let whose = until(LIMIT, whose);
            assert!(whose.is_some(), "{how}: nobody's, {said:?}: {:?}", locks());
            let receivers = whose == Some(pids[1]);
            assert!(receivers || said != Some("Done"), "{how}: not the receiver's");
        } else {
            let done = said == Some("Done");
            assert!(
                !done || before.len() == if what == "lock" { 5 } else { 0 },
                "{how}: {before:?}"
            );
            let _ = machine.unlock("ttyS0", pids[0]);
        }
        assert_eq!(locks(), [""; 0], "{how}: {said:?}");
        // The next one to begin finds what nobody has stumbled upon.
        sweep(&machine);
        assert_eq!(listing(&machine.path("state")), ["gate"], "{how}: {said:?}");
        assert_eq!((machine.names(), records(&machine)), (vec![], vec![]), "{how}: {said:?}");
    };
    prepare();
    let (said, counts) = deed(&machine, what, pids, None);
    assert_eq!(said.as_deref(), Some("Done"));
    clear(said.as_deref(), "without a fault");
    let mut runs = 0;
    for (call, count) in CHANGES.iter().zip(counts) {
        for at in 1..=count {
            prepare();
            let how = format!("{call}:{fault}:when={at}");
            let (said, _) = deed(&machine, what, pids, Some(&how));
            clear(said.as_deref(), &how);
            runs += 1;
        }
    }
    println!("{what} {fault}: {runs} calls");
    // Each name has a file or a link, and a record.
    assert!(runs > 10, "{runs}");
}

/// The inodes of all lock files, each once.
fn inodes(machine: &Machine) -> Vec<u64> {
    let of = |name: &String| fs::metadata(machine.lock_file(name)).unwrap().ino();
    let mut inodes: Vec<u64> = machine.names().iter().map(of).collect();
    inodes.sort_unstable();
    inodes.dedup();
    inodes
}

/// Its names are links to one file, which is released whole.
#[test]
fn a_lock_of_several_names_is_one_file() {
    let (machine, giver, receiver) = five_files();
    let pids = [giver.pid(), receiver.pid()];
    assert_eq!(machine.lock("ttyS0", pids[0]), Outcome::Done);
    assert_eq!((machine.names().len(), inodes(&machine).len()), (5, 1));
    assert_eq!(machine.lock("ttyS0", pids[1]), Outcome::Busy);
    assert_eq!(machine.unlock("ttyS0", pids[1]), Outcome::Busy);
    assert_eq!((machine.names().len(), records(&machine).len()), (5, 5));
    assert_eq!(machine.unlock("ttyS0", pids[0]), Outcome::Done);
    assert_eq!((machine.names(), records(&machine)), (vec![], vec![]));
}

/// The file can have no further link: a lock of several names is refused, and nothing is left.
#[rstest]
#[case::no_links("linkat:error=EPERM")]
#[case::few_links("linkat:error=EMLINK:when=3+")]
#[ignore = "takes minutes: tests/run"]
fn a_lock_whose_file_can_have_no_further_link_is_refused(#[case] fault: &str) {
    let (machine, giver, _) = five_files();
    let (said, _) = deed(&machine, "lock", [giver.pid(), 0], Some(fault));
    assert_eq!(said.as_deref(), Some("Denied"));
    assert_eq!((machine.names(), records(&machine)), (vec![], vec![]));
}

/// An UNLOCK that is killed between two names leaves the first one, which others meet. The next UNLOCK removes the rest.
#[test]
#[ignore = "takes minutes: tests/run"]
fn an_unlock_that_is_killed_leaves_the_first_name() {
    let (machine, owner, _) = five_files();
    assert_eq!(machine.lock("ttyS0", owner.pid()), Outcome::Done);
    let fault = Some("unlinkat:signal=KILL:when=3");
    assert_eq!(deed(&machine, "unlock", [owner.pid(), 0], fault).0, None);
    let left = machine.names();
    assert!(left.len() < 5 && left.contains(&"LCK..ttyS0".to_owned()), "{left:?}");
    let unlocked = || (machine.unlock("ttyS0", owner.pid()) == Outcome::Done).then_some(());
    assert_eq!(until(LIMIT, unlocked), Some(()));
    machine.assert_free();
}

/// The state directory takes no text of that length, as XFS takes none of more than 1,023 bytes. The lock is taken and released
/// without a record.
#[test]
#[ignore = "takes minutes: tests/run"]
fn a_lock_whose_record_is_too_long_is_taken_without_it() {
    let (machine, owner, _) = five_files();
    let fault = Some("symlinkat:error=ENAMETOOLONG");
    assert_eq!(deed(&machine, "lock", [owner.pid(), 0], fault).0.as_deref(), Some("Done"));
    assert_eq!((machine.names().len(), records(&machine)), (5, vec![]));
    assert_eq!(deed(&machine, "unlock", [owner.pid(), 0], fault).0.as_deref(), Some("Done"));
    machine.assert_free();
}

/// A file system in user space of which nothing is known, where a file has one name, and where none can be renamed without
/// replacing another, or not even that.
const BARE: &str = "fstatfs:error=ENOSYS linkat:error=EPERM";
const BARE_WITHOUT_FLAGS: &str = "fstatfs:error=ENOSYS linkat:error=EPERM renameat2:error=EINVAL";

/// There, a port with one name is locked, passed and released, and its lock is on record.
#[rstest]
#[ignore = "takes minutes: tests/run"]
fn a_port_with_one_name_is_locked_without_hard_links(
    #[values(BARE, BARE_WITHOUT_FLAGS)] fault: &str,
) {
    let machine = Machine::new();
    for link in ["modem", "serial/by-id/usb-X"] {
        fs::remove_file(machine.path("dev").join(link)).unwrap();
    }
    let (giver, receiver) = (Holder::new(), Holder::new());
    let pids = [giver.pid(), receiver.pid()];
    let recorded = || {
        assert_eq!(
            (machine.names(), records(&machine)),
            (vec!["LCK..ttyS0".into()], vec!["LCK..ttyS0".into()])
        );
        let file = fs::metadata(machine.lock_file("LCK..ttyS0")).unwrap().ino();
        let record = record_of(&machine, "LCK..ttyS0").file_name().unwrap().to_owned();
        assert!(record.to_str().unwrap().contains(&format!(".{file}.")), "{record:?} of {file}");
        fs::read_to_string(machine.lock_file("LCK..ttyS0")).unwrap().trim().parse::<u32>().unwrap()
    };
    assert_eq!(deed(&machine, "lock", [pids[0], 0], Some(fault)).0.as_deref(), Some("Done"));
    assert_eq!(recorded(), pids[0]);
    assert_eq!(deed(&machine, "pass", pids, Some(fault)).0.as_deref(), Some("Done"));
    assert_eq!(recorded(), pids[1]);
    assert_eq!(deed(&machine, "unlock", [pids[1], 0], Some(fault)).0.as_deref(), Some("Done"));
    machine.assert_free();
}

/// A program that knows no rules removes a name of a lock, or puts its own lock there. The owner's lock goes with all its
/// other names, and the other program's stays.
#[rstest]
fn a_name_that_leads_elsewhere_is_not_removed_with_the_lock(
    #[values("LCK..gps", "LCK..modem", "LCK..radio", "LCK..scale", "LCK..ttyS0")] name: &str,
    #[values(false, true)] is_anothers: bool,
    #[values(false, true)] is_daemon: bool,
) {
    let (machine, owner, other) = five_files();
    let mut table = machine.table();
    if is_daemon {
        table.keep_open(10);
    }
    let request = request("ttyS0", owner.pid());
    assert_eq!(table.lock(&request).outcome(), Outcome::Done);
    let lost = machine.lock_file(name);
    fs::remove_file(&lost).unwrap();
    let theirs = decimal(other.pid());
    if is_anothers {
        fs::write(&lost, &theirs).unwrap();
    }
    assert_eq!(table.unlock(&request).outcome(), Outcome::Done);
    if is_anothers {
        assert_eq!(machine.names(), [name]);
        assert_eq!(fs::read(&lost).unwrap(), theirs);
        assert_eq!(table.unlock(&request).outcome(), Outcome::Busy);
    } else {
        assert_eq!((machine.names(), records(&machine)), (vec![], vec![]));
    }
}

/// UNLOCK by any name of the device releases a lock whole that could not be recorded.
#[rstest]
fn a_lock_without_a_record_is_released_whole(#[values("ttyS0", "gps")] device: &str) {
    let (machine, owner, _) = five_files();
    assert_eq!(machine.lock("ttyS0", owner.pid()), Outcome::Done);
    fs::remove_file(record_of(&machine, "LCK..ttyS0")).unwrap();
    assert_eq!(machine.unlock(device, owner.pid()), Outcome::Done);
    assert_eq!((machine.names(), records(&machine)), (vec![], vec![]));
}

/// A link moved to another port, and the holder releases that one. The first port stays locked, and its daemon still holds
/// the file.
#[rstest]
fn a_lock_that_loses_a_name_is_still_kept(#[values(false, true)] is_recorded: bool) {
    let (machine, owner, _) = five_files();
    let mut table = machine.table();
    table.keep_open(10);
    assert_eq!(table.lock(&request("ttyS0", owner.pid())).outcome(), Outcome::Done);
    if !is_recorded {
        record_links(&machine).iter().for_each(|it| fs::remove_file(it).unwrap());
    }
    let link = machine.path("dev/gps");
    fs::remove_file(&link).unwrap();
    symlink("ttyS1", &link).unwrap();
    // Without the record, the name may be of a lock of this port.
    let expected = if is_recorded { (Outcome::Busy, 5) } else { (Outcome::Done, 4) };
    let unlocked = table.unlock(&request("ttyS1", owner.pid())).outcome();
    assert_eq!((unlocked, machine.names().len()), expected);
    assert!(is_kept(&machine, "LCK..ttyS0"));
    let kept = File::open(machine.lock_file("LCK..ttyS0")).unwrap();
    assert_eq!(table.unlock(&request("ttyS0", owner.pid())).outcome(), Outcome::Done);
    assert_eq!(machine.names(), [""; 0]);
    assert!(Flock::lock(kept, FlockArg::LockExclusiveNonblock).is_ok());
}

/// All names were passed, and the process was killed before it removed the link to the giver's file. A process that finds the
/// link, and cannot read a file or a record, as without descriptors, gives nothing back.
#[rstest]
#[ignore = "takes minutes: tests/run"]
fn a_complete_hand_over_is_not_undone_by_what_cannot_be_read(
    #[values("openat:error=EMFILE", "newfstatat:error=EIO", "readlinkat:error=EIO")] fault: &str,
) {
    let (machine, giver, receiver) = five_files();
    let (asking, pids) = (Holder::new(), [giver.pid(), receiver.pid()]);
    let lock = |at: usize| {
        assert_eq!(machine.lock("ttyS0", pids[0]), Outcome::Done);
        let (said, _) = deed(&machine, "pass", pids, Some("unlinkat:signal=KILL:when=1"));
        assert_eq!(said, None);
        let is_link = |name: &String| name.starts_with("from.");
        assert!(listing(&machine.path("state")).iter().any(is_link));
        // The records have names of their own.
        let file = if fault.starts_with("readlinkat") { "" } else { "@LCK..ttyS0" };
        let how = format!("{fault}:when={at}{file}");
        let (said, _) = deed(&machine, "lock", [asking.pid(), 0], Some(&how));
        assert_ne!(said.as_deref(), Some("Done"), "{how}");
        let owners = owners(&machine);
        assert!(owners.iter().all(|(_, owner)| *owner == pids[1]), "{how}: {owners:?}");
        let trace = trace(&machine);
        assert_eq!(machine.unlock("ttyS0", pids[1]), Outcome::Done, "{how}");
        sweep(&machine);
        machine.assert_free();
        trace
    };
    let failed = (1..).take_while(|at| lock(*at).contains("INJECTED")).count();
    assert!(failed > 0);
}

/// Another program holds the port by a file where locks are only searched. If that directory cannot be opened or looked at
/// just now, the port is not taken.
#[rstest]
#[ignore = "needs programs: tests/run"]
fn a_lock_in_a_searched_directory_counts_if_it_cannot_be_looked_at(
    #[values("?open", "openat", "?stat", "newfstatat", "statx")] call: &str,
    #[values(SEARCHED, "spool")] at: &str,
) {
    let (machine, holder) = (Machine::new(), Holder::new());
    let lock = machine.path(SEARCHED).join("LCK..ttyS0");
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    fs::write(&lock, decimal(holder.pid())).unwrap();
    let place = machine.path(at).display().to_string();
    let ask = |fault: Option<&str>| deed(&machine, "search", [own(), 0], fault).0.unwrap();
    for error in ["ENFILE", "ENOMEM"] {
        for when in 1.. {
            let said = ask(Some(&format!("{call}:error={error}:when={when}@{place}")));
            assert_ne!(said, "Done", "{error} {when}");
            if !trace(&machine).contains("INJECTED") {
                break;
            }
        }
    }
    assert_eq!(ask(None), "Busy");
    fs::remove_file(lock).unwrap();
    assert_eq!(ask(None), "Done");
}

/// A hand-over was cut short, and one of its files cannot be given back just now: then the receiver's UNLOCK
/// does not release that one alone, and the giver's releases all as soon as it can.
#[test]
#[ignore = "needs root: tests/run"]
fn a_half_passed_lock_is_released_whole_or_not_at_all() {
    let (machine, giver, receiver) = five_files();
    let pids = [giver.pid(), receiver.pid()];
    assert_eq!(machine.lock("ttyS0", pids[0]), Outcome::Done);
    let (said, _) = deed(&machine, "pass", pids, Some("renameat2:signal=KILL:when=4"));
    assert_eq!(said, None);
    let mut locks = machine.names();
    locks.retain(|name| !name.ends_with(".tmp"));
    let is_receivers =
        |name: &&String| fs::read(machine.lock_file(name)).unwrap() == decimal(receiver.pid());
    let passed = locks.iter().rfind(is_receivers).expect("some are passed");
    let flocker = flocker(&machine, &machine.lock_file(passed), 0);
    assert_eq!(machine.unlock("ttyS0", pids[1]), Outcome::Busy);
    assert!(locks.iter().all(|name| machine.lock_file(name).exists()), "{:?}", machine.names());
    drop(flocker);
    let unlocked = || (machine.unlock("ttyS0", pids[0]) == Outcome::Done).then_some(());
    assert_eq!(until(LIMIT, unlocked), Some(()));
    assert!(locks.iter().all(|name| !machine.lock_file(name).exists()), "{:?}", machine.names());
    sweep(&machine);
    assert_eq!(records(&machine), [""; 0]);
}

/// A PASS of five files in a process of its own that stands still after the first two.
struct StoppedPass<'m> {
    machine: &'m Machine,
    strace: Child,
}

impl<'m> StoppedPass<'m> {
    fn of(machine: &'m Machine, pids: [u32; 2]) -> Self {
        let fault = Some("renameat2:signal=STOP:when=1+");
        let strace = traced(machine, "pass", pids, fault).spawn().unwrap();
        let pass = Self { machine, strace };
        for stop in 1.. {
            let is_stopped = || trace(machine).matches("--- SIGSTOP {").count() == stop;
            assert_eq!(until(LIMIT, || is_stopped().then_some(())), Some(()));
            if owners(machine).iter().filter(|(_, owner)| *owner == pids[1]).count() == 2 {
                break;
            }
            pass.signal(Signal::SIGCONT);
        }
        pass
    }

    fn signal(&self, signal: Signal) {
        // In the trace, its number is before each call.
        let pid = trace(self.machine).split(' ').next().unwrap().parse().unwrap();
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
    }

    /// Goes on to the end, or is killed. What it said.
    fn end(mut self, signal: Signal) -> Option<String> {
        let ended = until(LIMIT, || {
            self.signal(signal);
            self.strace.try_wait().unwrap()
        });
        assert!(ended.is_some());
        said(self.machine)
    }
}

impl Drop for StoppedPass<'_> {
    fn drop(&mut self) {
        if matches!(self.strace.try_wait(), Ok(None)) {
            self.signal(Signal::SIGKILL);
            let _ = self.strace.wait();
        }
    }
}

/// Each lock file with whose it is.
fn owners(machine: &Machine) -> Vec<(String, u32)> {
    let mut names = machine.names();
    names.retain(|name| !name.ends_with(".tmp"));
    let pid = |name: &String| fs::read_to_string(machine.lock_file(name)).unwrap().trim().parse();
    names.iter().map(|name| (name.clone(), pid(name).unwrap())).collect()
}

/// Processes that come during a PASS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comer {
    Receiver,
    Giver,
    /// The giver's session, which remembers what it took.
    GiversSession,
    Third,
    /// A daemon that was there before.
    Daemon,
    /// A daemon that begins.
    NewDaemon,
    /// `lfp clean`.
    Cleaner,
    Passer,
}

/// A PASS stands between two of its five files: other processes change none of them meanwhile, even when one of the
/// two has ended. It goes on, or is killed: then all are one's.
#[rstest]
fn a_lock_that_is_being_passed_cannot_be_changed_by_others(
    #[values(
        Comer::Receiver,
        Comer::Giver,
        Comer::GiversSession,
        Comer::Third,
        Comer::Daemon,
        Comer::NewDaemon,
        Comer::Cleaner,
        Comer::Passer
    )]
    comer: Comer,
    #[values(None, Some(0), Some(1))] ends: Option<usize>,
    #[values(Signal::SIGCONT, Signal::SIGKILL)] then: Signal,
) {
    let (machine, giver, receiver) = five_files();
    let mut processes = [Some(giver), Some(receiver)];
    let pids = [0, 1].map(|which: usize| processes[which].as_ref().unwrap().pid());
    let third = Holder::new();
    let mut session = machine.table();
    assert_eq!(session.lock(&request("ttyS0", pids[0])).outcome(), Outcome::Done);
    let mut daemon = machine.table();
    // Its flock(2) would keep others from passing.
    daemon.keep_open(0);
    let stopped = StoppedPass::of(&machine, pids);
    let half = owners(&machine);
    let whose = |pid: u32| half.iter().filter(|(_, owner)| *owner == pid).count();
    assert_eq!((whose(pids[1]), whose(pids[0])), (2, 3), "{half:?}");
    if let Some(which) = ends {
        drop(processes[which].take());
    }
    let outcome = match comer {
        Comer::Receiver => machine.unlock("ttyS0", pids[1]),
        Comer::Giver => machine.unlock("ttyS0", pids[0]),
        Comer::GiversSession => session.unlock(&request("ttyS0", pids[0])).outcome(),
        Comer::Third => machine.lock("ttyS0", third.pid()),
        Comer::Passer => machine.table().pass(&pass("ttyS0", pids[0], third.pid())).outcome(),
        Comer::Daemon => {
            for it in pids {
                daemon.remove_locks_of_ended(pid(it));
            }
            Outcome::Busy
        }
        Comer::NewDaemon => {
            machine.table().keep_open(16);
            Outcome::Busy
        }
        Comer::Cleaner => {
            let mut table = machine.table();
            for holder in table.holders(None, LIMIT).holders {
                let _ = table.remove_stale(&holder);
            }
            Outcome::Busy
        }
    };
    assert_eq!((outcome, owners(&machine)), (Outcome::Busy, half.clone()));
    let said = stopped.end(then);
    let receivers = said.as_deref() == Some("Done");
    assert_eq!(receivers, then == Signal::SIGCONT && ends != Some(0));
    let whose = pids[usize::from(receivers)];
    let mut all: Vec<_> = half.into_iter().map(|(name, _)| (name, whose)).collect();
    if ends == Some(usize::from(receivers)) {
        all.clear();
    }
    // What a killed process has left is settled by the next one; programs of other tests may have our files open.
    let settled = || {
        machine.table().keep_open(0);
        (owners(&machine) == all).then_some(())
    };
    assert_eq!(until(LIMIT, settled), Some(()), "{:?}", owners(&machine));
    if !all.is_empty() {
        assert_eq!(machine.unlock("ttyS0", whose), Outcome::Done);
    }
    sweep(&machine);
    assert_eq!((owners(&machine), records(&machine)), (Vec::new(), Vec::new()));
}

/// A file of the lock is removed before its turn to be passed comes: then none is passed, and what is left is
/// the giver's.
#[test]
fn a_lock_that_loses_a_file_while_it_is_passed_stays_the_givers() {
    let (machine, giver, receiver) = five_files();
    assert_eq!(machine.lock("ttyS0", giver.pid()), Outcome::Done);
    let pass = StoppedPass::of(&machine, [giver.pid(), receiver.pid()]);
    // The directory tells the device's other names in any order.
    let (not_yet, _) = owners(&machine).into_iter().find(|(_, it)| *it == giver.pid()).unwrap();
    fs::remove_file(machine.lock_file(&not_yet)).unwrap();
    let left: Vec<String> = owners(&machine).into_iter().map(|(name, _)| name).collect();
    assert_eq!(pass.end(Signal::SIGCONT).as_deref(), Some("Busy"));
    let givers: Vec<_> = left.into_iter().map(|name| (name, giver.pid())).collect();
    assert_eq!(owners(&machine), givers);
    assert_eq!(machine.unlock("ttyS0", giver.pid()), Outcome::Done);
}

/// One who keeps a file from being passed by `flock(2)`, and has a say in it: then nothing is passed, and
/// the giver's lock is whole. One who has none decides nothing.
#[rstest]
#[case::an_outsider(65_534, Outcome::Done)]
#[case::root(0, Outcome::Busy)]
#[ignore = "needs root: tests/run"]
fn a_flock_on_one_of_five_files_passes_all_or_none(
    #[case] uid: u32,
    #[case] outcome: Outcome,
    #[values("LCK..ttyS0", "LCK..radio")] file: &str,
) {
    let (machine, giver, receiver) = five_files();
    assert_eq!(machine.lock("ttyS0", giver.pid()), Outcome::Done);
    let flocker = flocker(&machine, &machine.lock_file(file), uid);
    let answer = machine.table().pass(&pass("ttyS0", giver.pid(), receiver.pid()));
    assert_eq!(answer.outcome(), outcome, "{answer:?}");
    drop(flocker);
    let (holder, other) =
        if outcome == Outcome::Done { (&receiver, &giver) } else { (&giver, &receiver) };
    assert_eq!(machine.unlock("ttyS0", other.pid()), Outcome::Busy);
    assert_eq!(machine.names().len(), 5);
    assert_eq!(machine.unlock("ttyS0", holder.pid()), Outcome::Done);
    machine.assert_free();
}
