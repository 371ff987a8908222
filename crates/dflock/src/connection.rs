//! One connection: its stream, which is TCP, TLS over TCP or a Unix socket; a request, its answer, the next request.
//!
//! Never leaves an answer unread for the next request: if a call is given up, by a deadline or by dropping its
//! future, the connection ends.

use super::dialogue::{self, Abilities, Grace, Grant, Place, Sight};
use super::error::{ClientError, words_of_tls};
use super::settings::{Settings, Tls};
use super::terms::{Key, Kind, ServerAddress, Token, seconds, seconds_of_lease, seconds_to_wait};
use leases::wire::{self, Ask};
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

/// All answers to lock commands are much shorter than this.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;
/// The Go server answers `stats` with all keys: about 90 MB for a million.
const MAX_STATS_BYTES: u64 = 256 * 1024 * 1024;

/// The first byte with which a TLS server answers a client without TLS (RFC 8446, 5.1): an alert.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// What [`Connection::stats`] returns.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Stats<'a> {
    /// All keys.
    Keys,
    /// The same; locks also have the name of their holder, as `owner`, if the server knows it.
    KeysAndNames,
    /// The holders of one key, and its line. From servers that do not know this: all keys.
    Of(&'a Key),
}

/// A connection to one server, authenticated if the settings say so.
///
/// Requests on one connection are served strictly in order, so an acquire that waits delays all later requests. Times
/// are rounded up to whole seconds, at most [`MAX_TIME`](super::MAX_TIME); longer ones give [`ClientError::InvalidArgument`].
/// With the server's auto-release on (the default), everything acquired here is released when this is dropped.
///
/// If the future of a call is dropped before it is ready, its answer stays unread. The request may have been carried
/// out; the connection is no longer usable, and every later call gives [`ClientError::Broken`]. That holds for all
/// methods. A future that was never polled has sent nothing.
///
/// ```no_run
/// use dflock::{Connection, Key, Kind, Settings};
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = Settings::default();
/// let mut connection = Connection::open(&"127.0.0.1:6388".parse()?, &settings).await?;
/// let key = Key::new("nightly-report")?;
/// // Nothing renews this lease.
/// if let Some(grant) = connection.acquire(&key, Kind::Lock, Duration::ZERO, None).await? {
///     connection.release(&key, Kind::Lock, &grant.token).await?;
/// }
/// # Ok(()) }
/// ```
pub struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    pub(super) answer_limit: Duration,
    /// What has come of the next line.
    line: Vec<u8>,
    /// The tokens of holds that the server has taken away.
    news: Vec<Token>,
    /// No answer is awaited, and a request may be sent.
    pub(super) is_answered: bool,
    /// Unknown until [`Self::hello`].
    abilities: Option<Abilities>,
    /// See [`Settings::trusts_fences`].
    trusts_fences: bool,
}

impl Connection {
    /// Connects, authenticates, and sends the client's name.
    ///
    /// # Errors
    /// [`ClientError::Connect`], or the refusal of `auth`.
    pub async fn open(server: &ServerAddress, settings: &Settings) -> Result<Self, ClientError> {
        let stream = open_stream(server, settings.tls.as_ref(), settings.connect_limit).await?;
        let mut connection = Self::over(stream, settings.answer_limit);
        connection.trusts_fences = settings.trusts_fences;
        let Settings { auth_token, name, value, .. } = settings;
        let greeting =
            dialogue::greeting(auth_token.as_deref(), name.as_deref(), value.as_deref())?;
        for ask in greeting {
            dialogue::welcome(&ask, &connection.exchange(&ask, Duration::ZERO).await?)?;
        }
        Ok(connection)
    }

    fn over(stream: Box<dyn Stream>, answer_limit: Duration) -> Self {
        let (line, news) = (Vec::new(), Vec::new());
        let stream = BufReader::new(stream);
        let (abilities, trusts_fences) = (None, false);
        Self { stream, answer_limit, line, news, is_answered: true, abilities, trusts_fences }
    }

