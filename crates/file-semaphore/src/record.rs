//! The content of a lock file, from bytes to a value and back. Pure. No files, no clock, no system.
//!
//! The format is `sema(5)`: one `key=value` per line. Each value that comes out of here is one line of text,
//! so a hostile file can neither forge a second line of output nor move the cursor of a terminal.
//!
//! Also the names of what lies beside a lock: temporary files and their makers; the ticket of the last in line; the
//! directory of readers. Names are bytes.

use std::ffi::OsString;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pidlockfile::{Name, Pid};

use crate::limits::{LONGEST_FILE, LONGEST_TAG, LONGEST_WORD, WINDOWS_NAMESPACE};

/// The holder of a lock, as far as a lock file can describe it.
///
/// `pid` alone is what the original tools write. `start`, `boot` and `pidns` together say exactly
/// which process of which machine is meant, across pid reuse, reboots and containers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    pub(crate) pid: u64,
    pub(crate) start: Option<u64>,
    pub(crate) boot: Option<String>,
    pub(crate) pidns: Option<u64>,
    pub(crate) host: Option<String>,
    pub(crate) nobody: bool,
}

impl Holder {
    /// A holder with nothing known but its number, as the original tools write it.
    #[must_use]
    pub fn bare(pid: u64) -> Self {
        Self { pid, start: None, boot: None, pidns: None, host: None, nobody: false }
    }

    /// No holder: the lock is held until it is released by name, whatever processes live. `pid` and `host`
    /// only say which process took it.
    #[must_use]
    pub fn nobody(pid: u64, host: Option<&str>) -> Self {
        let host = host.and_then(|name| one_line(name, LONGEST_WORD));
        Self { host, nobody: true, ..Self::bare(pid) }
    }

    /// Whether the lock was taken without an owner ([`Holder::nobody`]).
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        self.nobody
    }

    /// The process number, as written. It may be one that no process can have.
    #[must_use]
    pub fn pid(&self) -> u64 {
        self.pid
    }

    /// When the process started, in clock ticks since the machine did, by the machine's own clock:
    /// what a time namespace adds is not in it.
    #[must_use]
    pub fn start(&self) -> Option<u64> {
        self.start
    }

    /// Which boot of the machine it belongs to (`/proc/sys/kernel/random/boot_id`).
    #[must_use]
    pub fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }

    /// The inode number of the pid namespace in which `pid` means something.
    #[must_use]
    pub fn pidns(&self) -> Option<u64> {
        self.pidns
    }

    /// The name of the machine.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Its start time, if number and start time together identify one process for ever. If the clock begins anew at each
    /// boot, the boot's name must be known, too.
    pub(crate) fn exact_start(&self) -> Option<u64> {
        let by_the_calendar = self.pidns == Some(WINDOWS_NAMESPACE);
        self.start.filter(|_| (self.boot.is_some() || by_the_calendar) && self.pidns.is_some())
    }

    /// Whether two descriptions mean the same process: the same number, and nothing that both
    /// know distinguishes them.
    #[must_use]
    pub fn is_same_process(&self, other: &Self) -> bool {
        fn agree<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        self.pid == other.pid
            && agree(self.start.as_ref(), other.start.as_ref())
            && agree(self.boot.as_ref(), other.boot.as_ref())
            && agree(self.pidns.as_ref(), other.pidns.as_ref())
    }
}

/// A description of what a lock is for: one line without control characters, at most
/// [`LONGEST_TAG`] characters, not empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag(String);

impl Tag {
    /// Makes a tag of any text: control characters (0x00-0x1F, 0x7F) become blanks, blanks around
    /// it go, what is longer than [`LONGEST_TAG`] is cut. Nothing left means no tag.
    #[must_use]
    pub fn clean(text: &str) -> Option<Self> {
        Self::clean_to(text, LONGEST_TAG)
    }

    /// The same with another limit, never above [`LONGEST_TAG`].
    #[must_use]
    pub fn clean_to(text: &str, longest: usize) -> Option<Self> {
        one_line(text, longest.min(LONGEST_TAG)).map(Self)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a lock file says: its holder, since when, what for.
///
/// ```
/// # fn main() -> Result<(), file_semaphore::ParseError> {
/// use file_semaphore::LockInfo;
///
/// let info = LockInfo::parse(b"pid=1234\ntimestamp=1763700000\ntag=nightly backup\n")?;
/// assert_eq!((info.pid(), info.tag()), (1234, Some("nightly backup")));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockInfo {
    holder: Holder,
    timestamp: u64,
    tag: Option<Tag>,
}

/// Why a file is no lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseError {
    /// It is longer than [`LONGEST_FILE`].
    TooLong,
    /// Its bytes are not UTF-8.
    NotUtf8,
    /// It is empty, or blank.
    Blank,
    /// It has no `pid`.
    PidMissing,
    /// Its `pid` is not a decimal integer.
    PidNotANumber,
    /// It has no `timestamp`.
    TimestampMissing,
    /// Its `timestamp` is not a decimal integer.
    TimestampNotANumber,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the file is longer than 64 KiB",
            Self::NotUtf8 => "the file is not UTF-8",
            Self::Blank => "the file is empty",
            Self::PidMissing => "pid is missing",
            Self::PidNotANumber => "pid is not a number",
            Self::TimestampMissing => "timestamp is missing",
            Self::TimestampNotANumber => "timestamp is not a number",
        })
    }
}

