//! One connected socket, plain or under TLS, or a client at the other end of a link: receives bytes, sends bytes, and
//! notices that the peer is gone. Knows nothing of requests. TLS is 1.2 or 1.3, with the server's certificate and without
//! those of clients.

#[cfg(feature = "etcd")]
use super::link::stream::LinkStream;
use leases::Moment;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, InvalidMessage, ServerConfig};
use socket2::SockRef;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, Read as _};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

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

/// A socket that can be asked whether its peer is gone.
pub(crate) struct Socket {
    stream: TcpStream,
    /// Whether bytes may wait in the kernel although tokio's readiness was cleared.
    unread: bool,
    /// Whether the peer was asked for its existence.
    probed: bool,
}

impl Socket {
    /// The known readiness. To be called only if something is ready.
    fn readiness(&self, cx: &mut Context<'_>, interest: Interest) -> Ready {
        match pin!(self.stream.ready(interest)).poll(cx) {
            Poll::Ready(Ok(ready)) => ready,
            Poll::Ready(Err(_)) | Poll::Pending => Ready::EMPTY,
        }
    }

    /// Waits for the kernel's next report of readiness instead of using the last one.
    fn forget_readiness(&self, interest: Interest) {
        let none = || -> io::Result<()> { Err(ErrorKind::WouldBlock.into()) };
        let _ = self.stream.try_io(interest, none);
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            if self.readiness(cx, Interest::READABLE).is_read_closed() {
                return Poll::Ready(Ok(()));
            }
            self.unread = true;
            self.forget_readiness(Interest::READABLE);
        }
    }

    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if ready!(self.stream.poll_write_ready(cx)).is_err()
                || self.readiness(cx, Interest::WRITABLE).is_write_closed()
            {
                return Poll::Ready(());
            }
            self.forget_readiness(Interest::WRITABLE);
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*SockRef::from(&self.stream)).read(buffer)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread {
            match self.receive(buffer.initialize_unfilled()) {
                Err(err) if err.kind() == ErrorKind::WouldBlock => self.unread = false,
                count => {
                    buffer.advance(count?);
                    return Poll::Ready(Ok(()));
                }
            }
        }
        // A read that fills less than the buffer also shows tokio that the kernel has no more, so that a request costs
        // one call (epoll(7), edge-triggered).
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    /// Asks the kernel, not tokio: [`Socket::poll_gone`] may have thrown away what tokio knew.
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match SockRef::from(&self.stream).send(bytes) {
                Err(err) if err.kind() == ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
            self.forget_readiness(Interest::WRITABLE);
            ready!(self.stream.poll_write_ready(cx))?;
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&self.stream).shutdown(Shutdown::Write))
    }
}

/// See the module.
pub(crate) enum Transport {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
    #[cfg(feature = "etcd")]
    Link(Box<LinkStream>),
}

impl Transport {
    pub(crate) const fn plain(stream: TcpStream) -> Self {
        Self::Plain(Socket { stream, unread: false, probed: false })
    }

    /// Ready after the handshake.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`], if the peer violates TLS.
    pub(crate) async fn secure(stream: TcpStream, tls: Tls) -> io::Result<Self> {
        let socket = Socket { stream, unread: false, probed: false };
        // In a box, so that connections without TLS need no room for it.
        let handshake = Box::pin(TlsAcceptor::from(tls.0).accept(socket));
        Ok(Self::Tls(Box::new(handshake.await?)))
    }

    /// The client at the other end of a link, if it is one.
    #[cfg(feature = "etcd")]
    pub(super) fn link(&self) -> Option<&LinkStream> {
        match self {
            Self::Link(stream) => Some(stream),
            Self::Plain(_) | Self::Tls(_) => None,
        }
    }

    /// Whether the client is at the other end of a link.
    pub(super) const fn is_link(&self) -> bool {
        !matches!(self, Self::Plain(_) | Self::Tls(_))
    }

