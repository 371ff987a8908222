//! The programs `sema` and `semats`: arguments in, text or JSON and an exit code out.
//!
//! This file has the commands of `sema`: one request, in the name of the process on the command line or of the caller, one
//! outcome, one exit code.

mod arguments;
mod outcome;
mod run;
mod semats;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use pidlockfile::Pid;
use pidlockfile::process::{NoCaller, of_caller};
use wrapcmd::exit::End;
use wrapcmd::usage::{self, OwnWords};
use wrapcmd::{Value, print};

use arguments::{
    Acquire, Arguments, Command, Form, HolderArguments, List, Lock, Release, Run, Taking, Try, Wait,
};
use outcome::{HEADER, Outcome, complain, exit, fail_in_json, warn, written};
use platform::Began;
use run::{Verbosity, reporter};
#[cfg(unix)]
use unix as platform;
#[cfg(windows)]
use windows as platform;

use crate::error::Error;
use crate::record::{Holder, LockInfo};
use crate::semaphore::{
    Claim, Config, Free, Guard, Patience, Releaser, Semaphore, SlotStatus, Slots, Waiting,
};
use crate::stale::Here;
use crate::sys::Alarm as _;

/// The whole program `sema`.
#[must_use]
pub fn sema() -> ExitCode {
    // First of all: is this the process that stands by to become a command?
    #[cfg(unix)]
    if let Some((error, form)) = wrapcmd::take_over(std::env::args_os().skip(1)) {
        return ExitCode::from(run::not_started(&error, form));
    }
    #[cfg(unix)]
    let _ = pidlockfile::catch_file_size_signal();
    let words: Vec<_> = std::env::args_os().collect();
    #[cfg(unix)]
    if let Some((words, began)) = wrapcmd::in_background(words.iter().skip(1)) {
        return ExitCode::from(perform(words, Some(began)).follow());
    }
    ExitCode::from(perform(words, None).follow())
}

/// The whole program `semats`.
#[must_use]
pub fn semats() -> ExitCode {
    #[cfg(unix)]
    let _ = pidlockfile::catch_file_size_signal();
    let words = std::env::args_os().skip(1);
    ExitCode::from(semats::main(words.collect()).follow())
}

/// Does what a command line says, and reports it. Returns the exit code.
/// `began`: this process is the one of `run --bg` in the background.
fn perform(words: Vec<OsString>, began: Option<Began>) -> End {
    match arguments::parse(&words) {
        Ok(Arguments { command: Command::Run(run), output }) if run.bg && began.is_none() => {
            let form = output.form();
            platform::in_background(&run, form, &words)
                .unwrap_or_else(|error| report_failure(&run.lock.path, form, &error))
        }
        Ok(Arguments { command, output }) => dispatch(command, output.form(), began),
        Err(error) if error.use_stderr() => {
            let mut program = Arguments::command();
            program.build();
            if OwnWords::of(&program, &words).have("json") {
                fail_in_json("USAGE", &usage::message(&error));
                return End::Code(exit::USAGE);
            }
            // Where even the complaint cannot be written, the exit code says it.
            let _ = error.print();
            End::Code(exit::USAGE)
        }
        // Help, or the version.
        Err(answer) => End::Code(written("sema", print(&answer.render().to_string()))),
    }
}

/// Options that contradict each other.
fn wrong_usage(form: Form, message: &str) -> End {
    match form {
        Form::Text | Form::Quiet => complain(&format!("sema: {message}\n")),
        Form::Json => fail_in_json("USAGE", message),
    }
    End::Code(exit::USAGE)
}

fn no_such_slot(slot: Slots, slots: Slots) -> String {
    let (slot, slots) = (slot.count(), slots.count());
    if slots == 1 {
        return format!(
            "--slot needs --slots, the number of all slots, as in --slots 4 --slot {slot}"
        );
    }
    format!("--slot {slot}: there are {slots} slots (--slots {slots}); choose one of 1 to {slots}")
}

