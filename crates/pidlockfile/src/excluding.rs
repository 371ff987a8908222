//! Excludes other processes that break or release the same file, by `flock(2)` and by a gate.

use std::io;

use crate::directory::Directory;
use crate::found::Judged;

/// What keeps others from breaking and releasing a file that was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// `flock(2)` on it is ours, and nobody else is in the gate on its account.
    Ours,
    /// Another process has `flock(2)` on it, but we are in the gate: see [`Judged::go_past`].
    InTheGate,
    /// Another process has it.
    Others,
}

impl Directory {
    /// Asks for `flock(2)` on a judged file as [`Judged::try_hold`], and for this directory's gate
    /// ([`Directory::gated`]), both for as long as it is kept.
    ///
    /// # Errors
    /// With the system's reason.
    pub fn hold(&self, judged: &mut Judged) -> io::Result<Hold> {
        if !self.enter(judged) {
            return Ok(Hold::Others);
        }
        Ok(match judged.try_lock()? {
            true => Hold::Ours,
            false if judged.passage.is_some() => Hold::InTheGate,
            false => Hold::Others,
        })
    }

    /// Whether we are in the gate, or there is none that we may enter: then `flock(2)` decides alone.
    pub(crate) fn enter(&self, judged: &mut Judged) -> bool {
        if let (None, Some(gate)) = (&judged.passage, self.gate()) {
            match gate.try_enter(judged.identity()) {
                Ok(Some(passage)) => judged.passage = Some(passage),
                Ok(None) => return false,
                Err(_) => {}
            }
        }
        true
    }
}
