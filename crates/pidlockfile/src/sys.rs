//! Every system call this crate makes on lock files, one wrapper each, relative to a directory.
//!
//! They are together so that tests can fail, kill or reorder any one of them (`faults.rs`); they
//! decide nothing. Calls that change names are never repeated here after an interruption: only
//! the caller can tell whether they took place.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;

/// The two kinds of `renameat2` that never lose a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rename {
    NoReplace,
    Exchange,
}

#[cfg(unix)]
impl Rename {
    fn call_name(self) -> &'static str {
        match self {
            Self::NoReplace => "rename-noreplace",
            Self::Exchange => "rename-exchange",
        }
    }
}
