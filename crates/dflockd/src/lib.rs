//! Lease locks and semaphores over TCP with strict first-come-first-served queues.
//!
//! The modules, and which may use which (arrows point at what is used):
//!
//! ```text
//! bin/dflockd ─▶ daemon ─▶ config, log, server, http
//! server                        sockets, deadlines, TLS, auth, draining; decides nothing about locks
//! http ─▶ server                numbers and a page for people, through the server's Handle (feature `http`)
//! config ─▶ server              flags and environment → Config
//! log                           log lines on standard error, written by a thread of their own
//! ```
//!
//! All use the crate [`leases`]: the state machine that decides about locks, and the text of the protocol. The
//! crate `leases-etcd` is the store on etcd, behind the same calls (feature `etcd`). The client is the crate
//! `dflock`; neither needs the other.
//!
//! Both stores are behind `server::store`, which describes the contract. A store that must ask other machines
//! answers [`leases::Verdict::Later`], and passes the results in through [`leases::Inlet`]. The store in memory
//! needs neither an allocation nor an await for that.
//!
//! `server::state` lets holds outlive the process: the engine reports changes, a ledger decides what is written
//! where, and an answer waits for the one write of its turn.
//!
//! Other parts of the crate (HTTP, benchmarks) use [`server::Server`] and [`server::Handle`]. The handle gives the
//! `stats` body, the numbers, the roster of holders and waiters, and the draining flag. It can be cloned into any
//! task or thread.

pub mod config;
pub mod daemon;
#[cfg(feature = "http")]
pub mod http;
pub mod log;
pub mod server;

#[cfg(test)]
#[path = "sample_tests.rs"]
mod sample;
