//! The program `dflock`: what people type. Arguments in, words and an exit code out.
//!
//! Decides nothing about locks; every answer is the server's.

mod args;
mod ask;
mod child;
mod outcome;
mod reach;
mod run;
mod signals;
mod terminal;

use args::{Arguments, Command};
use clap::{CommandFactory, Parser};
use outcome::Failure;
use std::io::{self, Write};
use std::process::ExitCode;

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
    if let Some(code) = child::become_command() {
        return ExitCode::from(code);
    }
    let arguments = match Arguments::try_parse() {
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
    match print(error.to_string().as_bytes()) {
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
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "dflock", &mut script);
            print(&script)?;
            Ok(0)
        }
        Command::Bench(bench) => ask::bench(&bench, &reach, json),
        Command::Run(_)
        | Command::Acquire(_)
        | Command::Release(_)
        | Command::Renew(_)
        | Command::Stats
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
            return run::run(&run, reach::client(settings)?, json).await;
        }
        Command::Acquire(acquire) => {
            ask::acquire(&acquire, &reach::client(settings)?, json).await?
        }
        Command::Release(held) => ask::release(&held, &reach::client(settings)?, json).await?,
        Command::Renew(renew) => ask::renew(&renew, &reach::client(settings)?, json).await?,
        Command::Stats => ask::stats(&reach::client(settings)?, json).await?,
        Command::Ping => ask::ping(&reach::client(settings)?, json).await?,
        Command::Bench(_) | Command::Completions { .. } => {}
    }
    Ok(0)
}

/// Writes to standard output; a reader that went away is no failure.
fn print(bytes: &[u8]) -> Result<(), Failure> {
    match print_all(bytes) {
        Err(Failure::System(_, error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// Writes to standard output what somebody must read.
fn print_all(bytes: &[u8]) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let written = output.write_all(bytes).and_then(|()| output.flush());
    written.map_err(|error| Failure::System("standard output", error))
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
