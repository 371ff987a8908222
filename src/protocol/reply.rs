//! Every code and sentence of the service's replies; no other file has any. Pure.
//!
//! A reply is one line of printable ASCII with CR LF, shorter than [`REPLY_BYTES`]. The replies to HELP and
//! STAT have several lines: the first has a hyphen after the code, the last a blank, and those between are
//! indented by one blank (RFC 959, 4.2). A reply never holds a path, a system error or a control character.
//! It is made of fixed sentences, the host's name, the version, at most [`ECHO_CHARS`] cleaned characters of
//! the client's line, and what STAT says about holders.
//!
//! The answer to STAT has one line for each holder:
//!
//! ```text
//! STAT ttyUSB0
//! 213-holders=2 shown=2
//!  device="ttyUSB0" scheme=uucp standing=alive pid=1234 uid=1000 since=1763700000 file="LCK..ttyUSB0" command="minicom"
//!  device="ttyUSB0" scheme=open standing=alive pid=1240 uid=0 command="cat"
//! 213 End of status.
//! ```
//!
//! `STAT device` is answered with 213, `STAT` (all devices) with 211, each in the same form. The
//! first line has the number of holders and how many of them are shown, at most [`STATUS_HOLDERS`], and with
//! `waiting=` the number of waiters, if there are any; at most [`STATUS_WAITERS`] of them are shown, after the
//! holders. `unseen=` names holders that the service sees nowhere: `outside` of its container, and programs of other
//! `users` that have a port open without any lock; both are `outside,users`. `incomplete=yes` follows if the search for
//! holders by `flock(2)` and by an open port did not come to its end in time, so that there may be more. Clients look up
//! the names of users, because name services can take any time.
//! Then there is one line for each holder, `key=value` with one blank between, in this order:
//!
//! | key | value |
//! |---|---|
//! | `device` | the device's name below `/dev`, or what the lock file's name says of it |
//! | `scheme` | `uucp` or `svr4` (a lock file), `flock` (on the node), `open` (without any lock), `waiting` (in the line for it) |
//! | `standing` | `alive`, `stale` (the next LOCK takes it), `unknown` (no pid can be read), `ignored` (any user could have made it: it keeps nobody out) |
//! | `pid` | the process, in decimal |
//! | `uid` | the user it runs as, or ran as, in decimal |
//! | `since` | when the lock file was written, in seconds since 1970 |
//! | `file` | the lock file's name, without its directory: no reply ever holds a path |
//! | `command` | the name of the program, without its path and arguments; in parentheses, why a holder has none |
//!
//! Words and numbers stand as they are. Text stands in double quotes, with a backslash before a
//! quote or a backslash in it, and with `?` for everything outside printable ASCII. A key is left out if its value is
//! not known, or if the line has no room for it; `device`, `scheme` and `standing` are always there, except for
//! device names too long for a line. A reader must ignore keys that it does not know.

use std::fmt::Display;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use pidlockfile::{Pid, ascii};
use ttylock::{Holder, OutOfSight, Outcome};

use crate::limits::{ECHO_CHARS, REPLY_BYTES, STATUS_HOLDERS, STATUS_WAITERS};

/// The host's name in replies, in characters (Linux allows 64). The rest is left out.
pub const HOST_CHARS: usize = 255;

/// The text of `--banner-version`, in characters. A longer one is a usage error.
pub const VERSION_CHARS: usize = 64;

/// How the service names itself, and whether it offers WAIT. All sessions share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    names: Arc<(String, Version)>,
    pub(super) waiting: Waiting,
}

/// Whether a session can wait for a device. A process with a single client could not keep order
/// among the waiters, so there WAIT is a verb without use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// WAIT is a command.
    Offered,
    /// WAIT is answered like a verb without use.
    NotOffered,
}

/// The version in the greeting: printable ASCII, at most [`VERSION_CHARS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(String);

/// What the service can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// 220, before anything else is said.
    Greeting,
    /// 200, done.
    Okay,
    /// 202, a verb of RFC 959 that has no use here.
    NotImplemented,
    /// 221, the answer to QUIT.
    Goodbye,
    /// 450: a process has it, also the one for which it is asked, or it is not the client's to release.
    Busy,
    /// 500, the line is no command. The reply repeats it: cut, and clean.
    NotUnderstood,
    /// 550, the asker may not.
    Denied,
    /// 421, the service ends the session.
    Closing,
    /// 214, the commands there are.
    Help,
    /// 211 for all devices, 213 for one: the holders.
    Status(Report),
}

/// The one verb that not every session offers.
pub(super) const WAIT: &str = "WAIT";

