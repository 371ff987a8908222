//! The program `dflockd`: arguments → sockets → server, until a signal ends it.

use crate::config::{Config, ConfigError, Secret, Wish, check_secret, usage};
#[cfg(feature = "http")]
use crate::http;
use crate::log;
use crate::server::{self, Access, AuthToken, Listener, Settings, Shared, StateDir, Tls};
#[cfg(feature = "etcd")]
use leases_etcd::{EtcdOption, InvalidOption};
use listenfd::ListenFd;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::SigSet;
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
#[cfg(feature = "etcd")]
use std::net::UdpSocket;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::Level;

/// The most connections that are served before the kernel is asked for events again. Asking costs a tenth of a
/// request, and leases are delayed by at most about a millisecond.
const TURNS_PER_LOOK: u32 = 256;

/// The most connections that are served together: first the requests of all, then their answers. The processor's cache
/// holds what this many need here and in the kernel. With a thousand, the data of the first has left the cache before it is
/// answered. Each connection takes two turns, so all are answered before `TURNS_PER_LOOK` brings more.
const EVENTS_PER_LOOK: usize = 64;

/// The most HTTP connections: each needs some 20 KB while it is used.
const MOST_HTTP: usize = 10_000;

/// Runs the program. Returns 0 after a signal, `--help` or `--version`, and 1 if it cannot start or continue.
pub fn main() -> ExitCode {
    let outcome = start();
    if let Err(err) = &outcome {
        match err.downcast_ref() {
            Some(ConfigError::Usage(text)) => {
                eprintln!("configuration error: {text}\nSee dflockd --help.");
            }
            Some(ConfigError::Value(text)) => eprintln!("configuration error: {text}"),
            Some(ConfigError::InUse(text)) => eprintln!("cannot start: {text}"),
            None => tracing::error!(%err, "server error"),
        }
    }
    log::finish();
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A failed step of the start, in words for the operator.
fn cannot(what: impl fmt::Display) -> impl FnOnce(io::Error) -> ConfigError {
    move |err| ConfigError::Value(format!("{what}: {err}"))
}

fn start() -> Result<(), Box<dyn Error>> {
    let not_text = |_| ConfigError::Usage("an argument is not UTF-8".to_owned());
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.into_string().map_err(not_text))
        .collect::<Result<_, _>>()?;
    match Config::read(&arguments, |name| std::env::var(name).ok())? {
        Wish::Version => {
            println!("dflockd {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Wish::Help => {
            print!("{}", usage());
            Ok(())
        }
        Wish::Run(config) => run(*config),
    }
}

fn run(config: Config) -> Result<(), Box<dyn Error>> {
    log::start(if config.debug { Level::DEBUG } else { Level::INFO });
    let max_descriptors = raise_file_limit();
    hold_off_file_size_signal();
    let mut settings = settings(&config)?;
    // A quarter of the descriptors is for HTTP, if that is wanted.
    let more = if config.http.is_some() { (max_descriptors / 4).min(MOST_HTTP) } else { 0 };
    settings.http.more_connections = more;
    settings.max_descriptors = max_descriptors - more;
    let has_tls = settings.tls.is_some();
    // One thread: a request is two system calls and a microsecond of work, so a second thread
    // would cost more in hand-overs than it gives.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .event_interval(TURNS_PER_LOOK)
        .max_io_events_per_tick(EVENTS_PER_LOOK)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Before anybody can know of the server and send a signal.
        let signals = Signals::catch()?;
        let listeners = listeners(&config)?;
        #[cfg(feature = "http")]
        let door = config.http.as_ref();
        #[cfg(feature = "http")]
        let door = door.map(|(host, port)| listen(["--http-host", "--http-port"], host, *port));
        #[cfg(feature = "http")]
        let door = door.transpose()?;
        for listener in &listeners {
            tracing::info!(addr = listener.name(), "listening");
        }
        if has_tls {
            tracing::info!("TLS enabled");
        }
        #[cfg(feature = "http")]
        let http_address = door.as_ref().and_then(Listener::address);
        #[cfg(not(feature = "http"))]
        let http_address = None;
        let addresses = listeners.iter().filter_map(Listener::address).chain(http_address);
        warn_of_strangers(&settings.access, addresses);
        #[cfg(feature = "etcd")]
        if let Some(etcd) = config.etcd.as_ref().filter(|_| settings.advertise.is_empty()) {
            settings.advertise = reachable_address(&listeners, &etcd.endpoints);
        }
        let shared = Arc::new(Shared::new(settings));
        #[cfg(feature = "etcd")]
        tokio::spawn(http::serve_standbys(Arc::clone(&shared)));
        #[cfg(feature = "http")]
        if let Some(door) = door {
            tracing::info!(addr = door.name(), "HTTP listening");
            tokio::spawn(http::serve(door, Arc::clone(&shared)));
        }
        // The server ends after one signal, when the last connection has left or the shutdown timeout is over; or at a
        // second signal.
        tokio::select! {
            result = server::run(Arc::clone(&shared), listeners) => Ok(result?),
            () = signals.watch(&shared, &config) => Ok(()),
        }
    })
}

