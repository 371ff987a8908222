//! The settings of the connection to etcd.

use crate::{EtcdOptions, EtcdTls, EtcdUser};
use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Error, Identity};

/// The deadline of a connection attempt.
pub(crate) const CONNECT: Duration = Duration::from_millis(700);

/// The settings of `--store etcd` with their files read, ready to connect.
#[derive(Clone)]
pub struct Settings {
    pub(crate) members: Vec<Endpoint>,
    pub(crate) prefix: String,
    pub(crate) user: Option<EtcdUser>,
}

impl Settings {
    /// Reads the files and parses the addresses; does not connect.
    ///
    /// # Errors
    /// A file cannot be read, or an address is invalid.
    pub fn open(options: &EtcdOptions) -> io::Result<Self> {
        let tls = options.tls.as_ref().map(client_tls).transpose()?;
        if let Some(user) = &options.user {
            let name = user.password_file.display();
            let text = |err: io::Error| io::Error::new(err.kind(), format!("{name}: {err}"));
            std::fs::metadata(&user.password_file).map_err(text)?;
        }
        let member = |address: &String| {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(other)?;
            let endpoint = endpoint.connect_timeout(CONNECT).tcp_nodelay(true);
            match &tls {
                Some(tls) => endpoint.tls_config(tls.clone()).map_err(other),
                None => Ok(endpoint),
            }
        };
        Ok(Self {
            members: options.endpoints.iter().map(member).collect::<io::Result<_>>()?,
            prefix: options.prefix.clone(),
            user: options.user.clone(),
        })
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("etcd at")?;
        self.members.iter().try_for_each(|member| write!(out, " {}", member.uri()))
    }
}

fn client_tls(tls: &EtcdTls) -> io::Result<ClientTlsConfig> {
    let read = |path: &Path| {
        std::fs::read(path)
            .map_err(|err| io::Error::new(err.kind(), format!("{}: {err}", path.display())))
    };
    let authority = Certificate::from_pem(read(&tls.authority)?);
    let mut config = ClientTlsConfig::new().ca_certificate(authority);
    if let Some((cert, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(config)
}

fn other(err: Error) -> io::Error {
    io::Error::other(chain(&err))
}

/// An error and its causes, in one line.
pub(crate) fn chain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut next = err.source();
    while let Some(err) = next {
        text.push_str(": ");
        text.push_str(&err.to_string());
        next = err.source();
    }
    text
}
