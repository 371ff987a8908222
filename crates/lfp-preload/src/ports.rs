//! Ports mode: takes the lock of a serial port when a program opens it, before the real call, so that the
//! lines of a busy port do not move; and releases it when the last descriptor is closed. Says on standard error which
//! process has a port, and that a port was opened without a lock.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant, SystemTime};

use lfp::Holder;
use lfp::client::RELEASE_PATIENCE;
use pidlockfile::{Pid, span};
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, accessat, openat, readlinkat, stat,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::stdio::stderr;
use ttylock::{DeviceName, Numbers, Outcome, has_serial_driver};

use crate::locks::{self, LockState};
use crate::service::{NoAnswer, Service, rest};
use crate::settings::{Ports, settings};
use crate::{files, path, real};

/// What is to happen around the opening of a port.
pub(crate) enum Opening {
    /// Nothing: it is no port, or an ancestor's lock counts for this process, or the service is away, or refuses a port
    /// that this user may not access; or the lock is this process's own by a lock file or from before an execve(2).
    Plain,
    /// The port with this number is locked, by this opening or an earlier one: `opened` is to be called afterwards.
    Locked(u64),
    /// Somebody else has it, or there is no lock where there must be one.
    Refused(Errno),
}

/// Errors of a refused open(2). `HELD`: another process has the port, or the service has not answered in time. `NO_LOCK`:
/// there is no service, or it denies the lock.
const HELD: Errno = Errno::BUSY;
const NO_LOCK: Errno = Errno::NOLCK;

/// The service refuses a port that another thread of this process closes at that moment. It is asked again, this often at
/// most, and for this part of the time that it has to answer. A slow service is asked once.
const ASKS: u32 = 100;
const ASKS_PART: u32 = 4;
const ASK_PAUSE: Duration = Duration::from_millis(1);

/// How often a lock file that is not there is looked for: a user may remove one again and again that is not a lock.
const LOOKS: u32 = 8;

/// Far more than a machine has drivers for.
const DRIVERS_BYTES: usize = 1 << 16;

/// The most descriptors that are looked at one by one where they cannot be listed. Those behind them are left out.
const SCANNED: u64 = 1 << 20;

/// A character device is about to be opened: if it is a port, its lock is taken.
pub(crate) fn lock_to_open(dir: RawFd, path: &CStr, number: u64) -> Opening {
    if !is_port(number) {
        return Opening::Plain;
    }
    let mut asks = Asks::new();
    if locks::begin_opening(number) {
        return Opening::Locked(number);
    }
    let Some(name) = device(dir, path) else {
        let typed = path.to_bytes().escape_ascii().to_string();
        return without(&typed, "its name below /dev is unknown");
    };
    loop {
        if let Some(opening) = lock(&name, number, &mut asks) {
            return opening;
        }
        asks.noted = locks::noted();
        if locks::begin_opening(number) {
            return Opening::Locked(number);
        }
    }
}

/// The further questions that the service may be asked for the same opening.
struct Asks {
    left: u32,
    end: Option<Instant>,
    /// How many locks were noted, before it was seen that the port has none.
    noted: u64,
    looks: u32,
}

impl Asks {
    fn new() -> Self {
        Self {
            left: ASKS,
            end: Instant::now().checked_add(settings().timeout / ASKS_PART),
            noted: locks::noted(),
            looks: LOOKS,
        }
    }

    fn look_again(&mut self) -> bool {
        self.looks = self.looks.saturating_sub(1);
        self.looks > 0 && self.once_more()
    }

    fn once_more(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        rest(ASK_PAUSE);
        self.left > 0 && self.end.is_some_and(|end| Instant::now() < end)
    }
}

