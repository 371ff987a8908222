//! The settings of a server.

use super::access::Access;
use super::fence_file::FenceFile;
use super::state::StateDir;
use super::tls::Tls;
use leases::{AutoRelease, Caps, Seconds, Ttl};
use std::sync::Arc;

/// What keeps the locks.
#[derive(Clone, Debug, Default)]
pub enum StoreChoice {
    /// This process.
    #[default]
    Memory,
    /// etcd.
    #[cfg(feature = "etcd")]
    Etcd(crate::etcd::Settings),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What keeps the locks.
    pub store: StoreChoice,
    /// The engine's limits.
    pub caps: Caps,
    /// For one line, and for silence between requests.
    pub read_timeout: Seconds,
    /// For one reply; zero for no limit.
    pub write_timeout: Seconds,
    /// For the rest of the connections after the signal; zero for no limit.
    pub shutdown_timeout: Seconds,
    /// What becomes of the holds of a gone connection.
    pub auto_release: AutoRelease,
    /// Connections at once; 0 for no cap. Those over it are closed.
    pub max_connections: usize,
    /// Connections the system's limits allow; 0 for no cap. Those over it wait to be taken in.
    pub max_descriptors: usize,
    /// Connections at once from one address; 0 for no cap.
    pub max_connections_per_address: usize,
    /// What clients must show first.
    pub access: Access,
    /// Connections are secured with this.
    pub tls: Option<Tls>,
    /// Keeps fences growing though the clock goes back.
    pub fence_file: Option<Arc<FenceFile>>,
    /// Holds outlive the process there.
    pub state: Option<Arc<StateDir>>,
    /// Nothing is granted for so long after the start.
    pub startup_grace: Seconds,
}

impl Settings {
    /// No fence up to this may be given out.
    pub(super) fn fence_floor(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.fence())
    }
}

impl Default for Settings {
    /// The documented defaults.
    fn default() -> Self {
        let seconds = |count| Seconds::new(count).unwrap_or(Seconds::ZERO);
        let Some(default_ttl) = Ttl::new(33) else { unreachable!("33 is a lease") };
        Self {
            store: StoreChoice::Memory,
            caps: Caps {
                default_ttl,
                max_locks: 1024,
                max_waiters: 0,
                gc_interval: seconds(5),
                gc_max_idle: seconds(60),
                disconnect_grace: Seconds::ZERO,
                max_entries: 100_000,
                max_entries_per_connection: 50_000,
            },
            read_timeout: seconds(23),
            write_timeout: seconds(5),
            shutdown_timeout: seconds(30),
            auto_release: AutoRelease::On,
            max_connections: 0,
            max_descriptors: 0,
            max_connections_per_address: 0,
            access: Access::default(),
            tls: None,
            fence_file: None,
            state: None,
            startup_grace: Seconds::ZERO,
        }
    }
}
