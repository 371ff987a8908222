//! The command `dflock`: arguments in, words and an exit code out.
//!
//! Decides nothing about locks; every answer is the server's.

mod admin;
mod args;
mod ask;
#[cfg(unix)]
mod bench;
mod examples;
mod holder;
mod http;
mod name;
mod outcome;
mod reach;
mod run;
mod step;
mod sys;
mod watch;

use args::{Arguments, Command};
use clap::CommandFactory;
use outcome::Failure;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Exit code for arguments that cannot be read (sysexits.h, EX_USAGE).
const USAGE: u8 = 64;

/// What can be said on the command line, for manuals and completions.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the program with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = step::become_command() {
        return ExitCode::from(code);
    }
    let arguments = match reach::arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            return ExitCode::from(show(&error));
        }
    };
    let json = arguments.json;
    match perform(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            complain(&failure, json);
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Complaints and what `--help` and `--version` ask for; the latter must not get lost unnoticed.
fn show(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        let _ = error.print();
        return USAGE;
    }
    match print(&error.to_string()) {
        Ok(()) => 0,
        Err(failure) => {
            complain(&failure, false);
            failure.exit_code()
        }
    }
}

fn perform(arguments: Arguments) -> Result<u8, Failure> {
    let Arguments { reach, json, command: wanted } = arguments;
    match wanted {
        Command::Completions { shell } => {
            print(&wrapcmd::completions(shell, &command()))?;
            Ok(0)
        }
        #[cfg(unix)]
        Command::Bench(bench) => with_runtime(bench::bench(&bench, &reach, json)),
        Command::Run(_)
        | Command::Acquire(_)
        | Command::Release(_)
        | Command::Renew(_)
        | Command::Watch(_)
        | Command::Stats(_)
        | Command::ForceRelease(_)
        | Command::Kick(_)
        | Command::Ping => with_runtime(converse(wanted, &reach, json)),
    }
}

fn with_runtime(conversation: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::System("starting", error))?;
    let outcome = runtime.block_on(conversation);
    // A reader of standard input may be blocked for ever; nothing waits for it.
    runtime.shutdown_background();
    outcome
}

async fn converse(command: Command, reach: &args::Reach, json: bool) -> Result<u8, Failure> {
    let mut settings = reach::settings(reach)?;
    match command {
        Command::Run(run) => {
            settings.margin = run::margin(&run);
            settings.reclaim = run.reclaim.map(|s| Duration::from_secs(s.into()));
            settings.name = Some(named(&run.terms, &name::of_command(&run.command)));
            settings.value.clone_from(&run.terms.value);
            return run::run(&run, reach::client(settings)?, json).await;
        }
        Command::Acquire(acquire) => {
            settings.name = Some(named(&acquire.terms, "dflock acquire"));
            settings.value.clone_from(&acquire.terms.value);
            ask::acquire(&acquire, &reach::client(settings)?, json).await?
        }
        Command::Release(held) => ask::release(&held, &reach::client(settings)?, json).await?,
        Command::Renew(renew) => ask::renew(&renew, &reach::client(settings)?, json).await?,
        Command::Watch(watch) => {
            return watch::watch(&watch, &reach::client(settings)?, json).await;
        }
        Command::Stats(stats) => ask::stats(&stats, &reach::client(settings)?, json).await?,
        Command::Ping => ask::ping(&reach::client(settings)?, json).await?,
        Command::ForceRelease(wish) => {
            admin::force_release(&wish, reach, &reach::client(settings)?, json).await?
        }
        Command::Kick(wish) => admin::kick(&wish, reach, &reach::client(settings)?, json).await?,
        #[cfg(unix)]
        Command::Bench(_) => {}
        Command::Completions { .. } => {}
    }
    Ok(0)
}

fn named(terms: &args::Terms, command: &str) -> String {
    terms.name.clone().unwrap_or_else(|| name::of_this_process(command))
}

/// Writes to standard output; a reader that went away is no failure.
fn print(text: &str) -> Result<(), Failure> {
    wrapcmd::print(text).map_err(|error| Failure::System("standard output", error))
}

/// Writes to standard output what somebody must read.
fn print_all(bytes: &[u8]) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let written = output.write_all(bytes).and_then(|()| output.flush());
    written.map_err(|error| Failure::System("standard output", error))
}

/// Says on standard error what is not the end of it.
fn mention(text: &str, json: bool) {
    if !json {
        let _ = writeln!(io::stderr(), "dflock: {text}");
    }
}

fn complain(failure: &Failure, json: bool) {
    let line = if json {
        let message = failure.to_string();
        serde_json::json!({ "error": failure.word(), "message": message }).to_string()
    } else {
        format!("dflock: {failure}")
    };
    // Standard error may be closed; the exit code says it too.
    let _ = writeln!(io::stderr(), "{line}");
}