/// Users of a counting semaphore must agree on its slots: warns of a lock that only a user with another
/// number of slots can hold.
fn warn_of_other_slots(lock: &Lock) {
    let count = lock.slots.count();
    let other = lock.slot_path(if count == 1 { 1 } else { count.saturating_add(1) });
    let candidates = [Some(other), (count > 1).then(|| lock.path.clone())];
    let is_held = |path: &std::path::PathBuf| {
        let config = Config { slots: Slots::ONE, ..lock.config() };
        let seen = path.symlink_metadata().ok().and_then(|_| {
            Semaphore::with_config(path, config).and_then(|semaphore| semaphore.status()).ok()
        });
        let held = |slot: &SlotStatus| match slot {
            SlotStatus::Held(held) => held.lock_info().is_some() && !held.stale,
            SlotStatus::Free | SlotStatus::Obstacle => false,
        };
        seen.is_some_and(|slots| slots.iter().any(held))
    };
    if let Some(path) = candidates.into_iter().flatten().find(is_held) {
        let held = pidlockfile::shown(&path);
        warn(&lock.path, &format!("warning: {held} is held: do all users give the same --slots?"));
    }
}

fn dispatch(command: Command, form: Form, began: Option<Began>) -> End {
    // The lock that is taken or looked at, and whether readers take it.
    let (lock, shared) = match &command {
        Command::Try(Try { lock, taking, .. })
        | Command::Acquire(Acquire { lock, taking, .. })
        | Command::Run(Run { lock, taking, .. }) => (Some(lock), taking.shared),
        Command::Status(lock) | Command::Wait(Wait { lock, .. }) => (Some(lock), false),
        Command::Release(_)
        | Command::Touch { .. }
        | Command::List(_)
        | Command::Clean(_)
        | Command::Completions { .. } => (None, false),
    };
    if let Some(lock) = lock {
        if shared && lock.slots.count() > 1 {
            return wrong_usage(form, "--shared and --slots cannot be used together");
        }
        warn_of_other_slots(lock);
    }
    perform_command(command, form, began)
}

fn perform_command(command: Command, form: Form, began: Option<Began>) -> End {
    match command {
        Command::Try(Try { lock, holder, taking }) => {
            report(&lock.path, form, take(&lock, holder, &taking, Patience::TRY))
        }
        Command::Acquire(Acquire { lock, patience, holder, taking }) => {
            let hears = reporter(vec![&lock.path], form, Verbosity::Usual);
            let (timeout, hears) = (patience.timeout, hears.as_deref());
            let patience = Patience { timeout, hears, ..Patience::default() };
            report(&lock.path, form, take(&lock, holder, &taking, patience))
        }
        Command::Release(words) => {
            let lock = &words.lock;
            if words.force && words.slot.is_none() && lock.slots.count() > 1 {
                let message =
                    "--force releases one slot: name it, as in --slots 4 --slot 2 --force";
                return wrong_usage(form, message);
            }
            if let Some(slot) =
                words.slot.filter(|slot| *slot > lock.slots || lock.slots == Slots::ONE)
            {
                return wrong_usage(form, &no_such_slot(slot, lock.slots));
            }
            platform::hold_off();
            report(&lock.path, form, release(&words))
        }
        Command::Touch { lock, holder } => {
            let outcome = open(&lock).and_then(|semaphore| touch(&semaphore, holder.pid));
            report(&lock.path, form, outcome.map(|_| Outcome::Renewed))
        }
        Command::Status(lock) => {
            let outcome = open(&lock).and_then(|semaphore| status(&semaphore));
            report(&lock.path, form, outcome)
        }
        Command::Wait(Wait { lock, patience, all }) => {
            let patience = Patience { timeout: patience.timeout, ..Patience::default() };
            let outcome = open(&lock).and_then(|semaphore| {
                let wait = Waiting::begin(&semaphore.files, patience);
                wait.until_free(if all { Free::All } else { Free::One })
            });
            report(&lock.path, form, outcome.map(|()| Outcome::Free))
        }
        Command::List(List { directory, stale, only_stale }) => {
            let mut outcome = crate::semaphore::cleaning::list(&directory, stale.config());
            if let (true, Ok(listed)) = (only_stale, &mut outcome) {
                listed.retain(|lock| lock.status.stale);
            }
            report(&directory, form, outcome.map(Outcome::Listed))
        }
        Command::Clean(lock) => {
            let outcome = if lock.path.is_dir() {
                crate::semaphore::cleaning::clean_all(&lock.path, lock.config())
            } else {
                open(&lock).and_then(|semaphore| semaphore.clean())
            };
            report(&lock.path, form, outcome.map(Outcome::Cleaned))
        }
        Command::Run(words) => run_command(&words, form, began),
        Command::Completions { shell } => {
            let script = wrapcmd::completions(shell, &Arguments::command());
            End::Code(written("sema", print(&script)))
        }
    }
}

