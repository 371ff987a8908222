//! Ports mode: the lock of a serial port is taken when a program opens it, before the real call,
//! so that a busy port's lines do not move; and released when its last descriptor is closed.

use std::ffi::CStr;
use std::fs;
use std::io::Write;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use pidlockfile::Pid;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, openat, readlinkat, stat};
use rustix::io::Errno;
use ttylock::device::name::DeviceName;
use ttylock::lock::Outcome;

use crate::drivers;
use crate::family;
use crate::files;
use crate::mode;
use crate::real;
use crate::service::Service;
use crate::taken;

/// What is to happen around the opening of a port.
pub(crate) enum Opening {
    /// Nothing: it is no port, or is ours already, or the service is away.
    Plain,
    /// The port was locked for this; if it cannot be opened, it is to be released.
    Locked(Port),
    /// Somebody else has it.
    Refused,
}

/// A port whose lock is ours.
pub(crate) struct Port {
    name: DeviceName,
    number: u64,
}

/// A character device is about to be opened.
pub(crate) fn opening(dir: RawFd, path: &CStr, number: u64) -> Opening {
    if !is_port(number) || taken::has(number) {
        return Opening::Plain;
    }
    let Some(name) = device(dir, path) else { return Opening::Plain };
    let own = Pid::this();
    let Some(mut service) = Service::reach() else {
        say(&name, "the service does not answer");
        return Opening::Plain;
    };
    match service.lock(&name, own) {
        Some(Outcome::Done) => {
            taken::add(number);
            Opening::Locked(Port { name, number })
        }
        Some(Outcome::Busy) => {
            let holders = service.holders(&name).unwrap_or_default();
            // The service may not be able to read the program's own lock file (socat -L).
            let is_ours = holders.into_iter().any(family::includes)
                || files::lock_holder(&name).is_some_and(family::includes);
            if is_ours { Opening::Plain } else { Opening::Refused }
        }
        Some(Outcome::Denied) => {
            say(&name, "the service denies it");
            Opening::Plain
        }
        None => {
            say(&name, "the service does not answer");
            Opening::Plain
        }
    }
}

/// The port could not be opened after all. It is released, unless another thread has it open.
pub(crate) fn failed(port: &Port) {
    left(std::slice::from_ref(port));
}

/// The ports of ours among the descriptors that are about to be closed. Allocates for ports only:
/// signal handlers close files, too.
pub(crate) fn leaving(first: RawFd, last: RawFd) -> Vec<Port> {
    let mut ports: Vec<Port> = Vec::new();
    let mut note = |fd: RawFd, number: u64| {
        let known = ports.iter().any(|port| port.number == number);
        if (first..=last).contains(&fd) && taken::has(number) && !known {
            ports.extend(named(fd).map(|name| Port { name, number }));
        }
    };
    if first == last {
        if let Some(number) = real::device_of(first) {
            note(first, number);
        }
    } else {
        open_devices().unwrap_or_default().into_iter().for_each(|(fd, number)| note(fd, number));
    }
    ports
}

/// They are closed: the ports of which no descriptor is left are released.
pub(crate) fn left(ports: &[Port]) {
    if ports.is_empty() {
        return;
    }
    // Where that cannot be told, they stay ours for the next time.
    let Some(open) = open_devices() else { return };
    for port in ports {
        let is_open = open.iter().any(|(_, number)| *number == port.number);
        if !is_open && taken::gives_up(port.number) {
            let _ = Service::reach().and_then(|mut it| it.unlock(&port.name, Pid::this()));
        }
    }
}

/// The character devices among the descriptors of this process; None where they cannot be listed.
fn open_devices() -> Option<Vec<(RawFd, u64)>> {
    let entries = fs::read_dir("/proc/self/fd").ok()?;
    let device = |entry: fs::DirEntry| {
        let fd: RawFd = entry.file_name().to_str()?.parse().ok()?;
        Some((fd, real::device_of(fd)?))
    };
    Some(entries.filter_map(|entry| device(entry.ok()?)).collect())
}

fn is_port(number: u64) -> bool {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let listed = || {
        let drivers = fs::read_to_string("/proc/tty/drivers").unwrap_or_default();
        drivers::is_listed(&drivers, major, minor)
    };
    drivers::is_port(major, minor).unwrap_or_else(listed) || is_further(number)
}

/// Whether it is one of the devices that `LFP_PORTS` names besides.
fn is_further(number: u64) -> bool {
    mode::further().any(|path| {
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
    let from = match dir {
        _ if typed.first() == Some(&b'/') => typed.to_vec(),
        libc::AT_FDCWD => typed.to_vec(),
        dir => [format!("/proc/self/fd/{dir}/").as_bytes(), typed].concat(),
    };
    let found = openat(CWD, from, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    named(std::os::fd::AsRawFd::as_raw_fd(&found))
}

/// The device behind a descriptor.
fn named(fd: RawFd) -> Option<DeviceName> {
    let link = readlinkat(CWD, format!("/proc/self/fd/{fd}"), Vec::new()).ok()?.into_bytes();
    // As the kernel marks what was unplugged meanwhile.
    let path = link.strip_suffix(b" (deleted)").unwrap_or(&link);
    path.starts_with(b"/dev/").then(|| DeviceName::parse(path).ok())?
}

/// Says once in a process that a port is opened without a lock.
fn say(name: &DeviceName, why: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let _ = writeln!(std::io::stderr(), "lfp: no lock for /dev/{}: {why}", name.as_str());
    }
}

/// What a refused open(2) says.
pub(crate) const REFUSAL: Errno = Errno::BUSY;
