//! Clients and their connections: `stdio` serves one connection on descriptors 0 and 1, `listen` many in one
//! process (on Linux only, so far). `service` answers the requests of both.
#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "what only a daemon needs, and there is none so far")
)]

pub mod address;
pub mod admission;
pub mod authority;
mod client;
#[cfg(target_os = "linux")]
mod clients;
#[cfg(target_os = "linux")]
mod connection;
#[cfg(target_os = "linux")]
mod descriptors;
#[cfg(target_os = "linux")]
mod fairness;
mod foreseen;
#[cfg(target_os = "linux")]
pub mod listen;
#[cfg(not(target_os = "linux"))]
#[path = "listen_elsewhere.rs"]
pub mod listen;
pub mod listener;
mod log_budget;
#[cfg(target_os = "linux")]
mod notify;
mod opens;
mod quota;
mod service;
pub mod settings;
#[cfg(target_os = "linux")]
mod status_queries;
mod status_worker;
pub mod stdio;
mod waiting;
#[cfg(target_os = "linux")]
mod watches;

pub use client::{Client, Need};
pub use opens::Opens;
pub use service::Service;
