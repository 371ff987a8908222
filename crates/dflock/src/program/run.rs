//! `dflock run`: holds one lease or several while a command runs, and stops the command before one of them ends.
//!
//! Between `dflock run` and its command there is one more process, the *step*, which runs this same program. It makes sure
//! that the command ends when `dflock run` is killed. Otherwise the lock would be free while the command continues.

use super::args::Run;
use super::outcome::{Failure, complain, complain_beside_command};
use super::sys::{Attended, KillOnParentDeath, bytes};
use super::wanted::{KeysWanted, Outcome};
use crate::terms::seconds;
use crate::timing::effective_margin;
use crate::{Client, ClientError, Lease, Leases, Refusal};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;
use wrapcmd::{Form, StartError};

/// How long a command may take to go after KILL. It must be gone when the lease ends.
const KILL_TIME: Duration = Duration::from_millis(200);

/// How long before the end of a lease that cannot be renewed the command is stopped.
pub(super) fn margin(run: &Run) -> Duration {
    seconds(run.grace) + KILL_TIME
}

/// The time between TERM and KILL: the effective margin (see `Settings::margin`), less [`KILL_TIME`].
fn grace(run: &Run, leases: &Leases) -> Duration {
    effective_margin(margin(run), leases.renewal_interval()).saturating_sub(KILL_TIME)
}

pub(super) async fn run(run: &Run, client: Client, form: Form) -> Result<u8, Failure> {
    let mut wanted = KeysWanted::of(&run.keys, &run.terms, limit(run)?, &client, form)?;
    wanted.names_holders = run.busy_exit_code.is_none();
    let leases = match (wanted.taken(wanted.acquire()).await, run.busy_exit_code) {
        (Ok(Outcome::Taken(leases)), _) => leases,
        (Ok(Outcome::Ended(code)), _) => return Ok(code),
        // An exit code that the user chose says it all, so that cron sends no mail about it.
        (Err(failure @ (Failure::Busy(_) | Failure::TimedOut(_))), Some(code)) => {
            if form == Form::Json {
                complain(&failure, form);
            }
            return Ok(code);
        }
        (Err(Failure::Client(ClientError::Refused(Refusal::LimitMismatch))), _)
            if !run.one_of.is_empty() =>
        {
            return Err(Failure::OtherLimit(run.one_of.len()));
        }
        (Err(failure), _) => return Err(failure),
    };
    let granted_at = Instant::now();
    let started = match item(run, &leases) {
        None if !run.one_of.is_empty() => Err(Failure::NoSlots),
        item => start(run, &leases, item, form),
    };
    match started {
        Ok(command) => {
            let grace = grace(run, &leases);
            let hold_until = run.hold_for.map(|s| granted_at + seconds(s));
            RunningCommand { leases, command, grace, hold_until }.see_through(form).await
        }
        Err(failure) => {
            // Nothing was started: what went wrong matters more than whether the release went well.
            let _ = leases.release().await;
            Err(failure)
        }
    }
}

/// The number of slots, if the keys are semaphores.
///
/// # Errors
/// An item that is no word, or that two holders would have at the same time.
fn limit(run: &Run) -> Result<Option<u32>, Failure> {
    let items = &run.one_of;
    if items.iter().any(|item| item.is_empty()) {
        return Err(Failure::Usage("--one-of: an item is empty".to_owned()));
    }
    // A list of lines, or of words, would be one item.
    if items.iter().any(|item| item.to_string_lossy().contains(char::is_whitespace)) {
        let text = "--one-of: an item has a blank or a line end; write commas between items";
        return Err(Failure::Usage(text.to_owned()));
    }
    let twice = items.iter().find(|item| items.iter().filter(|other| other == item).count() > 1);
    if let Some(item) = twice {
        let item = item.to_string_lossy();
        return Err(Failure::Usage(format!("--one-of: {item} is named twice")));
    }
    let count = u32::try_from(items.len()).ok().filter(|count| *count > 0);
    Ok(count.or(run.terms.limit))
}

/// The item of `--one-of` that is held.
fn item<'r>(run: &'r Run, leases: &Leases) -> Option<&'r OsString> {
    let slot = leases.as_slice().first()?.slot()?;
    run.one_of.get(usize::try_from(slot).ok()?)
}

