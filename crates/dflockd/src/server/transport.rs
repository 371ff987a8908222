//! One connected socket, plain or under TLS: receives bytes, sends bytes, and notices that the peer is gone.
//! Knows nothing of requests.

#[cfg(feature = "etcd")]
use super::link::stream::LinkStream;
use super::tls::Tls;
use rustls::ServerConnection;
use socket2::SockRef;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
#[cfg(feature = "etcd")]
use tokio::io::AsyncWrite;
use tokio::io::{AsyncRead, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};

/// The peer at the other end, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix => out.write_str("unix"),
        }
    }
}

/// The bytes of ciphertext that are read at once; less than the plaintext that rustls buffers.
const TLS_READ_BYTES: usize = 4096;

/// A socket of either family, or a client at the other end of a link.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "etcd")]
    Link(Box<LinkStream>),
}

impl Stream {
    /// The socket; `None` for a client of a link.
    fn socket(&self) -> Option<SockRef<'_>> {
        match self {
            Self::Tcp(stream) => Some(SockRef::from(stream)),
            Self::Unix(stream) => Some(SockRef::from(stream)),
            #[cfg(feature = "etcd")]
            Self::Link(_) => None,
        }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            #[cfg(feature = "etcd")]
            Self::Link(stream) => {
                let count = ready!(stream.poll_receive(cx, buffer.initialize_unfilled()))?;
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream) => stream.poll_read_ready(cx),
            #[cfg(feature = "etcd")]
            Self::Link(_) => Poll::Pending,
        }
    }

    fn poll_write_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Unix(stream) => stream.poll_write_ready(cx),
            #[cfg(feature = "etcd")]
            Self::Link(stream) => stream.poll_room(cx),
        }
    }

    /// The known readiness. To be called only if something is ready.
    fn readiness(&self, cx: &mut Context<'_>, interest: Interest) -> Ready {
        let poll = match self {
            Self::Tcp(stream) => pin!(stream.ready(interest)).poll(cx),
            Self::Unix(stream) => pin!(stream.ready(interest)).poll(cx),
            #[cfg(feature = "etcd")]
            Self::Link(_) => Poll::Pending,
        };
        match poll {
            Poll::Ready(Ok(ready)) => ready,
            Poll::Ready(Err(_)) | Poll::Pending => Ready::EMPTY,
        }
    }

    /// Waits for the kernel's next report of readiness instead of using the last one.
    fn forget_readiness(&self, interest: Interest) {
        let seen = || -> io::Result<()> { Err(ErrorKind::WouldBlock.into()) };
        let _ = match self {
            Self::Tcp(stream) => stream.try_io(interest, seen),
            Self::Unix(stream) => stream.try_io(interest, seen),
            #[cfg(feature = "etcd")]
            Self::Link(_) => Ok(()),
        };
    }
}

/// See the module.
pub(super) struct Transport {
    stream: Stream,
    /// rustls itself rather than tokio-rustls: it takes bytes from the thread's scratch buffer,
    /// and gives the socket's own readiness to the tasks that watch for the peer's end.
    tls: Option<Box<ServerConnection>>,
    /// Whether bytes may wait in the kernel although tokio's readiness was cleared.
    unread: bool,
    /// Whether the peer was asked for its existence.
    probed: bool,
}

impl Transport {
    /// # Errors
    /// A TLS session cannot be set up.
    pub(super) fn new(stream: Stream, tls: Option<&Tls>) -> io::Result<Self> {
        let session = |tls: &Tls| ServerConnection::new(Arc::clone(&tls.0)).map(Box::new);
        let tls = tls.map(session).transpose().map_err(io::Error::other)?;
        Ok(Self { tls, ..Self::plain(stream) })
    }

    /// Without TLS.
    pub(super) const fn plain(stream: Stream) -> Self {
        Self { stream, tls: None, unread: false, probed: false }
    }

    /// The client at the other end of a link, if it is one.
    #[cfg(feature = "etcd")]
    pub(super) fn link(&self) -> Option<&LinkStream> {
        match &self.stream {
            Stream::Link(stream) => Some(stream),
            Stream::Tcp(_) | Stream::Unix(_) => None,
        }
    }

    /// Whether the client is at the other end of a link.
    pub(super) const fn is_link(&self) -> bool {
        !matches!(self.stream, Stream::Tcp(_) | Stream::Unix(_))
    }