/// Where other servers reach this one: where it listens, or, if it listens everywhere, its address on the way to etcd.
#[cfg(feature = "etcd")]
fn reachable_address(listeners: &[Listener], members: &[String]) -> String {
    let Some(listens) = listeners.iter().find_map(Listener::address) else {
        tracing::warn!("no TCP socket: the other servers cannot pass their clients on to this one");
        return String::new();
    };
    if !listens.ip().is_unspecified() {
        return listens.to_string();
    }
    // Connecting a UDP socket sends nothing and chooses the address.
    let towards = |member: &String| {
        let local = |any: SocketAddr| {
            let socket = UdpSocket::bind(any)?;
            socket.connect(member)?;
            socket.local_addr()
        };
        local((Ipv6Addr::UNSPECIFIED, 0).into())
            .or_else(|_| local((Ipv4Addr::UNSPECIFIED, 0).into()))
            .ok()
    };
    let Some(local) = members.iter().find_map(towards) else {
        tracing::warn!("no address on the way to etcd: name one by --advertise");
        return String::new();
    };
    let local = local.ip().to_canonical();
    if local.is_loopback() {
        tracing::warn!(
            address = %local,
            "other machines cannot pass their clients on to this one: name its address by --advertise"
        );
    }
    SocketAddr::new(local, listens.port()).to_string()
}

/// Warns if other machines can reach the server and no secret is set.
fn warn_of_strangers(access: &Access, addresses: impl Iterator<Item = SocketAddr>) {
    let is_reachable = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
    let reachable: Vec<String> =
        addresses.filter(is_reachable).map(|address| address.to_string()).collect();
    if access.is_open() && !reachable.is_empty() {
        let addr = reachable.join(", ");
        let hint = "set --auth-token-file";
        tracing::warn!(addr, hint, "every machine that reaches this server may use it");
    }
}

/// Raises the limit of descriptors. Every connection needs one, and the usual soft limit of 1024 is meant for
/// programs that use select(2). The reference's runtime does the same. Returns how many connections there can be: some
/// descriptors are kept for HTTP, for files, and for clients that are about to be refused.
fn raise_file_limit() -> usize {
    const RESERVE: rlim_t = 128;
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(err) = raised {
        tracing::warn!(%err, "cannot raise the limit of open files");
    }
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or_default();
    usize::try_from(soft - RESERVE.min(soft / 2)).unwrap_or(0)
}

/// A write past the limit on the size of files (`ulimit -f`) fails with `EFBIG`; the signal that would end the
/// server stays away. Threads that are started later inherit this, and this program starts no others.
fn hold_off_file_size_signal() {
    if let Err(err) = SigSet::from(nix::sys::signal::Signal::SIGXFSZ).thread_block() {
        tracing::warn!(%err, "cannot hold off SIGXFSZ");
    }
}

