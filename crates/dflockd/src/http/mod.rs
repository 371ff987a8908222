//! HTTP, off unless a port is named: locks, statistics, health, metrics, and a page that shows holders and waiters. The
//! token of a hold, the right to release it, is only in the answer that grants the hold.
//!
//! ```text
//! this file ─▶ seats            sockets, TLS, how many and for how long
//!           ─▶ site             one request → one answer: locks, sessions, and all else
//!              site ─▶ request  method, path, query and body → what is wanted, or why not
//!                   ─▶ gate     the headers Host and Authorization; which web pages may ask, and read the answer
//!                   ─▶ metrics  numbers → text
//!                   ─▶ server::visit  a request about locks; or the leader, if another server leads
//!                   ─▶ reply    the one place where answers get their headers
//! ```
//!
//! This file has the listening socket and its connections, and knows nothing of paths.
//!
//! It runs in the lock server's thread, so nothing here may work for long without letting others be served: large
//! tables are read and written in pieces, at a bounded pace.

mod gate;
mod metrics;
mod reply;
mod request;
mod seats;
mod site;

use crate::server::{Listener, Population, Shared, Tls, Transport, address};
use gate::Reach;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use reply::{Fault, ReplyBody};
use seats::{Answering, Seat, Seats};
use site::{ADDRESS, Caller, Site};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::timeout;

/// The most connections that have made no request yet, and of all together if the system allows no more. For a further
/// one, one is closed: see [`Seats`].
const MAX_CONNECTIONS: usize = 64;
/// The time for the TLS handshake, for the head of one request, and for silence between requests.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The kernel ends a connection whose peer accepts no part of an answer for so long (`TCP_USER_TIMEOUT`, tcp(7)). Linux
/// only: elsewhere such a connection stays until a new one needs its seat.
#[cfg(target_os = "linux")]
const WRITE_TIME: Duration = Duration::from_secs(10);
/// The first byte of a TLS connection (RFC 8446, 5.1: the record of a handshake). No request of HTTP begins with it.
const TLS_HANDSHAKE: u8 = 22;
/// The longest head of a request, and the size of the buffer for an answer.
const BUFFER_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

/// Serves HTTP until dropped, on the lock server's own runtime. If there is a secret, every page with keys or numbers
/// requires it.
pub(crate) async fn serve(mut listener: Listener, shared: Arc<Shared>) {
    let is_loopback = listener.address().is_some_and(|it| it.ip().to_canonical().is_loopback());
    let reach = if is_loopback { Reach::Loopback } else { Reach::Network };
    let http = &shared.settings.http;
    let seats = Seats::new(MAX_CONNECTIONS + http.more_connections, MAX_CONNECTIONS);
    let site = Arc::new(Site::new(Arc::clone(&shared), reach, seats));
    let guests = Arc::new(Mutex::new(Population::default()));
    let most = http.max_connections_per_address;
    loop {
        let (stream, peer) = listener.next().await;
        let tls = shared.tls();
        #[cfg(target_os = "linux")]
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(WRITE_TIME));
        let address = address(peer);
        if let Some(guest) = Guest::enter(&guests, address, most) {
            let (site, seats) = (Arc::clone(&site), Arc::clone(&site.seats));
            seats.spawn(|seat| async move {
                secure(site, seat, tls, stream, address).await;
                drop(guest);
            });
        }
        // Requests that have arrived count before the next new connection closes an old one, and a flood of connections
        // gets only its share of turns.
        yield_now().await;
    }
}

/// The most requests of standbys at the same time; for a further one, one is given up: see [`Seats`].
#[cfg(feature = "etcd")]
const MAX_REQUESTS: usize = 10_000;

/// Answers the requests of servers that do not lead, for as long as the server runs.
#[cfg(feature = "etcd")]
pub(crate) async fn serve_standbys(shared: Arc<Shared>) {
    let mut streams = shared.standby.take_http_streams();
    let site = Arc::new(Site::new(shared, Reach::Standby, Seats::new(MAX_REQUESTS, MAX_REQUESTS)));
    while let Some(stream) = streams.recv().await {
        site.seats.spawn(|seat| converse(Arc::clone(&site), seat, stream, None));
    }
}

