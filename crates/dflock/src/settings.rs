//! The settings of a client: the servers, and the time limits.

use super::address::ServerAddress;
use super::shard::Servers;
use super::transport::Tls;
use std::time::Duration;

/// Settings of a [`super::Client`]. Start from [`Settings::default`] and change what differs.
#[derive(Clone)]
pub struct Settings {
    /// The servers: each with keys of its own, or each with all of them. At least one.
    pub servers: Servers,
    /// Sent with `auth` first on every connection.
    pub auth_token: Option<Vec<u8>>,
    /// Who this is, for the people who look at the server: host, process, purpose. At most 200 bytes
    /// of it are sent.
    pub name: Option<String>,
    /// TLS to all servers, or none.
    pub tls: Option<Tls>,
    /// How long connecting may take, name look-up and TLS included; and for how long a server that
    /// is away at first, because it is being started say, is looked for. 10 s.
    pub connect_limit: Duration,
    /// How long an answer may take beyond the time the request itself allows. 10 s.
    pub answer_limit: Duration,
    /// The server's read timeout: how long it lets a connection be silent before it closes it, and,
    /// with auto-release on, gives away what the connection held, however long the lease. 23 s, as
    /// servers have it unless told otherwise. Renewals and pings come three times in it; and when a
    /// network swallows them, the lease counts as over when it has passed. Where the server keeps
    /// what it hears nothing of (auto-release off, or a grace), it may be as long as the lease.
    pub read_timeout: Duration,
    /// After a broken connection: how long to try to reach the server again with the token before
    /// the lease counts as lost. Nothing: as long as the lease lasts, less the margin; it is never
    /// tried for longer. A server with auto-release on and no grace (the default) gives the lock
    /// away when the connection breaks, so every moment of trying is a moment in which somebody
    /// else may hold it; there a short time may be better.
    pub reclaim: Option<Duration>,
    /// How long before the end of a lease that could not be renewed the holder is told; at most a
    /// third of the lease, or of the read timeout, counts. Zero.
    pub margin: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            servers: Servers::Shards(vec![ServerAddress::local_default()]),
            auth_token: None,
            name: None,
            tls: None,
            connect_limit: Duration::from_secs(10),
            answer_limit: Duration::from_secs(10),
            read_timeout: Duration::from_secs(23),
            reclaim: None,
            margin: Duration::ZERO,
        }
    }
}
