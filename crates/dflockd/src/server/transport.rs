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
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;

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

/// A socket, or a client at the other end of a link.
enum Stream {
    Socket(TcpStream),
    #[cfg(feature = "etcd")]
    Link(Box<LinkStream>),
}

impl Stream {
    /// Ready when it may take more. To be called only after it took nothing.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(socket) => {
                forget_readiness(socket, Interest::WRITABLE);
                socket.poll_write_ready(cx)
            }
            #[cfg(feature = "etcd")]
            Self::Link(stream) => stream.poll_room(cx),
        }
    }
}

/// The known readiness. To be called only if something is ready.
fn readiness(socket: &TcpStream, cx: &mut Context<'_>, interest: Interest) -> Ready {
    match pin!(socket.ready(interest)).poll(cx) {
        Poll::Ready(Ok(ready)) => ready,
        Poll::Ready(Err(_)) | Poll::Pending => Ready::EMPTY,
    }
}

/// Waits for the kernel's next report of readiness instead of using the last one.
fn forget_readiness(socket: &TcpStream, interest: Interest) {
    let _ = socket.try_io(interest, || -> io::Result<()> { Err(ErrorKind::WouldBlock.into()) });
}

/// See the module.
pub(crate) struct Transport {
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
    pub(super) fn new(socket: TcpStream, tls: Option<&Tls>) -> io::Result<Self> {
        let session = |tls: &Tls| ServerConnection::new(Arc::clone(&tls.0)).map(Box::new);
        let tls = tls.map(session).transpose().map_err(io::Error::other)?;
        Ok(Self { tls, ..Self::plain(Stream::Socket(socket)) })
    }

    /// Without TLS.
    const fn plain(stream: Stream) -> Self {
        Self { stream, tls: None, unread: false, probed: false }
    }

    /// The client at the other end of a link, if it is one.
    #[cfg(feature = "etcd")]
    pub(super) fn link(&self) -> Option<&LinkStream> {
        match &self.stream {
            Stream::Link(stream) => Some(stream),
            Stream::Socket(_) => None,
        }
    }

    /// Whether the client is at the other end of a link.
    pub(super) const fn is_link(&self) -> bool {
        !matches!(self.stream, Stream::Socket(_))
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
        loop {
            ready!(self.poll_flush(cx))?;
            let Some(session) = &mut self.tls else { return self.poll_receive_raw(cx, buffer) };
            match session.reader().read(buffer) {
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
        match &mut self.stream {
            Stream::Socket(socket) => {
                if self.unread {
                    match receive(socket, buffer) {
                        Err(err) if err.kind() == ErrorKind::WouldBlock => self.unread = false,
                        result => return Poll::Ready(result),
                    }
                }
                let mut buffer = ReadBuf::new(buffer);
                // A read that fills less than the buffer also tells tokio that the kernel has no more, so that a
                // request costs one call (epoll(7), edge-triggered).
                ready!(Pin::new(socket).poll_read(cx, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
            #[cfg(feature = "etcd")]
            Stream::Link(stream) => stream.poll_receive(cx, buffer),
        }
    }

    /// Ready when the peer has closed its side, even if earlier bytes are unread.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Socket(socket) => loop {
                ready!(socket.poll_read_ready(cx))?;
                if readiness(socket, cx, Interest::READABLE).is_read_closed() {
                    return Poll::Ready(Ok(()));
                }
                self.unread = true;
                forget_readiness(socket, Interest::READABLE);
            },
            #[cfg(feature = "etcd")]
            Stream::Link(stream) => stream.poll_end(cx),
        }
    }

    /// Ready when the peer could not receive anything any more.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.stream {
            Stream::Socket(socket) => loop {
                if ready!(socket.poll_write_ready(cx)).is_err()
                    || readiness(socket, cx, Interest::WRITABLE).is_write_closed()
                {
                    return Poll::Ready(());
                }
                forget_readiness(socket, Interest::WRITABLE);
            },
            #[cfg(feature = "etcd")]
            Stream::Link(stream) => stream.poll_gone(cx),
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
        let was_probed = std::mem::replace(&mut self.probed, true);
        if let (Stream::Socket(socket), false) = (&self.stream, was_probed) {
            // On a Unix socket this fails: urgent data would be ordinary data there.
            if socket.peer_addr().is_ok() {
                // A failure shows itself as readiness, which is watched.
                let _ = SockRef::from(socket).send_out_of_band(b"\n");
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
                Ok(0) if !bytes.is_empty() => ready!(self.stream.poll_room(cx))?,
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
                    ready!(self.stream.poll_room(cx))?;
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
            Stream::Socket(socket) => {
                let _ = SockRef::from(&*socket).shutdown(Shutdown::Write);
                for _ in 0..ROUNDS {
                    if !matches!(receive(socket, buffer), Ok(1..)) {
                        break;
                    }
                }
            }
            #[cfg(feature = "etcd")]
            Stream::Link(stream) => stream.finish(),
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
    let socket = match stream {
        Stream::Socket(socket) => SockRef::from(&*socket),
        #[cfg(feature = "etcd")]
        Stream::Link(stream) => return stream.send(bytes),
    };
    loop {
        match socket.send(bytes) {
            Err(err) if err.kind() == ErrorKind::Interrupted => {}
            Err(err) if err.kind() == ErrorKind::WouldBlock => return Ok(0),
            result => return result,
        }
    }
}

fn receive(socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match io::Read::read(&mut &*SockRef::from(socket), buffer) {
            Err(err) if err.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(feature = "etcd")]
impl From<LinkStream> for Transport {
    fn from(stream: LinkStream) -> Self {
        Self::plain(Stream::Link(Box::new(stream)))
    }
}

/// For a link, and for HTTP over one.
impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = ready!(self.poll_receive(cx, buffer.initialize_unfilled()))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(&mut self, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Self::poll_flush(&mut self, cx))?;
        self.say_goodbye(&mut [0; TLS_READ_BYTES]);
        Poll::Ready(Ok(()))
    }
}