/// One connection of an address, until it is dropped.
struct Guest(Arc<Mutex<Population>>, Option<IpAddr>);

impl Guest {
    /// `None` if the address has `most` connections already; 0 for no limit.
    fn enter(
        guests: &Arc<Mutex<Population>>,
        address: Option<IpAddr>,
        most: usize,
    ) -> Option<Self> {
        let mut present = guests.lock().unwrap_or_else(PoisonError::into_inner);
        present.room_for(address, 0, most).ok()?;
        present.add(address);
        Some(Self(Arc::clone(guests), address))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(self.1);
    }
}

async fn secure(
    site: Arc<Site>,
    seat: Seat,
    tls: Option<Tls>,
    stream: TcpStream,
    address: Option<IpAddr>,
) {
    let Some(tls) = tls else {
        return converse(site, seat, Transport::plain(stream), address).await;
    };
    let mut first = [TLS_HANDSHAKE];
    let peer = stream.peer_addr().ok();
    match timeout(HEAD_TIME, stream.peek(&mut first)).await {
        Ok(Ok(_)) if first == [TLS_HANDSHAKE] => {}
        Ok(Ok(_)) => return refuse_plain(stream).await,
        Ok(Err(_)) | Err(_) => return,
    }
    match timeout(HEAD_TIME, Transport::secure(stream, tls)).await {
        Ok(Ok(stream)) => converse(site, seat, stream, address).await,
        Ok(Err(err)) if err.kind() == ErrorKind::InvalidData => site.complain(peer, &err),
        Ok(Err(_)) | Err(_) => {}
    }
}

/// Says to a client without TLS, a browser at `http://` for example, that this port needs it.
async fn refuse_plain(stream: TcpStream) {
    let answer = || async { Ok::<_, Infallible>(reply::fault(Fault::NeedsTls)) };
    let service = service_fn(|_request| answer());
    // What is not HTTP either gets the answer of the HTTP library, or none.
    let _ = connection().serve_connection(TokioIo::new(stream), service).await;
}

fn connection() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(BUFFER_BYTES)
        .max_headers(MAX_HEADERS)
        .half_close(true);
    builder
}

/// The body of an answer, which is under way until all of it has been taken.
struct UnderWay {
    body: ReplyBody,
    _answering: Answering,
}

impl Body for UnderWay {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that the HTTP library reads and writes, while a request may ask whether its client is still there.
struct Wire(Arc<Mutex<Transport>>);

impl Wire {
    fn with<T>(&self, act: impl FnOnce(Pin<&mut Transport>) -> T) -> T {
        act(Pin::new(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|wire| wire.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|wire| wire.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|wire| wire.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|wire| wire.poll_shutdown(cx))
    }
}

/// Serves a connection. `address` is that of its client; one at a standby is named by each request.
async fn converse(site: Arc<Site>, seat: Seat, stream: Transport, address: Option<IpAddr>) {
    let seat = Arc::new(seat);
    let wire = Arc::new(Mutex::new(stream));
    let service = service_fn(|request: Request<Incoming>| {
        let (mut answering, site) = (seat.begin(), Arc::clone(&site));
        let at_standby = || request.headers().get(ADDRESS)?.to_str().ok()?.parse().ok();
        let is_standby = site.reach == Reach::Standby;
        let address = if is_standby { at_standby() } else { address };
        let caller = Caller { address, wire: Arc::clone(&wire) };
        async move {
            let response = site.answer(request, &caller, &mut answering).await;
            Ok::<_, Infallible>(response.map(|body| UnderWay { body, _answering: answering }))
        }
    });
    let io = TokioIo::new(Wire(Arc::clone(&wire)));
    if let Err(err) = connection().serve_connection(io, service).await {
        tracing::debug!(%err, "HTTP connection ended");
    }
}
