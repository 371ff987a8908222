//! One connection: a request, its answer, the next request.

use super::stream::{Stream, Watch, is_pause};
use crate::address::ServerAddress;
use crate::conversation::{Conversation, MAX_ANSWER_BYTES, MAX_STATS_BYTES};
use crate::dialogue::{self, Abilities, Grant, Request};
use crate::error::ClientError;
use crate::observer::Sight;
use crate::settings::Settings;
use crate::terms::{Key, Kind, Seconds, Token};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// How long to look for bytes that have already arrived.
const GLANCE: Duration = Duration::from_millis(1);

/// A connection to one server; see [`crate::Connection`]. Its methods block the thread.
///
/// After an error other than [`ClientError::Refused`] and [`ClientError::Term`] it cannot be used any more.
pub struct Connection {
    stream: Stream,
    conversation: Conversation,
    /// Unknown until [`Self::hello`].
    abilities: Option<Abilities>,
    answer_limit: Duration,
    /// Bytes after an answer.
    unread: Vec<u8>,
}

impl Connection {
    /// Connects, authenticates, and sends the client's name.
    ///
    /// # Errors
    /// [`ClientError::Connect`], or the refusal of `auth`.
    pub fn open(server: &ServerAddress, settings: &Settings) -> Result<Self, ClientError> {
        let mut connection = Self {
            stream: Stream::open(server, settings.tls.as_ref(), settings.connect_limit)?,
            conversation: Conversation::new(),
            abilities: None,
            answer_limit: settings.answer_limit,
            unread: Vec::new(),
        };
        let Settings { auth_token, name, value, .. } = settings;
        let greeting =
            dialogue::greeting(auth_token.as_deref(), name.as_deref(), value.as_deref())?;
        for request in greeting {
            let line = connection.exchange(&request, Duration::ZERO)?;
            dialogue::welcome(&request, &line)?;
        }
        Ok(connection)
    }

    /// `l`, `rl` or `sl`: waits at most so long for a grant; `None` if the time is over first.
    ///
    /// # Errors
    /// A time that does not fit, a refusal, or a connection that broke or stayed silent.
    pub fn acquire(
        &mut self,
        key: &Key,
        kind: Kind,
        timeout: Duration,
        ttl: Option<Duration>,
    ) -> Result<Option<Grant>, ClientError> {
        let (timeout, ttl) = (Seconds::to_wait(timeout)?, Seconds::of_some_lease(ttl)?);
        let abilities = self.hello()?;
        let request = Request::Acquire { key, kind, timeout, ttl };
        let answer = self.exchange(&request, timeout.time())?;
        dialogue::grant(&answer, abilities).map_err(|error| dialogue::not_asked(kind, error))
    }

    /// `al`: see the asynchronous client.
    pub(super) fn acquire_all(
        &mut self,
        keys: &[&Key],
        ttl: Option<Duration>,
    ) -> Result<Option<Vec<Grant>>, ClientError> {
        let abilities = self.hello()?;
        let request = Request::AcquireAll { keys, ttl: Seconds::of_some_lease(ttl)? };
        dialogue::grants(&self.exchange(&request, Duration::ZERO)?, keys.len(), abilities)
    }

    /// `r` or `sr`. Works for a token from any connection.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the token does not hold the key (any more).
    pub fn release(&mut self, key: &Key, kind: Kind, token: &Token) -> Result<(), ClientError> {
        let request = Request::Release { key, kind, token };
        dialogue::done(&self.exchange(&request, Duration::ZERO)?)
    }

    /// `n` or `sn`: the lease starts over; returns its length. Without `ttl` that is the server's default, not the
    /// length of the first request.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the token does not hold the key (any more); as for
    /// [`Self::acquire`].
    pub fn renew(
        &mut self,
        key: &Key,
        kind: Kind,
        token: &Token,
        ttl: Option<Duration>,
    ) -> Result<Duration, ClientError> {
        let ttl = Seconds::of_some_lease(ttl)?;
        let request = Request::Renew { key, kind, token, ttl };
        dialogue::renewal(&self.exchange(&request, Duration::ZERO)?, ttl)
    }

