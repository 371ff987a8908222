//! HTTP, off unless a port is named: locks, statistics, health, metrics, and a page that shows holders and waiters. The
//! token of a hold, the right to release it, is only in the answer that grants the hold.
//!
//! ```text
//! door ─▶ seats            sockets, TLS, how many and for how long
//!      ─▶ site ─▶ request  method, path, query and body → what is wanted, or why not
//!              ─▶ gate     the headers Host and Authorization; which web pages may ask, and read the answer
//!              ─▶ locks    sessions, locks, semaphores
//!              ─▶ metrics  numbers → text
//!              ─▶ leader   what the leader of a service on etcd answers for a server that does not lead
//!              ─▶ reply    the one place where answers get their headers
//! ```
//!
//! It runs in the lock server's thread, so nothing here may work for long without letting others be served: large
//! tables are read and written in pieces, at a bounded pace.

mod door;
mod gate;
#[cfg(feature = "etcd")]
mod leader;
mod locks;
mod metrics;
mod reply;
mod request;
mod seats;
mod site;

pub(crate) use door::serve;
#[cfg(feature = "etcd")]
pub(crate) use leader::serve_standbys;
