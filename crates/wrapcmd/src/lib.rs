//! Runs a command while something is held in the name of the command's own process.
//!
//! A lock that names the *command's* process, not its wrapper's, is true even when the
//! wrapper is killed: the command is at work, and the lock is stale the moment it ends. For that
//! the process must exist before the lock does. So the wrapper starts itself again as a process
//! that stands by ([`Standby`]), takes the lock in that process's name, and gives the word over a
//! socket; the process then becomes the command (execve(2) keeps the number and the start time). If
//! the wrapper dies first, the socket closes and the command never runs.
//!
//! Meanwhile the wrapper's signals are something to wait for ([`Signals`]), so that none arrives
//! between taking a lock and knowing that it was taken, and all that arrive are handed on.
//!
//! A wrapper can go on in the background ([`Background`]): it takes what is to be taken and minds the command, while
//! the process that was started first returns.
//!
//! This crate holds nothing itself, writes nothing to any descriptor but its socket, and never
//! starts a command by way of a shell.
//!
//! On Windows a process cannot become another program; of this crate there is what concerns words and exit codes.
//!
//! Programs that wrap commands also share their exit codes ([`exit`]) and JSON ([`Value`]). The feature `usage` is for the
//! programs of this workspace: how they parse a command line, say what is wrong with it, and complete it in shells.
//!
//! ```no_run
//! use std::ffi::OsString;
//!
//! # fn take(pid: u32) {}
//! # fn release(pid: u32) {}
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // First of all: are we the process that stands by?
//! if let Some((error, _)) = wrapcmd::take_over(std::env::args_os().skip(1)) {
//!     eprintln!("hold: {error}");
//!     std::process::exit(error.code().unwrap_or(1).into());
//! }
//! let command: Vec<OsString> = std::env::args_os().skip(1).collect();
//! let signals = wrapcmd::Signals::catch()?;
//! let standby = wrapcmd::Standby::start("hold", &command, wrapcmd::Form::Text, &signals)?;
//! let pid = standby.pid();
//! take(pid);
//! let running = standby.go(&[("HELD", "yes")]);
//! running.attend(&signals);
//! // Its number is still its own, so the lock that is released cannot belong to another process.
//! release(pid);
//! std::process::exit(running.end()?.code().into());
//! # }
//! ```

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

#[cfg(feature = "usage")]
mod completions;
pub mod exit;
mod json;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod standby;
#[cfg(unix)]
mod sys;
/// Command lines of the programs that wrap commands. No part of the library's API: it may change at any time.
#[cfg(feature = "usage")]
#[doc(hidden)]
pub mod usage;

use std::io::{self, Write};

#[cfg(feature = "usage")]
#[doc(hidden)]
pub use completions::{Shell, completions};
pub use exit::{StartError, restart_lacks};
pub use json::{Form, Value, json};
#[cfg(unix)]
pub use signals::{Signals, Woken, hold_off, is_ignored, pause, wait_while_read};
#[cfg(unix)]
pub use standby::{Background, Began, Beside, Running, Standby, execute, in_background, take_over};

/// The README's examples are tests, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Writes all of a text to standard output. A reader that stops early (`| head`) is not a failure; a full disk is
/// one, which the caller must report.
///
/// # Errors
/// The text, or a part of it, could not be written.
pub fn print(text: &str) -> io::Result<()> {
    write(&mut io::stdout().lock(), text)
}

fn write(to: &mut impl Write, text: &str) -> io::Result<()> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails at the one or the other, as a buffered output may.
    struct Failing {
        at_write: Option<io::ErrorKind>,
        at_flush: Option<io::ErrorKind>,
    }

    impl Write for Failing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.at_write.map_or(Ok(bytes.len()), |kind| Err(kind.into()))
        }
        fn flush(&mut self) -> io::Result<()> {
            self.at_flush.map_or(Ok(()), |kind| Err(kind.into()))
        }
    }

    #[test]
    fn only_a_closed_pipe_is_no_failure() {
        use io::ErrorKind::{BrokenPipe, StorageFull};
        let table = [
            (None, None, None),
            (Some(BrokenPipe), None, None),
            (None, Some(BrokenPipe), None),
            (Some(StorageFull), None, Some(StorageFull)),
            (None, Some(StorageFull), Some(StorageFull)),
        ];
        for (at_write, at_flush, told) in table {
            let outcome = write(&mut Failing { at_write, at_flush }, "x");
            assert_eq!(outcome.map_err(|error| error.kind()).err(), told);
        }
    }
}