    /// `l`, `rl` or `sl`: waits at most `timeout` for a grant; `None` if the time is over first.
    ///
    /// # Errors
    /// A time that does not fit, a refusal, or a connection that broke or stayed silent.
    pub async fn acquire(
        &mut self,
        key: &Key,
        kind: Kind,
        timeout: Duration,
        ttl: Option<Duration>,
    ) -> Result<Option<Grant>, ClientError> {
        let (timeout, ttl) = (seconds_to_wait(timeout)?, seconds_of_lease(ttl)?);
        let abilities = self.hello().await?;
        let ask = Ask::Acquire { key: key.as_bytes(), kind, timeout, ttl };
        let answer = self.exchange(&ask, seconds(timeout)).await?;
        dialogue::grant(&answer, kind, abilities).map_err(|error| dialogue::not_asked(kind, error))
    }

    /// `al`: takes all these locks now, or none; `None` if one of them is in use.
    pub(super) async fn acquire_all(
        &mut self,
        keys: &[&Key],
        ttl: Option<Duration>,
    ) -> Result<Option<Vec<Grant>>, ClientError> {
        let abilities = self.hello().await?;
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let ttl = seconds_of_lease(ttl)?;
        let answer = self.exchange(&Ask::AcquireAll { keys: &keys, ttl }, Duration::ZERO).await?;
        dialogue::grants(&answer, keys.len(), Kind::Lock, abilities)
    }

    /// `e`, `re` or `se`: joins the queue and does not wait.
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    pub async fn enqueue(
        &mut self,
        key: &Key,
        kind: Kind,
        ttl: Option<Duration>,
    ) -> Result<Place, ClientError> {
        let abilities = self.hello().await?;
        let ttl = seconds_of_lease(ttl)?;
        let ask = Ask::Enqueue { key: key.as_bytes(), kind, ttl };
        let answer = self.exchange(&ask, Duration::ZERO).await?;
        dialogue::place(&answer, kind, abilities).map_err(|error| dialogue::not_asked(kind, error))
    }

    /// `w` or `sw`: waits for the grant of an earlier enqueue on this connection; `None` if the time is over first,
    /// and then the place in the queue is lost.
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    pub async fn wait(
        &mut self,
        key: &Key,
        kind: Kind,
        timeout: Duration,
    ) -> Result<Option<Grant>, ClientError> {
        let timeout = seconds_to_wait(timeout)?;
        let abilities = self.hello().await?;
        let ask = Ask::Wait { key: key.as_bytes(), kind, timeout };
        dialogue::grant(&self.exchange(&ask, seconds(timeout)).await?, kind, abilities)
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
        let ask = Ask::Release { key: key.as_bytes(), kind, token: token.as_str() };
        dialogue::done(&self.exchange(&ask, Duration::ZERO).await?)
    }

    /// `n` or `sn`: the lease starts over; returns its length. Without `ttl` that is the server's default, not the
    /// length of the first request.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the token does not hold the key (any more); as for
    /// [`Self::acquire`].
    pub async fn renew(
        &mut self,
        key: &Key,
        kind: Kind,
        token: &Token,
        ttl: Option<Duration>,
    ) -> Result<Duration, ClientError> {
        let ttl = seconds_of_lease(ttl)?;
        let ask = Ask::Renew { key: key.as_bytes(), kind, token: token.as_str(), ttl };
        dialogue::renewal(&self.exchange(&ask, Duration::ZERO).await?, ttl)
    }

    /// `grace`: how long holds of this connection stay after it closes. `None` from servers that do not know the
    /// request.
    ///
    /// # Errors
    /// A refusal, or a connection that broke or stayed silent.
    pub async fn grace(&mut self) -> Result<Option<Grace>, ClientError> {
        dialogue::grace(&self.exchange(&Ask::Grace, Duration::ZERO).await?)
    }

    /// `ping`: also keeps the server from closing an idle connection.
    ///
    /// # Errors
    /// A refusal, or a connection that broke or stayed silent.
    pub async fn ping(&mut self) -> Result<(), ClientError> {
        dialogue::done(&self.exchange(&Ask::Ping, Duration::ZERO).await?)
    }

    /// `stats`: one JSON object as text.
    ///
    /// # Errors
    /// A refusal, or a connection that broke or stayed silent.
    pub async fn stats(&mut self, of: Stats<'_>) -> Result<String, ClientError> {
        let ask = match of {
            Stats::Keys => Ask::Stats { has_names: false },
            Stats::KeysAndNames => Ask::Stats { has_names: true },
            Stats::Of(key) => Ask::KeyStats(key.as_bytes()),
        };
        dialogue::stats(&self.exchange(&ask, Duration::ZERO).await?).map(str::to_owned)
    }

