//! Failures, with their exit codes and words: each kind in one place. Also a guess why a service said "not permitted",
//! which is all it says: most reasons can be checked from here. It gives a sentence for people, and decides nothing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fmt, io};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::signal::Signal;
use nix::unistd::{AccessFlags, faccessat, geteuid};
use pidlockfile::{Pid, process};
use ttylock::{DeviceName, Layout, Request, Scheme};
use wrapcmd::usage::in_one_line;
use wrapcmd::{StartError, Value};

use super::row::{Row, printable, user_name};
use crate::client::broker::{node, path, wrong_device};

/// The exit codes: those of sysexits(3) where they fit. [`wrapcmd::exit`] has those that shells use too.
pub(super) mod exit {
    /// Done.
    pub(crate) const DONE: u8 = 0;
    /// Somebody else has it, unless `-E` says otherwise.
    pub(crate) const BUSY: u8 = 1;
    /// `EX_USAGE`
    pub(crate) const USAGE: u8 = 64;
    /// `EX_NOINPUT`: there is no such device.
    pub(crate) const NO_DEVICE: u8 = 66;
    /// `EX_UNAVAILABLE`
    pub(crate) const UNREACHABLE: u8 = 69;
    /// `EX_OSERR`
    pub(crate) const SYSTEM: u8 = 71;
    /// `EX_IOERR`
    pub(crate) const OUTPUT: u8 = 74;
    /// `EX_TEMPFAIL`
    pub(crate) const TIMED_OUT: u8 = 75;
    /// `EX_NOPERM`
    pub(crate) const NOT_PERMITTED: u8 = 77;
}

/// The system's words for an error, without its number.
pub(super) fn words_of(error: &io::Error) -> String {
    system_words(error).map_or_else(|| error.to_string(), str::to_owned)
}

/// The same; `None` for an error that is not the system's.
pub(super) fn system_words(error: &io::Error) -> Option<&'static str> {
    error.raw_os_error().map(|number| Errno::from_raw(number).desc())
}

/// Why it was not done.
#[derive(Debug, Default)]
pub(super) struct Failure {
    /// The device it is about, as `/dev/NAME`.
    pub(super) device: Option<String>,
    /// One word for JSON.
    pub(super) word: &'static str,
    /// The exit code; none is the one for a device that another process has.
    code: Option<u8>,
    /// What is wrong, for people.
    text: String,
    /// The holders in the way, as far as can be seen.
    pub(super) holders: Vec<Row>,
    /// Why, as far as is known: a line for each.
    reasons: Vec<String>,
    /// The signal that came first.
    pub(super) signal: Option<Signal>,
}

const ENDS_WITH_ITS_PROCESS: &str =
    "only the holder can end flock(2), by closing the port: there is no lock file to remove";

impl Failure {
    fn new(word: &'static str, code: impl Into<Option<u8>>, text: impl Into<String>) -> Self {
        Self { word, code: code.into(), text: text.into(), ..Self::default() }
    }

    fn with(self, holders: Vec<Row>, reasons: Vec<String>) -> Self {
        let reasons = holders.iter().map(Row::sentence).chain(reasons).collect();
        Self { holders, reasons, ..self }
    }

    pub(super) fn about(self, device: &str) -> Self {
        Self { device: Some(format!("/dev/{device}")), ..self }
    }

    /// Somebody else has it, or this process, which asked for it again.
    pub(super) fn busy(holders: Vec<Row>, pid: Pid) -> Self {
        let is_own = holders.iter().any(|row| row.is_lock_of(pid));
        let text = if is_own { "busy: locked already for the same process" } else { "busy" };
        Self::new("busy", None, text).with(holders, Vec::new())
    }

    /// Its holder has another number here, or none: who is named by a number is another process.
    pub(super) fn held_elsewhere(holders: Vec<Row>) -> Self {
        let text = "not unlocked: the holder is in another container";
        let way_out =
            "the process number counts there: unlock the port there, or end the holder".to_owned();
        Self::new("busy", None, text).with(holders, vec![way_out])
    }

