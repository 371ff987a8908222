//! The command line of `sema`: words in, one request out.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use pidlockfile::Pid;
pub(crate) use wrapcmd::Form;
use wrapcmd::usage::{pid, seconds};

use crate::limits::{MODE, MODE_BITS, MOST_SLOTS, STALE_TIMEOUT};
use crate::record::integer;
use crate::semaphore::{Config, Sharing, Slots};
use crate::stale::StaleRule;

/// File-based semaphores: at most one holder, or at most N, across programs and scripts.
#[derive(Debug, Parser)]
#[command(name = "sema", version, after_help = examples::ALL, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Take a lock if it is free or stale
    #[command(alias = "try-acquire", after_help = examples::TRY)]
    Try(Try),
    /// Wait until a lock can be taken, and take it
    #[command(after_help = examples::ACQUIRE)]
    Acquire(Acquire),
    /// Release a lock
    #[command(after_help = examples::RELEASE)]
    Release(Release),
    /// Renew a lock, so that it does not count as old
    #[command(after_help = examples::TOUCH)]
    Touch {
        #[command(flatten)]
        lock: Lock,
        #[command(flatten)]
        holder: Named,
    },
    /// Show who holds a lock
    #[command(after_help = examples::STATUS)]
    Status(Lock),
    /// Wait until a lock is free or stale, without taking it
    #[command(after_help = examples::WAIT)]
    Wait(Wait),
    /// Show all locks in a directory
    #[command(after_help = examples::LIST)]
    List(List),
    /// Remove a lock if it is stale, or everything stale in a directory
    #[command(after_help = examples::CLEAN)]
    Clean(Lock),
    /// Run a command while holding a lock
    #[command(after_help = examples::RUN)]
    Run(Run),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// For which shell
        shell: wrapcmd::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Try {
    #[command(flatten)]
    pub(crate) lock: Lock,
    #[command(flatten)]
    pub(crate) holder: HolderArguments,
    #[command(flatten)]
    pub(crate) taking: Taking,
}

#[derive(Debug, Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) lock: Lock,
    #[command(flatten)]
    pub(crate) patience: PatienceArgs,
    #[command(flatten)]
    pub(crate) holder: HolderArguments,
    #[command(flatten)]
    pub(crate) taking: Taking,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) lock: Lock,
    #[command(flatten)]
    pub(crate) holder: Named,
    /// Release the lock even if another process holds it
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Only this one of several slots
    #[arg(long, value_name = "NUMBER", value_parser = ValueParser::new(slots))]
    pub(crate) slot: Option<Slots>,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    #[command(flatten)]
    pub(crate) lock: Lock,
    #[command(flatten)]
    pub(crate) patience: PatienceArgs,
    /// Wait until nobody holds the lock: with several slots, until all are free
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// The directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) stale: Stale,
    /// Show stale locks only
    #[arg(long)]
    pub(crate) only_stale: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) lock: Lock,
    #[command(flatten)]
    pub(crate) patience: PatienceArgs,
    #[command(flatten)]
    pub(crate) taking: Taking,
    /// Give up at once if the lock is held
    #[arg(short, long, alias = "nb", conflicts_with = "timeout")]
    pub(crate) nonblock: bool,
    /// The exit code when the lock is held or the time is up, instead of 1
    #[arg(short = 'E', long, value_name = "CODE", value_parser = ValueParser::new(exit_code))]
    pub(crate) conflict_exit_code: Option<u8>,
    /// One more lock to hold; may be given several times
    #[arg(long, value_name = "PATH")]
    pub(crate) with: Vec<PathBuf>,
    /// Print to standard error the holder, how long the wait took, and the command
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Return as soon as the command runs; it continues in the background, without input
    #[arg(long)]
    pub(crate) bg: bool,
    /// Run this line in a shell
    #[arg(short = 'c', long = "command", value_name = "LINE", conflicts_with = "command")]
    pub(crate) line: Option<OsString>,
    /// The command and its arguments; `--` before them is optional
    #[arg(trailing_var_arg = true, required_unless_present = "line", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Run {
    /// The command and its arguments; of a line, the shell that runs it.
    pub(crate) fn command(&self) -> Vec<OsString> {
        match &self.line {
            None => self.command.clone(),
            Some(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
        }
    }
}

/// Reads a command line, the program's name first.
pub(crate) fn parse(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let matches = wrapcmd::usage::parse(Arguments::command(), words, &WORDS_ELSEWHERE)?;
    Arguments::from_arg_matches(&matches)
}

/// Words for the commands in other lock programs, and the command of this one.
const WORDS_ELSEWHERE: [(&str, &str); 4] =
    [("lock", "acquire"), ("unlock", "release"), ("renew", "touch"), ("who", "status")];