/// Asks the service for the lock. `None`: what was in the way is gone, and the service is to be asked again.
fn lock(name: &DeviceName, number: u64, asks: &mut Asks) -> Option<Opening> {
    // The program may have made a lock file itself, which the service is not to release.
    let is_in_file =
        !locks::is_to_be_released(number) && files::lock_holder(name) == Some(Pid::this());
    let device = || format!("/dev/{}", name.as_str());
    locks::begin_asking();
    let answer = ask(name, number, is_in_file).map(|(service, outcome)| {
        if outcome == Outcome::Done {
            locks::set(number, name, LockState::Open);
        }
        (service, outcome)
    });
    locks::end_asking();
    Some(match answer {
        Ok((_, Outcome::Done)) => Opening::Locked(number),
        Ok(_) | Err(_) if is_in_file => return ours(number, asks),
        Ok((service, Outcome::Busy)) => return busy(service, name, number, asks),
        Ok((_, Outcome::Denied)) => denied(&device()),
        // A port is opened without a lock only where no service keeps locks for others.
        Err(NoAnswer::Absent) => without(&device(), "the service does not answer"),
        Err(NoAnswer::Busy) => {
            warn_unlocked(&device(), "the service has not answered in time");
            Opening::Refused(HELD)
        }
        Err(NoAnswer::Unable(errno)) => Opening::Refused(errno),
    })
}

/// Asks for the lock. The service judges also what a lock file says that names this process: the number may have
/// been another one's.
fn ask(name: &DeviceName, number: u64, is_in_file: bool) -> Result<(Service, Outcome), NoAnswer> {
    locks::clear(number)?;
    let mut service = Service::reach_within(settings().timeout)?;
    let answer = service.lock(name, Pid::this()).inspect_err(|_| {
        if !is_in_file {
            // The service may have come to it all the same, or may come to it later.
            locks::set_to_be_released(number, name, LockState::Closed);
        }
    });
    answer.map(|outcome| (service, outcome))
}

/// The service refuses the lock. It is an ancestor's or our own, and the port may be opened; or somebody else's, which is
/// named, and the opening is refused or waits. `None` as for `lock`.
fn busy(mut service: Service, name: &DeviceName, number: u64, asks: &mut Asks) -> Option<Opening> {
    let answer = service.ask(|client| client.status(Some(name)));
    let is_answered = answer.is_ok();
    let mut holders = answer.unwrap_or_default();
    // A process that merely has it open keeps nobody out.
    holders.retain(Holder::keeps_out);
    // The service may not be able to read the program's own lock file (socat -L).
    let in_file = || files::lock_holder(name);
    let pids: Vec<Option<Pid>> = holders.iter().map(|holder| holder.pid).collect();
    let are_ours = are_all_ours(&pids, in_file, files::shares_locks_of_holder);
    let believed: Vec<_> = holders.iter().filter(|_| are_ours).map(files::is_believed).collect();
    // In a container, the service's lock files may be out of sight. Otherwise somebody has just removed the file.
    if believed.contains(&None) && asks.look_again() {
        return None;
    }
    if are_ours && !believed.contains(&Some(false)) {
        // No thread of this process releases an ancestor's.
        let is_ancestors = |pid: &Option<Pid>| pid.is_some_and(|pid| pid != Pid::this());
        if !pids.is_empty() && pids.iter().all(is_ancestors) {
            return Some(Opening::Plain);
        }
        return ours(number, asks);
    }
    // Its holder has released it since; that may be another thread of this process.
    if is_answered && holders.is_empty() && asks.once_more() {
        return None;
    }
    let holder = holders.first();
    let Some(time) = settings().wait else {
        name_holder(name, holder, "");
        return Some(Opening::Refused(HELD));
    };
    name_holder(name, holder, &format!("; waiting, {} at most", span(time)));
    locks::begin_asking();
    let answer = service.wait(name, Pid::this(), time);
    if answer == Ok(Outcome::Done) {
        locks::set(number, name, LockState::Open);
    }
    locks::end_asking();
    Some(match answer {
        Ok(Outcome::Done) => Opening::Locked(number),
        Ok(Outcome::Busy | Outcome::Denied) => Opening::Refused(HELD),
        Err(errno) => {
            locks::set_to_be_released(number, name, LockState::Closed);
            Opening::Refused(errno)
        }
    })
}

/// The lock is this process's already. It may be from before an execve(2), or a lock file that the program has made:
/// then close(2) does not release it. Or another thread has just got it for its own opening, which may be noted a
/// moment later. That thread releases it when it closes the port, so this opening asks again.
fn ours(number: u64, asks: &mut Asks) -> Option<Opening> {
    let is_asked_for = locks::is_asked_for();
    let may_end = is_asked_for || locks::noted() != asks.noted;
    if locks::begin_opening(number) {
        return Some(Opening::Locked(number));
    }
    let is_ending = locks::is_to_be_released(number);
    if (is_ending || may_end) && asks.once_more() {
        return None;
    }
    Some(if is_ending { Opening::Refused(HELD) } else { Opening::Plain })
}

