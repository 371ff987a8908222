//! Windows: Ctrl-C and similar events end the programs at once. A lock that was being taken is then that of a
//! dead process.

use crate::error::Error;
use crate::sys::watch::Alarm;

/// Nothing is caught.
pub(super) struct Signals;

pub(super) fn catch_signals() -> Result<Signals, Error> {
    Ok(Signals)
}

/// Nothing is held off.
pub(super) fn hold_off() {}

impl Alarm for Signals {
    fn ring(&self) -> Option<Error> {
        None
    }
}