#[derive(Debug, Args)]
pub(crate) struct Lock {
    /// The lock file; its directory must exist
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N
    #[arg(long, value_name = "N", default_value = "1", value_parser = ValueParser::new(slots))]
    pub(crate) slots: Slots,
    #[command(flatten)]
    stale: Stale,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Stale {
    /// A lock older than this counts as old; 0: no lock is ever stale [default: 3600]
    #[arg(long, value_name = "SECS", value_parser = ValueParser::new(seconds))]
    stale: Option<Duration>,
    /// When a lock is stale. dead: its holder is dead. host: also if it was taken under this host
    /// name in a container that is not visible here. age: also if it is old, even if its holder lives
    #[arg(long, value_name = "WHEN", default_value = "dead")]
    stale_when: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Dead,
    Host,
    Age,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Output {
    /// Print JSON instead of text, also if it fails: one value on one line
    #[arg(long, global = true)]
    json: bool,
    /// Print no answer, and no message if the lock is held: the exit code says it
    #[arg(short, long, global = true)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PatienceArgs {
    /// Give up after this many seconds, such as 10 or 0.5 [default: never]
    #[arg(short, visible_short_alias = 'w', long, alias = "wait", value_name = "SECS", value_parser = ValueParser::new(seconds))]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Named {
    /// The process that holds the lock [default: the calling process]
    #[arg(long, value_name = "PID", value_parser = ValueParser::new(pid))]
    pub(crate) pid: Option<Pid>,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct HolderArguments {
    #[command(flatten)]
    pub(crate) named: Named,
    /// Take the lock without an owner: it is held until `sema release`
    #[arg(long, conflicts_with = "pid")]
    pub(crate) persist: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Taking {
    /// The purpose of the lock; `sema status` shows it
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Share the lock with others that use --shared; without it, there is one holder
    #[arg(short, long)]
    pub(crate) shared: bool,
    /// Permission bits of the lock file, octal
    #[arg(long, default_value = "644", value_parser = ValueParser::new(mode))]
    mode: u32,
}

impl Lock {
    /// Where the slot of this number would be, from 1.
    pub(crate) fn slot_path(&self, number: u32) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }

    pub(crate) fn config(&self) -> Config {
        Config { slots: self.slots, ..self.stale.config() }
    }
}

impl Stale {
    pub(crate) fn config(self) -> Config {
        let stale_timeout =
            Some(self.stale.unwrap_or(STALE_TIMEOUT)).filter(|time| !time.is_zero());
        let stale_rule = match self.stale_when {
            When::Dead => StaleRule::Dead,
            When::Host => StaleRule::Host,
            When::Age => StaleRule::Age,
        };
        Config { stale_timeout, stale_rule, ..Config::default() }
    }
}

impl Taking {
    pub(crate) fn sharing(&self) -> Sharing {
        if self.shared { Sharing::Shared } else { Sharing::Alone }
    }

    pub(crate) fn config(&self, base: Config) -> Config {
        Config { mode: self.mode, ..base }
    }
}

impl Output {
    pub(crate) fn form(self) -> Form {
        if self.quiet {
            Form::Quiet
        } else if self.json {
            Form::Json
        } else {
            Form::Text
        }
    }
}

fn slots(text: &str) -> Result<Slots, String> {
    let count = integer(text).and_then(|count| u32::try_from(count).ok()).and_then(Slots::new);
    count.ok_or_else(|| format!("needs a number from 1 to {MOST_SLOTS}"))
}

fn exit_code(text: &str) -> Result<u8, String> {
    let code = integer(text).and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| "needs a number from 0 to 255".to_owned())
}

fn mode(text: &str) -> Result<u32, String> {
    let bits = integer(text).and_then(|_| u32::from_str_radix(text, 8).ok());
    bits.filter(|bits| *bits & !MODE_BITS == 0).ok_or_else(|| {
        format!(
            "needs permission bits in octal that let the owner read and write, such as {MODE:o}"
        )
    })
}

/// The examples at the end of `sema --help`.
mod examples {
    pub(super) const ALL: &str = "\
Examples:
  sema run ~/.local/state/lock/backup -- backup.sh    one at a time
  sema status ~/.local/state/lock/backup              who holds it

An ordinary user may write ~/.local/state/lock on every system: mkdir -p it once.
Exit codes: 0 done, 1 held by somebody, 3 file or system error, 64 wrong usage.
The manual: man sema";

    pub(super) const TRY: &str = "\
Examples:
  sema try ~/.local/state/lock/deploy || exit
  sema try ~/.local/state/lock/deploy --tag 'deploy 1.2' --quiet";

    pub(super) const ACQUIRE: &str = "\
Examples:
  sema acquire ~/.local/state/lock/deploy --timeout 30 || exit
  sema acquire ~/.local/state/lock/pool --slots 3";

    pub(super) const RELEASE: &str = "\
Examples:
  sema release ~/.local/state/lock/deploy
  trap 'sema release ~/.local/state/lock/deploy --quiet' EXIT";

    pub(super) const TOUCH: &str = "\
Examples:
  sema touch ~/.local/state/lock/deploy
  sema touch ~/.local/state/lock/deploy --pid 4711";

    pub(super) const STATUS: &str = "\
Examples:
  sema status ~/.local/state/lock/deploy
  sema status ~/.local/state/lock/deploy --json";

    pub(super) const WAIT: &str = "\
Examples:
  sema wait ~/.local/state/lock/deploy
  sema wait ~/.local/state/lock/deploy --timeout 0 || echo in use";

    pub(super) const LIST: &str = "\
Examples:
  sema list ~/.local/state/lock
  sema list ~/.local/state/lock --only-stale --json";

    pub(super) const CLEAN: &str = "\
Examples:
  sema clean ~/.local/state/lock/deploy
  sema clean ~/.local/state/lock    everything stale in the directory";

    pub(super) const RUN: &str = "\
Examples:
  sema run ~/.local/state/lock/backup --timeout 30 -- backup.sh
  sema run -n -E 75 ~/.local/state/lock/backup backup.sh    do not wait; 75 if held
  sema run ~/.local/state/lock/fetch --slots 3 -- fetch-all    at most three at once
  sema run --bg ~/.local/state/lock/fetch --slots 3 -- curl -O \"$url\"    the script continues";
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