    /// There is no lock, or another process has it. Or this process has it, and another one is changing its file.
    pub(super) fn not_held(holders: Vec<Row>, pid: Pid) -> Self {
        if holders.iter().any(|row| row.is_lock_of(pid) && row.holder.scheme.file().is_some()) {
            let text = "another process is changing the lock: try again";
            return Self::new("busy", None, text).with(holders, Vec::new());
        }
        let mut text = "not locked, or locked by another process".to_owned();
        let mut reasons: Vec<String> = holders.iter().map(Row::sentence).collect();
        let is_flock = |row: &Row| row.holder.scheme == Scheme::Flock;
        if !holders.is_empty() && holders.iter().all(is_flock) {
            // Locked, but without a lock file.
            text = reasons.remove(0);
            reasons.push(ENDS_WITH_ITS_PROCESS.to_owned());
        }
        Self { holders, reasons, ..Self::new("not-held", None, text) }
    }

    /// Busy to the end of the time, or whatever else kept us from the answer.
    pub(super) fn timed_out(holders: Vec<Row>, reasons: Vec<String>) -> Self {
        let text = if holders.is_empty() { "time is up" } else { "still busy, time is up" };
        Self::new("timed-out", exit::TIMED_OUT, text).with(holders, reasons)
    }

    pub(super) fn not_permitted(reasons: Vec<String>) -> Self {
        let text = "not permitted";
        Self::new("not-permitted", exit::NOT_PERMITTED, text).with(Vec::new(), reasons)
    }

    /// The members of JSON that say what is wrong: its word, and a line with what and why.
    pub(super) fn members(&self) -> [(&'static str, Value); 2] {
        let line = printable(&in_one_line(&self.to_string()));
        [("error", self.word.into()), ("message", line.as_str().into())]
    }

    /// Stale locks were left.
    pub(super) fn left() -> Self {
        let text = "some stale locks could not be removed";
        Self::new("not-permitted", exit::NOT_PERMITTED, text)
    }

    /// A service is there, and says nothing; or none is there, or what is there is none.
    pub(super) fn unreachable(text: &str, reasons: Vec<String>) -> Self {
        Self::new("unreachable", exit::UNREACHABLE, text).with(Vec::new(), reasons)
    }

    /// The name is that of no device, and perhaps near to that of another one.
    pub(super) fn no_device(other: Option<String>) -> Self {
        let tip = other.map_or_else(String::new, |other| format!("; did you mean /dev/{other}?"));
        let text = format!("there is no such device{tip}");
        Self::new("no-such-device", exit::NO_DEVICE, text)
    }

    /// The same for a command that has the option.
    pub(super) fn or_absent(self) -> Self {
        self.with(Vec::new(), vec!["--absent locks a device that is away and will come".to_owned()])
    }

    pub(super) fn interrupted(signal: Signal) -> Self {
        let code = wrapcmd::exit::by_signal(signal as i32);
        let failure = Self::new("interrupted", code, format!("interrupted by {signal}"));
        Self { signal: Some(signal), ..failure }
    }

    /// The system would not.
    pub(super) fn system(text: impl Into<String>) -> Self {
        Self::new("system-error", exit::SYSTEM, text)
    }

    /// What was typed makes no sense.
    pub(super) fn usage(text: String) -> Self {
        Self::new("usage", exit::USAGE, text)
    }

    /// The command could not be executed.
    pub(super) fn not_started(error: StartError) -> Self {
        let word = if error.is_not_found() { "not-found" } else { "not-executable" };
        Self::new(word, error.code().unwrap_or(exit::SYSTEM), error.to_string())
    }

    pub(super) fn code(&self, busy: u8) -> u8 {
        self.code.unwrap_or(busy)
    }

    /// Whether somebody has the device, or nobody: the exit code alone may say that.
    pub(super) fn is_about_holders(&self) -> bool {
        self.code.is_none_or(|code| code == exit::TIMED_OUT)
    }
}

/// The lines for people: what is wrong, and indented below it why.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(device) = &self.device {
            write!(f, "{device}: ")?;
        }
        f.write_str(&self.text)?;
        self.reasons.iter().try_for_each(|reason| write!(f, "\n  {reason}"))
    }
}

