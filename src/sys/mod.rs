//! What the service asks of the operating system: one file for each kind of system. What a system does not
//! tell is reported as unknown, and never guessed.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unix;
mod values;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
use unix as system;

pub(crate) use system::{Inquiry, Status};
pub(crate) use system::{
    QUIETLY, STATE_DIR, SYSLOG, WHY_HIDDEN, acl, null_device, translate, unix_peer,
};
pub(crate) use values::{Asker, Ids, PeerFacts, PidNumbers, SocketEnds, Subject};
