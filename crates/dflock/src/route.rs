//! Finds a server for a key among those that may be asked.

use super::backoff::Patience;
use super::connection::Connection;
use super::error::ClientError;
use super::rotation::{Failures, HEAD_START, Rotation};
use super::settings::Settings;
use super::terms::{Key, Proof};
use crate::address::ServerAddress;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Servers that know the same key. Remembers which one answered last.
pub(super) struct Route {
    pub(super) settings: Arc<Settings>,
    servers: Rotation,
}

impl Route {
    pub(super) fn to(key: &Key, settings: Arc<Settings>) -> Self {
        let servers = Rotation::of(settings.servers.of(key.as_bytes()));
        Self { settings, servers }
    }

    /// The one to ask first.
    pub(super) fn server(&self) -> Option<ServerAddress> {
        self.servers.first()
    }

    /// How many there are to ask.
    pub(super) fn width(&self) -> u32 {
        self.servers.width()
    }

    /// The next one is asked first from now on, because this one answers but cannot be used.
    pub(super) fn turn(&self) {
        self.servers.turn();
    }

    /// A connection to a server that may be away for a moment.
    pub(super) async fn open_patiently(&self) -> Result<Connection, ClientError> {
        self.ask(self.patience(), |connection| async { Ok(connection) }).await
    }

    /// A connection on which the server has answered. Otherwise a server that is about to end, or does not speak the
    /// protocol, would look like one with a long line. The servers are tried one after another, without waiting for
    /// slow ones; no request is sent that would matter if it arrived late.
    pub(super) async fn open(&self) -> Result<Connection, ClientError> {
        let mut waiting = self.servers.in_order().into_iter();
        let mut attempts = JoinSet::new();
        let mut failures = Failures::new();
        loop {
            if let Some((at, server)) = waiting.next() {
                let settings = Arc::clone(&self.settings);
                attempts.spawn(async move { (at, answering(&server, &settings).await) });
            }
            let head_start = if waiting.len() == 0 { Duration::MAX } else { HEAD_START };
            match timeout(head_start, attempts.join_next()).await {
                Ok(Some(Ok((at, Ok(connection))))) => {
                    self.servers.turn_to(at);
                    return Ok(connection);
                }
                Ok(Some(Ok((_, Err(error))))) => failures.add(error),
                // The next server is tried as well.
                Err(_) => {}
                Ok(Some(Err(_))) => failures.add(ClientError::closed()),
                Ok(None) => return Err(failures.told()),
            }
        }
    }

    /// Renews a lease by its token, at any server that answers.
    pub(super) async fn renew(
        &self,
        proof: &Proof,
        ttl: Option<Duration>,
    ) -> Result<Duration, ClientError> {
        let Proof { key, kind, token } = proof;
        let renew = |mut connection: Connection| async move {
            connection.renew(key, *kind, token, ttl).await
        };
        self.ask(self.patience(), renew).await
    }

    /// Releases by token, at any server that answers. If an earlier connection may have carried the request, "holds
    /// nothing" counts as released.
    pub(super) async fn release(
        &self,
        proof: &Proof,
        mut may_be_done: bool,
        patience: Patience,
    ) -> Result<(), ClientError> {
        let Proof { key, kind, token } = proof;
        let release = |mut connection: Connection| {
            let may_be_done = std::mem::replace(&mut may_be_done, true);
            async move {
                match connection.release(key, *kind, token).await {
                    Err(error) if may_be_done && error.is_not_held() => Ok(()),
                    outcome => outcome,
                }
            }
        };
        self.ask(patience, release).await
    }

    /// Asks any server that answers. After a failure that may pass, the next server is asked first.
    async fn ask<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        mut patience: Patience,
        mut ask: impl FnMut(Connection) -> F,
    ) -> Result<T, ClientError> {
        loop {
            let outcome = match self.open().await {
                Ok(connection) => ask(connection).await,
                Err(error) => Err(error),
            };
            let Err(error) = outcome else { return outcome };
            self.turn();
            match patience.outlasts(&error, Instant::now().into_std()) {
                Some(pause) => sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    pub(super) fn patience(&self) -> Patience {
        Patience::until((Instant::now() + self.settings.connect_limit).into_std())
    }

    /// Releases a hold of a connection that has failed with this error, for at most the answer limit.
    pub(super) async fn let_go(
        &self,
        proof: &Proof,
        error: ClientError,
    ) -> Result<(), ClientError> {
        let end = Instant::now() + self.settings.answer_limit;
        let patience = Patience::until(end.into_std());
        let released = self.release(proof, true, patience);
        timeout_at(end, released).await.unwrap_or(Err(error))
    }
}

async fn answering(server: &ServerAddress, settings: &Settings) -> Result<Connection, ClientError> {
    let mut connection = Connection::open(server, settings).await?;
    connection.hello().await?;
    Ok(connection)
}
