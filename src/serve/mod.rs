//! Clients and their connections: `connection` serves one, for inetd on descriptors 0 and 1, and `listen` many of them in
//! one process (on Linux only, so far). `service` answers the requests of both.
#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only a daemon needs it, which needs Linux")
)]

pub(crate) mod admission;
pub(crate) mod authority;
mod client;
#[cfg(target_os = "linux")]
mod clients;
pub(crate) mod connection;
#[cfg(target_os = "linux")]
pub(crate) mod listen;
pub(crate) mod listener;
#[cfg(target_os = "linux")]
mod notify;
#[cfg(target_os = "linux")]
mod opener_locks;
#[cfg(target_os = "linux")]
mod ports;
mod queue;
mod service;
#[cfg(target_os = "linux")]
mod watches;
pub(crate) mod wire;
#[cfg(target_os = "linux")]
mod worker;

use std::time::Duration;

use ttylock::DeviceName;

pub(crate) use service::Service;

/// How a daemon behaves.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How long a connection may be without a command.
    pub idle_timeout: Duration,
    /// Connections in all. Fewer when the system does not give enough descriptors.
    pub limit: usize,
    /// Connections of one user.
    pub limit_per_user: usize,
    /// Whether it ends after the idle time without clients: the program that started it goes on listening, and starts
    /// the next one (inetd `wait`).
    pub ends_when_idle: bool,
    /// Whether a process that keeps a port open without a lock gets one.
    pub watch_opens: bool,
    /// Ports that stay open to all, by any of their names, while others are made exclusive; `None`: none is made
    /// exclusive.
    pub exclusive_except: Option<Vec<DeviceName>>,
}

/// The threads of `--exclusive` and `--watch-opens` on systems that do not show which process has a port open: there are
/// none.
#[cfg(not(target_os = "linux"))]
mod ports {
    use pidlockfile::Pid;
    use pidlockfile::process::ProcessIdentity;
    use ttylock::{Holder, Request, ResolvedDevice, Table};

    #[derive(Debug, Default)]
    pub(super) struct PortThreads;

    impl PortThreads {
        pub(super) fn locked(&self, _: &ResolvedDevice, _: impl FnOnce() -> ProcessIdentity) {}

        pub(super) fn before_release(&self, _: &Request, _: &mut Table) {}

        pub(super) fn released(&self, _: &str, _: Pid) {}

        pub(super) fn process_gone(&self, _: Pid, _: &mut Table) {}

        pub(super) fn add_openers(&self, _: &mut Vec<Holder>, _: Option<&str>) {}
    }
}
