//! A wrapper that continues in the background: this program, started once more, takes the lock and attends
//! the command, while the first process returns as soon as the command has started.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::Child;

use nix::unistd::{Pid, dup2_stdin};

use crate::exit::End;
use crate::signals::{Signals, Woken, let_through, pause, stop_here};
use crate::standby::{end_of, once_more};
use crate::sys;

/// The first argument of the process in the background. No program's command may be called so.
const IN_BACKGROUND: &str = "run-in-background";

/// The process in the background, as the one that started it sees it.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use wrapcmd::{Background, Signals};
///
/// let signals = Signals::catch()?;
/// match Background::start("job", &["make".into()], &signals)?.outcome(&signals)? {
///     None => println!("the command has begun"),
///     Some(end) => println!("it never began: {}", end.code()),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Background {
    told: File,
    child: Child,
}

impl Background {
    /// Starts this very program again, under the name `program`, with these arguments; its `main` must begin
    /// with [`crate::take_over`] and then ask [`in_background`].
    ///
    /// # Errors
    /// No socket or no process can be had.
    pub fn start(program: &str, words: &[OsString], signals: &Signals) -> io::Result<Self> {
        let (told, tell) = sys::line()?;
        let mut child = once_more(program, IN_BACKGROUND)?;
        let child = child.arg(signals.newly_held()).args(words).stdin(tell).spawn()?;
        Ok(Self { told: told.into(), child })
    }

    /// Waits until the command begins (`None`), or the process has ended before that. Hands it the signals that
    /// arrive meanwhile; what a terminal sends it gets anyway.
    ///
    /// # Errors
    /// Somebody else has waited for the process.
    pub fn outcome(mut self, signals: &Signals) -> io::Result<Option<End>> {
        let child = i32::try_from(self.child.id()).map(Pid::from_raw).map_err(io::Error::other)?;
        while pause(Some(signals), Some(self.told.as_fd()), None) != Woken::Ready {
            if signals.hand_on(child) {
                stop_here();
            }
        }
        if self.told.read(&mut [0])? > 0 {
            return Ok(None);
        }
        end_of(&mut self.child).map(Some)
    }
}

/// Whether this process is one in the background ([`Background`]), by the arguments behind the program's name:
/// then its own arguments, and the report that its command begins. Undoes what it inherited: standard input leads to
/// its caller, and to nothing (`/dev/null`) from here on.
#[must_use]
pub fn in_background<S: AsRef<OsStr>>(
    mut words: impl Iterator<Item = S>,
) -> Option<(Vec<OsString>, Began)> {
    words.next().filter(|word| word.as_ref() == IN_BACKGROUND)?;
    words.next()?.as_ref().to_str().and_then(let_through)?;
    let began = Began(io::stdin().as_fd().try_clone_to_owned().ok()?.into());
    dup2_stdin(File::open("/dev/null").ok()?).ok()?;
    sys::path_is_handed_on();
    Some((words.map(|word| word.as_ref().to_owned()).collect(), began))
}

/// Reports to a waiting caller that the command begins: one byte.
#[derive(Debug)]
#[must_use]
pub struct Began(File);

impl Began {
    /// Reports it.
    ///
    /// # Errors
    /// The caller that waits for it is gone.
    pub fn report(mut self) -> io::Result<()> {
        self.0.write_all(b"1")
    }
}