    /// How often the standby of this client has shown that it runs; `None` for a socket.
    pub(super) fn signs_of_life(&self) -> Option<u32> {
        #[cfg(feature = "etcd")]
        if let Stream::Link(stream) = &self.stream {
            return Some(stream.signs_of_life());
        }
        None
    }

    /// Whether the server that the client named is shutting down, and passes it on to this one.
    pub(super) fn is_draining(&self) -> bool {
        #[cfg(feature = "etcd")]
        if let Stream::Link(stream) = &self.stream {
            return stream.is_draining();
        }
        false
    }

    /// A key that only the two ends of this TLS connection have; `Some(None)` without TLS, `None` during the handshake.
    #[cfg(feature = "etcd")]
    #[expect(clippy::option_option, reason = "no TLS, and no key yet")]
    pub(super) fn export(&self, label: &[u8], secret: &str) -> Option<Option<[u8; 32]>> {
        let Some(session) = &self.tls else { return Some(None) };
        session.export_keying_material([0; 32], label, Some(secret.as_bytes())).ok().map(Some)
    }

    /// Makes the next receive ask the kernel itself, whatever is known of readiness.
    pub(super) const fn look_again(&mut self) {
        self.unread = true;
    }

    /// Whether the TLS handshake is not finished yet.
    pub(super) fn is_shaking_hands(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// Receives into `buffer`; 0 means the peer will send no more.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.tls.is_none() {
            return self.poll_receive_raw(cx, buffer);
        }
        loop {
            ready!(self.poll_flush(cx))?;
            match self.decrypted(buffer) {
                Err(err) if err.kind() == ErrorKind::WouldBlock => {}
                // The peer closed without TLS's close_notify.
                Err(err) if err.kind() == ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
                result => return Poll::Ready(result),
            }
            let mut raw = [0; TLS_READ_BYTES];
            let count = ready!(self.poll_receive_raw(cx, &mut raw))?;
            if count == 0 {
                return Poll::Ready(Ok(0));
            }
            self.decrypt(raw.get(..count).unwrap_or_default())?;
        }
    }

    fn decrypted(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(session) => session.reader().read(buffer),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn decrypt(&mut self, mut raw: &[u8]) -> io::Result<()> {
        let Some(session) = &mut self.tls else { return Ok(()) };
        while !raw.is_empty() {
            session.read_tls(&mut raw)?;
            if let Err(err) = session.process_new_packets() {
                // Sends the alert if the socket takes it now; the connection ends in any case.
                let _ = session.write_tls(&mut Raw(&mut self.stream));
                return Err(io::Error::new(ErrorKind::InvalidData, err));
            }
        }
        Ok(())
    }

    fn poll_receive_raw(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.unread {
            match receive(&self.stream, buffer) {
                Err(err) if err.kind() == ErrorKind::WouldBlock => self.unread = false,
                result => return Poll::Ready(result),
            }
        }
        let mut buffer = ReadBuf::new(buffer);
        // A read that fills less than the buffer also tells tokio that the kernel has no more,
        // so that a request costs one call (epoll(7), edge-triggered).
        ready!(self.stream.poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Ready when the peer has closed its side, even if earlier bytes are unread.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        #[cfg(feature = "etcd")]
        if let Stream::Link(stream) = &mut self.stream {
            return stream.poll_end(cx);
        }
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            if self.stream.readiness(cx, Interest::READABLE).is_read_closed() {
                return Poll::Ready(Ok(()));
            }
            self.unread = true;
            self.stream.forget_readiness(Interest::READABLE);
        }
    }

    /// Ready when the peer could not receive anything any more.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(feature = "etcd")]
        if let Stream::Link(stream) = &mut self.stream {
            return stream.poll_gone(cx);
        }
        loop {
            if ready!(self.stream.poll_write_ready(cx)).is_err()
                || self.stream.readiness(cx, Interest::WRITABLE).is_write_closed()
            {
                return Poll::Ready(());
            }
            self.stream.forget_readiness(Interest::WRITABLE);
        }
    }

    /// Asks the peer's kernel whether the peer still exists, after the peer has closed its sending side.
    ///
    /// A closed and a half-closed peer look the same until something is sent. One byte of urgent
    /// data answers it: a closed socket resets the connection, a half-closed one takes the byte
    /// aside, where no ordinary read sees it. Sent at most once per connection, as a second
    /// urgent byte would turn the first into ordinary data. (Between processes of one machine
    /// the kernel tells the two apart by itself.)
    pub(super) fn probe(&mut self) {
        if !std::mem::replace(&mut self.probed, true) {
            if let Stream::Tcp(stream) = &self.stream {
                // A failure shows itself as readiness, which is watched.
                let _ = SockRef::from(stream).send_out_of_band(b"\n");
            }
        }
    }

    /// Sends as much as the kernel takes at once, perhaps nothing. Under TLS see [`Transport::is_backlogged`].
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.tls else { return send(&mut self.stream, bytes) };
        let taken = session.writer().write(bytes)?;
        while session.wants_write() {
            match session.write_tls(&mut Raw(&mut self.stream)) {
                Err(err) if err.kind() == ErrorKind::WouldBlock => break,
                result => result?,
            };
        }
        Ok(taken)
    }

    /// Whether bytes that [`Transport::send`] took have not reached the kernel yet.
    pub(super) fn is_backlogged(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.wants_write())
    }

    /// Sends from `bytes`. When it is ready, at least one byte was sent, or `bytes` is empty and the backlog is gone.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_flush(cx))?;
            match self.send(bytes) {
                Ok(0) if !bytes.is_empty() => {
                    self.stream.forget_readiness(Interest::WRITABLE);
                    ready!(self.stream.poll_write_ready(cx))?;
                }
                result => return Poll::Ready(result),
            }
        }
    }

    /// Ready when nothing is left of the backlog.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(session) = &mut self.tls else { return Poll::Ready(Ok(())) };
        while session.wants_write() {
            match session.write_tls(&mut Raw(&mut self.stream)) {
                Err(err) if err.kind() == ErrorKind::WouldBlock => {
                    self.stream.forget_readiness(Interest::WRITABLE);
                    ready!(self.stream.poll_write_ready(cx))?;
                }
                result => drop(result?),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Closes gently: reads the bytes that the peer has sent in addition, because otherwise the kernel would answer
    /// them with a reset that overtakes our last reply.
    pub(super) fn say_goodbye(&mut self, buffer: &mut [u8]) {
        const ROUNDS: usize = 16;
        if let Some(session) = self.tls.as_mut().filter(|session| !session.is_handshaking()) {
            session.send_close_notify();
            let _ = session.write_tls(&mut Raw(&mut self.stream));
        }
        match &mut self.stream {
            #[cfg(feature = "etcd")]
            Stream::Link(stream) => return stream.finish(),
            Stream::Tcp(_) | Stream::Unix(_) => {}
        }
        let _ = self.stream.socket().map(|socket| socket.shutdown(Shutdown::Write));
        for _ in 0..ROUNDS {
            if !matches!(receive(&self.stream, buffer), Ok(1..)) {
                break;
            }
        }
    }
}

/// The socket as rustls wants to write to it.
struct Raw<'a>(&'a mut Stream);

