//! The same client for programs without a runtime: each call blocks its thread.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # fn example() -> Result<(), dflock::ClientError> {
//! let client = dflock::blocking::Client::new(dflock::Settings::default())?; // 127.0.0.1:6388
//! let claim = client.lock("nightly-report")?.ttl(Duration::from_secs(30))?;
//! if let Some(lease) = claim.acquire(Duration::from_secs(10))? {
//!     // ... work; a thread renews the lease
//!     assert_eq!(lease.loss(), None); // ask before what must not be done twice
//!     lease.release()?; // dropping it does the same, but reports no failure
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Both clients share their decisions: requests and answers, when to renew, until when a lease is trusted, and how
//! long to look for a server. Only the sockets and the waiting differ. There is no hidden runtime: each lease has one
//! thread, which sleeps in the kernel until it must renew or the connection ends, and no other thread stays behind.
//! Each connection attempt has a thread of its own, because a name look-up has no time limit.
//!
//! The two phases (`enqueue`, `wait`) and leases without a keeper exist only in the asynchronous client.

mod claim;
mod claims;
mod connection;
mod lease;
mod route;
mod stream;
mod together;
mod watch;

pub use claim::{Claim, Client};
pub use claims::{Claims, Leases};
pub use connection::Connection;
pub use lease::Lease;
pub use watch::Watch;
