//! The Lock File Protocol service and the client people type.
//!
//! bytes → line → Command → Session → DeviceName → lock file names → lock files → Outcome →
//! Reply → bytes. Every arrow makes the type narrower; nothing flows back.

pub mod cli;
pub mod client;
pub mod device;
pub mod journal;
pub mod lfp;
pub mod limits;
pub mod lock;
pub mod peer;
pub mod protocol;
pub mod serve;
pub mod stamp;
