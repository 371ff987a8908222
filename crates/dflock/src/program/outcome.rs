//! The outcomes of `dflock` as a closed list, with their exit codes and words; and how answers and failures are
//! written.

use crate::{ClientError, Key, Loss, Refusal, ServerAddress};
use serde_json::{Value, json};
use std::fmt;
use std::io::{self, Write};
use wrapcmd::{Form, exit};

/// What is said of a holder whose name the server does not know.
pub(super) const NAMELESS: &str = "held by another client";

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// Somebody holds it, and we were not to wait. With the words that say who, if somebody reads them.
    Busy(Option<String>),
    /// Somebody held it all the time we were to wait. The same.
    TimedOut(Option<String>),
    /// There is nothing that could be taken away; this says what is missing.
    Nothing(&'static str),
    /// The lease was lost while the command ran: that of this key, if there are several.
    Lost(Option<Key>, Loss),
    /// The lease was lost, and these processes could not be ended.
    RunsOn(Survivors),
    /// An argument that cannot be used.
    Usage(String),
    /// The key has another number of slots than `--one-of` has items.
    OtherLimit(usize),
    /// The server does not say which slot was granted.
    NoSlots,
    /// A file of ours that cannot be used.
    Settings(String),
    /// A step the system refused.
    System(&'static str, io::Error),
    /// The command cannot be executed.
    NotStarted(wrapcmd::StartError),
    /// Whatever the client library reports.
    Client(ClientError),
    /// Nobody listens at the HTTP port of a server.
    NoHttp(ServerAddress, io::Error),
    /// What the client library reports about one of several servers that were asked.
    Asked(ServerAddress, ClientError),
}

/// Processes of a command that could not be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(windows, expect(dead_code, reason = "the system ends all of them"))]
pub(super) enum Survivors {
    /// The command itself, and maybe others. Its process number.
    Command(i32),
    /// Processes that it has started, and that are in its process group.
    Group(i32),
}

impl fmt::Display for Survivors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(pid) => write!(f, "process {pid}"),
            Self::Group(group) => write!(f, "process group {group}"),
        }
    }
}

impl Failure {
    /// See the table in `dflock --help` and dflock(1).
    pub(super) fn exit_code(&self) -> u8 {
        self.code_and_word().0
    }

    /// A word for programs.
    pub(super) fn word(&self) -> &'static str {
        self.code_and_word().1
    }

    fn code_and_word(&self) -> (u8, &'static str) {
        match self {
            Self::Busy(_) => (1, "busy"),
            Self::Nothing(_) => (1, "not_held"),
            Self::Usage(_) => (64, "usage"),
            Self::OtherLimit(_) => (64, Refusal::LimitMismatch.word()),
            Self::NoSlots => (76, "no_slots"),
            Self::System(..) => (71, "system"),
            Self::Lost(..) => (74, "lease_lost"),
            Self::RunsOn(_) => (74, "runs_on"),
            Self::TimedOut(_) => (75, "timeout"),
            Self::Settings(_) => (78, "settings"),
            Self::NotStarted(error) => (
                error.code().unwrap_or(exit::NOT_EXECUTABLE),
                if error.is_not_found() { "not_found" } else { "not_executable" },
            ),
            Self::NoHttp(..) => (69, "unreachable"),
            Self::Client(error) | Self::Asked(_, error) => of_client(error),
        }
    }

    /// Whether somebody holds what was asked for, or nobody does: the exit code alone may say that.
    pub(super) fn is_about_holders(&self) -> bool {
        self.exit_code() == 1 || matches!(self, Self::TimedOut(_))
    }

    /// One object for programs.
    pub(super) fn to_json(&self) -> Value {
        let mut object = json!({ "error": self.word(), "message": self.to_string() });
        if let (Self::RunsOn(Survivors::Command(pid)), Some(members)) =
            (self, object.as_object_mut())
        {
            members.insert("pid".to_owned(), json!(pid));
        }
        object
    }
}