/// Every command with its arguments, as HELP shows them.
const COMMANDS: [&str; 9] = [
    "LOCK device pid",
    "UNLOCK device pid",
    "WAIT device pid seconds",
    "PASS device from-pid to-pid",
    "FORCE device pid",
    "STAT [device]",
    "HELP",
    "NOOP",
    "QUIT",
];

impl Version {
    /// The only version a client has ever seen.
    pub const ORIGINAL: &str = "rxtx-1.5-9";

    /// [`Version::ORIGINAL`].
    #[must_use]
    pub fn original() -> Self {
        Self(Self::ORIGINAL.to_owned())
    }

    /// `None` when it is empty, too long, or holds more than printable ASCII and blanks.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        let fits = (1..=VERSION_CHARS).contains(&text.len());
        (printable && fits).then(|| Self(text.to_owned()))
    }
}

impl Identity {
    /// Takes the host's name as it comes; what a reply may not hold shows as `?`.
    #[must_use]
    pub fn new(host: &[u8], version: Version) -> Self {
        let mut host = clean(host, HOST_CHARS);
        if host.is_empty() {
            "localhost".clone_into(&mut host);
        }
        Self { names: Arc::new((host, version)), waiting: Waiting::NotOffered }
    }

    /// The same with WAIT among its commands, for a service that can keep the order among several who wait.
    #[must_use]
    pub fn offering_to_wait(self) -> Self {
        Self { waiting: Waiting::Offered, ..self }
    }
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Okay,
            Outcome::Busy => Self::Busy,
            Outcome::Denied => Self::Denied,
        }
    }
}

impl Reply {
    /// The three digits.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::Okay => 200,
            Self::NotImplemented => 202,
            Self::Status(report) => report.code,
            Self::Help => 214,
            Self::Greeting => 220,
            Self::Goodbye => 221,
            Self::Closing => 421,
            Self::Busy => 450,
            Self::NotUnderstood => 500,
            Self::Denied => 550,
        }
    }

    /// The reply to this line of the client, as it is sent, with its end.
    #[must_use]
    pub fn encode(&self, identity: &Identity, line: &[u8]) -> String {
        let (host, Version(version)) = &*identity.names;
        let code = self.code();
        let one = |text: &str| [&code.to_string(), " ", text, "\r\n"].concat();
        let reply = match self {
            Self::Greeting => one(&format!("{host} Lock File Server (Version {version}) ready")),
            Self::Okay => one("Command okay."),
            Self::NotImplemented => one("Command not implemented"),
            Self::Goodbye => one(&format!("Thank you for using the Lock File service on {host}")),
            Self::Closing => one("Service not available, closing control connection"),
            Self::Busy => one(": File busy"),
            Self::NotUnderstood => {
                one(&format!("'{}': command not understood", clean(line, ECHO_CHARS)))
            }
            Self::Denied => one(": Permission denied."),
            Self::Help => {
                let first = "The following commands are recognized.";
                let is_there =
                    |it: &&str| identity.waiting == Waiting::Offered || !it.starts_with(WAIT);
                let commands = COMMANDS.into_iter().filter(is_there);
                lines(code, first, commands, "End of help.")
            }
            Self::Status(report) => lines(code, &report.count, &report.lines, "End of status."),
        };
        debug_assert!(reply.split_inclusive('\n').all(|line| line.len() < REPLY_BYTES));
        reply
    }
}

/// A reply of several lines.
fn lines<L: Display>(
    code: u16,
    first: &str,
    between: impl IntoIterator<Item = L>,
    last: &str,
) -> String {
    let between: String = between.into_iter().map(|line| format!(" {line}\r\n")).collect();
    format!("{code}-{first}\r\n{between}{code} {last}\r\n")
}

/// At most `limit` characters; every byte outside printable ASCII shows as `?`.
fn clean(bytes: &[u8], limit: usize) -> String {
    bytes.iter().take(limit).map(|byte| ascii(char::from(*byte))).collect()
}

/// The holders of one device, or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// 213 or 211, as RFC 959 has it for a file and for the service.
    pub code: u16,
    /// The text of the first line.
    pub count: String,
    /// The lines between the first and the last, without indentation and end.
    pub lines: Vec<String>,
}

/// A waiter for a device: as long as it waits, no other client's LOCK gets the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The real device, as a name below `/dev`.
    pub device: String,
    /// The process that is to hold it.
    pub pid: Pid,
    /// The user that asked, if the kernel shows it.
    pub user: Option<u32>,
}

/// What was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `STAT device`.
    Device,
    /// `STAT`.
    All,
}