    /// When the standby of this client ran, as far as it has shown that; `None` for a socket.
    pub(super) fn ran_at(&self) -> Option<Moment> {
        #[cfg(feature = "etcd")]
        if let Self::Link(stream) = self {
            return Some(stream.ran_at());
        }
        None
    }

    /// Whether the server that the client named is shutting down, and passes it on to this one.
    pub(crate) fn is_draining(&self) -> bool {
        #[cfg(feature = "etcd")]
        if let Self::Link(stream) = self {
            return stream.is_draining();
        }
        false
    }

    /// A key that only the two ends of this TLS connection have; `Some(None)` without TLS.
    #[cfg(feature = "etcd")]
    pub(super) fn export(&self, label: &[u8], secret: &str) -> Option<Option<[u8; 32]>> {
        let Self::Tls(stream) = self else { return Some(None) };
        let session = stream.get_ref().1;
        session.export_keying_material([0; 32], label, Some(secret.as_bytes())).ok().map(Some)
    }

    /// The addresses of the peer and of this side; `None` for a Unix socket or a link.
    #[cfg(feature = "etcd")]
    pub(super) fn ends(&self) -> Option<[SocketAddr; 2]> {
        let stream = match self {
            Self::Plain(socket) => &socket.stream,
            Self::Tls(stream) => &stream.get_ref().0.stream,
            Self::Link(_) => return None,
        };
        Some([stream.peer_addr().ok()?, stream.local_addr().ok()?])
    }

    fn socket(&mut self) -> Option<&mut Socket> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(stream) => Some(stream.get_mut().0),
            #[cfg(feature = "etcd")]
            Self::Link(_) => None,
        }
    }

    /// Whether the kernel has reported that there is something to receive.
    pub(super) fn has_news(&self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Plain(socket) => socket.stream.poll_read_ready(cx).is_ready(),
            // Their first bytes have been received before.
            Self::Tls(_) => false,
            #[cfg(feature = "etcd")]
            Self::Link(_) => false,
        }
    }

    /// Makes the next receive ask the kernel itself, whatever is known of readiness.
    pub(super) fn ask_kernel(&mut self) {
        if let Some(socket) = self.socket() {
            socket.unread = true;
        }
    }

    /// Receives into `buffer`; 0 means the peer will send no more.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(self).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Sends `bytes` until nothing is left.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Vec<u8>,
    ) -> Poll<io::Result<()>> {
        while !bytes.is_empty() {
            let sent = ready!(Pin::new(&mut *self).poll_write(cx, bytes))?;
            bytes.drain(..sent.min(bytes.len()));
        }
        Pin::new(self).poll_flush(cx)
    }

    /// Ready when the peer has closed its side, even if earlier bytes are unread.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => socket.poll_end(cx),
            Self::Tls(stream) => stream.get_mut().0.poll_end(cx),
            #[cfg(feature = "etcd")]
            Self::Link(stream) => stream.poll_end(cx),
        }
    }

    /// Ready when the peer could not receive anything any more.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(socket) => socket.poll_gone(cx),
            Self::Tls(stream) => stream.get_ref().0.poll_gone(cx),
            #[cfg(feature = "etcd")]
            Self::Link(stream) => stream.poll_gone(cx),
        }
    }

    /// Asks the peer's kernel whether the peer still exists, after the peer has closed its sending side.
    ///
    /// A closed and a half-closed peer look the same until something is sent. One byte of urgent
    /// data answers it: a closed socket resets the connection, a half-closed one takes the byte
    /// aside, where no ordinary read sees it. Sent at most once per connection, as a second
    /// urgent byte would turn the first into ordinary data. (Between processes of one machine
    /// the kernel distinguishes the two by itself.)
    pub(super) fn probe(&mut self) {
        let Some(socket) = self.socket() else { return };
        // On a Unix socket this fails: urgent data would be ordinary data there.
        if !std::mem::replace(&mut socket.probed, true) && socket.stream.peer_addr().is_ok() {
            // A failure shows itself as readiness, which is watched.
            let _ = SockRef::from(&socket.stream).send_out_of_band(b"\n");
        }
    }

    /// Closes gently: reads the bytes that the peer has sent in addition, because otherwise the kernel would answer
    /// them with a reset that overtakes our last reply.
    pub(super) fn close_gently(&mut self, buffer: &mut [u8]) {
        const ROUNDS: usize = 16;
        let mut now = Context::from_waker(Waker::noop());
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => {
                let _ = Pin::new(&mut *stream).poll_shutdown(&mut now);
                stream.get_mut().0
            }
            #[cfg(feature = "etcd")]
            Self::Link(stream) => return stream.finish(),
        };
        let _ = Pin::new(&mut *socket).poll_shutdown(&mut now);
        for _ in 0..ROUNDS {
            if !matches!(socket.receive(buffer), Ok(1..)) {
                break;
            }
        }
    }
}