fn of_client(error: &ClientError) -> (u8, &'static str) {
    match error {
        ClientError::Refused(Refusal::Error) => (1, "not_held"),
        ClientError::Refused(Refusal::LimitMismatch) => (64, Refusal::LimitMismatch.word()),
        ClientError::Refused(Refusal::Auth) => (77, Refusal::Auth.word()),
        ClientError::Refused(refusal) => (69, refusal.word()),
        ClientError::InvalidArgument(_) | ClientError::NoServer => (64, "usage"),
        ClientError::Connect { .. } | ClientError::Broken(_) | ClientError::TimedOut => {
            (69, "unreachable")
        }
        ClientError::Protocol(_) => (76, "protocol"),
        ClientError::NotShared => (76, "not_shared"),
        ClientError::NotWatched(_) => (76, "not_watched"),
        ClientError::Tls(_) => (78, "settings"),
        ClientError::EndsWithConnection { .. } => (78, "released_on_disconnect"),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(None) => f.write_str(NAMELESS),
            Self::Busy(Some(holder)) => write!(f, "busy: {holder}"),
            Self::Nothing(what) => f.write_str(what),
            Self::TimedOut(None) => f.write_str("timed out waiting"),
            Self::TimedOut(Some(holder)) => write!(f, "timed out waiting: {holder}"),
            Self::Lost(None, loss) => write!(f, "lease lost: {loss}"),
            Self::Lost(Some(key), loss) => write!(f, "lease lost: {key}: {loss}"),
            Self::RunsOn(survivors) => write!(
                f,
                "{survivors} cannot be ended and runs on without the lock; a command of another user needs a dflock \
                 of that user: `sudo dflock run ...`, not `dflock run ... sudo`"
            ),
            Self::Usage(what) | Self::Settings(what) => f.write_str(what),
            Self::OtherLimit(items) => write!(
                f,
                "the key is in use with another limit than the {items} items of --one-of: all who use it must name \
                 the same items"
            ),
            Self::NoSlots => f.write_str(
                "the server does not tell which slot it grants, so no item of --one-of can be chosen",
            ),
            Self::System(step, error) => write!(f, "{step}: {error}"),
            Self::NotStarted(error) => error.fmt(f),
            Self::Client(ClientError::Refused(Refusal::Error)) => {
                f.write_str("the token does not hold this key")
            }
            Self::Client(error @ ClientError::EndsWithConnection { .. }) => write!(
                f,
                "{error}; use `dflock run` or --hold, or a server with \
                 --auto-release-on-disconnect=false, or with a --disconnect-grace as long as the lease"
            ),
            Self::Client(ClientError::Connect { server, error })
            | Self::Asked(_, ClientError::Connect { server, error })
                if is_nobody(error) =>
            {
                write!(
                    f,
                    "cannot connect to {server}: {error}; start dflockd there, or see --server"
                )
            }
            Self::NoHttp(server, error) => write!(
                f,
                "cannot connect to {server}: {error}; start dflockd there with --http-port and --admin-token-file, and \
                 name that port with --http-port here"
            ),
            // These name their server themselves.
            Self::Client(error) | Self::Asked(_, error @ ClientError::Connect { .. }) => {
                error.fmt(f)
            }
            Self::Asked(server, error) => write!(f, "{server}: {error}"),
        }
    }
}

/// No program listens there.
pub(super) fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// Prints an answer in the form that was asked for.
pub(super) fn answer(
    form: Form,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> Value,
) -> Result<(), Failure> {
    match form {
        Form::Text => print(&text()),
        Form::Json => print(&json_line(&json())),
        Form::Quiet => Ok(()),
    }
}

/// One line of JSON.
pub(super) fn json_line(value: &Value) -> String {
    wrapcmd::json(value) + "\n"
}

/// Writes to standard output; a reader that went away is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    wrapcmd::print(text).map_err(|error| Failure::System("standard output", error))
}

/// Writes to standard output what somebody must read.
pub(super) fn print_all(bytes: &[u8]) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let written = output.write_all(bytes).and_then(|()| output.flush());
    written.map_err(|error| Failure::System("standard output", error))
}

/// Reports on standard error something that does not end the command.
pub(super) fn mention(text: &str, form: Form) {
    if form == Form::Text {
        let _ = writeln!(io::stderr(), "dflock: {text}");
    }
}

/// Says why it was not done. JSON takes the place of an answer.
pub(super) fn complain(failure: &Failure, form: Form) {
    match form {
        Form::Json => {
            if let Err(unwritten) = print(&json_line(&failure.to_json())) {
                let _ = writeln!(io::stderr(), "dflock: {unwritten}");
            }
        }
        Form::Quiet if failure.is_about_holders() => {}
        Form::Text | Form::Quiet => {
            let _ = writeln!(io::stderr(), "dflock: {failure}");
        }
    }
}

/// Complains about a command that has begun: standard output is the command's.
pub(super) fn complain_beside_command(failure: &Failure, form: Form) {
    match form {
        Form::Json => {
            let _ = io::stderr().write_all(json_line(&failure.to_json()).as_bytes());
        }
        Form::Text | Form::Quiet => complain(failure, form),
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;
    use crate::{ClientError, Loss, Refusal, ServerAddress};
    use rstest::rstest;
    use std::io;

    fn refused(refusal: Refusal) -> Failure {
        Failure::Client(ClientError::Refused(refusal))
    }

    fn unreachable() -> Failure {
        let error = io::ErrorKind::ConnectionRefused.into();
        ClientError::Connect { server: ServerAddress::local_default(), error }.into()
    }

    /// `a_failure_in_json` shows the others.
    #[rstest]
    #[case(Failure::Nothing("x"), 1, "not_held")]
    #[case(unreachable(), 69, "unreachable")]
    #[case(ClientError::TimedOut.into(), 69, "unreachable")]
    #[case(refused(Refusal::Draining), 69, "error_draining")]
    #[case(refused(Refusal::MaxLocks), 69, "error_max_locks")]
    #[case(refused(Refusal::MaxWaiters), 69, "error_max_waiters")]
    #[case(Failure::System("spawn", io::ErrorKind::NotFound.into()), 71, "system")]
    #[case(Failure::Lost(None, Loss::NotHeld), 74, "lease_lost")]
    #[case(ClientError::Protocol("?".into()).into(), 76, "protocol")]
    #[case(ClientError::NotShared.into(), 76, "not_shared")]
    #[case(ClientError::NotWatched("watch").into(), 76, "not_watched")]
    #[case(refused(Refusal::Auth), 77, "error_auth")]
    #[case(ClientError::Tls("x".into()).into(), 78, "settings")]
    fn each_failure_has_its_code_and_word(
        #[case] failure: Failure,
        #[case] code: u8,
        #[case] word: &str,
    ) {
        assert_eq!((failure.exit_code(), failure.word()), (code, word));
        assert!(!failure.to_string().is_empty());
    }
}
