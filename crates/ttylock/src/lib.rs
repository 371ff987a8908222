//! The locks of serial devices, for any program.
//!
//! [`device`] says what a client may call a device, which node that is and which other names it
//! has; [`lock`] takes and releases its lock files under every convention of the field, and tells
//! who holds it. The port itself is never opened.

pub mod device;
pub mod limits;
pub mod lock;
pub mod stamp;