    /// `ping`: also keeps the server from closing an idle connection.
    ///
    /// # Errors
    /// A refusal, or a connection that broke or stayed silent.
    pub fn ping(&mut self) -> Result<(), ClientError> {
        dialogue::done(&self.exchange(&Request::Ping, Duration::ZERO)?)
    }

    /// `stats`: one JSON object as text.
    ///
    /// # Errors
    /// A refusal, or a connection that broke or stayed silent.
    pub fn stats(&mut self) -> Result<String, ClientError> {
        self.say(&Request::Stats)?;
        let line = self.answer(self.answer_limit, MAX_STATS_BYTES)?;
        dialogue::stats(&line).map(str::to_owned)
    }

    /// `watch`: see the same of the asynchronous client.
    pub(super) fn watch(
        &mut self,
        key: &Key,
        timeout: Duration,
        last: Option<&str>,
    ) -> Result<Sight, ClientError> {
        let timeout = Seconds::to_wait(timeout)?;
        let request = Request::Watch { key, timeout, last };
        Sight::read(&self.exchange(&request, timeout.time())?)
    }

    /// Learns what the server can do, once. Then it is also known that the other end answers.
    pub(super) fn hello(&mut self) -> Result<Abilities, ClientError> {
        if let Some(known) = self.abilities {
            return Ok(known);
        }
        let answer = self.exchange(&Request::Hello, Duration::ZERO)?;
        Ok(*self.abilities.insert(Abilities::read(&answer)?))
    }

    /// Sets the limit for answers from now on.
    pub(super) fn set_answer_limit(&mut self, limit: Duration) {
        self.answer_limit = limit;
    }

    /// Whether no answer is awaited from the server.
    pub(super) fn is_answered(&self) -> bool {
        self.conversation.is_answered()
    }

    pub(super) fn socket(&self) -> Watch {
        self.stream.watch()
    }

    /// Whether the server has neither closed the connection nor sent something unasked. Bytes may have come that
    /// belong to TLS itself.
    pub(super) fn is_quiet(&mut self) -> bool {
        let glance = self.stream.set_limit(GLANCE);
        let is_quiet = self.unread.is_empty()
            && glance.is_ok()
            && self.stream.read(&mut [0]).is_err_and(|error| is_pause(&error));
        if !is_quiet {
            self.conversation.end();
        }
        is_quiet
    }

    /// Sends a request without reading its answer.
    pub(super) fn say(&mut self, request: &Request<'_>) -> Result<(), ClientError> {
        self.conversation.ask()?;
        self.stream.set_limit(self.answer_limit)?;
        let sent = self.stream.write_all(&request.to_bytes()).and_then(|()| self.stream.flush());
        sent.map_err(|error| if is_pause(&error) { ClientError::Silent } else { error.into() })
    }

    /// The answer to that request, if it comes within this time. Otherwise it can be asked for again.
    pub(super) fn answer_within(&mut self, limit: Duration) -> Result<String, ClientError> {
        self.answer(limit, MAX_ANSWER_BYTES)
    }

    fn exchange(&mut self, request: &Request<'_>, wait: Duration) -> Result<String, ClientError> {
        self.say(request)?;
        self.answer(self.answer_limit.saturating_add(wait), MAX_ANSWER_BYTES)
    }

    fn answer(&mut self, limit: Duration, most_bytes: usize) -> Result<String, ClientError> {
        let end = Instant::now() + limit;
        let mut piece = [0; 4096];
        loop {
            if !self.unread.is_empty() {
                let (used, answer) = self.conversation.hear(&self.unread, most_bytes)?;
                self.unread.drain(..used);
                if let Some(answer) = answer {
                    return Ok(answer);
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::Silent);
            }
            self.stream.set_limit(left)?;
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ClientError::closed()),
                Ok(count) => self.unread.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
