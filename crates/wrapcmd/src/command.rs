//! The standby process, which waits for the word to go and then becomes the command; and the messages between
//! it and the wrapper.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::json::Form;
use crate::signals::let_through;
use crate::start_error::StartError;
use crate::sys::{self, REAL_PATH};

/// The first argument of the process that stands by, by the form of its message if the command cannot be executed.
/// No program's command may be called so.
const TEXT_ROLE: &str = "exec-when-told";
const JSON_ROLE: &str = "exec-when-told-or-json";

/// The first argument of a process with messages of this form.
pub(crate) fn role(form: Form) -> &'static str {
    if form == Form::Json { JSON_ROLE } else { TEXT_ROLE }
}

/// To be called before anything else, with the arguments behind the program's name. If this
/// process is one that stands by ([`crate::Standby`]), waits for the word and becomes the command;
/// comes back only with the reason why not, and the form in which to report it. `None`: it is not one.
#[must_use]
pub fn take_over<S: AsRef<OsStr>>(
    mut words: impl Iterator<Item = S>,
) -> Option<(StartError, Form)> {
    let form = match words.next()?.as_ref().to_str()? {
        TEXT_ROLE => Form::Text,
        JSON_ROLE => Form::Json,
        _ => return None,
    };
    Some((when_told(words), form))
}

fn when_told<S: AsRef<OsStr>>(mut words: impl Iterator<Item = S>) -> StartError {
    let mut next = || words.next().map(|word| word.as_ref().to_owned());
    let (Some(descriptor), Some(held), Some(program)) = (next(), next(), next()) else {
        return StartError::WrapperEnded;
    };
    // It inherits no signal mask of ours. Let through at once, so that it can be ended.
    let told = held.to_str().and_then(let_through).and(descriptor.to_str()).and_then(listen);
    let Some(additions) = told else { return StartError::WrapperEnded };
    let mut command = Command::new(program);
    command.args(words).env_remove(REAL_PATH);
    match std::env::var_os(REAL_PATH) {
        Some(path) => command.env("PATH", path),
        None => command.env_remove("PATH"),
    };
    become_it(command, &additions)
}

/// Becomes the command (execve(2)), with these variables added to its environment; comes back
/// only with the reason why not.
pub fn execute<S: AsRef<OsStr>>(
    program: OsString,
    arguments: impl Iterator<Item = S>,
    additions: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
) -> StartError {
    let mut command = Command::new(program);
    command.args(arguments);
    become_it(command, additions)
}

fn become_it(
    mut command: Command,
    additions: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
) -> StartError {
    let error = command.envs(additions.iter().map(|(name, value)| (name, value))).exec();
    StartError::Command { program: command.get_program().to_owned(), error }
}

/// The word, with what to add to the environment: `NAME=VALUE` and NUL for each, and a last NUL
/// that shows that all of it has come.
pub(crate) fn word(additions: &[(&str, impl AsRef<str>)]) -> Vec<u8> {
    let mut text = String::new();
    for (name, value) in additions {
        text.extend([name, "=", value.as_ref(), "\0"]);
    }
    text.push('\0');
    text.into_bytes()
}

/// Reads [`word`]. `None`: the other side was gone before it had said it all.
fn heard(text: &str) -> Option<Vec<(String, String)>> {
    let all = text.strip_suffix('\0').filter(|all| all.is_empty() || all.ends_with('\0'))?;
    let additions = all.split_terminator('\0').map(|item| item.split_once('='));
    additions.map(|it| it.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

/// Waits for the word. Nothing at all means that the wrapper is gone, so nothing is held. The descriptor was inherited
/// for us alone, so it is none of the standard ones.
fn listen(descriptor: &str) -> Option<Vec<(String, String)>> {
    let digits = descriptor.bytes().all(|byte| byte.is_ascii_digit());
    heard(&sys::hear(descriptor.parse().ok().filter(|number| digits && *number > 2)?)?)
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
}
