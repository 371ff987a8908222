//! The Lock File Protocol service.
//!
//! bytes → line → Command → Session → DeviceName → lock file names → lock files → Outcome →
//! Reply → bytes. Every arrow makes the type narrower; nothing flows back. What a device is and
//! how it is locked is in the crate `ttylock`; the other end of the protocol is in `lfp`.

pub mod cli;
pub mod limits;
pub mod log;
pub mod peer;
pub mod protocol;
pub mod serve;
mod sys;
