//! The leader's side: accepts the link of a standby that shows the right secret, and serves each of its streams like a
//! connection of its own.

use super::stream::{LinkStream, StandbyFacts};
use super::{
    ADDRESS, CLIENT, COMMAND, Cluster, DRAINING, HANDSHAKE, HTTP, KEY, LEADER_SHOWS, RELEASE,
    SILENCE_OF_STANDBY, STANDBY_SHOWS, TOKEN, configure, proof, watch_for_silence,
};
use crate::server::access::AuthToken;
use crate::server::core::Shared;
use crate::server::listener;
use crate::server::transport::{Peer, Transport};
use h2::server::{Builder, Connection, SendResponse};
use h2::{RecvStream, SendStream};
use hyper::body::Bytes;
use hyper::http::request::Parts;
use hyper::http::{Request, Response, StatusCode};
use leases::wire::{LineCaps, Scan, scan};
use leases::{AutoRelease, Key, Token};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

/// How long the last answers of a term may take on their way.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

impl Cluster {
    /// Whether a standby has shown the right secret, and what is shown to it: the proof of this side, the address of
    /// the standby as seen here, and the address here that it has reached.
    pub(in crate::server) fn greet(&self, transport: &Transport, shown: &[u8]) -> Option<String> {
        let secret = &self.secret;
        let wanted = proof(secret, transport.export(STANDBY_SHOWS, secret)?);
        let is_right = AuthToken::new(wanted.as_bytes())?.matches(shown);
        let shown = proof(secret, transport.export(LEADER_SHOWS, secret)?);
        let [from, to] = transport.ends()?;
        (is_right && self.leads()).then(|| format!("{shown} {from} {to}"))
    }

    /// The connection of a standby, which no client may have any more, and what is shown to it.
    pub(in crate::server) async fn admit(
        &self,
        secured: impl Future<Output = Option<Transport>>,
    ) -> Option<(Transport, String)> {
        let _seat = self.greetings.try_acquire().ok()?;
        let greeting = async {
            let (mut transport, mut frame) = (secured.await?, Vec::new());
            loop {
                match scan(&frame, LineCaps::Usual) {
                    Scan::Partial { .. } => {}
                    Scan::Frame { lines: [COMMAND, shown, _], .. } => {
                        let shown = self.greet(&transport, shown)?;
                        return Some((transport, shown));
                    }
                    Scan::Frame { .. } | Scan::TooLong { .. } => return None,
                }
                transport.read_buf(&mut frame).await.ok().filter(|count| *count > 0)?;
            }
        };
        timeout(HANDSHAKE, greeting).await.ok()?
    }

    /// Hands the connection of a standby over as a link.
    pub(in crate::server) fn welcome(&self, link: (Transport, String), peer: Peer) {
        // When the server ends, no task takes it any more.
        let _ = self.standbys.get().map(|standbys| standbys.send((link, peer)));
    }
}

/// Serves standbys for as long as the server runs.
pub(in crate::server) async fn serve_standbys(shared: Arc<Shared>) {
    let (sender, mut standbys) = unbounded_channel();
    let _it_is_the_first = shared.cluster.standbys.set(sender);
    while let Some(((transport, shown), peer)) = standbys.recv().await {
        tokio::spawn(serve(Arc::clone(&shared), transport, peer, shown));
    }
}

/// Serves a standby until the link or the term ends.
async fn serve(shared: Arc<Shared>, mut socket: Transport, peer: Peer, shown: String) {
    let _counted = shared.cluster.links.one(&shared.changed);
    let mut builder = Builder::new();
    let answer = format!("ok {shown}\n");
    let handshake = async {
        socket.write_all(answer.as_bytes()).await?;
        socket.flush().await?;
        let handshake = configure!(builder).handshake::<_, Bytes>(socket);
        handshake.await.map_err(io::Error::other)
    };
    let Ok(Ok(mut link)) = timeout(HANDSHAKE, handshake).await else { return };
    tracing::info!(%peer, "a standby is linked");
    let standby = Arc::<StandbyFacts>::default();
    // Each sign of life shows that the standby ran after the previous one, because it was asked for after that.
    let mut last = shared.now();
    let heard = || {
        let asked_after = std::mem::replace(&mut last, shared.now());
        standby.ran_at.store(asked_after.micros(), Ordering::Release);
    };
    let silence = watch_for_silence(link.ping_pong(), SILENCE_OF_STANDBY, heard);
    tokio::select! {
        () = accept(&shared, &mut link, &standby) => {}
        () = silence => {}
        () = shared.cluster.leads_no_more() => {
            link.graceful_shutdown();
            let _ = timeout(LAST_ANSWERS, accept(&shared, &mut link, &standby)).await;
        }
    }
    tracing::info!(%peer, "the link of a standby has ended");
}

async fn accept(
    shared: &Arc<Shared>,
    link: &mut Connection<Transport, Bytes>,
    standby: &Arc<StandbyFacts>,
) {
    while let Some(Ok((request, respond))) = link.accept().await {
        serve_stream(shared, request, respond, standby);
    }
}

/// Serves a new stream.
fn serve_stream(
    shared: &Arc<Shared>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    standby: &Arc<StandbyFacts>,
) {
    let (head, receiver) = request.into_parts();
    let mut accept = |status| answer(&mut respond, status);
    match head.uri.path() {
        CLIENT => {
            let address =
                head.headers.get(ADDRESS).and_then(|text| text.to_str().ok()?.parse().ok());
            let peer = address.map_or(Peer::Unix, Peer::Tcp);
            let Some(seat) = listener::admit(shared, peer) else {
                let _ = accept(StatusCode::SERVICE_UNAVAILABLE);
                return;
            };
            match accept(StatusCode::OK) {
                Some(sender) => {
                    let stream = LinkStream::of_leader(sender, receiver, Arc::clone(standby));
                    listener::spawn(shared, stream.into(), seat, peer);
                }
                None => shared.end_connection(seat.0, AutoRelease::Off),
            }
        }
        HTTP => {
            if let Some(sender) = accept(StatusCode::OK) {
                let stream = LinkStream::of_leader(sender, receiver, Arc::clone(standby));
                // Without a task that answers HTTP, the stream ends here.
                let _ = shared.cluster.http.get().map(|http| http.send(stream.into()));
            }
        }
        RELEASE => release(shared, &head, respond),
        DRAINING => {
            standby.is_draining.store(true, Ordering::Relaxed);
            shared.core().connections.wake_all();
            let _ = accept(StatusCode::NO_CONTENT);
        }
        _ => {
            let _ = accept(StatusCode::NOT_FOUND);
        }
    }
}

fn answer(respond: &mut SendResponse<Bytes>, status: StatusCode) -> Option<SendStream<Bytes>> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    respond.send_response(response, status != StatusCode::OK).ok()
}

/// Releases a hold of which no client knows.
fn release(shared: &Arc<Shared>, head: &Parts, mut respond: SendResponse<Bytes>) {
    let text = |name| head.headers.get(name).and_then(|text| text.to_str().ok());
    let name = text(KEY).and_then(from_hex);
    let token = text(TOKEN).and_then(|digits| Token::parse(digits.as_bytes()));
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let status = match name.as_deref().and_then(Key::new).zip(token) {
            Some((key, token)) if shared.release_unknown(key, token).await.is_ok() => {
                StatusCode::NO_CONTENT
            }
            Some(_) | None => StatusCode::SERVICE_UNAVAILABLE,
        };
        answer(&mut respond, status);
    });
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks(2).map(pair).collect()
}
