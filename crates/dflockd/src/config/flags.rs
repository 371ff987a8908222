//! The options as data: one table for the command line, the environment, `--help` and the manual page. The syntax
//! is that of Go's flag package, which the reference uses and scripts rely on. Arguments in, raw values out.

/// Why there is no [`Config`](super::Config).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigError {
    /// The command line cannot be read.
    Usage(String),
    /// A value is invalid.
    Value(String),
    /// The configuration may be right, but another program has the place.
    InUse(String),
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(text) | Self::Value(text) | Self::InUse(text) => out.write_str(text),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The kind of value that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A whole number not below this.
    Number(i64),
    /// A TCP port.
    Port,
    /// One of these words, which shells complete.
    OneOf(&'static [&'static str]),
    /// True or false; on the command line alone it means true.
    Switch,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Without dashes.
    pub name: &'static str,
    /// Its environment variables; the first one that is set counts.
    pub env: &'static [&'static str],
    /// The kind of its value.
    pub kind: Kind,
    /// Its default value.
    pub default: &'static str,
    /// One line for people.
    pub help: &'static str,
}

/// Names one row of [`FLAGS`].
macro_rules! flags {
    ($($place:ident = $name:literal, $env:expr, $kind:expr, $default:literal, $help:literal;)*) => {
        /// A row of [`FLAGS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Name { $($place),* }
        /// Every option.
        pub const FLAGS: &[Flag] = &[$(Flag {
            name: $name,
            env: &$env,
            kind: $kind,
            default: $default,
            help: $help,
        }),*];
    };
}

