//! Clients and their connections: `stdio` serves one connection on descriptors 0 and 1, `listen` many in one
//! process (on Linux only, so far); each is a `connection`. `service` answers the requests of both.
#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only a daemon needs it, which needs Linux")
)]

pub(crate) mod address;
pub(crate) mod admission;
pub(crate) mod authority;
#[cfg(target_os = "linux")]
mod bell;
mod client;
#[cfg(target_os = "linux")]
mod clients;
mod connection;
#[cfg(target_os = "linux")]
mod descriptors;
mod journal;
#[cfg(target_os = "linux")]
pub(crate) mod listen;
pub(crate) mod listener;
#[cfg(target_os = "linux")]
mod notify;
#[cfg(target_os = "linux")]
mod opened;
mod ports;
mod queue;
mod service;
pub(crate) mod settings;
#[cfg(target_os = "linux")]
mod status_worker;
pub(crate) mod stdio;
#[cfg(target_os = "linux")]
mod watches;
pub(crate) mod wire;

pub(crate) use service::Service;
