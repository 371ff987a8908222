//! Names the holder of the lock, once, to a person who waits for it.

use std::cell::RefCell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::arguments::Form;
use super::complain;
use super::outcome::is_same;
use crate::error::Error;

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

/// What hears of each lock that is waited for, and names its holder once. `locks` is what the command line calls
/// them. None where nobody reads it.
pub(super) fn teller<'a>(
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
