//! Lease locks and semaphores over TCP with strict first-come-first-served queues.
//!
//! Where what lives, and who may use whom (arrows point at what is used):
//!
//! ```text
//! bin/dflockd ─▶ daemon ─▶ config, journal, server
//! server ─▶ wire, engine        sockets, deadlines, TLS, auth, draining; decides nothing about locks
//! wire                          pure: bytes → line → Request, Answer → bytes
//! engine                        pure: (now, request) → answer and effects; no clock, socket, randomness of its own
//! config                        flags and environment → Config
//! journal                       log lines on standard error
//!
//! bin/dflock ─▶ client, load    the other end of the wire; knows nothing of server or engine
//! ```
//!
//! What other parts of the crate (HTTP, client, load generator) build on is [`server::Server`] and
//! [`server::Handle`]: the handle gives the `stats` body, the counters, the draining flag and the
//! number of connections, and may be cloned into any task or thread.

pub mod client;
pub mod config;
pub mod daemon;
pub mod engine;
pub mod journal;
pub mod load;
pub mod server;
pub mod wire;