fn run_command(words: &Run, form: Form, began: Option<Began>) -> End {
    let error = match platform::run(words, form, began) {
        Ok(end) => return end,
        Err(error) => error,
    };
    // Of several locks, the one that is in the way.
    let named = error.path().filter(|_| !words.with.is_empty());
    let end = report_failure(named.unwrap_or(&words.lock.path), form, &error);
    match words.conflict_exit_code {
        Some(code) if end == End::Code(exit::HELD) => End::Code(code),
        Some(_) | None => end,
    }
}

fn open(lock: &Lock) -> Result<Semaphore, Error> {
    Semaphore::with_config(&lock.path, lock.config())
}

fn status(semaphore: &Semaphore) -> Result<Outcome, Error> {
    let slots = semaphore.status()?;
    let readers = semaphore.readers()?;
    let only_shared = slots == [SlotStatus::Free] && !readers.is_empty();
    Ok(if only_shared { Outcome::Shared(readers) } else { Outcome::Status(slots) })
}

/// Takes the lock for `sema try` and `sema acquire`. The holder is settled before that: if the caller dies during a
/// wait, the lock will name a dead process, not the one that adopts the orphan.
fn take(
    lock: &Lock,
    holder: HolderArguments,
    taking: &Taking,
    patience: Patience<'_>,
) -> Result<Outcome, Error> {
    let semaphore = Semaphore::with_config(&lock.path, taking.config(lock.config()))?;
    let recorded = holder_to_record(holder, semaphore.files.judge.here())?;
    let claim = Claim { tag: taking.tag.as_deref(), sharing: taking.sharing(), patience };
    Ok(acquired(lock, holder, take_for(&semaphore, &recorded, claim)?))
}

/// Takes the lock in the name of this holder. No signal interrupts a try. A wait is ended by a signal, and one that came
/// as the lock was taken gives it back.
fn take_for(semaphore: &Semaphore, holder: &Holder, claim: Claim<'_>) -> Result<Guard, Error> {
    let holder = &mut || Ok(holder.clone());
    if claim.patience.only_tries {
        platform::hold_off();
        return semaphore.take(claim, holder);
    }
    let signals = platform::catch_signals()?;
    let patience = Patience { alarm: Some(&signals), ..claim.patience };
    let guard = semaphore.take(Claim { patience, ..claim }, holder)?;
    if let Some(interrupted) = signals.ring() {
        guard.release()?;
        return Err(interrupted);
    }
    Ok(guard)
}

fn acquired(lock: &Lock, holder: HolderArguments, guard: Guard) -> Outcome {
    let named = holder.persist || holder.named.pid.is_some();
    let short_lived = || of_caller(platform::short_lived).ok().flatten();
    // Said also with --quiet: a lock that is void in a moment is no lock.
    if let Some(what) = (!named).then(short_lived).flatten() {
        warn(
            &lock.path,
            &format!(
                "warning: the holder is {what}, and the lock ends with it; name the \
                 script (--pid $$), or take it without an owner (--persist)"
            ),
        );
    }
    let slot = (lock.config().slots.count() > 1).then(|| guard.slot());
    Outcome::Acquired { info: guard.keep(), slot }
}

fn release(words: &Release) -> Result<Outcome, Error> {
    let semaphore = match words.slot {
        None => open(&words.lock)?,
        // A slot is a lock of its own.
        Some(slot) => {
            let config = Config { slots: Slots::ONE, ..words.lock.config() };
            Semaphore::with_config(words.lock.slot_path(slot.count()), config)?
        }
    };
    if words.force {
        semaphore.release_for(Releaser::Anyone)?;
    } else {
        release_as_holder(&semaphore, words.holder.pid)?;
    }
    Ok(Outcome::Released)
}