/// Whether every holder of the lock of a port is one of ours: then it is ours to open. A program of
/// ours that merely has the port open is no reason, as others may have the lock.
fn are_all_ours(
    holders: &[Option<Pid>],
    in_file: impl Fn() -> Option<Pid>,
    is_ours: impl Fn(Pid) -> bool,
) -> bool {
    let is_ours = |holder: &Option<Pid>| holder.or_else(&in_file).is_some_and(&is_ours);
    if holders.is_empty() { is_ours(&None) } else { holders.iter().all(is_ours) }
}

/// There is no lock: the port is opened all the same, or must not be.
fn without(device: &str, why: &str) -> Opening {
    warn_unlocked(device, why);
    match settings().ports {
        Ports::Must => Opening::Refused(NO_LOCK),
        Ports::Locked | Ports::Left => Opening::Plain,
    }
}

/// The service refuses the lock to a user who may not read and write the port, and to everybody if it cannot make lock
/// files. In the second case, several programs would open the port at once.
fn denied(device: &str) -> Opening {
    let opening = without(device, "the service denies it");
    if this_process_may_open(device) { Opening::Refused(NO_LOCK) } else { opening }
}

/// Whether the kernel lets this process read and write a port. The service has its own rule for the processes of others
/// (`may_open` in lfpd), and has decided by it; this only tells its two reasons apart. By the real user: faccessat(2) knows
/// no other, and a program with another effective user has no ports mode.
fn this_process_may_open(device: &str) -> bool {
    accessat(CWD, device, Access::READ_OK | Access::WRITE_OK, AtFlags::empty()).is_ok()
}

/// The opening of a locked port has ended, with a descriptor, or -1.
pub(crate) fn opened(number: u64, fd: RawFd) {
    if fd >= 0 {
        make_exclusive(number, fd);
    }
    locks::end_opening(number);
    // It has failed, or another thread has closed its descriptor while the opening still kept the lock.
    if real::device_of(fd) != Some(number) {
        release_closed(&[number]);
    }
}

/// Nobody else can open the port any more, if that is wanted. Not a pseudo-terminal: nobody would end its
/// exclusive mode if this process is killed.
fn make_exclusive(number: u64, fd: RawFd) {
    if settings().is_exclusive && !numbers(number).is_pseudo_terminal() {
        real::set_exclusive(fd);
    }
}

/// Descriptors of ports that are locked are about to be closed. Where no other is left, the lock ends, and with it the
/// exclusive mode: a child may have the port open still.
pub(crate) fn end_exclusive(ports: &[u64], closed: &RangeInclusive<RawFd>) {
    if ports.is_empty() || !settings().is_exclusive {
        return;
    }
    let (leaving, kept): (Vec<_>, Vec<_>) =
        devices().into_iter().partition(|(fd, _)| closed.contains(fd));
    let is_kept = |number: u64| kept.iter().any(|(_, it)| *it == number);
    for (fd, number) in leaving {
        if ports.contains(&number) && !is_kept(number) {
            real::end_exclusive(fd);
        }
    }
}

fn numbers(number: u64) -> Numbers {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    Numbers { major: major.into(), minor: minor.into() }
}

/// The locked ports among the descriptors that are about to be closed.
pub(crate) fn locked_among(closed: &RangeInclusive<RawFd>) -> Vec<u64> {
    let (first, last) = (*closed.start(), *closed.end());
    let devices = match first == last {
        true => real::device_of(first).map(|number| (first, number)).into_iter().collect(),
        false => devices(),
    };
    let leaving = devices.into_iter().filter(|(fd, _)| closed.contains(fd)).map(|it| it.1);
    leaving.filter(|number| locks::is(*number, &[LockState::Open])).collect()
}