/// Reads the secrets and the certificate again. If one of them cannot be read, nothing changes.
fn reload(shared: &Shared, config: &Config) {
    let read = || -> Result<(), ConfigError> {
        let (access, tls) = (access(config)?, tls(config)?);
        shared.reload(access, tls);
        Ok(())
    };
    match read() {
        Ok(()) => tracing::info!("secrets and certificate read again"),
        Err(err) => tracing::error!(%err, "nothing is changed"),
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    detail: Signal,
    /// These signals have no meaning here, and must not end the server.
    _ignored: [Signal; 2],
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            detail: signal(SignalKind::user_defined1())?,
            _ignored: [signal(SignalKind::user_defined2())?, signal(SignalKind::alarm())?],
        })
    }

    /// The first signal to end begins the shutdown; returns at the second.
    async fn watch(mut self, shared: &Shared, config: &Config) {
        let mut is_debug = config.debug;
        loop {
            tokio::select! {
                _ = self.hangup.recv() => {
                    reload(shared, config);
                    continue;
                }
                _ = self.detail.recv() => {
                    is_debug = !is_debug;
                    log::set_level(if is_debug { Level::DEBUG } else { Level::INFO });
                    tracing::info!(detail = if is_debug { "Debug" } else { "Usual" }, "log changed");
                    continue;
                }
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            if shared.is_draining() {
                break;
            }
            tracing::info!("shutting down, draining connections");
            shared.drain();
        }
        tracing::warn!("second signal, closing connections");
    }
}

fn settings(config: &Config) -> Result<Settings, ConfigError> {
    let mut settings = config.settings.clone();
    settings.access = access(config)?;
    settings.tls = tls(config)?;
    #[cfg(feature = "etcd")]
    if let Some(etcd) = &config.etcd {
        let opened = leases_etcd::Settings::open(etcd);
        let why = |err: InvalidOption| cannot(name_of(err.option))(err.error);
        settings.etcd = Some(opened.map_err(why)?);
        // The unit may name a state directory, which is not used with etcd.
        return Ok(settings);
    }
    if let Some(path) = &config.state_dir {
        let state = StateDir::open(path, config.state_sync);
        let state = state.map_err(cannot(format!("--state-dir {}", path.display())))?;
        settings.state = Some(Arc::new(state));
    }
    Ok(settings)
}

/// The option that sets it.
#[cfg(feature = "etcd")]
const fn name_of(option: EtcdOption) -> &'static str {
    match option {
        EtcdOption::Authority => "--etcd-ca",
        EtcdOption::Certificate => "--etcd-cert",
        EtcdOption::Key => "--etcd-key",
        EtcdOption::Identity => "--etcd-cert and --etcd-key",
        EtcdOption::PasswordFile => "--etcd-password-file",
        EtcdOption::Endpoints | _ => "--etcd-endpoints",
    }
}

fn tls(config: &Config) -> Result<Option<Tls>, ConfigError> {
    let load = |(cert, key): &(PathBuf, PathBuf)| {
        Tls::load(cert, key).map_err(cannot("--tls-cert and --tls-key"))
    };
    config.tls.as_ref().map(load).transpose()
}

fn access(config: &Config) -> Result<Access, ConfigError> {
    let secret = |line: &str| AuthToken::new(line.as_bytes());
    let prefix = |line: &str| {
        let (prefix, secret) = line.split_once([' ', '\t'])?;
        Some((prefix.as_bytes().to_vec(), AuthToken::new(secret.trim().as_bytes())?))
    };
    let full = match &config.auth {
        None => Vec::new(),
        Some(Secret::Text(text)) => vec![text.clone()],
        Some(Secret::File(path)) => secrets("--auth-token-file", Some(path), secret)?,
    };
    Ok(Access {
        full,
        prefixes: secrets("--auth-prefix-file", config.auth_prefix_file.as_ref(), prefix)?,
        admin: secrets("--admin-token-file", config.admin_token_file.as_ref(), secret)?,
        metrics: secrets("--metrics-token-file", config.metrics_token_file.as_ref(), secret)?,
    })
}

