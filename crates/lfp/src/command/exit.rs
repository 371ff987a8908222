//! The exit codes: those of sysexits(3) where they fit. [`wrapcmd::exit`] has those that shells use too.
//!
//! Pure.

/// Done.
pub(super) const DONE: u8 = 0;
/// Somebody else has it, unless `-E` says otherwise.
pub(super) const BUSY: u8 = 1;
/// `EX_USAGE`
pub(super) const USAGE: u8 = 64;
/// `EX_NOINPUT`: there is no such device.
pub(super) const NO_DEVICE: u8 = 66;
/// `EX_UNAVAILABLE`
pub(super) const UNREACHABLE: u8 = 69;
/// `EX_OSERR`
pub(super) const SYSTEM: u8 = 71;
/// `EX_IOERR`
pub(super) const OUTPUT: u8 = 74;
/// `EX_TEMPFAIL`
pub(super) const TIMED_OUT: u8 = 75;
/// `EX_NOPERM`
pub(super) const NOT_PERMITTED: u8 = 77;
