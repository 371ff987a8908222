//! Client of `dflockd`, the lease lock server: leases that renew themselves, on one server or on several.
//!
//! [`Client`] names locks and semaphores, [`Claim`] takes them, [`Lease`] holds them. For whoever
//! wants to speak the protocol word by word there is [`Connection`].
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
//! The keeper of a [`Lease`] reaches the server again at once, or the next of [`Servers::AnyOf`], and
//! asks, by renewing, whether the token still holds. The answer decides: it goes on, or the holder is
//! told [`Loss::NotHeld`]. It
//! tries for [`Settings::reclaim`], and no longer than the lease lasts less [`Settings::margin`];
//! then the lease counts as lost ([`Loss::Unreachable`]). A connection that stands but stays silent
//! is waited for until the lease ends, or until the server would hang up on a client it has not
//! heard of ([`Settings::read_timeout`]), and no longer; meanwhile another one is tried beside it.
//!
//! Whether anybody else can have the key in that time is for the server's settings to say. One with
//! `--auto-release-on-disconnect=false`, or with a `--disconnect-grace` at least as long as the
//! lease, keeps it: nobody else has it before the holder was told. (So must it over a restart, by
//! `--state-dir`.) With the default settings a server gives everything away the moment it sees the
//! connection break, and two may believe to hold the key until this one has reached it again.
//!
//! No lease protects against a holder that stops for longer than its lease (a paused machine, a
//! blocked runtime): it may wake and write before it learns that the lease is over. Storage that
//! checks [`Lease::fence`] turns such a write away.
//!
//! # Features
//!
//! `cli` (default) is the program `dflock`, `load` the load generator under `dflock bench`, which is
//! for Unix only. Whoever wants leases in a program of their own takes neither.

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