/// Room in a line for its indentation and its end, and for being shorter than the limit.
const FRAME_BYTES: usize = 4;

impl Report {
    /// Lists the holders and the waiters.
    #[must_use]
    pub fn new(scope: Scope, holders: &[Holder], waiters: &[Waiter]) -> Self {
        let mut lines: Vec<String> = holders.iter().take(STATUS_HOLDERS).map(line).collect();
        let shown = lines.len();
        let line = |it: &Waiter| begin(&it.device, "waiting", "alive", Some(it.pid), it.user).0;
        lines.extend(waiters.iter().take(STATUS_WAITERS).map(line));
        let mut count = format!("holders={} shown={shown}", holders.len());
        if !waiters.is_empty() {
            count += &format!(" waiting={}", waiters.len());
        }
        Self { code: if scope == Scope::Device { 213 } else { 211 }, count, lines }
    }

    /// The same with what the search could not see.
    #[must_use]
    pub fn without(self, unseen: OutOfSight) -> Self {
        let word = unseen.word().map(|word| format!(" unseen={word}"));
        Self { count: self.count + &word.unwrap_or_default(), ..self }
    }

    /// The same of a search that ended before its time: there may be further holders. Said last: clients of earlier
    /// versions expect it there.
    #[must_use]
    pub fn incomplete(self) -> Self {
        Self { count: self.count + " incomplete=yes", ..self }
    }
}

fn begin(
    device: &str,
    scheme: &str,
    standing: &str,
    pid: Option<Pid>,
    uid: Option<u32>,
) -> StatusLine {
    let mut line = StatusLine(String::new());
    line.text("device", device);
    line.word("scheme", scheme);
    line.word("standing", standing);
    if let Some(pid) = pid {
        line.word("pid", &pid.to_string());
    }
    if let Some(uid) = uid {
        line.word("uid", &uid.to_string());
    }
    line
}

fn line(holder: &Holder) -> String {
    let Holder { device, scheme, standing, .. } = holder;
    let mut line = begin(device, scheme.word(), standing.word(), holder.pid, holder.user);
    if let Some(since) = holder.since.and_then(|since| since.duration_since(UNIX_EPOCH).ok()) {
        line.word("since", &since.as_secs().to_string());
    }
    if let Some(file) = holder.scheme.file().and_then(|path| path.file_name()) {
        line.text("file", &file.to_string_lossy());
    }
    if let Some(command) = holder.command.as_deref().map(program) {
        let cut: String = command.chars().take(ECHO_CHARS).collect();
        line.text("command", &cut);
    }
    line.0
}

/// The last part of the first word of a command line. What stands in parentheses is said by the search for holders, of one
/// that has no name.
fn program(command: &str) -> &str {
    if command.starts_with('(') {
        return command;
    }
    let first = command.split(' ').next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default()
}

struct StatusLine(String);

impl StatusLine {
    fn word(&mut self, key: &str, value: &str) {
        let needed = key.len().saturating_add(value.len()).saturating_add(2);
        if self.0.len().saturating_add(needed) > REPLY_BYTES - FRAME_BYTES {
            return;
        }
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.extend([key, "=", value]);
    }

    fn text(&mut self, key: &str, value: &str) {
        self.word(key, &quoted(value));
    }
}