fn touch(semaphore: &Semaphore, named: Option<Pid>) -> Result<LockInfo, Error> {
    let holder = holder_named(named, semaphore.files.judge.here())?;
    semaphore.renew_for(Releaser::Holder(&holder))
}

/// The calling process is the holder, or this very process is: a shell often becomes the last
/// command of a script or a subshell (execve(2)) instead of starting it.
fn release_as_holder(semaphore: &Semaphore, named: Option<Pid>) -> Result<(), Error> {
    let here = semaphore.files.judge.here();
    let holder = match holder_named_or_number(named, here) {
        // It may still release what has no owner.
        Err(Error::Process { message: STARTER_ENDED }) => holder_named(Some(Pid::this()), here)?,
        other => other?,
    };
    let denied = match semaphore.release_for(Releaser::Holder(&holder)) {
        Err(error @ Error::NotHolder { .. }) if named.is_none() => error,
        result => return result,
    };
    let own = holder_named(Some(Pid::this()), here)?;
    match semaphore.release_for(Releaser::Holder(&own)) {
        Err(Error::NotHolder { .. }) => Err(denied),
        result => result,
    }
}

/// Reports what a command came to.
fn report(path: &Path, form: Form, outcome: Result<Outcome, Error>) -> End {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return report_failure(path, form, &error),
    };
    let printed = match form {
        Form::Quiet => Ok(()),
        Form::Text => {
            let has_table = matches!(&outcome, Outcome::Listed(locks) if !locks.is_empty());
            let header = if has_table && io::stdout().is_terminal() { HEADER } else { "" };
            print(&(header.to_owned() + &outcome.text()))
        }
        Form::Json => print(&(outcome.json().compact() + "\n")),
    };
    End::Code(outcome.exit_code(written("sema", printed)))
}

fn report_failure(path: &Path, form: Form, error: &Error) -> End {
    let code = error.exit_code();
    match form {
        Form::Quiet if code == exit::HELD => {}
        // The user that pressed Ctrl-C knows it, and other processes see it in how this one ends.
        Form::Text | Form::Quiet if matches!(error, Error::Interrupted { .. }) => {}
        Form::Text | Form::Quiet => complain(&format!("sema: {}\n", error.sentence(path, ""))),
        Form::Json => {
            let value = Value::Object(error.json_members(error.sentence(path, "")));
            written("sema", print(&(value.compact() + "\n")));
        }
    }
    if let Error::Interrupted { signal } = error {
        // What was held is released: now end as if the signal had not been caught.
        return End::Signal(*signal);
    }
    End::Code(code)
}

const STARTER_ENDED: &str = "the process that started sema has ended: name the holder (--pid), or take the lock \
                                without an owner (--persist)";

/// The holder that a lock records.
fn holder_to_record(holder: HolderArguments, here: &Here) -> Result<Holder, Error> {
    if !holder.persist {
        return holder_named(holder.named.pid, here);
    }
    let taker = of_caller(|pid| pid).unwrap_or_else(|_| Pid::this());
    Ok(Holder::nobody(crate::sys::number(taker), here.host.as_deref()))
}

/// The process named on the command line, or the calling one.
fn holder_named(pid: Option<Pid>, here: &Here) -> Result<Holder, Error> {
    let describe =
        |pid| Holder::of(pid, here).ok_or(Error::NoHolder { pid: crate::sys::number(pid) });
    match pid {
        Some(pid) => describe(pid),
        None => of_caller(describe).map_err(|none| match none {
            NoCaller::Outside => Error::NoHolder { pid: 0 },
            NoCaller::Ended => Error::Process { message: STARTER_ENDED },
        })?,
    }
}

/// The same for releasing, where a process that has ended may be named as well.
fn holder_named_or_number(pid: Option<Pid>, here: &Here) -> Result<Holder, Error> {
    match holder_named(pid, here) {
        Err(Error::NoHolder { pid }) if pid != 0 => Ok(Holder::bare(pid)),
        other => other,
    }
}
