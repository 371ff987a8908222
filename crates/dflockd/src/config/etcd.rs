//! The options of the record in etcd. The files that they name are read when the server connects.

use super::{ConfigError, Name, Values, wrong};
use leases_etcd::{EtcdOptions, EtcdTls, EtcdUser};

impl<E: Fn(&str) -> Option<String>> Values<E> {
    /// The settings of `--store etcd`; `None` if no other server is to know the locks.
    pub(super) fn etcd(&self) -> Result<Option<EtcdOptions>, ConfigError> {
        match self.text(Name::Store).as_str() {
            "memory" => return Ok(None),
            "etcd" => {}
            other => return wrong(format!("--store must be memory or etcd, not {other:?}")),
        }
        if !cfg!(feature = "etcd") {
            return wrong("--store etcd: this program was built without etcd");
        }
        let text = self.text(Name::EtcdEndpoints);
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let endpoints: Vec<String> =
            words.clone().map(|word| without_scheme(word).to_owned()).collect();
        if endpoints.is_empty() {
            return wrong("--etcd-endpoints must name at least one member");
        }
        let is_secure = |word: &str| word.starts_with("https://");
        let tls = self.etcd_tls()?;
        if tls.is_none() && words.clone().any(is_secure) {
            return wrong("--etcd-endpoints with https needs --etcd-ca");
        }
        let prefix = self.text(Name::EtcdPrefix);
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES {
            return wrong(format!("--etcd-prefix must have 1 to {MAX_PREFIX_BYTES} bytes"));
        }
        let mut options = EtcdOptions::default();
        options.endpoints = endpoints;
        options.prefix = prefix;
        options.tls = tls;
        options.user = self.etcd_user()?;
        Ok(Some(options))
    }

    fn etcd_tls(&self) -> Result<Option<EtcdTls>, ConfigError> {
        let authority = self.path(Name::EtcdCa);
        let words = "--etcd-cert and --etcd-key must be used together";
        let identity = self.both(Name::EtcdCert, Name::EtcdKey, words)?;
        if identity.is_some() && authority.is_none() {
            return wrong("--etcd-cert needs --etcd-ca");
        }
        let mut tls = authority.map(EtcdTls::new);
        if let Some(tls) = &mut tls {
            tls.identity = identity;
        }
        Ok(tls)
    }

    fn etcd_user(&self) -> Result<Option<EtcdUser>, ConfigError> {
        let words = "--etcd-user and --etcd-password-file must be used together";
        let user = self.both(Name::EtcdUser, Name::EtcdPasswordFile, words)?;
        Ok(user.map(|(_, file)| EtcdUser::new(self.text(Name::EtcdUser), file)))
    }
}

/// The longest prefix that all our keys in etcd may have.
const MAX_PREFIX_BYTES: usize = 256;

fn without_scheme(word: &str) -> &str {
    let bare = word.strip_prefix("https://").or_else(|| word.strip_prefix("http://"));
    bare.unwrap_or(word).trim_end_matches('/')
}
