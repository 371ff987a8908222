//! Byte streams to a server: TCP, TLS over TCP, Unix sockets. Knows nothing of the protocol on them.

use super::error::ClientError;
use super::settings::Tls;
use super::terms::ServerAddress;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

/// A server on a dead machine sends nothing, and a waiting client has nothing to send. Only the kernel's probes can
/// distinguish this from a long wait. A server that misses all of them, in 40 seconds, is gone.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 4;

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

/// The requirements for a connection's stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

const LATE: &str = "no connection in time";
const LATE_TLS: &str =
    "it accepted the connection but did not start TLS in time; does it speak TLS?";

/// Connects within `limit`, handshake included. The socket is close-on-exec.
pub(super) async fn open(
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

fn keep_alive(socket: SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    // Windows before 10.0.15063 counts to ten, and cannot be made to do otherwise.
    match socket.set_tcp_keepalive(&keepalive.clone().with_retries(KEEPALIVE_RETRIES)) {
        Err(_) if cfg!(windows) => socket.set_tcp_keepalive(&keepalive),
        outcome => outcome,
    }
}

/// TLS errors as sentences.
fn explained(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(reason) => io::Error::new(error.kind(), crate::error::words_of_tls(reason)),
        None => error,
    }
}