flags! {
    Host = "host", ["DFLOCKD_HOST"], Kind::Text, "127.0.0.1", "address or host name to listen on";
    Port = "port", ["DFLOCKD_PORT"], Kind::Port, "6388", "port to listen on; 0 lets the system choose";
    UnixSocket = "unix-socket", ["DFLOCKD_UNIX_SOCKET"], Kind::Text, "", "also listen on this Unix socket";
    HttpHost = "http-host", ["DFLOCKD_HTTP_HOST"], Kind::Text, "127.0.0.1", "address or host name for the HTTP port";
    HttpPort = "http-port", ["DFLOCKD_HTTP_PORT"], Kind::Port, "0", "HTTP port for locks, statistics, health, metrics and a web page; 0 for none";
    HttpSessionIdleTimeout = "http-session-idle-timeout", ["DFLOCKD_HTTP_SESSION_IDLE_S"], Kind::Number(1), "20", "seconds that HTTP clients are told; a session that is silent for twice as long ends";
    HttpMaxSessions = "http-max-sessions", ["DFLOCKD_HTTP_MAX_SESSIONS"], Kind::Number(0), "0", "limit of HTTP sessions; 0 for none";
    HttpMaxSessionsPerIp = "http-max-sessions-per-ip", ["DFLOCKD_HTTP_MAX_SESSIONS_PER_IP"], Kind::Number(0), "0", "limit of HTTP sessions from one address; 0 for none";
    HttpMaxConnectionsPerIp = "http-max-connections-per-ip", ["DFLOCKD_HTTP_MAX_CONNECTIONS_PER_IP"], Kind::Number(0), "0", "limit of HTTP connections from one address; 0 for none";
    HttpRateLimitPerIp = "http-rate-limit-per-ip", ["DFLOCKD_HTTP_RATE_LIMIT_PER_IP"], Kind::Number(0), "0", "limit of HTTP requests a second from one address; 0 for none";
    HttpRateLimitBurst = "http-rate-limit-burst", ["DFLOCKD_HTTP_RATE_LIMIT_BURST"], Kind::Number(0), "0", "HTTP requests of one address that may come at once; 0 for as many as a second may bring";
    HttpCorsAllowedOrigins = "http-cors-allowed-origins", ["DFLOCKD_HTTP_CORS_ALLOWED_ORIGINS"], Kind::Text, "", "origins whose web pages may use the HTTP port, separated by commas; * for all";
    DefaultLeaseTtl = "default-lease-ttl", ["DFLOCKD_DEFAULT_LEASE_TTL_S"], Kind::Number(1), "33", "length of a lease in seconds, if the request has none";
    LeaseSweepInterval = "lease-sweep-interval", ["DFLOCKD_LEASE_SWEEP_INTERVAL_S"], Kind::Number(1), "1", "accepted for compatibility, without effect; leases end on time without a sweep";
    GcInterval = "gc-interval", ["DFLOCKD_GC_INTERVAL_S", "DFLOCKD_GC_LOOP_SLEEP"], Kind::Number(1), "5", "seconds between searches for idle keys";
    GcMaxIdle = "gc-max-idle", ["DFLOCKD_GC_MAX_IDLE_S", "DFLOCKD_GC_MAX_UNUSED_TIME"], Kind::Number(1), "60", "seconds after which an idle key is forgotten";
    MaxLocks = "max-locks", ["DFLOCKD_MAX_LOCKS"], Kind::Number(1), "1024", "limit of keys; when it is reached, the key that was idle for longest is forgotten";
    MaxWaiters = "max-waiters", ["DFLOCKD_MAX_WAITERS"], Kind::Number(0), "0", "limit of waiters for each key; 0 for none";
    MaxHolds = "max-holds", ["DFLOCKD_MAX_HOLDS"], Kind::Number(0), "0", "limit of slots held, places in queues and enqueue records together; 0 for 100000 or twice --max-locks, whichever is more";
    MaxHoldsPerConnection = "max-holds-per-connection", ["DFLOCKD_MAX_HOLDS_PER_CONNECTION"], Kind::Number(0), "0", "the same limit for each connection; 0 for half of --max-holds";
    MaxConnections = "max-connections", ["DFLOCKD_MAX_CONNECTIONS"], Kind::Number(0), "0", "limit of connections; 0 for none";
    MaxWatchers = "max-watchers", ["DFLOCKD_MAX_WATCHERS"], Kind::Number(0), "10000", "limit of clients that wait for changes of keys; 0 for none";
    MaxConnectionsPerIp = "max-connections-per-ip", ["DFLOCKD_MAX_CONNECTIONS_PER_IP"], Kind::Number(0), "0", "limit of connections from one address; 0 for none";
    ReadTimeout = "read-timeout", ["DFLOCKD_READ_TIMEOUT_S"], Kind::Number(1), "23", "seconds that a client may take for one line, or be silent between requests";
    WriteTimeout = "write-timeout", ["DFLOCKD_WRITE_TIMEOUT_S"], Kind::Number(0), "5", "seconds that a client may take to accept one reply; 0 for no limit";
    ShutdownTimeout = "shutdown-timeout", ["DFLOCKD_SHUTDOWN_TIMEOUT_S"], Kind::Number(0), "30", "seconds that clients may stay after SIGTERM or SIGINT; 0 for no limit; a leader on etcd does not wait";
    AutoRelease = "auto-release-on-disconnect", ["DFLOCKD_AUTO_RELEASE_ON_DISCONNECT"], Kind::Switch, "true", "release the holds of a connection when it closes";
    DisconnectGrace = "disconnect-grace", ["DFLOCKD_DISCONNECT_GRACE_S"], Kind::Number(0), "0", "seconds that a hold stays after its connection closed, so that the client can reconnect and renew it";
    TlsCert = "tls-cert", ["DFLOCKD_TLS_CERT"], Kind::Text, "", "certificate chain (PEM); needs --tls-key";
    TlsKey = "tls-key", ["DFLOCKD_TLS_KEY"], Kind::Text, "", "private key (PEM); needs --tls-cert";
    AuthToken = "auth-token", ["DFLOCKD_AUTH_TOKEN"], Kind::Text, "", "secret that clients must send; other users of this machine can see it, so prefer --auth-token-file";
    AuthTokenFile = "auth-token-file", ["DFLOCKD_AUTH_TOKEN_FILE"], Kind::Text, "", "file with the secrets that clients may send, one in each line";
    AuthPrefixFile = "auth-prefix-file", ["DFLOCKD_AUTH_PREFIX_FILE"], Kind::Text, "", "file with secrets for some keys only; each line has a prefix of keys, a blank, and a secret";
    AdminTokenFile = "admin-token-file", ["DFLOCKD_ADMIN_TOKEN_FILE"], Kind::Text, "", "file with the secret of administrators, who can take holds away and end connections by HTTP";
    MetricsTokenFile = "metrics-token-file", ["DFLOCKD_METRICS_TOKEN_FILE"], Kind::Text, "", "file with a secret for /metrics only";
    StateDir = "state-dir", ["DFLOCKD_STATE_DIR"], Kind::Text, "", "directory in which holds are recorded, so that a restart forgets none";
    StateSync = "state-sync", ["DFLOCKD_STATE_SYNC"], Kind::Switch, "false", "answer only when the record is on the disk, so that a power failure forgets none either";
    StartupGrace = "startup-grace", ["DFLOCKD_STARTUP_GRACE_S"], Kind::Number(0), "0", "seconds after the start in which nothing is granted; for servers without --state-dir, whose clients may still hold locks";
    Store = "store", ["DFLOCKD_STORE"], Kind::OneOf(&["memory", "etcd"]), "memory", "where the locks are kept: memory (in this process), or etcd (where the servers of one service record them, so that they survive the loss of a machine)";
    Advertise = "advertise", ["DFLOCKD_ADVERTISE"], Kind::Text, "", "host:port at which the other servers reach this one while it leads (--store etcd); by default where it listens, or its address towards etcd";
    EtcdEndpoints = "etcd-endpoints", ["DFLOCKD_ETCD_ENDPOINTS"], Kind::Text, "127.0.0.1:2379", "members of etcd, as host:port, separated by commas; the leader is used, or else the first that answers";
    EtcdPrefix = "etcd-prefix", ["DFLOCKD_ETCD_PREFIX"], Kind::Text, "dflockd/", "prefix of all keys in etcd; servers with the same prefix are one service";
    EtcdCa = "etcd-ca", ["DFLOCKD_ETCD_CA"], Kind::Text, "", "certificate authority of the members of etcd (PEM); turns TLS on";
    EtcdCert = "etcd-cert", ["DFLOCKD_ETCD_CERT"], Kind::Text, "", "certificate that the server sends to etcd (PEM); needs --etcd-key and --etcd-ca";
    EtcdKey = "etcd-key", ["DFLOCKD_ETCD_KEY"], Kind::Text, "", "private key of that certificate (PEM)";
    EtcdUser = "etcd-user", ["DFLOCKD_ETCD_USER"], Kind::Text, "", "user of etcd; needs --etcd-password-file";
    EtcdPasswordFile = "etcd-password-file", ["DFLOCKD_ETCD_PASSWORD_FILE"], Kind::Text, "", "file with the password of --etcd-user";
    Debug = "debug", ["DFLOCKD_DEBUG"], Kind::Switch, "false", "log connections and requests too";
    Version = "version", [], Kind::Switch, "false", "print the version and exit";
}

