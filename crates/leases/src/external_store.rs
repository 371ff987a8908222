//! The boundary between a server and a store outside its process: how the tasks of the store reach the server, and
//! what the server hears if the store cannot be reached.

use crate::Moment;
use std::sync::Weak;

/// The store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;

/// The server, as the tasks of a store know it.
pub trait Host: Send + Sync {
    /// The store has effects to take, or another deadline.
    fn stirred(&self);

    /// The server's clock.
    fn now(&self) -> Moment;
}

/// A handle by which a store tells the server news without being asked. Cheap to clone; it does not keep the server
/// alive.
#[derive(Clone)]
pub struct Inlet(Weak<dyn Host>);

impl Inlet {
    /// A handle of this server.
    pub fn new(server: Weak<dyn Host>) -> Self {
        Self(server)
    }

    /// See [`Host::stirred`]. Not to be called from inside a store's call.
    pub fn stir(&self) {
        if let Some(server) = self.0.upgrade() {
            server.stirred();
        }
    }

    /// See [`Host::now`]; nothing when the server is gone.
    #[must_use]
    pub fn now(&self) -> Option<Moment> {
        self.0.upgrade().map(|server| server.now())
    }
}
