//! Listening sockets, and the loop that accepts connections.

use super::connection::serve;
use super::core::Shared;
#[cfg(feature = "etcd")]
use super::link::{Leader, standby::pass};
use super::transport::{Peer, Transport, of_handshake};
use leases::{AutoRelease, ConnId};
use socket2::{SockRef, TcpKeepalive};
use std::future::{pending, poll_fn};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The number of connections that the kernel keeps until they are accepted; the kernel reduces it to its own limit.
const BACKLOG: i32 = 4096;
/// The pause after the system had no descriptor left. Without it, the loop would spin.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause between two complaints in the log.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
/// After this long without data, the kernel probes the peer, so that a vanished peer is noticed.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_PROBES: u32 = 3;

/// A socket that listens, not yet served.
#[derive(Debug)]
pub(crate) struct Listener {
    door: Door,
    name: String,
    address: Option<SocketAddr>,
    complained: Option<Instant>,
}

#[derive(Debug)]
enum Door {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Listener {
    /// # Errors
    /// An error of the system, if the socket cannot be prepared.
    pub(crate) fn from_tcp(listener: TcpListener) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let socket = SockRef::from(&listener);
        // Accepted sockets inherit these: one call here instead of one per connection.
        socket.set_tcp_nodelay(true)?;
        let keep_alive = TcpKeepalive::new()
            .with_time(KEEP_ALIVE_IDLE)
            .with_interval(KEEP_ALIVE_INTERVAL)
            .with_retries(KEEP_ALIVE_PROBES);
        socket.set_tcp_keepalive(&keep_alive)?;
        socket.listen(BACKLOG)?;
        listener.set_nonblocking(true)?;
        let name = address.to_string();
        let door = Door::Tcp(tokio::net::TcpListener::from_std(listener)?);
        Ok(Self { door, name, address: Some(address), complained: None })
    }

    /// # Errors
    /// An error of the system, if the socket cannot be prepared.
    pub(crate) fn from_unix(listener: UnixListener) -> io::Result<Self> {
        let address = listener.local_addr()?;
        SockRef::from(&listener).listen(BACKLOG)?;
        listener.set_nonblocking(true)?;
        let path = address.as_pathname();
        let name =
            path.map_or_else(|| "unix".to_owned(), |path| format!("unix:{}", path.display()));
        let door = Door::Unix(tokio::net::UnixListener::from_std(listener)?);
        Ok(Self { door, name, address: None, complained: None })
    }

