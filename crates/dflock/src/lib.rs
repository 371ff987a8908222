//! Client of `dflockd`, the lease lock server: leases that renew themselves, on one server or on several.
//!
//! ```no_run
//! # async fn example() -> Result<(), dflock::ClientError> {
//! let client = dflock::Client::new(dflock::Settings::default())?; // 127.0.0.1:6388
//! if let Some(lease) = client.lock("nightly-report")?.acquire(10).await? {
//!     // ... work; the lease is renewed in the background
//!     lease.release().await?; // dropping it does the same, but reports no failure
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Client`] names locks and semaphores, [`Claim`] takes them, [`Lease`] holds them. [`Connection`]
//! has the single words of the protocol. With a server of one's own choice, and work that stops
//! if the lease is lost:
//!
//! ```no_run
//! use dflock::{Client, Servers, Settings};
//!
//! # async fn example() -> Result<(), dflock::ClientError> {
//! let mut settings = Settings::default();
//! settings.servers = Servers::Shards(vec!["locks-1.example:6388".parse().unwrap()]);
//! let client = Client::new(settings)?;
//!
//! // Wait in line for at most 10 seconds; leases of 30 seconds, renewed in the background.
//! if let Some(mut lease) = client.lock("nightly-report")?.ttl_s(30)?.acquire(10).await? {
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
//! # What happens when the connection breaks
//!
//! A task of the [`Lease`] connects to the server again at once, or to the next of [`Servers::AnyOf`],
//! and renews the lease there. If the server renews it, nothing has happened. If the server refuses, the
//! holder is told [`Loss::NotHeld`]. The task tries for [`Settings::reclaim`], and stops when the
//! lease has only [`Settings::margin`] left; then the lease counts as lost ([`Loss::Unreachable`]). If a
//! connection stands but stays silent, the task waits until the lease ends, or until the server would
//! hang up on a silent client ([`Settings::read_timeout`]). Meanwhile it tries another connection.
//!
//! The server's settings decide whether another client can get the key in that time. A server with
//! `--auto-release-on-disconnect=false`, or with a `--disconnect-grace` at least as long as the
//! lease, keeps the key until the holder was told. To do so across a restart it also needs
//! `--state-dir`. A server with the default settings releases everything when it sees the connection
//! break; two clients can then believe that they hold the key, until this one has reached the server again.
//!
//! A holder can stop for longer than its lease (a paused machine, a blocked runtime), and write before
//! it learns that the lease is over. No lease can prevent that. Storage that checks [`Lease::fence`]
//! refuses such a write.
//!
//! # Features
//!
//! `cli` (default) is the program `dflock`, `load` the load generator under `dflock bench`, which is
//! for Unix only. A program that only wants leases needs neither.

mod address;
mod backoff;
mod claim;
mod connection;
mod dialogue;
mod error;
mod lease;
#[cfg(all(unix, feature = "load"))]
pub mod load;
#[cfg(feature = "cli")]
pub mod program;
mod route;
mod settings;
mod shard;
mod terms;
mod transport;

pub use address::{AddressError, DEFAULT_PORT, ServerAddress};
pub use claim::{Claim, Client, Entry, Ticket};
pub use connection::Connection;
pub use dialogue::{Grace, Grant, Place};
pub use error::{ClientError, Refusal};
pub use lease::{Lease, Loss};
pub use settings::Settings;
pub use shard::{Servers, shard};
pub use terms::{Key, Kind, MAX_LINE_BYTES, TermError, Token};
pub use transport::{Tls, TlsRoots};
