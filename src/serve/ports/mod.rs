//! Work about open ports, beside the service: which processes have a port open, and what follows from that. Examining
//! processes takes time, so this work has threads of its own, and no client waits for it.
//!
//! `worker` is such a thread; `exclusive` is the work of `--exclusive`.

#[cfg(target_os = "linux")]
mod exclusive;
#[cfg(not(target_os = "linux"))]
#[path = "exclusive_elsewhere.rs"]
mod exclusive;
mod model;
#[cfg(target_os = "linux")]
mod worker;

pub(super) use exclusive::ExclusivePorts;
pub(crate) use model::Exclusive;
