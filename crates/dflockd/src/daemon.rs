//! The program `dflockd`: arguments → sockets → server, until a signal ends it.

use crate::config::{Config, ConfigError, Secret, Wish, check_secret, usage};
use crate::http::HttpDoor;
use crate::journal::{self, Detail};
#[cfg(feature = "etcd")]
use crate::server::StoreChoice;
use crate::server::{AuthToken, FenceFile, Handle, Listener, Server, Settings, StateDir, Tls};
use listenfd::ListenFd;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Connections served before the kernel is asked for news again, if as many are ready. Each look
/// costs as much as a tenth of a request, and leases wait for it at most about a millisecond.
const TURNS_PER_LOOK: u32 = 256;

/// Runs the program. 0 after a signal or `--version`, 1 when it cannot start or go on.
pub fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            ExitCode::FAILURE
        }
    }
}

enum Failure {
    Config(ConfigError),
    Server(io::Error),
}

impl Failure {
    fn tell(&self) {
        match self {
            Self::Config(ConfigError::Usage(text)) if text.is_empty() => eprint!("{}", usage()),
            Self::Config(ConfigError::Usage(text)) => {
                eprint!("{text}\n{}", usage());
                eprintln!("configuration error: {text}");
            }
            Self::Config(ConfigError::Value(text)) => eprintln!("configuration error: {text}"),
            Self::Server(err) => tracing::error!(%err, "server error"),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(err: ConfigError) -> Self {
        Self::Config(err)
    }
}

impl From<io::Error> for Failure {
    fn from(err: io::Error) -> Self {
        Self::Server(err)
    }
}

/// A step of the start that failed, in words for the operator.
fn cannot(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Failure {
    move |err| Failure::Config(ConfigError::Value(format!("{what}: {err}")))
}

fn start() -> Result<(), Failure> {
    let not_text = |_| ConfigError::Usage("an argument is not UTF-8".to_owned());
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.into_string().map_err(not_text))
        .collect::<Result<_, _>>()?;
    match Config::read(&arguments, |name| std::env::var(name).ok())? {
        Wish::Version => {
            println!("{}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Wish::Run(config) => run(*config),
    }
}

fn run(config: Config) -> Result<(), Failure> {
    journal::start(if config.debug { Detail::Debug } else { Detail::Usual });
    raise_file_limit();
    let settings = settings(&config)?;
    let has_tls = settings.tls.is_some();
    // One thread: a request is two system calls and a microsecond of work, so a second thread
    // would cost more in hand-overs than it gives.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .event_interval(TURNS_PER_LOOK)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Before anybody can know that the server is there, and send one.
        let signals = Signals::catch()?;
        let listeners = listeners(&config)?;
        let http = http_door(&config)?;
        for listener in &listeners {
            tracing::info!(addr = listener.name(), "listening");
        }
        if has_tls {
            tracing::info!("TLS enabled");
        }
        let (auth, tls) = (settings.auth.clone(), settings.tls.clone());
        let server = Server::new(settings, listeners);
        if let Some(door) = http {
            tracing::info!(addr = %door.address(), "HTTP listening");
            tokio::spawn(watch_http(door.serve(server.handle(), auth, tls)));
        }
        serve(server, signals).await
    })
}

/// Every connection is a descriptor, and the usual soft limit of 1024 is meant for programs that
/// use select(2). The reference's runtime does the same.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(err) = raised {
        tracing::warn!(%err, "the limit of open files stays as it is");
    }
}

/// The HTTP side lives as long as the runtime. Locks do not depend on it.
async fn watch_http(serving: impl Future<Output = io::Result<()>>) {
    if let Err(err) = serving.await {
        tracing::error!(%err, "HTTP server error");
    }
}

/// Until the last connection has left after one signal, or at once after two.
async fn serve(server: Server, signals: Signals) -> Result<(), Failure> {
    let handle = server.handle();
    tokio::select! {
        result = server.run() => result.map_err(Failure::Server),
        () = signals.watch(handle) => Ok(()),
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The first signal drains; returns at the second.
    async fn watch(mut self, handle: Handle) {
        self.next().await;
        tracing::info!("shutting down, draining connections");
        handle.drain();
        self.next().await;
        tracing::warn!("second signal, closing connections");
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn settings(config: &Config) -> Result<Settings, Failure> {
    let mut settings = config.settings.clone();
    settings.auth = match &config.auth {
        None => None,
        Some(Secret::Text(text)) => AuthToken::new(text.as_bytes()),
        Some(Secret::File(path)) => Some(read_secret(path)?),
    };
    if let Some(files) = &config.tls {
        settings.tls = Some(Tls::load(&files.cert, &files.key).map_err(cannot("TLS"))?);
    }
    #[cfg(feature = "etcd")]
    if let Some(etcd) = &config.etcd {
        let etcd = crate::etcd::Settings::open(etcd).map_err(cannot("etcd"))?;
        settings.store = StoreChoice::Etcd(etcd);
        // What the unit names for the store in memory is no concern of this one.
        return Ok(settings);
    }
    if let Some(path) = &config.fence_state_file {
        let file = FenceFile::open(path).map_err(cannot(path.display()))?;
        settings.fence_file = Some(Arc::new(file));
    }
    if let Some(path) = &config.state_dir {
        let state = StateDir::open(path, config.state_sync).map_err(cannot(path.display()))?;
        settings.state = Some(Arc::new(state));
    }
    Ok(settings)
}

/// A file that is named but holds no secret is refused: whoever names one wants authentication.
fn read_secret(path: &Path) -> Result<AuthToken, Failure> {
    let text = std::fs::read_to_string(path).map_err(cannot(path.display()))?;
    let secret = check_secret(&text)?.and_then(|text| AuthToken::new(text.as_bytes()));
    let empty = || ConfigError::Value(format!("{}: no auth token in it", path.display()));
    Ok(secret.ok_or_else(empty)?)
}

/// What systemd hands over, else the address; and the Unix socket, if one is named.
fn listeners(config: &Config) -> Result<Vec<Listener>, Failure> {
    let mut listeners = inherited()?;
    if listeners.is_empty() {
        let address = (config.host.as_str(), config.port);
        let name = format!("listen {}:{}", config.host, config.port);
        listeners
            .push(TcpListener::bind(address).and_then(Listener::from_tcp).map_err(cannot(name))?);
    }
    if let Some(path) = &config.unix_socket {
        let name = format!("listen {}", path.display());
        listeners.push(bind_unix(path).and_then(Listener::from_unix).map_err(cannot(name))?);
    }
    Ok(listeners)
}

fn http_door(config: &Config) -> Result<Option<HttpDoor>, Failure> {
    let open = |(host, port): &(String, u16)| {
        HttpDoor::open(host, *port).map_err(cannot(format!("listen {host}:{port}")))
    };
    config.http.as_ref().map(open).transpose()
}

/// Sockets passed by the service manager (sd_listen_fds(3)).
fn inherited() -> Result<Vec<Listener>, Failure> {
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

/// A socket file nobody listens on any more is left over from a killed server and is replaced;
/// anything else in its place is not ours to remove.
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
