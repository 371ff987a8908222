//! Lease locks and semaphores over TCP with strict first-come-first-served queues.
//!
//! The modules, and which may use which (arrows point at what is used):
//!
//! ```text
//! bin/dflockd ─▶ daemon ─▶ config, log, server, http
//! server ─▶ heap                sockets, deadlines, TLS, auth, draining; decides nothing about locks
//! http ─▶ server                numbers and a page for people; only reads, through the server's Handle (feature `http`)
//! config ─▶ server              flags and environment → Config
//! heap                          memory that is not needed any more goes back; the crate's only `unsafe`
//! log                           log lines on standard error, written by a thread of their own
//! ```
//!
//! All use the crate [`leases`]: what decides about locks, as a state machine, and the text of the protocol.
//! The crate `leases-etcd` is the store on etcd, behind the same calls (feature `etcd`).
//! The other end of the wire is the crate `dflock`; neither needs the other.
//!
//! A second store behind the same commands joins in `server::store`, where the contract is described:
//! one that must ask others for every request answers [`leases::Verdict::Later`] and hands what
//! comes in through [`leases::Inlet`]; the one in memory pays neither an allocation nor an await
//! for the possibility.
//!
//! Holds outlive the process by `server::state`: the engine tells what changed, a ledger decides what
//! is written where, and an answer waits for the one write of its turn.
//!
//! What other parts of the crate (HTTP, benchmarks) build on is [`server::Server`] and
//! [`server::Handle`]: the handle gives the `stats` body, the numbers, the roster of holders and
//! waiters and the draining flag, and may be cloned into any task or thread.

pub mod config;
pub mod daemon;
mod heap;
#[cfg(feature = "http")]
pub mod http;
pub mod log;
pub mod server;

#[cfg(test)]
#[path = "sample_tests.rs"]
mod sample;
