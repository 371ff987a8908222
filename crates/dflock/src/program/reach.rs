//! Turns arguments and environment into client settings. One of them is the name under which the server shows a holder to
//! people: user, host, process, command.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use leases::wire::MAX_AUTH_LINE_BYTES;
use wrapcmd::usage::{self, OwnWords};

use super::args::{Arguments, Reach};
use super::outcome::Failure;
use super::sys;
use crate::terms::seconds;
use crate::{ClientError, Key, Servers, Settings, Tls, TlsRoots};

/// The protocol has room for this much on the line of an auth token.
const MAX_TOKEN_BYTES: u64 = MAX_AUTH_LINE_BYTES as u64;

/// Reads a command line ([`separated`]). Of the two lists of servers the one that counts is left: what is typed
/// beats the environment.
///
/// # Errors
/// What is wrong with it, or help or the version that was asked for.
pub(super) fn arguments(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let command = without_empty_variables(Arguments::command());
    let matches = usage::parse(command, words, &WORDS_ELSEWHERE)?;
    if let Some(word) = matches.subcommand_matches("run").and_then(doubtful_key) {
        let words = format!(
            "is '{word}' a key or the command? Write --key {word} if it is a key, and -- {word} if it is the command"
        );
        return Err(Arguments::command().error(ErrorKind::ArgumentConflict, words));
    }
    let mut arguments = Arguments::from_arg_matches(&matches)?;
    let Reach { servers, any_of, .. } = &mut arguments.reach;
    match weight(&matches, "servers").cmp(&weight(&matches, "any_of")) {
        Ordering::Less => servers.clear(),
        Ordering::Greater => any_of.clear(),
        Ordering::Equal if any_of.is_empty() => {}
        Ordering::Equal => {
            let words = "--server (DFLOCK_SERVERS) names shards, --any-of (DFLOCK_ANY_OF) one service: \
                         say one of them";
            return Err(Arguments::command().error(ErrorKind::ArgumentConflict, words));
        }
    }
    Ok(arguments)
}

/// The words of this process, with `--` before the command of `run`. The first operand of `run` is the key, unless
/// `--key` stands before it; then the command begins with it.
pub(super) fn separated(mut words: Vec<OsString>) -> Vec<OsString> {
    let program = Arguments::command();
    let own = OwnWords::of(&program, &words);
    if own.command.as_deref() != Some("run") {
        return words;
    }
    let begin = match own.operands.as_slice() {
        [first, ..] if own.options.iter().all(|(at, id)| *id != "keys" || at > first) => {
            own.operands.get(1)
        }
        // Refused later: see `doubtful_key`.
        [_] if own.separator.is_some() => None,
        operands => operands.first(),
    };
    if let Some(begin) = begin.copied() {
        words.insert(begin, "--".into());
    }
    words
}

/// `--key a b -- make`: a user who overlooks the rule would run without the lock `b`.
fn doubtful_key(run: &ArgMatches) -> Option<String> {
    let is_after = run.index_of("keys")? < run.index_of("key")?;
    let key = run.get_one::<OsString>("key").filter(|_| is_after)?;
    Some(key.to_string_lossy().into_owned())
}

/// Words for the commands in other lock programs, and the command of this one.
const WORDS_ELSEWHERE: [(&str, &str); 5] = [
    ("lock", "acquire"),
    ("unlock", "release"),
    ("status", "stats"),
    ("list", "stats"),
    ("who", "stats"),
];

/// A variable that is set to nothing is as good as unset, as it is for the server.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &clap::Arg| {
        arg.get_env().is_some_and(|name| std::env::var_os(name).is_some_and(|it| it.is_empty()))
    };
    let unset = move |arg: clap::Arg| if is_empty(&arg) { arg.env(None) } else { arg };
    command.mut_args(unset).mut_subcommands(without_empty_variables)
}

/// How much it counts where these values come from.
fn weight(matches: &ArgMatches, id: &str) -> u8 {
    match matches.value_source(id) {
        Some(ValueSource::CommandLine) => 2,
        Some(ValueSource::EnvVariable) => 1,
        Some(_) | None => 0,
    }
}

