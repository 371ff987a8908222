//! The settings of a server.

use super::access::Access;
use super::state::StateDir;
use super::transport::Tls;
use leases::{AutoRelease, Caps, Seconds};
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The etcd in which the servers of one service record their holds.
    #[cfg(feature = "etcd")]
    pub etcd: Option<leases_etcd::Settings>,
    /// The engine's limits.
    pub caps: Caps,
    /// The time for one line, and for silence between requests.
    pub read_timeout: Seconds,
    /// The time for sending one reply; zero for no limit.
    pub write_timeout: Seconds,
    /// The time that the remaining connections have after the signal to end; zero for no limit.
    pub shutdown_timeout: Seconds,
    /// What becomes of the holds of a connection that has ended.
    pub auto_release: AutoRelease,
    /// The most connections at the same time; 0 for no cap. Further ones are closed.
    pub max_connections: usize,
    /// The most clients that wait for changes of keys at the same time; 0 for no cap. Further ones are refused.
    pub max_watchers: usize,
    /// The number of connections that the system's limits allow; 0 for no cap. Further ones wait to be accepted.
    pub max_descriptors: usize,
    /// The most connections at the same time from one address; 0 for no cap.
    pub max_connections_per_address: usize,
    /// The secrets that clients must show.
    pub access: Access,
    /// The TLS settings of connections, if they use TLS.
    pub tls: Option<Tls>,
    /// The directory in which holds outlive the process.
    pub state: Option<Arc<StateDir>>,
    /// The time after the start during which nothing is granted.
    pub startup_grace: Seconds,
    /// Host and port at which other servers of the same service reach this one.
    pub advertise: String,
    /// Limits and times of HTTP.
    pub http: HttpSettings,
}

/// See [`Settings::http`].
#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    /// The time that clients read: a session that is silent for twice as long ends.
    pub session_idle: Seconds,
    /// The most sessions; 0 for no cap. Further ones are refused.
    pub max_sessions: usize,
    /// The most sessions of one address; 0 for no cap.
    pub max_sessions_per_address: usize,
    /// How many HTTP connections the system's limits allow beyond the few that there may be in any case.
    pub more_connections: usize,
    /// The most connections from one address; 0 for no cap. Further ones are closed.
    pub max_connections_per_address: usize,
    /// Requests of one address in a second; 0 for no limit. Further ones are refused.
    pub rate_per_address: usize,
    /// How many requests of one address may come at once.
    pub burst: usize,
    /// The origins whose pages may use this server; `*` stands for all.
    pub origins: Vec<String>,
}

impl HttpSettings {
    /// How long a session may be silent.
    pub(crate) fn session_silence(&self) -> Seconds {
        let twice = self.session_idle.count().saturating_mul(2);
        Seconds::new(twice).unwrap_or(self.session_idle)
    }
}

impl Settings {
    /// Whether another server can continue with the holds of this one.
    pub(super) const fn is_shared(&self) -> bool {
        #[cfg(feature = "etcd")]
        return self.etcd.is_some();
        #[cfg(not(feature = "etcd"))]
        return false;
    }
}

#[cfg(test)]
impl Default for Settings {
    /// The documented defaults.
    fn default() -> Self {
        use crate::config::{Config, Wish};
        match Config::read(&[], |_| None) {
            Ok(Wish::Run(config)) => config.settings,
            other => panic!("{other:?}"),
        }
    }
}
