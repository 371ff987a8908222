//! Lease locks and semaphores over TCP with strict first-come-first-served queues.
//!
//! The modules, and which may use which (arrows point at what is used):
//!
//! ```text
//! bin/dflockd ─▶ daemon ─▶ config, log, server, http
//! server                        sockets, deadlines, TLS, auth, draining; decides nothing about locks
//! http ─▶ server                numbers and a page for people, through the server's `Shared` (feature `http`)
//! config ─▶ server              flags and environment → Config
//! log                           log lines on standard error, written by a thread of their own
//! ```
//!
//! All use the crate [`leases`]: the state machine that decides about locks, and the text of the protocol. The client
//! is the crate `dflock`; neither needs the other.
//!
//! Holds outlive the process by a journal ([`leases::journal`]): the engine reports changes, the journal records them,
//! and every answer waits for that. `server::state` is the journal on disk. The crate `leases-etcd` is the one in etcd
//! (feature `etcd`), which several servers share. One of them leads, and `server::link` passes the clients of the others
//! on to it.
//!
//! Other parts of the crate use `server::run`, and `server::Shared`: the `stats` body, the numbers, the roster of
//! holders and waiters, and the draining flag.

#![cfg_attr(
    not(feature = "etcd"),
    expect(dead_code, reason = "only etcd and HTTP ask for some things")
)]
#![cfg_attr(not(feature = "http"), expect(unused_imports, reason = "the same"))]

pub mod config;
pub mod daemon;
#[cfg(feature = "http")]
mod http;
mod log;
pub mod server;

#[cfg(test)]
#[path = "sample_tests.rs"]
mod sample;
