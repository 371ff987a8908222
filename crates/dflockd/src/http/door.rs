//! The HTTP listening socket and its connections: how many, how long, with TLS or without. Knows nothing of
//! paths.

use super::gate::Reach;
use super::reply::{self, Fault};
use super::seats::{Seat, Seats};
use super::site::Site;
use crate::server::{Listener, Shared};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// The most connections at the same time. For a further one, the connection that is silent for longest is closed.
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
    let site = Arc::new(Site::new(Arc::clone(&shared), reach, Seats::new(MAX_CONNECTIONS)));
    loop {
        let (stream, _) = listener.next().await;
        let tls = shared.tls().map(|tls| TlsAcceptor::from(tls.0));
        #[cfg(target_os = "linux")]
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(WRITE_TIME));
        site.seats.spawn(|seat| secure(Arc::clone(&site), seat, tls, stream));
        // Requests that have arrived count before the next new connection closes an old one, and a flood of connections
        // gets only its share of turns.
        yield_now().await;
    }
}

async fn secure(site: Arc<Site>, seat: Seat, tls: Option<TlsAcceptor>, stream: TcpStream) {
    let Some(tls) = tls else { return converse(site, seat, stream).await };
    let mut first = [TLS_HANDSHAKE];
    let peer = stream.peer_addr().ok();
    match timeout(HEAD_TIME, stream.peek(&mut first)).await {
        Ok(Ok(_)) if first == [TLS_HANDSHAKE] => {}
        Ok(Ok(_)) => return refuse_plain(stream).await,
        Ok(Err(_)) | Err(_) => return,
    }
    match timeout(HEAD_TIME, tls.accept(stream)).await {
        Ok(Ok(stream)) => converse(site, seat, stream).await,
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

pub(super) async fn converse<S>(site: Arc<Site>, seat: Seat, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| {
        seat.touch();
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(site.answer(request).await) }
    });
    if let Err(err) = connection().serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%err, "HTTP connection ended");
    }
}
