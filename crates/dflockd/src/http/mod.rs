//! HTTP, off unless a port is named: statistics, health, metrics, and a page that shows holders and waiters. Only
//! administrators can change anything. No answer ever contains the token of a hold, because a token is the right to
//! release it.
//!
//! ```text
//! door ─▶ seats            sockets, TLS, how many and for how long
//!      ─▶ site ─▶ route    pure: method and path → what is wanted, or why not
//!              ─▶ gate     pure: Host and Authorization headers
//!              ─▶ query    pure: what to show of the holders
//!              ─▶ metrics, holders   pure: numbers → text
//!              ─▶ leader   what the leader of a service on etcd answers for a server that does not lead
//!              ─▶ reply    the one place where answers get their headers
//! ```
//!
//! It runs in the lock server's thread, so nothing here may work for long without letting others be served: large
//! tables are read and written in pieces, at a bounded pace.

mod door;
mod gate;
mod holders;
#[cfg(feature = "etcd")]
mod leader;
mod metrics;
mod query;
mod reply;
mod route;
mod seats;
mod site;

pub(crate) use door::serve;
#[cfg(feature = "etcd")]
pub(crate) use leader::serve_standbys;