#[cfg(feature = "etcd")]
impl From<LinkStream> for Transport {
    fn from(stream: LinkStream) -> Self {
        Self::Link(Box::new(stream))
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(stream) => match ready!(Pin::new(stream).poll_read(cx, buffer)) {
                // The peer closed without TLS's close_notify.
                Err(err) if err.kind() == ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                result => Poll::Ready(result),
            },
            #[cfg(feature = "etcd")]
            Self::Link(stream) => {
                let count = ready!(stream.poll_receive(cx, buffer.initialize_unfilled()))?;
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(feature = "etcd")]
            Self::Link(stream) => loop {
                match stream.send(bytes) {
                    Ok(0) if !bytes.is_empty() => ready!(stream.poll_room(cx))?,
                    result => return Poll::Ready(result),
                }
            },
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Plain(_) => Poll::Ready(Ok(())),
            #[cfg(feature = "etcd")]
            Self::Link(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        self.close_gently(&mut [0; 4096]);
        Poll::Ready(Ok(()))
    }
}

/// The TLS settings of connections; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Tls(pub(crate) Arc<ServerConfig>);

impl Tls {
    /// Reads a certificate chain and its key from PEM files.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`], naming the file or what does not fit.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a foreign enum, which may get more variants"
    )]
    pub(crate) fn load(cert: &Path, key: &Path) -> io::Result<Self> {
        let named = |path: &Path, err: &dyn fmt::Display| {
            io::Error::new(ErrorKind::InvalidData, format!("{}: {err}", path.display()))
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect)
            .map_err(|err| named(cert, &of_pem(&err)))?;
        if chain.is_empty() {
            return Err(named(cert, &"no certificate in it"));
        }
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|err| named(key, &of_pem(&err)))?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret))
            .map_err(|err| match err {
                Error::InconsistentKeys(_) => {
                    named(key, &format!("not the key of the certificate in {}", cert.display()))
                }
                Error::InvalidCertificate(_) => named(cert, &"the certificate is damaged"),
                _ => named(key, &"this kind of key is not supported; use Ed25519, ECDSA or RSA"),
            })?;
        Ok(Self(Arc::new(config)))
    }
}

/// Why a file lacks the expected content, in words: the messages of rustls are names from its source code.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum, which may get more variants")]
fn of_pem(reason: &pem::Error) -> String {
    match reason {
        pem::Error::Io(err) => err.to_string(),
        pem::Error::MissingSectionEnd { .. } => {
            "the end is missing; is the file cut short?".to_owned()
        }
        pem::Error::NoItemsFound => "it contains nothing of this kind".to_owned(),
        _ => "not a PEM file, or a damaged one".to_owned(),
    }
}

/// What went wrong in a handshake, for the log.
pub(crate) fn of_handshake(err: &io::Error) -> String {
    match err.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        None => err.to_string(),
        // RFC 8446, 6: the numbers have names there.
        Some(Error::AlertReceived(alert)) => {
            format!("the client ended it (alert {})", u8::from(*alert))
        }
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "the client speaks without TLS".to_owned()
        }
        Some(Error::PeerIncompatible(_)) => {
            "no TLS version or cipher in common (TLS 1.2 or 1.3)".to_owned()
        }
        Some(_) => "the client violates TLS".to_owned(),
    }
}
