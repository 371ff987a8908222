//! The HTTP listening socket and its connections: how many, how long, with TLS or without. Knows nothing of
//! paths.

use super::gate::Reach;
use super::seats::{Seat, Seats};
use super::site::Site;
use crate::server::{Listener, Shared, Stream};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// The most connections at the same time. For a further one, the connection that is silent for longest is closed.
const MAX_CONNECTIONS: usize = 64;
/// The time for the TLS handshake, for the head of one request, and for silence between requests.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The time in which the peer must accept some of an answer.
const WRITE_TIME: Duration = Duration::from_secs(10);
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
        if let (Stream::Tcp(stream), _) = listener.next().await {
            let tls = shared.tls().map(|tls| TlsAcceptor::from(tls.0));
            admit(&site, tls, stream);
        }
        // Requests that have arrived count before the next new connection closes an old one, and a flood of connections
        // gets only its share of turns.
        yield_now().await;
    }
}

fn admit(site: &Arc<Site>, tls: Option<TlsAcceptor>, stream: TcpStream) {
    site.count_connection();
    site.seats.spawn(|seat| secure(Arc::clone(site), seat, tls, stream));
}

async fn secure(site: Arc<Site>, seat: Seat, tls: Option<TlsAcceptor>, stream: TcpStream) {
    match tls {
        None => converse(site, seat, stream).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(HEAD_TIME, tls.accept(stream)).await {
                converse(site, seat, stream).await;
            }
        }
    }
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
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(BUFFER_BYTES)
        .max_headers(MAX_HEADERS)
        .half_close(true);
    let io = TokioIo::new(Paced { stream, stall: None });
    if let Err(err) = builder.serve_connection(io, service).await {
        tracing::debug!(%err, "HTTP connection ended");
    }
}

/// A stream that fails if its peer accepts nothing for a while.
struct Paced<S> {
    stream: S,
    /// Runs while the peer accepts nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stall = None;
            return result;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(WRITE_TIME)));
        match stall.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judge(cx, result)
    }
}