/// Descriptors of these ports are closed: the ports of which none is left, and which no thread is about to open, are
/// released.
pub(crate) fn release_closed(ports: &[u64]) {
    let patience = settings().timeout;
    if ports.is_empty() {
        // Earlier releases may be repeated.
        return locks::release(patience.min(RELEASE_PATIENCE));
    }
    let mut ports = ports.to_vec();
    while !ports.is_empty() {
        let idle: Vec<_> = ports.iter().filter_map(|it| Some((*it, locks::idle(*it)?))).collect();
        let devices = if idle.is_empty() { Vec::new() } else { devices() };
        let is_open = |number: u64| devices.iter().any(|(_, it)| *it == number);
        let left = idle.into_iter().filter(|(number, _)| !is_open(*number));
        // What was opened meanwhile may have a descriptor that was not seen.
        ports =
            left.filter(|(number, idle)| !locks::close(*number, *idle)).map(|it| it.0).collect();
    }
    locks::release(patience);
}

/// The character devices among the descriptors of this process. Where those cannot be listed, because /proc
/// is not there or no descriptor is left to look into it, all that there may be are tried.
fn devices() -> Vec<(RawFd, u64)> {
    let device = |fd| Some((fd, real::device_of(fd)?));
    listed().map_or_else(
        || {
            let most = getrlimit(Resource::Nofile).maximum.unwrap_or(SCANNED).min(SCANNED);
            (0..RawFd::try_from(most).unwrap_or(RawFd::MAX)).filter_map(device).collect()
        },
        |listed| listed.into_iter().filter_map(device).collect(),
    )
}

fn listed() -> Option<Vec<RawFd>> {
    const BUFFER_BYTES: usize = 1024;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, "/proc/self/fd", flags, Mode::empty()).ok()?;
    let mut buffer = [const { MaybeUninit::uninit() }; BUFFER_BYTES];
    let mut entries = RawDir::new(&directory, &mut buffer);
    let mut listed = Vec::new();
    while let Some(entry) = entries.next() {
        let name = entry.ok()?;
        listed.extend(name.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok()));
    }
    Some(listed)
}

fn is_port(number: u64) -> bool {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let listed = || {
        let drivers = files::read_file("/proc/tty/drivers", DRIVERS_BYTES).unwrap_or_default();
        has_serial_driver(&String::from_utf8_lossy(&drivers), numbers(number))
    };
    path::is_port(major, minor) || !path::is_other(major) && listed() || is_further(number)
}

/// Whether it is one of the devices that `LFP_PORTS` names besides.
fn is_further(number: u64) -> bool {
    settings().further().any(|path| {
        let is_device = |it: &Stat| {
            FileType::from_raw_mode(it.st_mode) == FileType::CharacterDevice && it.st_rdev == number
        };
        stat(path).is_ok_and(|it| is_device(&it))
    })
}