impl io::Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match send(self.0, bytes) {
            Ok(0) if !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            result => result,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Asks the kernel, not tokio: [`Transport::poll_gone`] may have thrown away what tokio knew.
fn send(stream: &mut Stream, bytes: &[u8]) -> io::Result<usize> {
    #[cfg(feature = "etcd")]
    if let Stream::Link(stream) = stream {
        return stream.send(bytes);
    }
    let Some(socket) = stream.socket() else { return Ok(0) };
    loop {
        match socket.send(bytes) {
            Err(err) if err.kind() == ErrorKind::Interrupted => {}
            Err(err) if err.kind() == ErrorKind::WouldBlock => return Ok(0),
            result => return result,
        }
    }
}

fn receive(stream: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
    let Some(socket) = stream.socket() else { return Err(ErrorKind::WouldBlock.into()) };
    loop {
        match io::Read::read(&mut &*socket, buffer) {
            Err(err) if err.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A connection that carries a link, or HTTP over one.
#[cfg(feature = "etcd")]
pub(crate) struct LinkSocket(pub(super) Transport);

#[cfg(feature = "etcd")]
impl From<LinkStream> for Transport {
    fn from(stream: LinkStream) -> Self {
        Self::plain(Stream::Link(Box::new(stream)))
    }
}

#[cfg(feature = "etcd")]
impl AsyncRead for LinkSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = ready!(self.0.poll_receive(cx, buffer.initialize_unfilled()))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

#[cfg(feature = "etcd")]
impl AsyncWrite for LinkSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_send(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.poll_flush(cx))?;
        self.0.say_goodbye(&mut [0; TLS_READ_BYTES]);
        Poll::Ready(Ok(()))
    }
}