impl std::error::Error for ParseError {}

impl LockInfo {
    /// Puts the content of a lock together. `timestamp` is in seconds since 1970.
    #[must_use]
    pub fn new(holder: Holder, timestamp: u64, tag: Option<Tag>) -> Self {
        Self { holder, timestamp, tag }
    }

    /// Reads the content of a lock file.
    ///
    /// Lines end with LF or CRLF. White space around key and value goes, lines without `=` and
    /// unknown keys are passed over, the last of a repeated key counts. An integer is decimal
    /// digits and nothing else, and fits 64 bits. Of the keys that are not required, one that
    /// makes no sense counts as absent.
    ///
    /// # Errors
    /// [`ParseError`]: the required keys are missing or malformed, or this is no such text.
    pub fn parse(content: &[u8]) -> Result<Self, ParseError> {
        if content.len() > LONGEST_FILE {
            return Err(ParseError::TooLong);
        }
        let text = std::str::from_utf8(content).map_err(|_| ParseError::NotUtf8)?;
        if text.trim().is_empty() {
            return Err(ParseError::Blank);
        }
        let required =
            |key, missing, malformed| integer(value(text, key).ok_or(missing)?).ok_or(malformed);
        let number = |key| value(text, key).and_then(integer);
        let word = |key| value(text, key).and_then(|word| one_line(word, LONGEST_WORD));
        let pid = required("pid", ParseError::PidMissing, ParseError::PidNotANumber)?;
        let (missing, malformed) = (ParseError::TimestampMissing, ParseError::TimestampNotANumber);
        let timestamp = required("timestamp", missing, malformed)?;
        let holder = Holder {
            pid,
            start: number("start"),
            boot: word("boot"),
            pidns: number("pidns"),
            host: word("host"),
            nobody: value(text, "owner") == Some(NO_OWNER),
        };
        Ok(Self { holder, timestamp, tag: value(text, "tag").and_then(Tag::clean) })
    }

    /// Writes the content of a lock file: LF after every line, at most [`LONGEST_FILE`] bytes.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("pid={}\ntimestamp={}\n", self.holder.pid, self.timestamp);
        let mut line = |key: &str, value: Option<&dyn fmt::Display>| {
            if let Some(value) = value {
                text.push_str(&format!("{key}={value}\n"));
            }
        };
        line("tag", self.tag.as_ref().map(|v| v as _));
        line("start", self.holder.start.as_ref().map(|v| v as _));
        line("boot", self.holder.boot.as_ref().map(|v| v as _));
        line("pidns", self.holder.pidns.as_ref().map(|v| v as _));
        line("host", self.holder.host.as_ref().map(|v| v as _));
        line("owner", self.holder.nobody.then_some(&NO_OWNER).map(|v| v as _));
        text
    }

    /// The holder of the lock.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The holder's process number, as written.
    #[must_use]
    pub fn pid(&self) -> u64 {
        self.holder.pid
    }

    /// When the lock was taken, in seconds since 1970 by the holder's clock.
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// What the lock is for.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_ref().map(Tag::as_str)
    }

    /// Whether touching the file renews the lock: those of the original tools are as old as they
    /// say.
    pub(crate) fn can_be_renewed(&self) -> bool {
        self.holder.start.is_some() || self.holder.nobody
    }

    /// When the lock was taken, by the holder's clock; `None` if no clock can show that time.
    #[must_use]
    pub fn taken(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.timestamp))
    }
}

/// The keys of the format.
const KEYS: [&str; 8] = ["pid", "timestamp", "tag", "start", "boot", "pidns", "host", "owner"];

/// A lock begins with one of these.
const REQUIRED: [&str; 2] = ["pid", "timestamp"];

fn is_known(key: &[u8]) -> bool {
    KEYS.iter().any(|known| known.as_bytes() == key)
}

/// Key and value of a line, without white space around them.
fn split_at_equals(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, value) = line.split_at_checked(line.iter().position(|byte| *byte == b'=')?)?;
    Some((key.trim_ascii_end(), value.get(1..)?.trim_ascii()))
}

/// The value of `owner` in a lock without one.
const NO_OWNER: &str = "none";

/// The value of a key, still as text.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = text.rsplit('\n').filter_map(|line| line.split_once('='));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