    /// `watch`: the holder of a key, when it is another than the last one seen, or after this time.
    pub(super) async fn watch(
        &mut self,
        key: &Key,
        timeout: Duration,
        last: Option<&str>,
    ) -> Result<Sight, ClientError> {
        let timeout = seconds_to_wait(timeout)?;
        let ask = Ask::Watch { key: key.as_bytes(), timeout, last };
        dialogue::sight(&self.exchange(&ask, seconds(timeout)).await?)
    }

    /// Learns what the server can do, once. Then it is also known that the other end answers.
    pub(super) async fn hello(&mut self) -> Result<Abilities, ClientError> {
        if let Some(known) = self.abilities {
            return Ok(known);
        }
        let answer = self.exchange(&Ask::Hello, Duration::ZERO).await?;
        let abilities = Abilities::read(&answer)?.with_fences(self.trusts_fences);
        Ok(*self.abilities.insert(abilities))
    }

    /// Whether a hold of another connection stays when that closes, if this one has renewed it.
    pub(super) fn hands_over(&self) -> bool {
        self.abilities.is_some_and(Abilities::hands_over)
    }

    /// The answer to a request whose future was dropped, if it comes within this time.
    pub(super) async fn late_answer(&mut self, limit: Duration) -> Option<String> {
        timeout(limit, self.answer()).await.ok()?.ok()
    }

    /// The grants of a late answer to a request for this many keys.
    pub(super) async fn late_grants(&mut self, many: usize, limit: Duration) -> Vec<Grant> {
        let Some(line) = self.late_answer(limit).await else { return Vec::new() };
        let abilities = self.abilities.unwrap_or_default();
        // They are given back, whatever their slots.
        if let Ok(Place::Granted(grant)) = dialogue::place(&line, Kind::Lock, abilities) {
            return vec![grant];
        }
        dialogue::grants(&line, many, Kind::Lock, abilities).ok().flatten().unwrap_or_default()
    }

    /// Resolves when the server has taken a hold away, to its token. `None`: no further request can be sent, because the
    /// server closes the connection, has not answered the last request, or sends something else unasked. May be dropped
    /// and called again.
    pub(super) async fn news(&mut self) -> Option<Token> {
        while self.is_answered && self.news.is_empty() {
            self.is_answered = matches!(self.hear(MAX_ANSWER_BYTES).await, Ok(None));
        }
        self.news.pop().filter(|_| self.is_answered)
    }

    /// Says that nothing more will come. What the server has said until it hears that can still be read.
    pub(super) async fn close_sending(&mut self) {
        let _ = timeout(self.answer_limit, self.stream.get_mut().shutdown()).await;
    }

    /// Says that nothing more will come, and waits until the server has closed its side: then it has cleaned up this
    /// connection. Bounded by the answer limit.
    pub(super) async fn close(&mut self) {
        self.close_sending().await;
        let silence = async {
            while !self.stream.fill_buf().await?.is_empty() {
                let unread = self.stream.buffer().len();
                self.stream.consume(unread);
            }
            Ok::<(), io::Error>(())
        };
        let _ = timeout(self.answer_limit, silence).await;
    }