/// Why something is as it is, for people: one printable line.
pub(super) type Reason = String;

/// The likeliest reasons: several may have to be mended.
pub(super) fn supposed_reasons(Request { device, pid }: &Request) -> Vec<Reason> {
    if let Some(reason) = wrong_device(device).or_else(|| nobodys(*pid)) {
        return vec![reason];
    }
    let mut reasons: Vec<Reason> = somebody_elses(*pid).into_iter().collect();
    reasons.extend(closed_device(device));
    if reasons.is_empty() {
        reasons.push(no_room(&Layout::native().lock_dir).unwrap_or_else(|| {
            "the service may not write the lock directory, or does not know this user: its log \
             says which"
                .to_owned()
        }));
    }
    reasons
}

/// Why the service does not release a lock by force.
pub(super) const NO_FORCE: &str = "only root and members of the service's administrator group may use --force, and the \
     service must be able to write the lock directory";

/// Why nothing is locked for a number that no process has.
pub(super) fn nobodys(pid: Pid) -> Option<Reason> {
    (!process::lives(pid)).then(|| format!("there is no process {pid}"))
}

fn somebody_elses(pid: Pid) -> Option<Reason> {
    let (users, own) = (process::users(pid)?, geteuid());
    let owner = users.real;
    let foreign = !own.is_root() && !users.belong_to(own.as_raw());
    foreign.then(|| {
        // `su` waits for the shell that it has started, and keeps the rights of root.
        let name = process::stat(pid).map_or_else(String::new, |it| format!(" ({})", printable(&it.name)));
        let owner = user_name(owner).unwrap_or_else(|| format!("uid {owner}"));
        format!(
            "process {pid}{name} belongs to {owner}: you can lock and unlock for your own processes only; \
             --pid names another one"
        )
    })
}

/// Nobody can lock without a lock directory, or with a full one.
fn no_room(lock_dir: &Path) -> Option<Reason> {
    let shown = printable(&lock_dir.to_string_lossy());
    match rustix::fs::statvfs(lock_dir) {
        Ok(room) if room.f_bavail == 0 && room.f_blocks > 0 => {
            Some(format!("the file system of the lock directory {shown} is full"))
        }
        Ok(room) if room.f_favail == 0 && room.f_files > 0 => Some(format!(
            "the file system of the lock directory {shown} has no room for another file"
        )),
        Err(rustix::io::Errno::NOENT) => Some(format!("the lock directory {shown} does not exist")),
        Ok(_) | Err(_) => None,
    }
}

/// A process that may not open a port may not keep others from it either.
fn closed_device(device: &DeviceName) -> Option<Reason> {
    let both = AccessFlags::R_OK | AccessFlags::W_OK;
    faccessat(AT_FDCWD, &path(device), both, AtFlags::AT_EACCESS).err()?;
    let node = node(device)?;
    let group = users::get_group_by_gid(node.gid());
    let group =
        group.map_or_else(|| node.gid().to_string(), |it| printable(&it.name().to_string_lossy()));
    Some(format!("you may not read and write it; members of its group {group} may"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_directory_that_is_missing_is_named() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("lock");
        let said = no_room(&missing).unwrap();
        assert_eq!(said, format!("the lock directory {} does not exist", missing.display()));
        // What is wrong with a file is not known from here.
        std::fs::write(&missing, "").unwrap();
        assert_eq!(no_room(&missing).filter(|said| said.contains("does not exist")), None);
    }
}
