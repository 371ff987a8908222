//! HTTP, off unless a port is named: locks, statistics, health, metrics, and a page that shows holders and waiters. The
//! token of a hold, the right to release it, is only in the answer that grants the hold.
//!
//! ```text
//! door ─▶ seats            sockets, TLS, how many and for how long
//!      ─▶ site ─▶ route    pure: method and path → what is wanted, or why not
//!              ─▶ gate     pure: Host and Authorization headers
//!              ─▶ origin   pure: which web pages may ask, and read the answer
//!              ─▶ limits   pure: requests and connections of one address
//!              ─▶ query    pure: what to show of the holders, how a lock is asked for
//!              ─▶ order    pure: verb, key and body → a request to the engine
//!              ─▶ locks    sessions, locks, semaphores
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
mod limits;
mod locks;
mod metrics;
mod order;
mod origin;
mod query;
mod reply;
mod route;
mod seats;
mod site;

pub(crate) use door::serve;
#[cfg(feature = "etcd")]
pub(crate) use leader::serve_standbys;
