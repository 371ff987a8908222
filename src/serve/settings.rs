//! The settings of a daemon.

use std::time::Duration;

use ttylock::DeviceName;

/// How a daemon behaves.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How long a connection may ask nothing.
    pub idle_timeout: Duration,
    /// Connections in all. Fewer when the system does not give enough descriptors.
    pub limit: usize,
    /// Connections of one user.
    pub limit_per_user: usize,
    /// Whether it ends when it has had nothing to do for the idle time: the program that started it listens on, and starts
    /// another (inetd `wait`).
    pub ends_when_idle: bool,
    /// Whether ports that are held open without a lock get one.
    pub watch_opens: bool,
    /// If ports are made exclusive while they are locked: all but these, by any of their names.
    pub exclusive_except: Option<Vec<DeviceName>>,
}
