//! Work about open ports, beside the service: which processes have a port open, and what follows from that. Examining
//! processes takes time, so this work has threads of its own, and no client waits for it.
//!
//! `threads` is what the service has of them, `worker` is such a thread; `exclusive` is the work of `--exclusive`,
//! `opens` that of `--watch-opens`, which hears from the kernel by `open_watch` and keeps what it has seen in `openers`.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod events;
#[cfg(target_os = "linux")]
mod exclusive;
#[cfg(target_os = "linux")]
mod open_watch;
#[cfg(target_os = "linux")]
mod openers;
#[cfg(target_os = "linux")]
mod opens;
#[cfg(target_os = "linux")]
mod threads;
#[cfg(target_os = "linux")]
mod worker;

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::PortThreads;
#[cfg(target_os = "linux")]
pub(super) use {
    exclusive::ExclusivePorts,
    openers::{Verdict, Wish},
    opens::OpenPorts,
    threads::PortThreads,
};
