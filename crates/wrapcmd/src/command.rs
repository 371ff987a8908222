//! The standby process, which waits for the word to go and then becomes the command; and the messages between
//! it and the wrapper.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;

use crate::exit;
use crate::signals::let_through;
use crate::sys::{self, REAL_PATH};

/// The first argument of the process that stands by. No program's command may be called so.
pub(crate) const WHEN_TOLD: &str = "exec-when-told";

/// Why this process did not become the command.
#[derive(Debug)]
pub enum Refusal {
    /// It was never told to: its caller is gone or has changed its mind.
    Untold,
    /// The command cannot be executed.
    Command {
        /// As it was named.
        program: OsString,
        /// What execve(2) said.
        error: io::Error,
    },
}

impl Refusal {
    /// The exit code, as a shell has it: 126 or 127. None for [`Refusal::Untold`], which no shell
    /// knows.
    #[must_use]
    pub fn code(&self) -> Option<u8> {
        match self {
            Self::Untold => None,
            Self::Command { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                Some(exit::NOT_FOUND)
            }
            Self::Command { .. } => Some(exit::NOT_EXECUTABLE),
        }
    }
}

/// As a shell says it. Holds the command's name as it was given: clean it for a terminal.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Command { program, error } = self else {
            return f.write_str("the wrapper ended before it started the command");
        };
        write!(f, "{}: ", program.to_string_lossy())?;
        let is_path = program.as_encoded_bytes().contains(&b'/');
        if error.kind() == io::ErrorKind::NotFound && !is_path {
            return f.write_str("command not found");
        }
        match error.raw_os_error() {
            Some(number) => f.write_str(Errno::from_raw(number).desc()),
            None => error.fmt(f),
        }
    }
}

/// To be called before anything else, with the arguments behind the program's name. If this
/// process is one that stands by ([`crate::Standby`]), waits for the word and becomes the command;
/// comes back only with the reason why not. `None`: it is not one.
#[must_use]
pub fn take_over<S: AsRef<OsStr>>(mut words: impl Iterator<Item = S>) -> Option<Refusal> {
    words.next().filter(|word| word.as_ref() == WHEN_TOLD)?;
    let mut next = || words.next().map(|word| word.as_ref().to_owned());
    let (Some(descriptor), Some(held), Some(program)) = (next(), next(), next()) else {
        return Some(Refusal::Untold);
    };
    // It inherits no signal mask of ours. Let through at once, so that it can be ended.
    let told = held.to_str().and_then(let_through).and(descriptor.to_str()).and_then(listen);
    let Some(additions) = told else { return Some(Refusal::Untold) };
    let mut command = Command::new(program);
    command.args(words).env_remove(REAL_PATH);
    match std::env::var_os(REAL_PATH) {
        Some(path) => command.env("PATH", path),
        None => command.env_remove("PATH"),
    };
    Some(become_it(command, &additions))
}

/// Becomes the command (execve(2)), with these variables added to its environment; comes back
/// only with the reason why not.
pub fn execute<S: AsRef<OsStr>>(
    program: OsString,
    arguments: impl Iterator<Item = S>,
    additions: &[(String, String)],
) -> Refusal {
    let mut command = Command::new(program);
    command.args(arguments);
    become_it(command, additions)
}

fn become_it(mut command: Command, additions: &[(String, String)]) -> Refusal {
    let error = command.envs(additions.iter().map(|(name, value)| (name, value))).exec();
    Refusal::Command { program: command.get_program().to_owned(), error }
}

/// The word, with what to add to the environment: `NAME=VALUE` and NUL for each, and a last NUL
/// that shows that all of it has come.
pub(crate) fn word(additions: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (name, value) in additions {
        text.extend([name, "=", value, "\0"]);
    }
    text.push('\0');
    text.into_bytes()
}

/// Reads [`word`]. `None`: the other side was gone before it had said it all.
fn heard(text: &str) -> Option<Vec<(String, String)>> {
    let text = text.strip_suffix('\0')?;
    if text.is_empty() {
        return Some(Vec::new());
    }
    let addition = |item: &str| {
        let (name, value) = item.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    text.strip_suffix('\0')?.split('\0').map(addition).collect()
}

/// Waits for the word. Nothing at all means that the wrapper is gone, so nothing is held.
fn listen(descriptor: &str) -> Option<Vec<(String, String)>> {
    heard(&sys::hear(inherited(descriptor)?)?)
}

/// The number of a descriptor that was inherited for us alone, so none of the standard ones.
pub(crate) fn inherited(descriptor: &str) -> Option<i32> {
    let digits = descriptor.bytes().all(|byte| byte.is_ascii_digit());
    descriptor.parse().ok().filter(|number| digits && *number > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_back_whole_or_not_at_all() {
        let tables: [&[(&str, &str)]; 4] =
            [&[], &[("A", "1")], &[("A", ""), ("B", "x=y")], &[("A", "a\nb")]];
        for additions in tables {
            let said = String::from_utf8(word(additions)).unwrap();
            let expected = additions.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
            assert_eq!(heard(&said), Some(expected), "{said:?}");
            for end in 0..said.len() {
                let cut = said.get(..end).unwrap_or_default();
                assert_eq!(heard(cut), None, "{cut:?}");
            }
        }
    }

    #[test]
    fn refusals_are_worded_and_numbered_as_a_shell_does() {
        let refusal = |program: &str, errno| Refusal::Command {
            program: program.into(),
            error: io::Error::from_raw_os_error(errno as i32),
        };
        let table = [
            (refusal("x", Errno::ENOENT), Some(127), "x: command not found"),
            (refusal("./x", Errno::ENOENT), Some(127), "./x: No such file or directory"),
            (refusal("x", Errno::EACCES), Some(126), "x: Permission denied"),
            (refusal("x", Errno::ENOEXEC), Some(126), "x: Exec format error"),
            (Refusal::Untold, None, "the wrapper ended before it started the command"),
        ];
        for (refusal, code, words) in table {
            assert_eq!((refusal.code(), refusal.to_string().as_str()), (code, words));
        }
    }
}
