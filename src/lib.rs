//! The Lock File Protocol service.
//!
//! bytes → line → `Command` → `DeviceName` → `ResolvedDevice` → `Granted` → `LockNames` → lock files → `Outcome` →
//! `Reply` → bytes. Every arrow makes the type narrower; nothing flows back. The session is no step of this: it cuts the
//! bytes into lines, and says the reply. The crate `ttylock` has the locks of devices, and `lfp` the client of the
//! protocol.

pub mod cli;
pub mod limits;
pub mod log;
mod peer;
pub mod protocol;
mod serve;
mod sys;
