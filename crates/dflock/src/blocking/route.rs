//! Finds a server for a key among those that may be asked.

use super::connection::Connection;
use crate::address::ServerAddress;
use crate::backoff::Patience;
use crate::dialogue::Releasing;
use crate::error::ClientError;
use crate::rotation::{Failures, HEAD_START, Rotation};
use crate::schedule::RENEWALS_PER_LEASE;
use crate::settings::Settings;
use crate::terms::{Key, Kind, Token};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// The key, and the servers that know it.
pub(super) struct Route {
    pub(super) settings: Arc<Settings>,
    pub(super) key: Key,
    pub(super) kind: Kind,
    servers: Rotation,
}

type Attempt = (usize, Result<Connection, ClientError>);

impl Route {
    pub(super) fn to(key: Key, kind: Kind, settings: Arc<Settings>) -> Self {
        let servers = Rotation::of(settings.servers.of(key.as_bytes()));
        Self { settings, key, kind, servers }
    }

    /// How many servers there are to ask.
    pub(super) fn width(&self) -> u32 {
        self.servers.width()
    }

    /// The next one is asked first from now on, because this one answers but cannot be used.
    pub(super) fn turn(&self) {
        self.servers.turn();
    }

    pub(super) fn patience(&self) -> Patience {
        Patience::until(Instant::now() + self.settings.connect_limit)
    }

    /// A connection to a server that may be away for a moment.
    pub(super) fn open_patiently(&self) -> Result<Connection, ClientError> {
        let mut patience = self.patience();
        loop {
            match self.open(None) {
                Err(error) if outlasts(&mut patience, &error) => {}
                outcome => return outcome,
            }
        }
    }

    /// A connection on which the server has answered, before a given time: see the same function of the asynchronous
    /// client. Each attempt has a thread of its own, because a name look-up has no time limit. A late attempt ends by
    /// itself.
    pub(super) fn open(&self, end: Option<Instant>) -> Result<Connection, ClientError> {
        let mut waiting = self.servers.in_order().into_iter();
        let (sender, attempts) = mpsc::channel();
        let mut sender = Some(sender);
        let mut failures = Failures::new();
        loop {
            match waiting.next() {
                Some(server) => self.attempt(server, sender.clone()),
                None => sender = None,
            }
            let pause = if sender.is_some() { HEAD_START } else { self.longest() };
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ClientError::Silent);
            }
            match attempts.recv_timeout(left.map_or(pause, |left| left.min(pause))) {
                Ok((at, Ok(connection))) => {
                    self.servers.turn_to(at);
                    return Ok(connection);
                }
                Ok((_, Err(error))) => failures.add(error),
                Err(RecvTimeoutError::Timeout) if sender.is_some() || left.is_some() => {}
                Err(RecvTimeoutError::Timeout) => return Err(ClientError::Silent),
                Err(RecvTimeoutError::Disconnected) => return Err(failures.told()),
            }
        }
    }

    /// No attempt takes longer, except for the name look-up.
    fn longest(&self) -> Duration {
        let Settings { connect_limit, answer_limit, .. } = *self.settings;
        connect_limit.saturating_add(answer_limit.saturating_mul(RENEWALS_PER_LEASE))
    }

    fn attempt(&self, (at, server): (usize, ServerAddress), outcome: Option<Sender<Attempt>>) {
        let (settings, Some(outcome)) = (Arc::clone(&self.settings), outcome) else { return };
        let attempt = move || {
            // The caller may have stopped waiting.
            let _ = outcome.send((at, answering(&server, &settings)));
        };
        // Without another thread there is no attempt; the last error is returned.
        let _ = thread::Builder::new().name("dflock connects".to_owned()).spawn(attempt);
    }

    /// Renews a lease by its token, at any server that answers.
    pub(super) fn renew(
        &self,
        token: &Token,
        ttl: Option<Duration>,
    ) -> Result<Duration, ClientError> {
        let mut patience = self.patience();
        loop {
            let outcome = self.open(None);
            let outcome = outcome.and_then(|mut it| it.renew(&self.key, self.kind, token, ttl));
            match outcome {
                Err(error) if self.outlasts(&mut patience, &error) => {}
                outcome => return outcome,
            }
        }
    }

    /// Releases by token, at any server that answers.
    pub(super) fn release(
        &self,
        token: &Token,
        mut releasing: Releasing,
        mut patience: Patience,
        end: Option<Instant>,
    ) -> Result<(), ClientError> {
        loop {
            let outcome = match self.open(end) {
                Ok(mut connection) => {
                    releasing.heard(connection.release(&self.key, self.kind, token))
                }
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if self.outlasts(&mut patience, &error) => {}
                outcome => return outcome,
            }
        }
    }

    /// Releases a hold on its connection; if that has broken, over another one, for about the answer limit in all.
    pub(super) fn let_go(
        &self,
        connection: Option<Connection>,
        token: &Token,
    ) -> Result<(), ClientError> {
        let limit = self.settings.answer_limit;
        let end = Instant::now() + limit;
        let mut first = Err(ClientError::closed());
        if let Some(mut connection) = connection {
            connection.set_answer_limit(limit / RENEWALS_PER_LEASE);
            first = connection.release(&self.key, self.kind, token);
        }
        if !first.as_ref().is_err_and(ClientError::is_passing) {
            return first;
        }
        self.release(token, Releasing::again(), Patience::until(end), Some(end))
    }

    /// Whether to ask again, and then the next server first.
    fn outlasts(&self, patience: &mut Patience, error: &ClientError) -> bool {
        self.turn();
        outlasts(patience, error)
    }
}

/// Pauses before another attempt, if there is one.
fn outlasts(patience: &mut Patience, error: &ClientError) -> bool {
    let pause = patience.outlasts(error, Instant::now());
    pause.map(thread::sleep).is_some()
}

fn answering(server: &ServerAddress, settings: &Settings) -> Result<Connection, ClientError> {
    let mut connection = Connection::open(server, settings)?;
    connection.hello()?;
    Ok(connection)
}
