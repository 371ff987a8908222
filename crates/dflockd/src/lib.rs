//! Lease locks and semaphores over TCP with strict first-come-first-served queues.
//!
//! Where what lives, and who may use whom (arrows point at what is used):
//!
//! ```text
//! bin/dflockd ─▶ daemon ─▶ config, log, server, http
//! server ─▶ wire, etcd, remote, engine, heap
//!                               sockets, deadlines, TLS, auth, draining; decides nothing about locks
//! wire ─▶ engine                pure: bytes → line → Request, Answer → bytes
//! etcd ─▶ remote, engine        the store on etcd, behind the same calls as engine (feature `etcd`)
//! remote ─▶ engine              what the server and a store outside of it have to tell each other
//! engine                        pure: (now, request) → answer and effects; no clock, socket, randomness of its own
//! http ─▶ server, wire, engine  numbers and a page for people; only reads, through the server's Handle
//! config ─▶ server, remote, wire, engine
//!                               flags and environment → Config
//! heap                          memory that is not needed any more goes back; the crate's only `unsafe`
//! log                           log lines on standard error, written by a thread of their own
//! ```
//!
//! The other end of the wire is the crate `dflock`; neither needs the other.
//!
//! A second store behind the same commands joins in `server::store`, whose head has the contract:
//! one that must ask others for every request answers [`engine::Verdict::Later`] and hands what
//! comes in through [`remote::Inlet`]; the one in memory pays neither an allocation nor an await
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
pub mod engine;
#[cfg(feature = "etcd")]
pub mod etcd;
mod heap;
pub mod http;
pub mod log;
pub mod remote;
pub mod server;
pub mod wire;
