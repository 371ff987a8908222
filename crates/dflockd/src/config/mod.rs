//! Command line and environment → `Config`. The caller reads the files of secrets; no other file is read. Options
//! override the environment, the environment overrides the defaults, and every value is checked before the server
//! opens anything.

mod flags;

pub(crate) use flags::{ConfigError, Name, usage};
pub use flags::{FLAGS, Flag, Kind};

use crate::server::{Access, AuthToken, HttpSettings, Settings, Synced};
use leases::wire::MAX_AUTH_LINE_BYTES;
use leases::{AutoRelease, Caps, MAX_SECONDS, Seconds, Ttl};
use leases_etcd::{EtcdOptions, EtcdTls, EtcdUser};
use std::path::PathBuf;

/// All settings of the program.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Address or name to listen on; brackets around IPv6 are cut.
    pub(crate) host: String,
    /// Port to listen on.
    pub(crate) port: u16,
    /// Path of a Unix socket to listen on as well.
    pub(crate) unix_socket: Option<PathBuf>,
    /// The address and port for HTTP, if it is wanted.
    pub(crate) http: Option<(String, u16)>,
    /// Limits and times. The secret and the fence floor are not in it yet.
    pub(crate) settings: Settings,
    /// The files with the certificate chain and its key, both in PEM.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    /// Where the secret is.
    pub(crate) auth: Option<Secret>,
    /// Secrets for some keys.
    pub(crate) auth_prefix_file: Option<PathBuf>,
    /// Secrets of administrators.
    pub(crate) admin_token_file: Option<PathBuf>,
    /// Secrets for reading the numbers.
    pub(crate) metrics_token_file: Option<PathBuf>,
    /// Whether an address or a port was given.
    pub(crate) address_named: bool,
    /// Keeps holds across restarts, and fences too.
    pub(crate) state_dir: Option<PathBuf>,
    /// Whether the holds also survive a power cut.
    pub(crate) state_sync: Synced,
    /// The etcd in which the holds are recorded.
    pub(crate) etcd: Option<EtcdOptions>,
    /// Whether connections and requests are logged too.
    pub(crate) debug: bool,
}

/// Where the secret comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    /// Given as it is.
    Text(AuthToken),
    /// To be read from this file.
    File(PathBuf),
}

/// The action that the command line asks for.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// Serve.
    Run(Box<Config>),
    /// Print the version.
    Version,
    /// Print [`usage`].
    Help,
}

impl Config {
    /// Reads the arguments (without the program's name) and the environment.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub(crate) fn read(
        arguments: &[String],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Wish, ConfigError> {
        let Some(given) = flags::read(arguments)? else { return Ok(Wish::Help) };
        let values = Values { given, environment };
        if values.switch(Name::Version)? {
            return Ok(Wish::Version);
        }
        values.config().map(|config| Wish::Run(Box::new(config)))
    }
}

struct Values<E> {
    given: Vec<Option<String>>,
    environment: E,
}

impl<E: Fn(&str) -> Option<String>> Values<E> {
    fn config(&self) -> Result<Config, ConfigError> {
        let host = self.text(Name::Host);
        self.seconds(Name::LeaseSweepInterval)?;
        Ok(Config {
            host: unbracket(&host).to_owned(),
            port: self.port(Name::Port)?,
            unix_socket: self.path(Name::UnixSocket),
            http: self.http()?,
            settings: self.settings()?,
            tls: self.both(
                Name::TlsCert,
                Name::TlsKey,
                "both --tls-cert and --tls-key must be provided together",
            )?,
            auth: self.secret()?,
            auth_prefix_file: self.path(Name::AuthPrefixFile),
            admin_token_file: self.path(Name::AdminTokenFile),
            metrics_token_file: self.path(Name::MetricsTokenFile),
            address_named: self.is_named(Name::Host) || self.is_named(Name::Port),
            state_dir: self.path(Name::StateDir),
            state_sync: self.state_sync()?,
            etcd: self.etcd()?,
            debug: self.switch(Name::Debug)?,
        })
    }

    fn http(&self) -> Result<Option<(String, u16)>, ConfigError> {
        let host = unbracket(&self.text(Name::HttpHost)).to_owned();
        let port = self.port(Name::HttpPort)?;
        if port > 0 && !cfg!(feature = "http") {
            return wrong("--http-port: this program was built without HTTP");
        }
        Ok((port > 0).then_some((host, port)))
    }