/// Decimal digits and nothing else, of a number that fits 64 bits: no process and no clock has a larger one.
pub(crate) fn integer(text: &str) -> Option<u64> {
    // `parse` alone would take a leading plus.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Content that does not parse, but may be the beginning of a lock file: one that is being written at this moment, or
/// one that a full disk, a power cut or a killed writer left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// The process in a whole line `pid=`. A number in the last line, which has no end, may itself be cut.
    pub(crate) pid: Option<u64>,
    /// Whether it has a whole key. An empty file may be anything, such as the file of a `flock(1)`.
    pub(crate) has_key: bool,
}

impl Fragment {
    /// For content that does not parse. A lock begins with `pid` or `timestamp`, and nothing in it is wrong up to the
    /// place where it was cut. NULs at the end are what some file systems have in place of data that was not written
    /// before a power cut.
    pub(crate) fn of(content: &[u8]) -> Option<Self> {
        let end = content.iter().rposition(|byte| *byte != 0).map_or(0, |at| at.saturating_add(1));
        let mut lines = content.get(..end)?.split(|byte| *byte == b'\n');
        let cut = lines.next_back()?.trim_ascii();
        let mut fragment = Self { pid: None, has_key: false };
        for line in lines.map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()) {
            let (key, value) = split_at_equals(line)?;
            let number = std::str::from_utf8(value).ok().and_then(integer);
            match (key, number) {
                (b"pid", Some(pid)) => fragment.pid = Some(pid),
                (b"timestamp", Some(_)) => {}
                (b"pid" | b"timestamp", None) => return None,
                (key, _) if fragment.has_key && is_known(key) => {}
                _ => return None,
            }
            fragment.has_key = true;
        }
        let is_number = |value: &[u8]| value.iter().all(u8::is_ascii_digit);
        let keys = if fragment.has_key { &KEYS[..] } else { &REQUIRED[..] };
        match split_at_equals(cut) {
            None => keys.iter().any(|key| key.as_bytes().starts_with(cut)).then_some(fragment),
            Some((b"pid" | b"timestamp", value)) if is_number(value) => {
                Some(Self { has_key: true, ..fragment })
            }
            Some((b"pid" | b"timestamp", _)) => None,
            Some((key, _)) => (fragment.has_key && is_known(key)).then_some(fragment),
        }
    }
}

/// One line of text: control characters become blanks, blanks around it go, the rest is cut.
pub(crate) fn one_line(text: &str, longest: usize) -> Option<String> {
    let blank = |c: char| if c.is_ascii_control() { ' ' } else { c };
    let clean: String = text.chars().map(blank).collect();
    let cut: String = clean.trim().chars().take(longest).collect();
    let line = cut.trim_end();
    (!line.is_empty()).then(|| line.to_owned())
}

/// What follows the lock's name in that of the last ticket.
pub(crate) const QUEUE: &str = ".queue";

/// What follows the lock's name in that of the directory with its readers.
pub(crate) const READERS: &str = ".shared";

/// The name that begins with another.
pub(crate) fn beside(lock: &Name, rest: &str) -> Option<Name> {
    let mut name = lock.as_os_str().to_owned();
    name.push(rest);
    Name::new(name)
}

/// The process that made a temporary file of this lock: `LOCK.PID.RANDOM.tmp`.
pub(crate) fn maker(name: &[u8], lock: &Name) -> Option<Pid> {
    made_by(name.strip_prefix(lock.as_os_str().as_encoded_bytes())?.strip_prefix(b".")?)
}

/// The part behind the lock's name: `PID.RANDOM.tmp`, as both this crate and the original
/// TypeScript tool write it.
fn made_by(rest: &[u8]) -> Option<Pid> {
    let (pid, random) = std::str::from_utf8(rest).ok()?.strip_suffix(".tmp")?.split_once('.')?;
    let good =
        (1..=64).contains(&random.len()) && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let number = integer(pid).filter(|_| good)?;
    Pid::new(i64::try_from(number).ok()?)
}

/// The lock to which a temporary file belongs, if it is one.
pub(crate) fn temporary_of(name: &Name) -> Option<OsString> {
    let bytes = name.as_os_str().as_encoded_bytes();
    // From behind: "tmp", what is random, the number.
    let (at, _) = bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'.').nth(2)?;
    let (lock, rest) = bytes.split_at_checked(at)?;
    made_by(rest.get(1..)?)?;
    beginning(lock)
}

/// The lock beside which something of this name would be: its last ticket ([`QUEUE`]), or the directory with its
/// readers ([`READERS`]).
pub(crate) fn lock_before(rest: &str, name: &Name) -> Option<OsString> {
    beginning(name.as_os_str().as_encoded_bytes().strip_suffix(rest.as_bytes())?)
}

#[cfg(unix)]
fn beginning(bytes: &[u8]) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt;
    (!bytes.is_empty()).then(|| OsString::from_vec(bytes.to_owned()))
}

/// The beginning of a name. Here only text can be cut: a name that is none has no beginning.
#[cfg(not(unix))]
fn beginning(bytes: &[u8]) -> Option<OsString> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty()).map(OsString::from)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
