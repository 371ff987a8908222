//! TLS 1.2 and 1.3 for connections: the server's certificate, no client certificates.

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, InvalidMessage, ServerConfig};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

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
        let named = |path: &Path, err: &dyn std::fmt::Display| {
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