    fn http_settings(&self) -> Result<HttpSettings, ConfigError> {
        let rate = self.count(Name::HttpRateLimitPerIp)?;
        let origins = self.text(Name::HttpCorsAllowedOrigins);
        let origins = origins.split(',').map(str::trim).filter(|origin| !origin.is_empty());
        Ok(HttpSettings {
            session_idle: self.seconds(Name::HttpSessionIdleTimeout)?,
            max_sessions: self.count(Name::HttpMaxSessions)?,
            max_sessions_per_address: self.count(Name::HttpMaxSessionsPerIp)?,
            max_connections_per_address: self.count(Name::HttpMaxConnectionsPerIp)?,
            more_connections: 0,
            rate_per_address: rate,
            burst: or_else_zero(self.count(Name::HttpRateLimitBurst)?, rate),
            origins: origins.map(str::to_owned).collect(),
        })
    }

    fn settings(&self) -> Result<Settings, ConfigError> {
        let ttl = self.seconds(Name::DefaultLeaseTtl)?;
        let default_ttl = Ttl::new(ttl.count()).ok_or_else(|| out_of_range("default-lease-ttl"))?;
        let max_locks = self.count(Name::MaxLocks)?;
        let max_entries = or_else_zero(self.count(Name::MaxHolds)?, max_entries(max_locks));
        let per_connection = self.count(Name::MaxHoldsPerConnection)?;
        let mut caps = Caps::DEFAULT;
        caps.default_ttl = default_ttl;
        caps.max_locks = max_locks;
        caps.max_waiters = self.count(Name::MaxWaiters)?;
        caps.gc_interval = self.seconds(Name::GcInterval)?;
        caps.gc_max_idle = self.seconds(Name::GcMaxIdle)?;
        caps.disconnect_grace = self.seconds(Name::DisconnectGrace)?;
        caps.max_entries = max_entries;
        caps.max_entries_per_connection = or_else_zero(per_connection, max_entries / 2);
        Ok(Settings {
            caps,
            read_timeout: self.seconds(Name::ReadTimeout)?,
            write_timeout: self.seconds(Name::WriteTimeout)?,
            shutdown_timeout: self.seconds(Name::ShutdownTimeout)?,
            auto_release: if self.switch(Name::AutoRelease)? {
                AutoRelease::On
            } else {
                AutoRelease::Off
            },
            max_connections: self.count(Name::MaxConnections)?,
            max_watchers: self.count(Name::MaxWatchers)?,
            max_connections_per_address: self.count(Name::MaxConnectionsPerIp)?,
            startup_grace: self.seconds(Name::StartupGrace)?,
            advertise: self.text(Name::Advertise),
            http: self.http_settings()?,
            access: Access::default(),
            tls: None,
            state: None,
            max_descriptors: 0,
            #[cfg(feature = "etcd")]
            etcd: None,
        })
    }

    fn state_sync(&self) -> Result<Synced, ConfigError> {
        match (self.switch(Name::StateSync)?, self.path(Name::StateDir)) {
            (true, None) => wrong("--state-sync needs --state-dir"),
            (true, Some(_)) => Ok(Synced::Yes),
            (false, _) => Ok(Synced::No),
        }
    }

    /// The settings of `--store etcd`; `None` if no other server is to know the locks.
    fn etcd(&self) -> Result<Option<EtcdOptions>, ConfigError> {
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

    /// Two texts that are named together, most of them files.
    fn both(
        &self,
        one: Name,
        other: Name,
        words: &str,
    ) -> Result<Option<(PathBuf, PathBuf)>, ConfigError> {
        let (one, other) = (self.path(one), self.path(other));
        if one.is_some() != other.is_some() {
            return wrong(words);
        }
        Ok(one.zip(other))
    }

    /// The first of: flag, the flag's file, environment, the environment's file.
    fn secret(&self) -> Result<Option<Secret>, ConfigError> {
        let flag = |name| self.flag(name).filter(|text| !text.is_empty());
        let text = |text: String| {
            let text = check_secret(&text)?;
            Ok(text.and_then(|text| AuthToken::new(text.as_bytes())).map(Secret::Text))
        };
        let file = |path: String| Ok(Some(Secret::File(path.into())));
        flag(Name::AuthToken)
            .map(text)
            .or_else(|| flag(Name::AuthTokenFile).map(file))
            .or_else(|| self.environment(Name::AuthToken).map(text))
            .or_else(|| self.environment(Name::AuthTokenFile).map(file))
            .unwrap_or(Ok(None))
    }

    #[expect(clippy::indexing_slicing, reason = "the macro makes rows and names together")]
    fn row(name: Name) -> &'static Flag {
        &FLAGS[name as usize]
    }

