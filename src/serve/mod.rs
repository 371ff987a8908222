//! Clients and their connections: `stdio` serves one connection on descriptors 0 and 1, `listen` many in one
//! process (on Linux only, so far). `service` answers the requests of both.
#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only a daemon needs it, which needs Linux")
)]

pub(crate) mod address;
pub(crate) mod admission;
pub(crate) mod authority;
mod client;
#[cfg(target_os = "linux")]
mod clients;
#[cfg(target_os = "linux")]
mod connection;
#[cfg(target_os = "linux")]
mod descriptors;
mod foreseen;
#[cfg(target_os = "linux")]
pub(crate) mod listen;
#[cfg(not(target_os = "linux"))]
#[path = "listen_elsewhere.rs"]
pub mod listen;
pub(crate) mod listener;
mod log_budget;
#[cfg(target_os = "linux")]
mod notify;
mod ports;
mod quota;
mod service;
pub(crate) mod settings;
mod status_queries;
mod status_worker;
pub(crate) mod stdio;
mod waiting;
#[cfg(target_os = "linux")]
mod watches;

pub(crate) use client::{Client, Need};
pub(crate) use ports::{Exclusive, Opens};
pub(crate) use service::Service;
