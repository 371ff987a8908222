//! The Lock File Protocol service.
//!
//! bytes → line → Command → Session → DeviceName → lock file names → lock files → Outcome → Reply → bytes.
//! Every arrow makes the type narrower; nothing flows back. The crate `ttylock` has the locks of devices, and
//! `lfp` the client of the protocol.

pub mod cli;
pub mod limits;
pub mod log;
mod peer;
pub mod protocol;
mod serve;
mod sys;
