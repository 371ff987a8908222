//! The settings of a client: the servers, the time limits, and TLS.

use super::error::{ClientError, words_of_pem, words_of_tls};
use super::terms::{ServerAddress, Servers};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{ClientConfig, RootCertStore};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Settings of a [`super::Client`]. Start from [`Settings::new`], or from [`Settings::default`] for a server on this
/// machine at the default port, and change some of them.
///
/// ```
/// let mut settings = dflock::Settings::default();
/// settings.name = Some("nightly report".to_owned());
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Settings {
    /// The servers: each with keys of its own, or all with the same keys. At least one.
    pub servers: Servers,
    /// Sent with `auth` first on every connection.
    pub auth_token: Option<Vec<u8>>,
    /// A name of this client for the operators of the server: host, process, purpose. At most 200 bytes of it are
    /// sent.
    pub name: Option<String>,
    /// What clients that watch a key ([`super::Watch`]) read while this one holds it: such as the address of a
    /// leader. 1 to 256 bytes of one line. A server that does not know values refuses:
    /// [`ClientError::NotWatched`].
    pub value: Option<String>,
    /// The first 16 digits of tokens are fences even if the server does not say so. True of the Go server since 2.1;
    /// before, and for a server that is not known to do it, they are random, and storage that compares them would
    /// refuse the latest holder or let a late one in. `false` by default.
    pub trusts_fences: bool,
    /// TLS to all servers, or none.
    pub tls: Option<Tls>,
    /// How long connecting may take, including the name look-up and TLS; and how long to try to reach a server that
    /// is away at first, for example because it is starting. 10 s.
    pub connect_limit: Duration,
    /// How long an answer may take, in addition to the time that the request itself allows. 10 s.
    pub answer_limit: Duration,
    /// The server's read timeout: how long a connection may be silent before the server closes it and, with
    /// auto-release on, frees its holds, however long the leases are. 23 s, the servers' default. Renewals and pings
    /// are sent three times in this time; if none is answered in it, the lease counts as over. If the server
    /// keeps the holds of silent connections (auto-release off, or a grace), it may be as long as the lease.
    pub read_timeout: Duration,
    /// How long to try to reach the server after a broken connection before the lease counts as lost. `None`: as long
    /// as the lease lasts, less the margin; it never tries for longer. A server with auto-release on and no grace
    /// (the default) frees the lock when the connection breaks, so during the attempts another client may hold it;
    /// with such a server a short time may be better.
    pub reclaim: Option<Duration>,
    /// How long before the end of a lease that could not be renewed the holder hears of it; at most a third of the lease,
    /// or of the read timeout. Zero by default.
    pub margin: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(Servers::Shards(vec![ServerAddress::local_default()]))
    }
}

impl Settings {
    /// The usual settings towards these servers.
    #[must_use]
    pub const fn new(servers: Servers) -> Self {
        Self {
            servers,
            auth_token: None,
            name: None,
            value: None,
            trusts_fences: false,
            tls: None,
            connect_limit: Duration::from_secs(10),
            answer_limit: Duration::from_secs(10),
            read_timeout: Duration::from_secs(23),
            reclaim: None,
            margin: Duration::ZERO,
        }
    }
}

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
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: Option<String>,
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
            .map_err(|error| ClientError::Tls(words_of_tls(&error)))?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config), name })
    }
}

fn certificates(roots: &TlsRoots) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    match roots {
        TlsRoots::System => Ok(rustls_native_certs::load_native_certs().certs),
        TlsRoots::File(path) => {
            let broken = |error: pem::Error| {
                ClientError::Tls(format!("{}: {}", path.display(), words_of_pem(&error)))
            };
            let certificates = CertificateDer::pem_file_iter(path).map_err(broken)?;
            certificates.collect::<Result<Vec<_>, _>>().map_err(broken)
        }
    }
}
