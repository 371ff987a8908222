//! Releases what was requested and is no longer wanted: a future that is dropped leaves nothing held.

use super::connection::Connection;
use super::dialogue::Grant;
use super::error::ClientError;
use super::route::Route;
use super::terms::{Key, Kind, Token};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A grant that needs no wait comes within this time. A client that asked longer ago waits in line, and leaves the
/// line by closing the connection.
const LINGER: Duration = Duration::from_secs(1);

/// A requested place on a connection, or a grant that has no holder yet.
///
/// Unless [`Self::claimed`] is called, dropping it gives up the place or grant, in the background, as long as the
/// runtime runs. A known grant is released. A grant that may be on its way is awaited until [`LINGER`] after the
/// request; then the connection is closed, which leaves the line.
pub(super) struct Unclaimed {
    pub(super) route: Arc<Route>,
    pub(super) key: Key,
    pub(super) kind: Kind,
    connection: Option<Connection>,
    token: Option<Token>,
    /// What the same request asks for besides.
    beside: Vec<Self>,
    /// For use before any request.
    begun: Instant,
    runtime: Handle,
}

impl Unclaimed {
    /// Nothing is requested yet. Must be called within a runtime.
    pub(super) fn on(connection: Connection, route: &Arc<Route>, key: &Key, kind: Kind) -> Self {
        let mut place = Self::of(route, key, kind);
        place.connection = Some(connection);
        place
    }

    /// The same without a connection.
    pub(super) fn of(route: &Arc<Route>, key: &Key, kind: Kind) -> Self {
        Self {
            route: Arc::clone(route),
            key: key.clone(),
            kind,
            connection: None,
            token: None,
            beside: Vec::new(),
            begun: Instant::now(),
            runtime: Handle::current(),
        }
    }

    /// The request will be for these, too.
    pub(super) fn with(mut self, beside: Vec<Self>) -> Self {
        self.beside = beside;
        self
    }

    /// Gives the connection for a request that is sent now.
    pub(super) fn ask(&mut self) -> Result<&mut Connection, ClientError> {
        self.begun = Instant::now();
        self.connection()
    }

    /// The connection of the request.
    pub(super) fn connection(&mut self) -> Result<&mut Connection, ClientError> {
        self.connection.as_mut().ok_or_else(ClientError::closed)
    }

    /// The request was granted.
    pub(super) fn granted(&mut self, grant: &Grant) {
        self.token = Some(grant.token.clone());
    }

    /// The request was granted, with what it asked for besides.
    pub(super) fn all_granted(&mut self, grants: &[Grant]) -> Vec<Self> {
        let mut beside = std::mem::take(&mut self.beside);
        let places = std::iter::once(&mut *self).chain(&mut beside);
        places.zip(grants).for_each(|(place, grant)| place.granted(grant));
        beside
    }

    /// Opens a connection of its own for it.
    pub(super) async fn connect(&mut self) -> Result<(), ClientError> {
        self.connection = Some(self.route.open().await?);
        Ok(())
    }

    /// Closes the connection, and keeps the grant.
    pub(super) async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
    }

    /// The caller is responsible for it from now on.
    pub(super) fn claimed(mut self) -> Option<Connection> {
        self.token = None;
        self.connection.take()
    }

    /// Gives it up, and waits until that is done. It goes on if the future is dropped.
    pub(super) async fn give_up(mut self) {
        if let Some(task) = self.leave() {
            let _ = task.await;
        }
    }

    /// What has to be done to give it up.
    fn leave(&mut self) -> Option<JoinHandle<()>> {
        let (connection, token) = (self.connection.take(), self.token.take());
        let is_done = connection.as_ref().is_none_or(Connection::is_answered);
        if is_done && token.is_none() {
            return None;
        }
        let (route, key, kind) = (Arc::clone(&self.route), self.key.clone(), self.kind);
        let linger = LINGER.saturating_sub(self.begun.elapsed());
        let mut beside = std::mem::take(&mut self.beside);
        Some(self.runtime.spawn(async move {
            let (mut connection, mut token) = (connection, token);
            if let (Some(connection), None) = (&mut connection, &token) {
                // The grants that an unanswered request still gets. A place in the line ends with its connection.
                let many = 1 + beside.len();
                let mut grants = connection.late_grants(linger, many).await.into_iter();
                token = grants.next().map(|grant| grant.token);
                beside.iter_mut().zip(grants).for_each(|(place, grant)| place.granted(&grant));
            }
            if let Some(token) = token {
                let _ = route.let_go(connection, &key, kind, &token).await;
            }
        }))
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        drop(self.leave());
    }
}
