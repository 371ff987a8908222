//! Client of `dflockd`, the lease lock server: leases that renew themselves, on one server or on several.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), dflock::ClientError> {
//! let client = dflock::Client::new(dflock::Settings::default())?; // 127.0.0.1:6388
//! if let Some(lease) = client.lock("nightly-report")?.acquire(Duration::from_secs(10)).await? {
//!     // ... work; the lease is renewed in the background
//!     lease.release().await?; // dropping it does the same, but reports no failure
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Client`] names locks, shared locks and semaphores, [`Claim`] takes them, [`Lease`] holds them; [`Claims`] takes
//! several, all or none. [`Connection`] has the single requests of the protocol. With a chosen server, and work that
//! stops if the lease is lost:
//!
//! ```no_run
//! use dflock::{Client, Servers, Settings};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), dflock::ClientError> {
//! let mut settings = Settings::new(Servers::Shards(vec!["locks-1.example:6388".parse().unwrap()]));
//! settings.name = Some("nightly report".to_owned());
//! let client = Client::new(settings)?;
//!
//! // Wait in the queue for at most 10 seconds; leases of 30 seconds, renewed in the background.
//! let claim = client.lock("nightly-report")?.ttl(Duration::from_secs(30))?;
//! if let Some(lease) = claim.acquire(Duration::from_secs(10)).await? {
//!     tokio::select! {
//!         () = write_report(lease.fence()) => lease.release().await?,
//!         loss = lease.lost() => eprintln!("stopped half-way: {loss}"),
//!     }
//! }
//! # Ok(())
//! # }
//! # async fn write_report(fence: Option<u64>) {}
//! ```
//!
//! A program without a runtime uses [`blocking`].
//!
//! # What happens when the connection breaks
//!
//! A task in the background connects to the server again at once, or to the next of [`Servers::AnyOf`], and renews all
//! leases of the connection there. If the server renews them, the holders notice nothing. The holder of a lease that
//! the server refuses gets [`Loss::NotHeld`]. The task tries for [`Settings::reclaim`], and stops when a lease has
//! only [`Settings::margin`] left; then this lease counts as lost ([`Loss::Unreachable`]). If a connection stands but
//! stays silent, the task waits until the lease ends, or until the server would close a silent connection
//! ([`Settings::read_timeout`]). Meanwhile it tries another connection.
//!
//! The server's settings decide whether another client can get the key in that time. A server with
//! `--auto-release-on-disconnect=false`, or with a `--disconnect-grace` at least as long as the
//! lease, keeps the key until the holder knows of it. To do so across a restart it also needs
//! `--state-dir`. A server with the default settings releases everything when it sees the connection
//! break; two clients can then believe that they hold the key, until this one has reached the server again.
//!
//! A holder can pause for longer than its lease (a suspended machine, a blocked runtime), and write before it learns
//! that the lease is over. No lease can prevent that. Storage that checks [`Lease::fence`] refuses such a write.
//!
//! # Futures that are dropped
//!
//! Every future of this library may be dropped at any time, as `select!` and `timeout` do. A task in the background
//! then releases what the future was taking, at the latest a second after the request was sent; each method says what
//! else remains. A [`Connection`] is the exception: if a call is given up there, the connection ends, and the request
//! may have been carried out.
//!
//! # Features
//!
//! `cli` adds the program `dflock`, for `cargo install dflock --features cli`.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

pub mod blocking;
mod claim;
mod claims;
mod connection;
mod dialogue;
mod error;
mod lease;
/// The program. No part of the library's API: it may change at any time.
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod program;
mod route;
mod session;
mod settings;
mod terms;
mod timing;
mod watch;

/// The README's examples are tests, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use claim::{Claim, Client, Entry, Ticket};
pub use claims::{Claims, KeyEvent, Leases};
pub use connection::{Connection, Stats};
pub use dialogue::{Grace, Grant, Place};
pub use error::{ClientError, Refusal};
pub use lease::{Lease, Loss};
pub use leases::wire::Holder;
pub use settings::{Settings, Tls, TlsRoots};
pub use terms::{
    AddressError, ArgumentError, DEFAULT_PORT, Key, Kind, MAX_LINE_BYTES, MAX_TIME, ServerAddress,
    Servers, Token, shard,
};
pub use watch::Watch;
