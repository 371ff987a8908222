//! Byte streams to a server with the sockets of the standard library. Knows nothing of the protocol on them.

use crate::address::ServerAddress;
use crate::error::ClientError;
use crate::transport::{LATE, LATE_TLS, Tls, explained, keep_alive, late};
use rustls::ClientConnection;
use socket2::SockRef;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Some systems take shorter limits than this for "for ever".
const SHORTEST: Duration = Duration::from_millis(1);

/// A socket of the standard library that raises no SIGPIPE when written to after its end.
enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Socket {
    /// The operations that all kinds of sockets share.
    fn options(&self) -> SockRef<'_> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream),
            #[cfg(unix)]
            Self::Unix(stream) => SockRef::from(stream),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).read(buffer),
            #[cfg(unix)]
            Socket::Unix(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).write(bytes),
            #[cfg(unix)]
            Socket::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket, with TLS if the settings say so. Dropping it ends the connection, even if another thread
/// [watches](Self::watch) it.
pub(super) struct Stream {
    socket: Arc<Socket>,
    session: Option<Box<ClientConnection>>,
}

impl Stream {
    /// Connects within `limit`, including the handshake; a name look-up may take longer.
    pub(super) fn open(
        address: &ServerAddress,
        tls: Option<&Tls>,
        limit: Duration,
    ) -> Result<Self, ClientError> {
        let end = Instant::now() + limit;
        let opened = socket(address, end).and_then(|socket| over(socket, tls, address, end));
        opened.map_err(|error| ClientError::Connect { server: address.clone(), error })
    }

    /// How long one call may wait from now on.
    pub(super) fn set_limit(&self, limit: Duration) -> io::Result<()> {
        set_limit(&self.socket, limit)
    }

    /// The same socket, to wait for data.
    pub(super) fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.socket))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.socket.options().shutdown(Shutdown::Both);
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => (&*self.socket).read(buffer),
            Some(session) => rustls::Stream::new(&mut **session, &mut &*self.socket).read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.session {
            None => (&*self.socket).write(bytes),
            Some(session) => rustls::Stream::new(&mut **session, &mut &*self.socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.session {
            None => (&*self.socket).flush(),
            Some(session) => rustls::Stream::new(&mut **session, &mut &*self.socket).flush(),
        }
    }
}

/// The socket of a stream. Consumes none of its data.
pub(super) struct Watch(Arc<Socket>);

impl Watch {
    /// Whether data came, or the connection ended, before this time.
    pub(super) fn stirs_before(&self, end: Instant) -> bool {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if set_limit(&self.0, left).is_err() {
                return true;
            }
            match self.0.options().peek(&mut [MaybeUninit::uninit()]) {
                Err(error) if is_pause(&error) => {}
                Ok(_) | Err(_) => return true,
            }
        }
    }
}

/// Whether a call only ended because of its timeout or a signal.
pub(super) fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn set_limit(socket: &Socket, limit: Duration) -> io::Result<()> {
    let limit = Some(limit.max(SHORTEST));
    socket.options().set_read_timeout(limit)?;
    socket.options().set_write_timeout(limit)
}

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now()).max(SHORTEST)
}

fn socket(address: &ServerAddress, end: Instant) -> io::Result<Socket> {
    match address {
        ServerAddress::Tcp { host, port } => {
            let mut outcome = Err(io::Error::new(ErrorKind::NotFound, "the name has no address"));
            for address in (host.as_str(), *port).to_socket_addrs()? {
                outcome = TcpStream::connect_timeout(&address, left(end));
                if outcome.is_ok() {
                    break;
                }
            }
            let stream = outcome.map_err(|error| {
                if error.kind() == ErrorKind::TimedOut { late(LATE) } else { error }
            })?;
            stream.set_nodelay(true)?;
            keep_alive(SockRef::from(&stream))?;
            Ok(Socket::Tcp(stream))
        }
        #[cfg(unix)]
        ServerAddress::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
        #[cfg(not(unix))]
        ServerAddress::Unix(_) => Err(ErrorKind::Unsupported.into()),
    }
}

fn over(
    socket: Socket,
    tls: Option<&Tls>,
    address: &ServerAddress,
    end: Instant,
) -> io::Result<Stream> {
    let Some(tls) = tls else { return Ok(Stream { socket: Arc::new(socket), session: None }) };
    let mut session = Box::new(tls.session(address)?);
    while session.is_handshaking() {
        set_limit(&socket, left(end))?;
        match session.complete_io(&mut &socket) {
            Ok(_) => {}
            Err(error) if is_pause(&error) && Instant::now() < end => {}
            Err(error) if is_pause(&error) => return Err(late(LATE_TLS)),
            Err(error) => return Err(explained(error)),
        }
    }
    Ok(Stream { socket: Arc::new(socket), session: Some(session) })
}