    /// Sends requests. Their answers come in the same order.
    pub(super) async fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests).await?;
        self.stream.flush().await
    }

    /// The next answer to a lock command.
    pub(super) async fn answer(&mut self) -> AnswerLine {
        self.answer_within(MAX_ANSWER_BYTES).await
    }

    async fn exchange(&mut self, ask: &Ask<'_>, wait: Duration) -> AnswerLine {
        if !std::mem::replace(&mut self.is_answered, false) {
            return Err(ClientError::closed());
        }
        let limit = self.answer_limit.saturating_add(wait);
        let is_long = matches!(ask, Ask::Stats { .. } | Ask::KeyStats(_));
        let most_bytes = if is_long { MAX_STATS_BYTES } else { MAX_ANSWER_BYTES };
        let converse = async {
            self.send(&ask.to_bytes()).await?;
            self.answer_within(most_bytes).await
        };
        timeout(limit, converse).await.map_err(|_| ClientError::TimedOut)?
    }

    async fn answer_within(&mut self, most_bytes: u64) -> AnswerLine {
        loop {
            if let Some(answer) = self.hear(most_bytes).await? {
                self.is_answered = true;
                return Ok(answer);
            }
        }
    }

    /// One line of at most `most_bytes`: an answer, or `None` for news. If the future is dropped, the beginning of the line
    /// is kept.
    async fn hear(&mut self, most_bytes: u64) -> Result<Option<String>, ClientError> {
        let room = most_bytes.saturating_add(1).saturating_sub(self.line.len() as u64);
        let heard = (&mut self.stream).take(room).read_until(b'\n', &mut self.line).await;
        if self.line.starts_with(&TLS_ALERT) {
            return Err(ClientError::protocol("the server speaks TLS; see --tls"));
        }
        heard?;
        let mut line = std::mem::take(&mut self.line);
        let Some(text) = line.strip_suffix(b"\n") else {
            let is_long = line.len() as u64 > most_bytes;
            let endless = ClientError::protocol("a line without end");
            return Err(if is_long { endless } else { ClientError::closed() });
        };
        let length = text.strip_suffix(b"\r").unwrap_or(text).len();
        line.truncate(length);
        let line = String::from_utf8(line)
            .map_err(|_| ClientError::protocol("bytes that are not text"))?;
        match wire::read_lost(&line) {
            Some(token) => self.news.extend(Token::new(token)),
            None => return Ok(Some(line)),
        }
        Ok(None)
    }
}

type AnswerLine = Result<String, ClientError>;

/// The requirements for a connection's stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

const LATE: &str = "no connection in time";
const LATE_TLS: &str =
    "it accepted the connection but did not start TLS in time; does it speak TLS?";

/// Connects within `limit`, handshake included. The socket is close-on-exec.
pub(super) async fn open_stream(
    address: &ServerAddress,
    tls: Option<&Tls>,
    limit: Duration,
) -> Result<Box<dyn Stream>, ClientError> {
    let begin = Instant::now();
    let late = |words: &str| io::Error::new(io::ErrorKind::TimedOut, words);
    let stream = async {
        let stream = timeout(limit, connect(address)).await.map_err(|_| late(LATE))??;
        let Some(tls) = tls else { return Ok(stream) };
        let left = limit.saturating_sub(begin.elapsed());
        timeout(left, tls.over(stream, address)).await.map_err(|_| late(LATE_TLS))?
    };
    stream.await.map_err(|error| ClientError::Connect { server: address.clone(), error })
}

async fn connect(address: &ServerAddress) -> io::Result<Box<dyn Stream>> {
    match address {
        #[cfg(windows)]
        ServerAddress::Unix(_) => {
            let words = "there are no Unix sockets on Windows; name a host";
            Err(io::Error::new(io::ErrorKind::Unsupported, words))
        }
        #[cfg(unix)]
        ServerAddress::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        ServerAddress::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            keep_alive(SockRef::from(&stream))?;
            Ok(Box::new(stream))
        }
    }
}

/// A server on a dead machine sends nothing, and a waiting client has nothing to send. Only the kernel's probes can
/// distinguish this from a long wait. A server that misses all of them, in 40 seconds, is gone.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 4;

fn keep_alive(socket: SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    // Windows before 10.0.15063 counts to ten, and cannot be made to do otherwise.
    match socket.set_tcp_keepalive(&keepalive.clone().with_retries(KEEPALIVE_RETRIES)) {
        Err(_) if cfg!(windows) => socket.set_tcp_keepalive(&keepalive),
        outcome => outcome,
    }
}

impl Tls {
    async fn over(
        &self,
        stream: Box<dyn Stream>,
        address: &ServerAddress,
    ) -> io::Result<Box<dyn Stream>> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.server_name(address)?, stream).await;
        Ok(Box::new(stream.map_err(explained)?))
    }

    fn server_name(&self, address: &ServerAddress) -> io::Result<ServerName<'static>> {
        let name = self.name.as_deref().or_else(|| address.host()).unwrap_or("localhost");
        ServerName::try_from(name.to_owned()).map_err(|_| {
            let words = format!("no certificate can be for {name:?}; see --tls-name");
            io::Error::new(io::ErrorKind::InvalidData, words)
        })
    }
}