    /// Where it listens, for the log.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its address, if it is a network one; with the port the system chose.
    pub(crate) const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The next connection.
    pub(crate) async fn next(&mut self) -> (TcpStream, Peer) {
        loop {
            match self.door.next().await {
                Ok(accepted) => return accepted,
                // The client gave up before its connection was accepted.
                Err(err) if err.kind() == ErrorKind::ConnectionAborted => {}
                Err(err) => {
                    if self.may_complain() {
                        tracing::error!(%err, addr = self.name, "accept error");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Notes the time of a complaint if one is due.
    fn may_complain(&mut self) -> bool {
        let is_due = self.complained.is_none_or(|last| last.elapsed() >= COMPLAIN_EVERY);
        if is_due {
            self.complained = Some(Instant::now());
        }
        is_due
    }
}

impl Door {
    /// The rest of the server treats a Unix socket as a `TcpStream`: recv(2), send(2), shutdown(2) and epoll(7) work alike
    /// for both.
    async fn next(&self) -> io::Result<(TcpStream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((stream, Peer::Tcp(from)))
            }
            Self::Unix(listener) => {
                let socket = OwnedFd::from(listener.accept().await?.0.into_std()?);
                Ok((TcpStream::from_std(socket.into())?, Peer::Unix))
            }
        }
    }
}

/// Accepts connections until it is dropped.
pub(super) async fn accept(shared: Arc<Shared>, mut listener: Listener) {
    loop {
        while shared.is_full() {
            if listener.may_complain() {
                let connections = shared.core().connections.sockets();
                tracing::error!(connections, "no descriptors left for more connections; they wait");
            }
            tokio::time::sleep(PAUSE).await;
        }
        let (stream, peer) = listener.next().await;
        begin(&shared, stream, peer);
    }
}

/// Serves a new connection, here or where the locks are.
fn begin(shared: &Arc<Shared>, stream: TcpStream, peer: Peer) {
    #[cfg(feature = "etcd")]
    if !shared.has_locks() {
        tokio::spawn(begin_where_locks_are(Arc::clone(shared), stream, peer));
        return;
    }
    begin_here(shared, stream, peer);
}

#[cfg(feature = "etcd")]
async fn begin_where_locks_are(shared: Arc<Shared>, stream: TcpStream, peer: Peer) {
    match shared.cluster.leader().await {
        Leader::Linked(link) => {
            let _counted = shared.cluster.passed.one(&shared.changed);
            if let Some(transport) = secure(&shared, stream, peer, None).await {
                shared.core().tallies.accepted += 1;
                pass(&shared, transport, peer, link).await;
            }
        }
        Leader::Here | Leader::Changing | Leader::Unknown => begin_here(&shared, stream, peer),
    }
}

fn begin_here(shared: &Arc<Shared>, stream: TcpStream, peer: Peer) {
    let seat = admit(shared, peer);
    let shared = Arc::clone(shared);
    match seat {
        // The task of such a connection has no room for a handshake.
        Some(seat) if shared.tls().is_none() => {
            spawn(&shared, Transport::plain(stream), seat, peer)
        }
        Some(seat) => drop(tokio::spawn(async move {
            match secure(&shared, stream, peer, Some(seat)).await {
                Some(transport) => serve(shared, transport, seat, peer).await,
                None => shared.end_connection(seat.0, AutoRelease::Off),
            }
        })),
        // It may be a standby.
        #[cfg(feature = "etcd")]
        None if shared.cluster.leads() => drop(tokio::spawn(async move {
            let secured = secure(&shared, stream, peer, None);
            let link = shared.cluster.admit(secured).await;
            if let Some(link) = link {
                shared.cluster.welcome(link, peer);
            }
        })),
        None => {}
    }
}

/// The connection after its handshake, if there is to be one. Only one with a seat has a number.
async fn secure(
    shared: &Shared,
    stream: TcpStream,
    peer: Peer,
    seat: Option<(ConnId, u64)>,
) -> Option<Transport> {
    let Some(tls) = shared.tls() else { return Some(Transport::plain(stream)) };
    let most = Duration::from_secs(shared.settings.read_timeout.count());
    let secured = tokio::select! {
        secured = timeout(most, Transport::secure(stream, tls)) => secured.ok()?,
        () = shared.kicked() => return None,
        () = ended(shared, seat) => return None,
    };
    if let Some(err) = secured.as_ref().err().filter(|err| err.kind() == ErrorKind::InvalidData) {
        shared.core().tallies.tls_failures += 1;
        let err = of_handshake(err);
        let conn_id = seat.map(|(_, serial)| serial);
        tracing::warn!(%peer, conn_id, err, "TLS handshake failed");
    }
    secured.ok()
}

/// Until an administrator has ended the connection with this seat, or its term is over.
async fn ended(shared: &Shared, seat: Option<(ConnId, u64)>) {
    let Some((id, _)) = seat else { return pending().await };
    poll_fn(|cx| {
        let mut core = shared.core();
        core.connections.register(id, cx.waker());
        match core.connections.is_kicked(id) || core.is_of_past_term(id) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// A seat for a new connection, if the caps allow.
pub(super) fn admit(shared: &Shared, peer: Peer) -> Option<(ConnId, u64)> {
    let admitted = shared.core().admit(&shared.settings, address(peer));
    match &admitted {
        Ok((_, conn_id)) => tracing::debug!(%peer, conn_id, "client connected"),
        Err(full) => tracing::warn!(%peer, "{full}"),
    }
    admitted.ok()
}

pub(super) fn spawn(shared: &Arc<Shared>, transport: Transport, seat: (ConnId, u64), peer: Peer) {
    tokio::spawn(serve(Arc::clone(shared), transport, seat, peer));
}

/// `::ffff:192.0.2.1` and `192.0.2.1` are one address.
pub(crate) fn address(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Tcp(from) => Some(from.ip().to_canonical()),
        Peer::Unix => None,
    }
}