fn quoted(text: &str) -> String {
    let backslash = |character: char| matches!(character, '"' | '\\').then_some('\\');
    let escaped = text.chars().flat_map(|it| backslash(it).into_iter().chain([ascii(it)]));
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use rstest::rstest;

    use super::*;
    use ttylock::{Scheme, Standing};

    fn holder() -> Holder {
        let scheme = Scheme::Uucp(PathBuf::from("/run/lock/LCK..ttyUSB0"));
        let mut holder = Holder::new("ttyUSB0", scheme, Standing::Alive);
        holder.pid = Pid::new(1234);
        holder.user = Some(1000);
        holder.command = Some("/usr/bin/minicom -D /dev/ttyUSB0".to_owned());
        holder.since = Some(UNIX_EPOCH + Duration::from_millis(1_763_700_000_999));
        holder
    }

    /// The same holder, changed.
    fn but(change: impl FnOnce(&mut Holder)) -> Holder {
        let mut holder = holder();
        change(&mut holder);
        holder
    }

    fn said(holder: Holder) -> String {
        let report = Report::new(Scope::Device, &[holder], &[]);
        report.lines.first().unwrap().clone()
    }

    #[rstest]
    #[case::everything_in_order(
        holder(),
        "device=\"ttyUSB0\" scheme=uucp standing=alive pid=1234 uid=1000 since=1763700000 file=\"LCK..ttyUSB0\" command=\"minicom\""
    )]
    #[case::nothing(
        but(|it| { it.pid = None; it.user = None; it.command = None; it.since = None; it.standing = Standing::Unknown; }),
        "device=\"ttyUSB0\" scheme=uucp standing=unknown file=\"LCK..ttyUSB0\""
    )]
    #[case::flock(
        but(|it| { it.scheme = Scheme::Flock; it.user = None; it.since = None; it.command = None; }),
        "device=\"ttyUSB0\" scheme=flock standing=alive pid=1234"
    )]
    #[case::open(
        but(|it| { it.scheme = Scheme::Open; it.user = None; it.since = None; it.command = None; }),
        "device=\"ttyUSB0\" scheme=open standing=alive pid=1234"
    )]
    #[case::svr4(
        but(|it| { it.scheme = Scheme::Svr4(PathBuf::from("/x/LK.005.004.064")); it.user = None; it.since = None; it.command = None; it.standing = Standing::Stale; }),
        "device=\"ttyUSB0\" scheme=svr4 standing=stale pid=1234 file=\"LK.005.004.064\""
    )]
    #[case::before_1970(
        but(|it| { it.scheme = Scheme::Open; it.user = None; it.command = None; it.since = Some(UNIX_EPOCH - Duration::from_secs(1)); }),
        "device=\"ttyUSB0\" scheme=open standing=alive pid=1234"
    )]
    #[case::without_a_name(
        but(|it| { it.scheme = Scheme::Flock; it.pid = None; it.user = None; it.since = None; it.command = Some("(a process that is not named)".to_owned()); }),
        "device=\"ttyUSB0\" scheme=flock standing=alive command=\"(a process that is not named)\""
    )]
    #[case::hostile_text(
        but(|it| { it.scheme = Scheme::Open; it.device = "tty\"\\\u{1b}\u{e9}\r\n213 x".to_owned(); it.user = None; it.since = None; it.pid = None; it.command = Some("/a/b\"c\u{7} -x".to_owned()); }),
        r#"device="tty\"\\????213 x" scheme=open standing=alive command="b\"c?""#
    )]
    fn only_what_is_known_is_said(#[case] holder: Holder, #[case] line: &str) {
        assert_eq!(said(holder), line);
    }

    #[rstest]
    #[case::command("x".repeat(1000), "y".to_owned(), "z".to_owned())]
    #[case::device("x".to_owned(), "y".repeat(255), "z".to_owned())]
    #[case::file("x".to_owned(), "y".to_owned(), "z".repeat(255))]
    #[case::all("\"".repeat(300), "\"".repeat(255), "\"".repeat(255))]
    fn a_line_is_bounded(#[case] command: String, #[case] device: String, #[case] file: String) {
        let scheme = Scheme::Uucp(PathBuf::from("/run/lock").join(file));
        let line = said(but(|it| {
            it.command = Some(command);
            it.device = device;
            it.scheme = scheme;
        }));
        assert!(line.len() <= REPLY_BYTES - FRAME_BYTES, "{}", line.len());
        assert!(line.contains("scheme=uucp standing=alive pid=1234"));
        assert!(line.ends_with('"') && !line.ends_with("\\\""), "{line}");
    }

    #[test]
    fn a_key_is_said_if_the_line_has_room_for_it() {
        let of = |length: usize| {
            let scheme = Scheme::Uucp(PathBuf::from("/run/lock").join("z".repeat(length)));
            said(but(|it| {
                it.device = "y".repeat(200);
                it.scheme = scheme;
                it.command = None;
            }))
        };
        let fits = REPLY_BYTES - FRAME_BYTES + 1 - of(1).len();
        assert_eq!(of(fits).len(), REPLY_BYTES - FRAME_BYTES);
        assert!(!of(fits + 1).contains("file="));
    }

    #[test]
    fn clients_that_wait_come_last() {
        let pid = Pid::new(7).unwrap();
        let waiter = Waiter { device: "ttyUSB0".to_owned(), pid, user: Some(1000) };
        let report = Report::new(Scope::Device, &[holder()], &vec![waiter; STATUS_WAITERS + 1]);
        assert_eq!(report.count, format!("holders=1 shown=1 waiting={}", STATUS_WAITERS + 1));
        let lines = report.lines;
        assert_eq!(lines.len(), 1 + STATUS_WAITERS);
        let line = "device=\"ttyUSB0\" scheme=waiting standing=alive pid=7 uid=1000";
        assert!(lines.iter().skip(1).all(|shown| shown == line), "{lines:?}");
    }
}