/// Options of the reference that have no effect here, and why.
const ABSENT: &[(&str, &str)] = &[(
    "max-subscriptions",
    "publish and listen are not supported, as in version 2 of the reference",
)];

/// The values on the command line, for each row of [`FLAGS`].
pub(super) type Given = Vec<Option<String>>;

/// Parses the command line; `None` if it asks for help.
pub(super) fn read(arguments: &[String]) -> Result<Option<Given>, ConfigError> {
    let mut given: Given = vec![None; FLAGS.len()];
    let mut words = arguments.iter().peekable();
    while let Some(word) = words.next_if(|word| word.starts_with('-') && *word != "-") {
        let body = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).unwrap_or_default();
        if body.is_empty() {
            break;
        }
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(ConfigError::Usage(format!("bad flag syntax: {word}")));
        }
        if matches!(name, "help" | "h") {
            return Ok(None);
        }
        let known = FLAGS.iter().zip(&mut given).find(|(flag, _)| flag.name == name);
        let Some((flag, place)) = known else {
            if let Some((_, why)) = ABSENT.iter().find(|(absent, _)| *absent == name) {
                return Err(ConfigError::Value(format!("--{name}: {why}; leave it out")));
            }
            let tip = nearest(name).map(|it| format!("\ntip: a similar flag exists: --{it}"));
            let message = format!("flag provided but not defined: -{name}");
            return Err(ConfigError::Usage(message + &tip.unwrap_or_default()));
        };
        let value = match (flag.kind, value) {
            (_, Some(value)) => value,
            (Kind::Switch, None) => "true".to_owned(),
            (Kind::Text | Kind::OneOf(_) | Kind::Number(_) | Kind::Port, None) => words
                .next()
                .ok_or_else(|| ConfigError::Usage(format!("flag needs an argument: -{name}")))?
                .clone(),
        };
        check_syntax(flag, &value)?;
        *place = Some(value);
    }
    match words.next() {
        Some(word) => {
            let tip = separate_switch(arguments, word).unwrap_or_default();
            Err(ConfigError::Usage(format!("unexpected argument: {word}{tip}")))
        }
        None => Ok(Some(given)),
    }
}