/// The environment variables of the command. What does not apply is unset, such as the variables of a single key if
/// there are several: an outer `dflock run` may have set them.
fn environment(
    run: &Run,
    leases: &[Lease],
    item: Option<&OsString>,
) -> [(&'static str, Option<OsString>); 9] {
    let name_of = |lease: &Lease| {
        let key = Some(lease.key().as_bytes());
        run.keys.names().find(|name| bytes(name) == key).cloned().unwrap_or_default()
    };
    let keys: Vec<OsString> = leases.iter().map(name_of).collect();
    let tokens: Vec<OsString> = leases.iter().map(|it| it.token().as_str().into()).collect();
    let fence = |lease: &Lease| lease.fence().map(|fence| OsString::from(fence.to_string()));
    let fences: Option<Vec<OsString>> = leases.iter().map(fence).collect();
    let slot = |lease: &Lease| lease.slot().map(|slot| OsString::from(slot.to_string()));
    let slots: Option<Vec<OsString>> = leases.iter().map(slot).collect();
    let list = |words: &[OsString]| words.join(OsStr::new(" "));
    let single = |words: &[OsString]| match words {
        [word] => Some(word.clone()),
        _ => None,
    };
    [
        ("DFLOCK_KEY", single(&keys)),
        ("DFLOCK_TOKEN", single(&tokens)),
        ("DFLOCK_FENCE", fences.as_deref().and_then(single)),
        ("DFLOCK_SLOT", slots.as_deref().and_then(single)),
        ("DFLOCK_ITEM", item.cloned()),
        ("DFLOCK_KEYS", Some(list(&keys))),
        ("DFLOCK_TOKENS", Some(list(&tokens))),
        ("DFLOCK_FENCES", fences.as_deref().map(list)),
        ("DFLOCK_SLOTS", slots.as_deref().map(list)),
    ]
}

fn start(
    run: &Run,
    leases: &Leases,
    item: Option<&OsString>,
    form: Form,
) -> Result<Attended, Failure> {
    step_before(&run.command, &environment(run, leases.as_slice(), item), form)
        .and_then(Attended::start)
        .map_err(|error| {
            let lacks =
                wrapcmd::restart_lacks(&error).map(|text| io::Error::new(error.kind(), text));
            Failure::System("starting the command", lacks.unwrap_or(error))
        })
}

/// A running command under held leases.
struct RunningCommand {
    leases: Leases,
    command: Attended,
    grace: Duration,
    /// The locks are to be held until then, even if the command ends sooner.
    hold_until: Option<Instant>,
}

impl RunningCommand {
    async fn see_through(mut self, form: Form) -> Result<u8, Failure> {
        match self.wait().await {
            Err(lost) => {
                complain_beside_command(&lost, form);
                if let Some(survivors) = self.command.stop(self.grace).await {
                    complain_beside_command(&Failure::RunsOn(survivors), form);
                }
                // The other leases; a failure is not reported.
                let _ = self.leases.release().await;
                Ok(lost.exit_code())
            }
            Ok(code) => {
                self.linger().await;
                if let Err(error) = self.leases.release().await {
                    complain_beside_command(&Failure::Client(error), form);
                }
                Ok(code)
            }
        }
    }

    /// Until the command ends or a lease is lost.
    async fn wait(&mut self) -> Result<u8, Failure> {
        let is_one = self.leases.as_slice().len() == 1;
        loop {
            let end = self.command.end(&self.leases);
            if let Some(code) = end.map_err(|loss| Failure::Lost(None, loss))? {
                return Ok(code);
            }
            tokio::select! {
                biased;
                (key, loss) = self.leases.lost() => {
                    return Err(Failure::Lost(Some(key).filter(|_| !is_one), loss));
                }
                () = self.command.pass_on_signal() => {}
            }
        }
    }

    /// Holds on without the command, until the time has passed or somebody wants an end.
    async fn linger(&mut self) {
        let Some(until) = self.hold_until else { return };
        tokio::select! {
            () = sleep_until(until.into()) => {}
            _ = self.leases.lost() => {}
            () = self.command.asked_to_end() => {}
        }
    }
}

/// The first argument of the step, and the form of its message if the command cannot be executed; no subcommand has
/// such a name.
const ROLES: [(&str, Form); 2] =
    [("become-command-of", Form::Text), ("become-command-or-json-of", Form::Json)];
/// The parent is gone already: what KILL would have given.
const ORPHANED: u8 = 137;

/// The step before this command, with these changes of its environment. A variable without a value is unset.
fn step_before(
    command: &[OsString],
    changes: &[(&str, Option<OsString>)],
    form: Form,
) -> io::Result<Command> {
    let [(text, _), (json, _)] = ROLES;
    let role = if form == Form::Json { json } else { text };
    let mut step = Command::new(itself()?);
    step.arg(role).arg(std::process::id().to_string()).args(command);
    for (name, value) in changes {
        match value {
            Some(value) => step.env(name, value),
            None => step.env_remove(name),
        };
    }
    Ok(step)
}

/// This program, on Linux also when another file has its name by now.
fn itself() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        Ok(PathBuf::from("/proc/self/exe"))
    } else {
        std::env::current_exe()
    }
}

/// When this process was started as the step: becomes the command, or has it run, and gives the exit
/// code, which says why not when it could not.
pub(super) fn become_command() -> Option<u8> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    let (_, form) = ROLES.into_iter().find(|(word, _)| first == *word)?;
    let parent = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    let Some(bound) = parent.and_then(KillOnParentDeath::of) else { return Some(ORPHANED) };
    let name = arguments.next()?;
    let mut command = Command::new(&name);
    command.args(arguments);
    let error = match bound.run(command) {
        Ok(code) => return Some(code),
        Err(error) => error,
    };
    let failure = Failure::NotStarted(StartError::Command { program: name, error });
    complain(&failure, form);
    Some(failure.exit_code())
}
