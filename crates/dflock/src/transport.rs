//! Byte streams to a server: TCP, TLS over TCP, Unix sockets. Knows nothing of the protocol on them.

use super::address::ServerAddress;
use super::error::ClientError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

/// A server on a dead machine sends nothing, and a waiting client has nothing to send. Only the kernel's probes can
/// tell this from a long wait. A server that misses all of them, in 40 seconds, is gone.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 4;

/// The authorities that may sign a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsRoots {
    /// The authorities this system trusts.
    System,
    /// Only the certificates in this PEM file; for private authorities and self-signed servers.
    File(PathBuf),
}

/// TLS towards the servers: 1.2 or 1.3, the server's name always verified.
///
/// ```no_run
/// # fn main() -> Result<(), dflock::ClientError> {
/// use dflock::{Settings, Tls, TlsRoots};
///
/// let mut settings = Settings::default();
/// settings.tls = Some(Tls::new(&TlsRoots::File("/etc/ssl/locks-ca.pem".into()), None)?);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: Option<String>,
}

impl Tls {
    /// Reads the trusted certificates. `name` is the name that the server's certificate must have, if it is not the
    /// host.
    ///
    /// # Errors
    /// [`ClientError::Tls`] when there are no usable certificates.
    pub fn new(roots: &TlsRoots, name: Option<String>) -> Result<Self, ClientError> {
        let mut store = RootCertStore::empty();
        for certificate in certificates(roots)? {
            // A system's list may hold certificates too old for webpki; they are left out.
            let _ = store.add(certificate);
        }
        if store.is_empty() {
            let place = match roots {
                TlsRoots::System => String::new(),
                TlsRoots::File(path) => format!("{}: ", path.display()),
            };
            return Err(ClientError::Tls(format!("{place}no trusted certificate found")));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ClientError::Tls(crate::error::words_of_tls(&error)))?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config), name })
    }

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

fn certificates(roots: &TlsRoots) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    match roots {
        TlsRoots::System => Ok(rustls_native_certs::load_native_certs().certs),
        TlsRoots::File(path) => {
            let broken = |error: rustls::pki_types::pem::Error| {
                ClientError::Tls(format!(
                    "{}: {}",
                    path.display(),
                    crate::error::words_of_pem(&error)
                ))
            };
            let certificates = CertificateDer::pem_file_iter(path).map_err(broken)?;
            certificates.collect::<Result<Vec<_>, _>>().map_err(broken)
        }
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
