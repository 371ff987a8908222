//! The command `dflock`: arguments in, words and an exit code out.
//!
//! Decides nothing about locks; every answer is the server's.

mod admin;
mod args;
mod ask;
#[cfg(unix)]
mod bench;
mod outcome;
mod reach;
mod run;
/// What the program asks of the operating system: how a command is started, attended and stopped, which signals end the
/// program, and its user.
#[cfg_attr(unix, path = "sys/posix.rs")]
#[cfg_attr(windows, path = "sys/windows.rs")]
mod sys;
mod wanted;

use crate::terms::seconds;
use crate::{Client, Settings};
use args::{Arguments, Command};
use clap::CommandFactory;
use outcome::{Failure, complain, print};
use std::process::ExitCode;
use wrapcmd::Form;
use wrapcmd::usage::{self, OwnWords};

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
    if let Some(code) = run::become_command() {
        return ExitCode::from(code);
    }
    let words = reach::separated(std::env::args_os().collect());
    let (form, outcome) = match reach::arguments(&words) {
        Ok(arguments) => (arguments.form(), perform(arguments)),
        Err(error) if !error.use_stderr() => (Form::Text, print(&error.to_string()).map(|()| 0)),
        Err(error) if OwnWords::of(&command(), &words).have("json") => {
            (Form::Json, Err(Failure::Usage(usage::message(&error))))
        }
        Err(error) => {
            // Where even the complaint cannot be written, the exit code says it.
            let _ = error.print();
            return ExitCode::from(USAGE);
        }
    };
    ExitCode::from(outcome.unwrap_or_else(|failure| {
        complain(&failure, form);
        failure.exit_code()
    }))
}

fn perform(arguments: Arguments) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::System("starting", error))?;
    let outcome = runtime.block_on(converse(arguments));
    // A reader of standard input may be blocked for ever; nothing waits for it.
    runtime.shutdown_background();
    outcome
}

async fn converse(arguments: Arguments) -> Result<u8, Failure> {
    let form = arguments.form();
    let Arguments { reach, command: wanted, .. } = arguments;
    let client = || -> Result<Client, Failure> { Ok(Client::new(reach::settings(&reach)?)?) };
    let holder = |terms: &args::Terms, command: &str| -> Result<Settings, Failure> {
        let name = terms.name.clone().unwrap_or_else(|| reach::name_of_this_process(command));
        let value = terms.value.clone();
        Ok(Settings { name: Some(name), value, ..reach::settings(&reach)? })
    };
    match wanted {
        Command::Run(run) => {
            let mut settings = holder(&run.terms, &reach::name_of_command(&run.command))?;
            settings.margin = run::margin(&run);
            settings.reclaim = run.reclaim.map(seconds);
            return run::run(&run, Client::new(settings)?, form).await;
        }
        Command::Acquire(acquire) => {
            let settings = holder(&acquire.terms, "dflock acquire")?;
            return ask::acquire(&acquire, &Client::new(settings)?, form).await;
        }
        Command::Release(held) => ask::release(&held, &client()?, form).await?,
        Command::Renew(renew) => ask::renew(&renew, &client()?, form).await?,
        Command::Watch(watch) => return ask::watch(&watch, &client()?, form).await,
        Command::Stats(stats) => return ask::stats(&stats, &client()?, form).await,
        Command::Ping => return ask::ping(&client()?, form).await,
        Command::ForceRelease(wish) => {
            admin::force_release(&wish, &reach, &client()?, form).await?;
        }
        Command::Kick(wish) => admin::kick(&wish, &reach, &client()?, form).await?,
        #[cfg(unix)]
        Command::Bench(bench) => return bench::bench(bench, &reach, form).await,
        Command::Completions { shell } => print(&wrapcmd::completions(shell, &command()))?,
    }
    Ok(0)
}
