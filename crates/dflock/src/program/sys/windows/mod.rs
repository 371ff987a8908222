//! Windows: there are no signals and no process groups. The processes of a command are found by their
//! parents.

mod attended;
mod endings;
mod family;
mod tie;

pub(in crate::program) use attended::Attended;
pub(in crate::program) use endings::{Endings, output_closed, told_to_end};
pub(in crate::program) use tie::Tie;

use std::env::var_os;
use std::ffi::OsStr;

/// An argument as the server is to have it: in UTF-8. Nothing for what is no Unicode text.
pub(in crate::program) fn bytes(argument: &OsStr) -> Option<&[u8]> {
    argument.to_str().map(str::as_bytes)
}

/// The user of this process, for people.
pub(in crate::program) fn user() -> String {
    named_by("USERNAME")
}

/// What this machine calls itself, for people.
pub(in crate::program) fn host() -> String {
    named_by("COMPUTERNAME")
}

fn named_by(variable: &str) -> String {
    var_os(variable).unwrap_or_default().to_string_lossy().into_owned()
}
