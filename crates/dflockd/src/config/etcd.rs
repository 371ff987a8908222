//! The options of the record in etcd. The files that they name are read when the server connects.

use super::{ConfigError, Name, Values};
use leases_etcd::{EtcdOptions, EtcdTls, EtcdUser};

impl<E: Fn(&str) -> Option<String>> Values<E> {
    /// The settings of `--store etcd`; `None` if no other server is to know the locks.
    pub(super) fn etcd(&self) -> Result<Option<EtcdOptions>, ConfigError> {
        match self.text(Name::Store).as_str() {
            "memory" => return Ok(None),
            "etcd" => {}
            other => {
                let message = format!("--store must be memory or etcd, not {other:?}");
                return Err(ConfigError::Value(message));
            }
        }
        if !cfg!(feature = "etcd") {
            let message = "--store etcd: this program was built without etcd";
            return Err(ConfigError::Value(message.to_owned()));
        }
        let text = self.text(Name::EtcdEndpoints);
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let endpoints: Vec<String> =
            words.clone().map(|word| without_scheme(word).to_owned()).collect();
        if endpoints.is_empty() {
            let message = "--etcd-endpoints must name at least one member";
            return Err(ConfigError::Value(message.to_owned()));
        }
        let is_secure = |word: &str| word.starts_with("https://");
        let tls = self.etcd_tls()?;
        if tls.is_none() && words.clone().any(is_secure) {
            let message = "--etcd-endpoints with https needs --etcd-ca";
            return Err(ConfigError::Value(message.to_owned()));
        }
        let prefix = self.text(Name::EtcdPrefix);
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES {
            let message = format!("--etcd-prefix must have 1 to {MAX_PREFIX_BYTES} bytes");
            return Err(ConfigError::Value(message));
        }
        Ok(Some(EtcdOptions { endpoints, prefix, tls, user: self.etcd_user()? }))
    }

    fn etcd_tls(&self) -> Result<Option<EtcdTls>, ConfigError> {
        let authority = self.path(Name::EtcdCa);
        let wrong = "--etcd-cert and --etcd-key must be used together";
        let identity = self.both(Name::EtcdCert, Name::EtcdKey, wrong)?;
        if identity.is_some() && authority.is_none() {
            let message = "--etcd-cert needs --etcd-ca";
            return Err(ConfigError::Value(message.to_owned()));
        }
        Ok(authority.map(|authority| EtcdTls { authority, identity }))
    }

    fn etcd_user(&self) -> Result<Option<EtcdUser>, ConfigError> {
        let wrong = "--etcd-user and --etcd-password-file must be used together";
        let user = self.both(Name::EtcdUser, Name::EtcdPasswordFile, wrong)?;
        Ok(user
            .map(|(_, password_file)| EtcdUser { name: self.text(Name::EtcdUser), password_file }))
    }
}

/// The longest prefix that all our keys in etcd may have.
const MAX_PREFIX_BYTES: usize = 256;

fn without_scheme(word: &str) -> &str {
    let bare = word.strip_prefix("https://").or_else(|| word.strip_prefix("http://"));
    bare.unwrap_or(word).trim_end_matches('/')
}