/// The tip for `--debug false`, whose value must be joined.
fn separate_switch(arguments: &[String], word: &String) -> Option<String> {
    switch(word)?;
    let before = arguments.iter().zip(arguments.iter().skip(1)).find(|(_, next)| *next == word)?.0;
    let flag = FLAGS.iter().find(|flag| before.trim_start_matches('-') == flag.name)?;
    let is_switch = flag.kind == Kind::Switch;
    is_switch.then(|| format!("\ntip: write --{}={word}", flag.name))
}

/// The flag that a mistyped name may mean.
fn nearest(name: &str) -> Option<&'static str> {
    /// As many letters may be wrong.
    const WRONG: usize = 2;
    FLAGS
        .iter()
        .map(|flag| (strsim::damerau_levenshtein(flag.name, name), flag.name))
        .filter(|(wrong, _)| *wrong <= WRONG)
        .min()
        .map(|(_, flag)| flag)
}

/// If an option is repeated, the last one counts, but each must be well-formed.
fn check_syntax(flag: &Flag, value: &str) -> Result<(), ConfigError> {
    let good = match flag.kind {
        // What reads the setting says which words there are.
        Kind::Text | Kind::OneOf(_) => true,
        Kind::Number(_) | Kind::Port => number(value).is_some(),
        Kind::Switch => switch(value).is_some(),
    };
    if good {
        return Ok(());
    }
    let name = flag.name;
    let needed = match flag.kind {
        Kind::Switch => format!("true or false, as in --{name}=false"),
        Kind::Text | Kind::OneOf(_) | Kind::Number(_) | Kind::Port => "a whole number".to_owned(),
    };
    Err(ConfigError::Usage(format!("invalid value {value:?} for flag -{name}: needs {needed}")))
}

/// A number as Go's flag package reads it: a base prefix is allowed.
pub(super) fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, text.get(1..)?),
        [b'+', ..] => (false, text.get(1..)?),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixed = |(prefix, base)| {
        let rest = lower.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        rest.map(|rest| (rest, base))
    };
    let prefixes = [("0x", 16), ("0b", 2), ("0o", 8), ("0", 8)];
    let (digits, base) = prefixes.into_iter().find_map(prefixed).unwrap_or((&lower, 10));
    // Rust's own parser would take another sign.
    let value = i64::from_str_radix(digits, base).ok().filter(|_| !digits.starts_with(['-', '+']));
    value.and_then(|value| if negative { value.checked_neg() } else { Some(value) })
}

/// The words that Go's flag package accepts.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The words that the reference accepts in the environment.
pub(super) fn environment_switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "yes" | "true" => Some(true),
        "0" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// The columns that every terminal has.
const COLUMNS: usize = 80;

/// The text of `--help`.
pub(crate) fn usage() -> String {
    let mut text = "Usage of dflockd:\n".to_owned();
    for flag in FLAGS {
        let word = match flag.kind {
            Kind::Text | Kind::OneOf(_) => " string",
            Kind::Number(_) | Kind::Port => " int",
            Kind::Switch => "",
        };
        let default = match (flag.kind, flag.default) {
            (_, "") | (Kind::Switch, "false") => String::new(),
            (_, value) => format!(" (default {value})"),
        };
        let env = flag.env.first().map(|name| format!(" [{name}]")).unwrap_or_default();
        text.push_str(&format!("  --{}{word}\n", flag.name));
        wrap(&format!("{}{default}{env}", flag.help), &mut text);
    }
    text + EXAMPLES
}

const EXAMPLES: &str = "
Examples:
  dflockd --port 6388
  dflockd --state-dir /var/lib/dflockd --disconnect-grace 60
";

/// Appends words in indented lines that fit.
fn wrap(words: &str, text: &mut String) {
    let mut line = String::from("       ");
    for word in words.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            text.push_str(&line);
            line = String::from("\n       ");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}
