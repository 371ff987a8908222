//! Watches a key: its holder, whenever that changes.

use super::connection::Connection;
use super::route::Route;
use crate::error::ClientError;
use crate::observer::{Holder, Observer, Sight, period};
use std::thread;
use std::time::{Duration, Instant};

/// Watches a key, over whatever connections; see [`crate::Watch`].
pub struct Watch {
    route: Route,
    connection: Option<Connection>,
    observer: Observer,
}

impl Watch {
    pub(super) fn begin(route: Route) -> Self {
        Self { route, connection: None, observer: Observer::new() }
    }

    /// See [`crate::Watch::next`], which waits where this blocks the thread.
    ///
    /// # Errors
    /// As there.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end with an error")]
    pub fn next(&mut self) -> Result<Option<Holder>, ClientError> {
        loop {
            let error = match self.look() {
                Ok(sight) => match self.observer.sees(sight, Instant::now()) {
                    Some(holder) => return Ok(holder),
                    None => continue,
                },
                Err(error) => error,
            };
            self.connection = None;
            self.route.turn();
            let limit = self.route.settings.connect_limit;
            match self.observer.comes_again_after(&error, limit, Instant::now()) {
                Some(pause) => thread::sleep(pause),
                None => return Err(error),
            }
        }
    }

    fn look(&mut self) -> Result<Sight, ClientError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.route.open(None)?),
        };
        let last = self.observer.last();
        let is_first = last.is_none();
        let wait = if is_first { Duration::ZERO } else { period(self.route.settings.read_timeout) };
        connection.watch(&self.route.key, wait, last)
    }
}
