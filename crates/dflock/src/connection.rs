//! One connection: a request, its answer, the next request.
//!
//! Never leaves an answer unread for the next request: a call that is given up, by a deadline or by dropping
//! its future, ends the connection.

use super::address::ServerAddress;
use super::dialogue::{self, Grace, Grant, Place, Request};
use super::error::{ClientError, Refusal};
use super::settings::Settings;
use super::terms::{Key, Kind, Token};
use super::transport::{self, Stream};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

/// No answer to a lock command comes near this.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// A server with a million keys answers `stats` with about 90 MB.
const MAX_STATS_BYTES: usize = 256 * 1024 * 1024;

/// How a server that speaks TLS begins its answer to somebody who does not (RFC 8446, 5.1): an alert.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// A connection to one server, authenticated when the settings say so.
///
/// Requests on one connection are served strictly in order, so an acquire that waits holds back
/// whatever is sent behind it. With the server's auto-release on (the default), everything
/// acquired here is released when this is dropped.
pub struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    answer_limit: Duration,
    in_step: bool,
    has_answered: bool,
}

impl Connection {
    /// Connects, authenticates, and says who is there.
    ///
    /// # Errors
    /// [`ClientError::Connect`], or what `auth` answered.
    pub async fn open(server: &ServerAddress, settings: &Settings) -> Result<Self, ClientError> {
        let stream = transport::open(server, settings.tls.as_ref(), settings.connect_limit).await?;
        let mut connection = Self {
            stream: BufReader::new(stream),
            answer_limit: settings.answer_limit,
            in_step: true,
            has_answered: false,
        };
        if let Some(token) = &settings.auth_token {
            let line = connection.exchange(&Request::Auth { token }, Duration::ZERO).await?;
            dialogue::done(&line)?;
        }
        if let Some(name) = &settings.name {
            let line = connection.exchange(&Request::Name { name }, Duration::ZERO).await?;
            match dialogue::done(&line) {
                // Servers that know nothing of names say `error` and go on; one that ends has no
                // use for them.
                Ok(()) | Err(ClientError::Refused(Refusal::Error | Refusal::Draining)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(connection)
    }

    /// `l` or `sl`: waits at most `timeout_s` seconds for a grant; nothing when they pass first.
    ///
    /// # Errors
    /// A refusal, or a connection that broke or stayed silent.
    pub async fn acquire(
        &mut self,
        key: &Key,
        kind: Kind,
        timeout_s: u32,
        ttl_s: Option<u32>,
    ) -> Result<Option<Grant>, ClientError> {
        let wait = Duration::from_secs(timeout_s.into());
        let request = Request::Acquire { key, kind, timeout_s, ttl_s };
        dialogue::grant(&self.exchange(&request, wait).await?)
    }

    /// `e` or `se`: joins the queue and does not wait.
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    pub async fn enqueue(
        &mut self,
        key: &Key,
        kind: Kind,
        ttl_s: Option<u32>,
    ) -> Result<Place, ClientError> {
        let request = Request::Enqueue { key, kind, ttl_s };
        dialogue::place(&self.exchange(&request, Duration::ZERO).await?)
    }

    /// `w` or `sw`: waits for the grant of an earlier enqueue on this connection; nothing when the
    /// time passes first, and then the place in the queue is gone.
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    pub async fn wait(
        &mut self,
        key: &Key,
        kind: Kind,
        timeout_s: u32,
    ) -> Result<Option<Grant>, ClientError> {
        let wait = Duration::from_secs(timeout_s.into());
        let request = Request::Wait { key, kind, timeout_s };
        dialogue::grant(&self.exchange(&request, wait).await?)
    }

    /// `r` or `sr`. Works for a token from any connection.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the token does not hold the key (any more).
    pub async fn release(
        &mut self,
        key: &Key,
        kind: Kind,
        token: &Token,
    ) -> Result<(), ClientError> {
        let request = Request::Release { key, kind, token };
        dialogue::done(&self.exchange(&request, Duration::ZERO).await?)
    }

    /// `n` or `sn`: the lease starts over; the answer is its length in seconds. Without `ttl_s`
    /// the server's default, not the length first asked for.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the token does not hold the key (any more).
    pub async fn renew(
        &mut self,
        key: &Key,
        kind: Kind,
        token: &Token,
        ttl_s: Option<u32>,
    ) -> Result<u32, ClientError> {
        let request = Request::Renew { key, kind, token, ttl_s };
        dialogue::renewal(&self.exchange(&request, Duration::ZERO).await?, ttl_s)
    }

    /// `grace`: how long what is held here stays when this connection closes. Nothing from servers
    /// that do not know the word.
    ///
    /// # Errors
    /// A refusal, or a connection that broke or stayed silent.
    pub async fn grace(&mut self) -> Result<Option<Grace>, ClientError> {
        dialogue::grace(&self.exchange(&Request::Grace, Duration::ZERO).await?)
    }

    /// `ping`: also keeps the server from closing an idle connection.
    ///
    /// # Errors
    /// A refusal, or a connection that broke or stayed silent.
    pub async fn ping(&mut self) -> Result<(), ClientError> {
        dialogue::done(&self.exchange(&Request::Ping, Duration::ZERO).await?)
    }

    /// `stats`: one JSON object as text.
    ///
    /// # Errors
    /// A refusal, or a connection that broke or stayed silent.
    pub async fn stats(&mut self) -> Result<String, ClientError> {
        let line = self.exchange_up_to(&Request::Stats, Duration::ZERO, MAX_STATS_BYTES).await?;
        dialogue::stats(&line).map(str::to_owned)
    }

    /// The same; locks also have what their holder calls itself, as `owner`, where the server knows
    /// that.
    ///
    /// # Errors
    /// As for [`Self::stats`].
    pub async fn stats_with_names(&mut self) -> Result<String, ClientError> {
        let request = Request::StatsWithNames;
        let line = self.exchange_up_to(&request, Duration::ZERO, MAX_STATS_BYTES).await?;
        dialogue::stats(&line).map(str::to_owned)
    }

    /// Makes sure that the other end has given an answer; which, does not matter.
    pub(super) async fn hear_of_it(&mut self) -> Result<(), ClientError> {
        if self.has_answered {
            return Ok(());
        }
        match self.ping().await {
            Ok(()) | Err(ClientError::Refused(Refusal::Error)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// For the answers from now on.
    pub(super) fn set_answer_limit(&mut self, limit: Duration) {
        self.answer_limit = limit;
    }

    /// Ends when the server closes the connection, or speaks without being asked.
    pub(super) async fn closed(&mut self) {
        let _ = self.stream.fill_buf().await;
        self.in_step = false;
    }

    /// Says that nothing more will come and waits until the server has closed its side, that is,
    /// until it has cleaned up behind this connection. Bounded by the answer limit.
    pub(super) async fn close(mut self) {
        let goodbye = async {
            self.stream.get_mut().shutdown().await?;
            while !self.stream.fill_buf().await?.is_empty() {
                let unread = self.stream.buffer().len();
                self.stream.consume(unread);
            }
            Ok::<(), io::Error>(())
        };
        let _ = timeout(self.answer_limit, goodbye).await;
    }

    async fn exchange(&mut self, request: &Request<'_>, wait: Duration) -> Answer {
        self.exchange_up_to(request, wait, MAX_ANSWER_BYTES).await
    }

    async fn exchange_up_to(
        &mut self,
        request: &Request<'_>,
        wait: Duration,
        most_bytes: usize,
    ) -> Answer {
        if !std::mem::replace(&mut self.in_step, false) {
            return Err(ClientError::closed());
        }
        let limit = self.answer_limit.saturating_add(wait);
        let line = timeout(limit, self.converse(request, most_bytes))
            .await
            .map_err(|_| ClientError::Silent)??;
        self.in_step = true;
        self.has_answered = true;
        Ok(line)
    }

    async fn converse(&mut self, request: &Request<'_>, most_bytes: usize) -> Answer {
        self.stream.write_all(&request.to_bytes()).await?;
        self.stream.flush().await?;
        let mut line = Vec::new();
        loop {
            let buffered = self.stream.fill_buf().await?;
            if buffered.is_empty() {
                return Err(ClientError::closed());
            }
            let end = buffered.iter().position(|&byte| byte == b'\n');
            if line.is_empty() && buffered.starts_with(&TLS_ALERT) {
                return Err(ClientError::strange("the server speaks TLS; see --tls"));
            }
            let (part, _) = buffered.split_at(end.unwrap_or(buffered.len()));
            line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.stream.consume(used);
            if line.len() > most_bytes {
                return Err(ClientError::strange("a line without end"));
            }
            if end.is_some() {
                break;
            }
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|_| ClientError::strange("bytes that are not text"))
    }
}

type Answer = Result<String, ClientError>;
