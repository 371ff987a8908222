//! TLS 1.2 and 1.3 for connections: the server's certificate, no client certificates.

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

/// What connections are secured with; cheap to clone.
#[derive(Clone, Debug)]
pub struct Tls(pub(super) Arc<ServerConfig>);

impl Tls {
    /// The same for other ports of this server.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0)
    }

    /// Reads a certificate chain and its key from PEM files.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`], naming the file or what does not fit.
    pub fn load(cert: &Path, key: &Path) -> io::Result<Self> {
        let named = |path: &Path, err: &dyn std::fmt::Display| {
            io::Error::new(ErrorKind::InvalidData, format!("{}: {err}", path.display()))
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect)
            .map_err(|err| named(cert, &err))?;
        if chain.is_empty() {
            return Err(named(cert, &"no certificate in it"));
        }
        let key = PrivateKeyDer::from_pem_file(key).map_err(|err| named(key, &err))?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|err| io::Error::new(ErrorKind::InvalidData, err))?;
        Ok(Self(Arc::new(config)))
    }
}
