//! Work about open ports, beside the service: which processes have a port open, and what follows from that. Examining
//! processes takes time, so this work has threads of its own, and no client waits for it.
//!
//! `worker` is such a thread; `exclusive` is the work of `--exclusive`, `opens` that of `--watch-opens`, which hears from
//! the kernel by `open_watch` and keeps what it has seen in `openers`.

mod events;
#[cfg(target_os = "linux")]
mod exclusive;
#[cfg(not(target_os = "linux"))]
#[path = "exclusive_elsewhere.rs"]
mod exclusive;
mod model;
#[cfg(target_os = "linux")]
mod open_watch;
mod openers;
#[cfg(target_os = "linux")]
mod opens;
#[cfg(not(target_os = "linux"))]
#[path = "opens_elsewhere.rs"]
mod opens;
#[cfg(target_os = "linux")]
mod worker;

pub(super) use exclusive::ExclusivePorts;
pub(crate) use model::{Exclusive, Opens};
pub(super) use openers::{Verdict, Wish};
pub(super) use opens::OpenPorts;