    fn flag(&self, name: Name) -> Option<String> {
        self.given.get(name as usize).cloned().flatten()
    }

    /// The first variable that is set and not empty.
    fn environment(&self, name: Name) -> Option<String> {
        let value = |variable: &&str| (self.environment)(variable);
        Self::row(name).env.iter().filter_map(value).find(|text| !text.is_empty())
    }

    fn is_named(&self, name: Name) -> bool {
        self.flag(name).is_some() || self.environment(name).is_some()
    }

    fn text(&self, name: Name) -> String {
        let given = self.flag(name).or_else(|| self.environment(name));
        given.unwrap_or_else(|| Self::row(name).default.to_owned())
    }

    fn path(&self, name: Name) -> Option<PathBuf> {
        Some(self.text(name)).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    /// The value of a flag, of the environment, or by default. Values in the environment that cannot be parsed are
    /// ignored, as in the reference.
    fn parsed<T>(
        &self,
        name: Name,
        flag: fn(&str) -> Option<T>,
        environment: fn(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let of_flag = self.flag(name).and_then(|text| flag(&text));
        let of_environment = || self.environment(name).and_then(|text| environment(&text));
        let row = Self::row(name);
        let value = of_flag.or_else(of_environment).or_else(|| flag(row.default));
        value.ok_or_else(|| out_of_range(row.name))
    }

    fn number(&self, name: Name) -> Result<i64, ConfigError> {
        self.parsed(name, flags::number, |text| text.parse().ok())
    }

    fn switch(&self, name: Name) -> Result<bool, ConfigError> {
        self.parsed(name, flags::switch, flags::environment_switch)
    }

    fn at_least(&self, name: Name) -> Result<u64, ConfigError> {
        let row = Self::row(name);
        let least = match row.kind {
            Kind::Number(least) => least,
            Kind::Port | Kind::Text | Kind::OneOf(_) | Kind::Switch => 0,
        };
        let value = self.number(name)?;
        if value < least {
            let bound = if least == 1 { "> 0" } else { ">= 0" };
            return wrong(format!("--{} must be {bound}", row.name));
        }
        u64::try_from(value).map_err(|_| out_of_range(row.name))
    }

    fn count(&self, name: Name) -> Result<usize, ConfigError> {
        let value = self.at_least(name)?;
        usize::try_from(value).map_err(|_| out_of_range(Self::row(name).name))
    }

    fn seconds(&self, name: Name) -> Result<Seconds, ConfigError> {
        let value = self.at_least(name)?;
        let name = Self::row(name).name;
        let too_long = || ConfigError::Value(format!("--{name} must be <= {MAX_SECONDS}"));
        Seconds::new(value).ok_or_else(too_long)
    }

    fn port(&self, name: Name) -> Result<u16, ConfigError> {
        let wrong =
            |_| ConfigError::Value(format!("--{} must be 0 to 65535", Self::row(name).name));
        u16::try_from(self.number(name)?).map_err(wrong)
    }
}

/// The longest prefix that all our keys in etcd may have.
const MAX_PREFIX_BYTES: usize = 256;

fn without_scheme(word: &str) -> &str {
    let bare = word.strip_prefix("https://").or_else(|| word.strip_prefix("http://"));
    bare.unwrap_or(word).trim_end_matches('/')
}

/// The value, or the value that zero stands for.
const fn or_else_zero(value: usize, instead: usize) -> usize {
    if value == 0 { instead } else { value }
}

/// Enough for every key to be held and waited for.
fn max_entries(max_locks: usize) -> usize {
    max_locks.saturating_mul(2).max(100_000)
}

fn wrong<T>(words: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError::Value(words.into()))
}

fn out_of_range(name: &str) -> ConfigError {
    ConfigError::Value(format!("--{name} is out of range"))
}

/// Accepts `[::1]`, as the reference demands, and `::1`, as people write it.
fn unbracket(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Removes blanks around a secret, because no request could contain them. `None` if nothing is left.
///
/// # Errors
/// A secret that no client could send: it contains a line end, or is longer than a line may be.
pub(crate) fn check_secret(text: &str) -> Result<Option<String>, ConfigError> {
    let text = text.trim();
    if text.contains(['\n', '\r']) {
        return wrong("the auth token must not contain a newline");
    }
    if text.len() > MAX_AUTH_LINE_BYTES {
        return wrong(format!(
            "the auth token must not be longer than {MAX_AUTH_LINE_BYTES} bytes"
        ));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests;
