//! The same client for programs without a runtime: each call blocks its thread.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # fn example() -> Result<(), dflock::ClientError> {
//! let client = dflock::blocking::Client::new(dflock::Settings::default())?; // 127.0.0.1:6388
//! let claim = client.lock("nightly-report")?.ttl(Duration::from_secs(30))?;
//! if let Some(lease) = claim.acquire(Duration::from_secs(10))? {
//!     // ... work; the lease is renewed in the background
//!     assert_eq!(lease.loss(), None); // ask before what must not be done twice
//!     lease.release()?; // dropping it does the same, but reports no failure
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The work is that of the asynchronous client, in a hidden runtime. Its one thread begins with the first call, renews
//! all leases of the process, and stays until the process ends. The calls may be made by any thread, also by one that
//! is inside another runtime.
//!
//! The two phases (`enqueue`, `wait`) and leases that nothing renews exist only in the asynchronous client.

mod client;
mod lease;
mod runtime;

pub use client::{Claim, Claims, Client, Connection, Watch};
pub use lease::{Lease, Leases};