/// The name to lock: as it was typed, so that locks under this name are seen as well, or where the
/// path leads. Opening with `O_PATH` does not touch the device.
fn device(dir: RawFd, path: &CStr) -> Option<DeviceName> {
    let typed = path.to_bytes();
    if typed.starts_with(b"/dev/") {
        if let Ok(name) = DeviceName::parse(typed) {
            return Some(name);
        }
    }
    let is_here = dir == libc::AT_FDCWD || typed.first() == Some(&b'/');
    let start = if is_here { String::new() } else { format!("/proc/self/fd/{dir}/") };
    let found = openat(
        CWD,
        [start.as_bytes(), typed].concat(),
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    named(found.as_raw_fd())
}

/// The device behind a descriptor.
fn named(fd: RawFd) -> Option<DeviceName> {
    let link = readlinkat(CWD, format!("/proc/self/fd/{fd}"), Vec::new()).ok()?.into_bytes();
    // As the kernel marks what was unplugged meanwhile.
    let path = link.strip_suffix(b" (deleted)").unwrap_or(&link);
    path.starts_with(b"/dev/").then(|| DeviceName::parse(path).ok())?
}

/// Larger than the file of any machine that lists its users in it.
const PASSWD_BYTES: usize = 1 << 20;

/// Says that a port is opened, or not, without a lock.
fn warn_unlocked(device: &str, why: &str) {
    say(&format!("lfp: no lock for {device}: {why}\n"));
}

/// Names the process that has a port, and what this process does about it, if somebody reads that.
fn name_holder(device: &DeviceName, holder: Option<&Holder>, then: &str) {
    if !settings().names_holder && !rustix::termios::isatty(stderr()) {
        return;
    }
    let users = files::read_file("/etc/passwd", PASSWD_BYTES).unwrap_or_default();
    let sentence = holder.map_or_else(
        || "another process has it".to_owned(),
        |holder| sentence(holder, &users, SystemTime::now()),
    );
    say(&format!("lfp: /dev/{}: {sentence}{then}\n", device.as_str()));
}

/// One write. It bypasses the C library, because its streams may be in use.
fn say(line: &str) {
    let _ = rustix::io::write(stderr(), line.as_bytes());
}

/// `held by alice, picocom, 3m20s`.
fn sentence(holder: &Holder, users: &[u8], now: SystemTime) -> String {
    let user = holder.user.map(|uid| name_in(users, uid).unwrap_or_else(|| format!("uid {uid}")));
    let process =
        || holder.pid.map_or_else(|| "a lock file".to_owned(), |pid| format!("pid {pid}"));
    let mut text = format!("held by {}", user.unwrap_or_else(process));
    if let Some(program) = holder.command.as_deref().and_then(program) {
        text.extend([", ", program]);
    }
    if let Some(time) = holder.since.and_then(|since| now.duration_since(since).ok()) {
        text.extend([", ", &span(time)]);
    }
    text
}

/// The name of a command line's program.
fn program(line: &str) -> Option<&str> {
    line.split(' ').next()?.rsplit('/').next().filter(|name| !name.is_empty())
}

/// What a user is called, by passwd(5): printable ASCII or nothing.
fn name_in(users: &[u8], uid: u32) -> Option<String> {
    let wanted = uid.to_string();
    users.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next().filter(|name| name.iter().all(u8::is_ascii_graphic))?;
        let is_it = fields.nth(1)? == wanted.as_bytes() && !name.is_empty();
        is_it.then(|| String::from_utf8_lossy(name).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// 1 and 2 are ours; what the lock file says comes second.
    #[rstest]
    #[case::own(&[Some(1)], None, true)]
    #[case::own_under_each_name(&[Some(1), Some(1), Some(2)], None, true)]
    #[case::anothers(&[Some(3)], None, false)]
    #[case::ours_and_anothers(&[Some(1), Some(3)], Some(1), false)]
    #[case::own_file_that_the_service_cannot_read(&[None], Some(1), true)]
    #[case::anothers_file_that_it_cannot_read(&[None], Some(3), false)]
    #[case::nobody_can_read_it(&[None], None, false)]
    #[case::by_the_file_alone(&[], Some(2), true)]
    #[case::nobody(&[], None, false)]
    fn a_port_is_ours_where_its_lock_is(
        #[case] holders: &[Option<i64>],
        #[case] in_file: Option<i64>,
        #[case] ours: bool,
    ) {
        let pid = |number: Option<i64>| number.and_then(Pid::new);
        let holders: Vec<Option<Pid>> = holders.iter().map(|number| pid(*number)).collect();
        let is_ours = |holder: Pid| [1, 2].contains(&holder.as_raw());
        assert_eq!(are_all_ours(&holders, || pid(in_file), is_ours), ours);
    }

    const USERS: &[u8] =
        b"root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:\n\x1bbad:x:1001::\n:x:1002:\nx\n";

    #[rstest]
    #[case::root(0, Some("root"))]
    #[case::usual(1000, Some("alice"))]
    #[case::control_characters(1001, None)]
    #[case::nameless(1002, None)]
    #[case::nobody(7, None)]
    fn user_names_are_found_and_cleaned(#[case] uid: u32, #[case] expected: Option<&str>) {
        assert_eq!(name_in(USERS, uid).as_deref(), expected);
    }

    #[rstest]
    #[case::with_arguments("/usr/bin/picocom -b 9600 /dev/ttyUSB0", Some("picocom"))]
    #[case::bare("tio", Some("tio"))]
    #[case::nothing("", None)]
    #[case::directory("/usr/ x", None)]
    fn programs(#[case] line: &str, #[case] expected: Option<&str>) {
        assert_eq!(program(line), expected);
    }
}
