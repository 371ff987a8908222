//! Finds a server for a key among those that may be asked.

use super::backoff::Patience;
use super::connection::Connection;
use super::error::ClientError;
use super::settings::Settings;
use super::terms::{Key, Kind, Token};
use crate::address::ServerAddress;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// How long one server is waited for before the next is tried beside it (RFC 8305 says 250 ms).
const HEAD_START: Duration = Duration::from_millis(250);

/// Servers that know the same key, one as good as the other. Remembers which answered last.
pub(super) struct Route {
    pub(super) settings: Arc<Settings>,
    /// At least one.
    servers: Vec<ServerAddress>,
    at: AtomicUsize,
}

impl Route {
    pub(super) fn to(key: &Key, settings: Arc<Settings>) -> Self {
        let servers = settings.servers.of(key.as_bytes()).into_iter().cloned().collect();
        Self { settings, servers, at: AtomicUsize::new(0) }
    }

    /// How many there are to ask.
    pub(super) fn width(&self) -> u32 {
        u32::try_from(self.servers.len()).unwrap_or(u32::MAX).max(1)
    }

    /// The next one is asked first from now on, because this one answers and is of no use.
    pub(super) fn turn(&self) {
        let at = self.at.load(Ordering::Relaxed);
        self.at.store(self.beyond(at, 1), Ordering::Relaxed);
    }

    fn beyond(&self, at: usize, steps: usize) -> usize {
        at.saturating_add(steps).checked_rem(self.servers.len()).unwrap_or(0)
    }

    /// A connection to a server that may be away for a moment.
    pub(super) async fn open_patiently(&self) -> Result<Connection, ClientError> {
        let mut patience = self.patience();
        loop {
            match self.open().await {
                Err(error) if patience.outlasts(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    /// A connection on which there was an answer: who is about to end, or does not speak the protocol,
    /// would else be taken for one with a long line. One server after another is tried, and beside
    /// those that take their time; nothing is asked of them that would matter if it came late.
    pub(super) async fn open(&self) -> Result<Connection, ClientError> {
        let first = self.at.load(Ordering::Relaxed);
        let mut waiting = (0..self.servers.len()).map(|step| self.beyond(first, step));
        let mut attempts = JoinSet::new();
        let mut failure = ClientError::NoServer;
        loop {
            if let Some(at) = waiting.next() {
                self.attempt(at, &mut attempts);
            }
            let head_start = if waiting.len() == 0 { Duration::MAX } else { HEAD_START };
            match timeout(head_start, attempts.join_next()).await {
                Ok(Some(Ok((at, Ok(connection))))) => {
                    self.at.store(at, Ordering::Relaxed);
                    return Ok(connection);
                }
                Ok(Some(Ok((_, Err(error))))) => {
                    // While one of them may come back, there is hope.
                    if !failure.is_passing() {
                        failure = error;
                    }
                }
                // The next beside it.
                Err(_) => {}
                Ok(Some(Err(_))) => failure = ClientError::closed(),
                Ok(None) => return Err(failure),
            }
        }
    }

    fn attempt(&self, at: usize, attempts: &mut JoinSet<(usize, Attempt)>) {
        let Some(server) = self.servers.get(at).cloned() else { return };
        let settings = Arc::clone(&self.settings);
        attempts.spawn(async move { (at, answering(&server, &settings).await) });
    }

    /// Starts a lease over by its token, wherever somebody answers.
    pub(super) async fn renew(
        &self,
        key: &Key,
        kind: Kind,
        token: &Token,
        ttl_s: Option<u32>,
    ) -> Result<u32, ClientError> {
        let mut patience = self.patience();
        loop {
            let outcome = match self.open().await {
                Ok(mut connection) => connection.renew(key, kind, token, ttl_s).await,
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if self.outlasts(&mut patience, &error).await => {}
                outcome => return outcome,
            }
        }
    }

    /// Releases by token, wherever somebody answers. A connection that broke may have carried a
    /// release: what holds nothing after that is released.
    pub(super) async fn release(
        &self,
        key: &Key,
        kind: Kind,
        token: &Token,
        mut patience: Patience,
    ) -> Result<(), ClientError> {
        let mut may_be_done = false;
        loop {
            let outcome = match self.open().await {
                Ok(mut connection) => {
                    let outcome = connection.release(key, kind, token).await;
                    if may_be_done && outcome.as_ref().is_err_and(ClientError::is_not_held) {
                        return Ok(());
                    }
                    may_be_done = true;
                    outcome
                }
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if self.outlasts(&mut patience, &error).await => {}
                outcome => return outcome,
            }
        }
    }

    /// Whether to ask again, and then somebody else first.
    async fn outlasts(&self, patience: &mut Patience, error: &ClientError) -> bool {
        self.turn();
        patience.outlasts(error).await
    }

    pub(super) fn patience(&self) -> Patience {
        Patience::until(Instant::now() + self.settings.connect_limit)
    }
}

type Attempt = Result<Connection, ClientError>;

async fn answering(server: &ServerAddress, settings: &Settings) -> Attempt {
    let mut connection = Connection::open(server, settings).await?;
    connection.hear_of_it().await?;
    Ok(connection)
}
