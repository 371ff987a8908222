//! The locks of `sema run`: which they are, how often they are renewed, how they are released, and the
//! messages about them; also the holder's name, once, for a person who waits. The command itself is run in `unix.rs` and
//! `windows.rs`.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use wrapcmd::StartError;
use wrapcmd::exit::End;

use super::arguments::{Form, Run};
use super::outcome::{complain, exit, fail_in_json, failure_in_json, is_same, printable, warn};
use crate::error::Error;
use crate::limits::STALE_TIMEOUT;
use crate::record::Holder;
use crate::semaphore::{self, Claim, Guard, Patience, Semaphore};
use crate::sys::Alarm;

pub(super) fn open(words: &Run) -> Result<Vec<Semaphore>, Error> {
    let config = words.taking.config(words.lock.config());
    // The lock is written to the disk later: see `DISK_DELAY` in `unix.rs`.
    #[cfg(unix)]
    let config = crate::Config { durability: crate::Durability::Memory, ..config };
    let first = Semaphore::with_config(&words.lock.path, config);
    let config = crate::Config { slots: crate::Slots::ONE, ..config };
    let more = words.with.iter().map(|path| Semaphore::with_config(path, config));
    std::iter::once(first).chain(more).collect()
}

/// The command did not begin: says why. Returns the exit code.
pub(super) fn not_started(error: &StartError, form: Form) -> u8 {
    // A caller that never gave the word has said why.
    let Some(code) = error.code() else { return exit::SYSTEM };
    match form {
        Form::Text | Form::Quiet => complain(&(printable(&format!("sema: {error}")) + "\n")),
        Form::Json => {
            let kind = if error.is_not_found() { "NOT_FOUND" } else { "NOT_EXECUTABLE" };
            fail_in_json(kind, &error.to_string());
        }
    }
    code
}

/// Takes all of them, each in the name that `holder` gives for it, or waits until it can or the alarm rings.
pub(super) fn take(
    words: &Run,
    form: Form,
    semaphores: &[Semaphore],
    alarm: Option<&dyn Alarm>,
    holder: &mut dyn FnMut(&Semaphore) -> Result<Holder, Error>,
) -> Result<Vec<Guard>, Error> {
    let verbosity = if words.verbose { Verbosity::More } else { Verbosity::Usual };
    let paths = std::iter::once(&words.lock.path).chain(&words.with);
    let hears = reporter(paths.map(PathBuf::as_path).collect(), form, verbosity);
    let timeout = words.patience.timeout;
    let usual = Patience { timeout, ..Patience::default() };
    let patience = if words.nonblock { Patience::TRY } else { usual };
    let claim = Claim {
        tag: words.taking.tag.as_deref(),
        patience: Patience { alarm, hears: hears.as_deref(), ..patience },
        sharing: words.taking.sharing(),
    };
    semaphore::acquire_many(&semaphores.iter().collect::<Vec<_>>(), claim, holder)
}

/// How often a lock is renewed, so that it never counts as old for users with the same timeout.
pub(super) fn renewal(stale_timeout: Option<Duration>) -> Duration {
    let old = stale_timeout.unwrap_or(STALE_TIMEOUT).min(STALE_TIMEOUT);
    (old / 4).max(Duration::from_millis(100))
}

/// For `--verbose`: how long it took, and what is run now.
pub(super) fn report_held(words: &Run, begin: Instant, command: &[OsString]) {
    if words.verbose {
        let seconds = begin.elapsed().as_secs_f64();
        warn(&words.lock.path, &format!("held after {seconds:.6} s"));
        let line = command.join(OsStr::new(" "));
        warn(&words.lock.path, &format!("running {}", pidlockfile::shown(line)));
    }
}

/// Whether the locks were held to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Possession {
    Kept,
    Lost,
}

impl Possession {
    /// Says once that a lock was lost. In JSON too that goes to standard error: the standard output is the command's.
    pub(super) fn lose(&mut self, words: &Run, form: Form, what: &str, error: &Error) {
        if *self == Self::Lost {
            return;
        }
        *self = Self::Lost;
        let (path, reason) = (&words.lock.path, error.reason());
        match form {
            Form::Text | Form::Quiet => warn(path, &format!("{what}: {reason}")),
            Form::Json => {
                let message = format!("{}: {what}: {reason}", pidlockfile::shown(path));
                complain(&failure_in_json("LOST", &message));
            }
        }
    }

    /// Releases all; says of each that was lost, or cannot be released.
    pub(super) fn release_all(&mut self, words: &Run, form: Form, guards: Vec<Guard>) {
        for guard in guards {
            match guard.release() {
                Err(error @ (Error::NotLocked { .. } | Error::NotHolder { .. })) => {
                    self.lose(words, form, "lost while the command ran", &error);
                }
                Err(error) => {
                    warn(&words.lock.path, &format!("cannot be released: {}", error.reason()));
                }
                Ok(()) => {}
            }
        }
    }

    /// How `sema run` ends if its command ended like this.
    pub(super) fn end(self, end: End) -> End {
        match self {
            Self::Kept => end,
            Self::Lost => End::Code(exit::LOST),
        }
    }
}

/// How much is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verbosity {
    /// To a terminal.
    Usual,
    /// To whatever standard error is.
    More,
}

/// Hears of the holder of a lock when a wait for it begins ([`Error::AlreadyLocked`]).
pub(super) type Hears<'a> = Box<dyn Fn(&Error) + 'a>;

/// What hears of each lock that is waited for, and reports its holder once. `locks` is what the command line calls
/// them. None where nobody reads it.
pub(super) fn reporter<'a>(
    locks: Vec<&'a Path>,
    form: Form,
    verbosity: Verbosity,
) -> Option<Hears<'a>> {
    let read = verbosity == Verbosity::More || std::io::stderr().is_terminal();
    let said = RefCell::<Option<PathBuf>>::default();
    (read && form == Form::Text).then_some(())?;
    Some(Box::new(move |error: &Error| {
        let path = error.path().unwrap_or(Path::new("")).to_owned();
        if said.replace(Some(path.clone())).as_ref() != Some(&path) {
            let lock = match locks.as_slice() {
                [only] => only,
                several => {
                    several.iter().copied().find(|lock| is_same(lock, &path)).unwrap_or(&path)
                }
            };
            complain(&format!("sema: {}\n", error.sentence(lock, "waiting: ")));
        }
    }))
}
