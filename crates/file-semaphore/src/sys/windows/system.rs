//! Windows: the name of the machine.

use std::ffi::OsString;

use winapi_util::sysinfo::{ComputerNameKind, get_computer_name};

/// The machine's name.
pub(crate) fn host_name() -> Option<OsString> {
    get_computer_name(ComputerNameKind::PhysicalDnsHostname).ok()
}