pub(super) fn settings(reach: &Reach) -> Result<Settings, Failure> {
    let patience = seconds(reach.patience);
    Ok(Settings {
        servers: servers(reach),
        auth_token: token(
            "--auth-token-file",
            reach.auth_token_file.as_deref(),
            "DFLOCK_AUTH_TOKEN",
        )?,
        trusts_fences: reach.trust_fences,
        tls: tls(reach)?,
        connect_limit: patience,
        answer_limit: patience,
        read_timeout: seconds(reach.read_timeout),
        ..Settings::default()
    })
}

/// One of the two lists is empty.
fn servers(reach: &Reach) -> Servers {
    if reach.any_of.is_empty() {
        Servers::Shards(reach.servers.clone())
    } else {
        Servers::AnyOf(reach.any_of.clone())
    }
}

/// The file, which `option` names, beats the environment: a file is named on purpose.
pub(super) fn token(
    option: &str,
    file: Option<&Path>,
    variable: &str,
) -> Result<Option<Vec<u8>>, Failure> {
    let bytes = match file {
        Some(path) => read_token(option, path)?,
        None => match std::env::var_os(variable).filter(|token| !token.is_empty()) {
            Some(token) => bytes(&token)?.to_vec(),
            None => return Ok(None),
        },
    };
    let token = bytes.trim_ascii();
    if token.is_empty() {
        return Err(Failure::Settings(format!(
            "{}: the token is empty",
            from(option, file, variable)
        )));
    }
    if token.contains(&b'\n') || token.contains(&b'\r') {
        let place = from(option, file, variable);
        return Err(Failure::Settings(format!("{place}: the token has more than one line")));
    }
    Ok(Some(token.to_vec()))
}

/// Where a token comes from.
fn from(option: &str, file: Option<&Path>, variable: &str) -> String {
    file.map_or_else(|| variable.to_owned(), |path| format!("{option} {}", path.display()))
}

/// What was typed, as the server is to have it.
pub(super) fn bytes(argument: &OsStr) -> Result<&[u8], Failure> {
    sys::bytes(argument)
        .ok_or_else(|| Failure::Usage("an argument is not valid Unicode".to_owned()))
}

/// A key that was typed.
pub(super) fn key(argument: &OsStr) -> Result<Key, Failure> {
    Ok(Key::new(bytes(argument)?).map_err(ClientError::InvalidArgument)?)
}

fn read_token(option: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |what| Failure::Settings(format!("{option} {}: {what}", path.display()));
    let mut bytes = Vec::new();
    let outcome =
        File::open(path).and_then(|file| file.take(MAX_TOKEN_BYTES + 1).read_to_end(&mut bytes));
    match outcome {
        Err(error) => Err(failed(error.to_string())),
        Ok(_) if bytes.len() as u64 > MAX_TOKEN_BYTES => {
            Err(failed("too long for a token".to_owned()))
        }
        Ok(_) => Ok(bytes),
    }
}

pub(super) fn tls(reach: &Reach) -> Result<Option<Tls>, Failure> {
    if !reach.tls && reach.tls_ca.is_none() && reach.tls_name.is_none() {
        return Ok(None);
    }
    let roots = reach.tls_ca.clone().map_or(TlsRoots::System, TlsRoots::File);
    let named = |error| match (&reach.tls_ca, error) {
        (Some(_), ClientError::Tls(what)) => Failure::Settings(format!("--tls-ca {what}")),
        (_, error) => error.into(),
    };
    Ok(Some(Tls::new(&roots, reach.tls_name.clone()).map_err(named)?))
}

/// `alice@db1[4711] backup`. Never the arguments of the command: there may be secrets in them, and
/// everybody who may see the server's state reads this.
pub(super) fn name_of_this_process(command: &str) -> String {
    format!("{}@{}[{}] {command}", sys::user(), sys::host(), std::process::id())
}

/// The name of a program without its directory.
pub(super) fn name_of_command(command: &[OsString]) -> String {
    let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    program.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::name_of_command;
    use rstest::rstest;

    #[rstest]
    #[case(&["/usr/bin/mysqldump", "--password=secret"], "mysqldump")]
    #[case(&["rsync"], "rsync")]
    #[case(&[], "")]
    fn a_command_is_named_without_its_arguments(#[case] command: &[&str], #[case] name: &str) {
        let command: Vec<_> = command.iter().map(Into::into).collect();
        assert_eq!(name_of_command(&command), name);
    }
}