/// TLS errors as sentences.
fn explained(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(reason) => io::Error::new(error.kind(), words_of_tls(reason)),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientError, Connection, Duration, Token};
    use rstest::rstest;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    /// A connection, and the end of the server, which reads nothing.
    fn pair() -> (Connection, DuplexStream) {
        let (near, far) = duplex(4096);
        (Connection::over(Box::new(near), Duration::from_secs(10)), far)
    }

    /// The answers, and what is said next, however the bytes are split.
    #[rstest]
    #[case(b"ok 33\nrest\n", "ok 33")]
    #[case(b"ok\r\nrest\n", "ok")]
    #[case(b"\nrest\n", "")]
    #[case::behind_news(b"lost 0123\nlost 4567\nok\nrest\n", "ok")]
    #[case::before_news(b"ok\nlost 0123\nrest\n", "ok")]
    #[tokio::test]
    async fn an_answer_ends_with_its_line(#[case] bytes: &[u8], #[case] want: &str) {
        for cut in 1..=bytes.len() {
            let (mut connection, mut server) = pair();
            let mut heard = Vec::new();
            for piece in bytes.chunks(cut) {
                server.write_all(piece).await.unwrap();
                // Each time a future is dropped that has read a part of a line.
                while let Some(answer) = connection.late_answer(Duration::ZERO).await {
                    heard.push(answer);
                }
            }
            assert_eq!(heard, [want, "rest"], "cut at {cut}");
            assert!(connection.is_answered);
        }
    }

    /// Between requests.
    #[tokio::test]
    async fn news_may_come_unasked() {
        let (mut connection, mut server) = pair();
        server.write_all(b"lost 0123\nlost 4567\nerror_draining\n").await.unwrap();
        let heard = [connection.news().await, connection.news().await];
        assert_eq!(heard, ["0123", "4567"].map(|token| Token::new(token).ok()));
        assert!(connection.is_answered);
        assert_eq!(connection.news().await, None);
        assert!(matches!(connection.ping().await, Err(ClientError::Broken(_))));
    }

    #[rstest]
    #[case::the_longest(b"12345678\n", None)]
    #[case::one_more(b"123456789\n", Some("not a dflockd answer: a line without end"))]
    #[case::without_end(b"123456789", Some("not a dflockd answer: a line without end"))]
    #[case::no_text(b"\xff\n", Some("not a dflockd answer: bytes that are not text"))]
    #[case::an_alert(
        b"\x15\x03\x01",
        Some("not a dflockd answer: the server speaks TLS; see --tls")
    )]
    #[case::the_end(b"", Some("connection lost: closed by the server"))]
    #[tokio::test]
    async fn bytes_that_are_no_answer_end_the_conversation(
        #[case] bytes: &[u8],
        #[case] words: Option<&str>,
    ) {
        let (mut connection, mut server) = pair();
        connection.is_answered = false;
        server.write_all(bytes).await.unwrap();
        drop(server);
        let heard = connection.answer_within(8).await.map_err(|error| error.to_string());
        assert_eq!(heard.err().as_deref(), words);
        assert_eq!(connection.is_answered, words.is_none());
    }

    /// An answer that its caller no longer awaits is never taken for the answer to the next request.
    #[tokio::test]
    async fn no_request_is_sent_before_the_last_answer() {
        let (mut connection, mut server) = pair();
        connection.answer_limit = Duration::ZERO;
        assert!(matches!(connection.ping().await, Err(ClientError::TimedOut)));
        assert!(matches!(connection.ping().await, Err(ClientError::Broken(_))));
        server.write_all(b"o").await.unwrap();
        assert_eq!(connection.late_answer(Duration::ZERO).await, None);
        assert!(matches!(connection.ping().await, Err(ClientError::Broken(_))));
        server.write_all(b"k\nok\n").await.unwrap();
        assert_eq!(connection.late_answer(Duration::ZERO).await.as_deref(), Some("ok"));
        assert!(connection.ping().await.is_ok());
    }
}