/// The lines of a file of secrets, without empty ones. A file without secrets is refused, because an administrator
/// who names a file wants authentication.
fn secrets<T>(
    option: &str,
    path: Option<&PathBuf>,
    of_line: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, ConfigError> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let name = format!("{option} {}", path.display());
    let wrong = |what| ConfigError::Value(format!("{name}: {what}"));
    let text = std::fs::read_to_string(path).map_err(cannot(&name))?;
    let mut secrets = Vec::new();
    for line in text.lines() {
        if let Some(line) = check_secret(line)? {
            let secret = of_line(&line);
            let words = "each line has a prefix of keys, a blank, a secret";
            secrets.push(secret.ok_or_else(|| wrong(words))?);
        }
    }
    if secrets.is_empty() {
        return Err(wrong("contains no auth token"));
    }
    Ok(secrets)
}

/// The sockets from systemd, or else one for the address; and the Unix socket, if one is named.
fn listeners(config: &Config) -> Result<Vec<Listener>, ConfigError> {
    let mut listeners = inherited()?;
    if listeners.is_empty() {
        listeners.push(listen(["--host", "--port"], &config.host, config.port)?);
    } else if config.address_named {
        tracing::warn!("sockets are passed by the service manager: --host and --port are not used");
    }
    if let Some(path) = &config.unix_socket {
        let name = format!("--unix-socket {}", path.display());
        let in_use = format!("{name}: another program listens there, perhaps another dflockd");
        let bound = bind_unix(path).and_then(Listener::from_unix);
        let why = |err: io::Error| {
            let is_in_use = err.kind() == ErrorKind::AddrInUse;
            if is_in_use { ConfigError::InUse(in_use) } else { cannot(name)(err) }
        };
        listeners.push(bound.map_err(why)?);
    }
    Ok(listeners)
}

/// `options` name the host and the port.
fn listen(options: [&str; 2], host: &str, port: u16) -> Result<Listener, ConfigError> {
    let [of_host, of_port] = options;
    bind(host, port).and_then(Listener::from_tcp).map_err(|err| {
        if err.kind() != ErrorKind::AddrInUse {
            return cannot(format!("{of_host} and {of_port}: listen {host}:{port}"))(err);
        }
        ConfigError::InUse(format!(
            "another program listens on {host}:{port}, perhaps another dflockd: end it, or choose another {of_port}"
        ))
    })
}

/// An empty name means every address, as in the reference.
fn bind(host: &str, port: u16) -> io::Result<TcpListener> {
    if host.is_empty() {
        return TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)));
    }
    TcpListener::bind((host, port))
}

/// Sockets passed by the service manager (sd_listen_fds(3)).
fn inherited() -> Result<Vec<Listener>, ConfigError> {
    let mut passed = ListenFd::from_env();
    let mut listeners = Vec::new();
    for place in 0..passed.len() {
        let listener = match passed.take_tcp_listener(place) {
            Ok(Some(listener)) => Listener::from_tcp(listener),
            Ok(None) => continue,
            Err(_) => match passed.take_unix_listener(place) {
                Ok(Some(listener)) => Listener::from_unix(listener),
                Ok(None) => continue,
                Err(err) => Err(err),
            },
        };
        listeners.push(listener.map_err(cannot(format!("passed socket {place}")))?);
    }
    Ok(listeners)
}

/// A socket file without a listener is left over from a killed server, and is replaced. Anything else in its place
/// is not ours to remove.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(err) if err.kind() == ErrorKind::AddrInUse => {
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            let is_dead = UnixStream::connect(path)
                .is_err_and(|err| err.kind() == ErrorKind::ConnectionRefused);
            if !is_socket || !is_dead {
                return Err(err);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        result => result,
    }
}
