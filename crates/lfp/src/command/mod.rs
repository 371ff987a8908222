//! The command `lfp`.
//!
//! Arguments → an action → a broker (the service, or the files themselves) → text or JSON, and an exit code.
//! It needs no rights of its own: what the caller may not do, the service may do.

mod actions;
mod arguments;
mod clean;
mod command_lines;
mod devices;
#[cfg_attr(not(target_os = "linux"), path = "exclusive_elsewhere.rs")]
mod exclusive;
mod executable;
mod listing;
mod outcome;
mod preempt;
mod requests;
mod row;
mod run;
mod search;
mod shim;
mod waiting;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue};
use wrapcmd::Form;
use wrapcmd::usage::{self, OwnWords};

pub use arguments::command;

use arguments::{Action, Options};
use outcome::{Failure, Output, exit};

/// Runs the program to its end. The arguments are with the program's name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some((error, form)) = wrapcmd::take_over(arguments.iter().skip(1)) {
        return ExitCode::from(Output::new(form).not_started(error));
    }
    if let Some(pids) = command_lines::asked(&arguments) {
        // Without an answer the caller shows less.
        let _ = command_lines::print(&pids);
        return ExitCode::from(exit::DONE);
    }
    let _ = pidlockfile::catch_file_size_signal();
    let words = usage::parse(command(), &arguments, &WORDS_ELSEWHERE).map_err(with_advice);
    match words.and_then(|words| Options::from_arg_matches(&words)) {
        Ok(options) => ExitCode::from(act(options)),
        Err(error) if error.use_stderr() && OwnWords::of(&command(), &arguments).have("json") => {
            Output::new(Form::Json).complain(&Failure::usage(usage::message(&error)));
            ExitCode::from(exit::USAGE)
        }
        Err(error) if error.use_stderr() => {
            // Where even the complaint cannot be written, the exit code says it.
            let _ = error.print();
            ExitCode::from(exit::USAGE)
        }
        // Help, or the version.
        Err(answer) => {
            let output = Output::new(Form::Text);
            output.print(&answer.render().to_string());
            ExitCode::from(if output.is_lost() { exit::OUTPUT } else { exit::DONE })
        }
    }
}

/// Words for the commands in other lock programs, and the command of this one.
const WORDS_ELSEWHERE: [(&str, &str); 5] = [
    ("acquire", "lock"),
    ("release", "unlock"),
    ("status", "who"),
    ("force-release", "unlock --force"),
    ("watch", "who --watch"),
];

/// A device in the place of a command: most users who write this want to know which program has it.
fn with_advice(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        if word.starts_with("/dev/") {
            let tip = format!("'lfp who {word}' shows which program has the port");
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
    }
    error
}

fn act(options: Options) -> u8 {
    let (route, output) = (options.route(), Output::new(options.form()));
    let busy = options.action.code_for_busy();
    let outcome = match options.action {
        Action::Lock(asked) => actions::lock(&asked, &route, &output),
        Action::Unlock(asked) if asked.force => preempt::force(&asked, &route, &output),
        Action::Unlock(asked) => actions::unlock(&asked.target, &route, &output),
        Action::Ask(asked) => preempt::ask(&asked, &route, &output),
        Action::Pass(asked) => actions::pass(&asked, &route, &output),
        Action::Wait(asked) => actions::wait(&asked, &route, &output),
        Action::Who(asked) => listing::who(&asked, &route, &output),
        Action::List(asked) => listing::list(&asked, &route, &output),
        Action::Run(asked) => run::run(&asked, &route, &output),
        Action::Shim(asked) => shim::run(asked, &route, &output),
        Action::Adopt(asked) => shim::adopt(&asked, &output),
        Action::Clean => clean::clean(&route, &output),
        Action::Completions { shell } => actions::completions(shell, &output),
    };
    let code = outcome.unwrap_or_else(|failure| {
        output.complain(&failure);
        failure.code(busy)
    });
    if output.is_lost() { exit::OUTPUT } else { code }
}
