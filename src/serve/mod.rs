//! Clients and their connections: `stdio` serves the one on descriptors 0 and 1, `listen` many in one
//! process; `service` answers both.

pub mod address;
pub mod admission;
pub mod authority;
mod client;
mod clients;
mod connection;
mod descriptors;
mod fairness;
pub mod listen;
pub mod listener;
mod log_budget;
mod notify;
mod opens;
mod quota;
mod service;
mod status_queries;
mod status_worker;
pub mod stdio;
mod waiting;
mod watches;

pub use client::{Client, Need};
pub use opens::Opens;
pub use service::Service;
