//! The link between a server that does not lead, the *standby*, and the leader: one connection, in which each client of
//! the standby has a stream. The standby passes bytes on and decides nothing about locks.
//!
//! It is HTTP/2, because that has streams with flow control and is in the program anyway for etcd's gRPC. The standby
//! begins as a client with the request `link`, and shows that it knows the leader's secret, which is in etcd. Under TLS
//! the secret is not sent: both sides show a value that depends on it and on the keys of this very connection
//! (RFC 8446, 7.5), so nobody can stand in between, and a certificate may change at any time.
//!
//! The leader also says which two addresses the connection has at its end. If the standby has the same ones, the link is
//! *direct*: the socket that listens at this address is the leader's own, and once it refuses connections, the leader's
//! process has ended. A balancer, a tunnel or the published port of a container may refuse connections while the leader
//! lives.
//!
//! What ends a stream:
//! - The client has closed its sending side: the standby ends its side of the stream.
//! - The client is gone: trailers, or a reset with `GONE` (`stream.rs`). Only then the leader releases its holds.
//! - Anything else, above all the end of the link: it is not known what became of the client. Its holds stay.
//!
//! When the leader dies, its links end. Each standby closes the clients of such a link (`standby::pass`), and lets new
//! ones wait (`Leader::Changing`). If the leader's own socket refuses connections, a standby ends the leader's presence in
//! etcd (`depose`). Otherwise that expires. One standby then takes the lead and reads the holds (`leases_etcd`),
//! and its engine continues with them (`Core::begin_term`). The others link to it. Clients come back by themselves, and
//! renew.

pub(super) mod leader;
pub(super) mod standby;
pub(super) mod stream;

use crate::server::transport::{Peer, Transport};
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use hyper::body::Bytes;
use hyper::http::Request;
use leases_etcd::{EtcdNumbers, Observer, PRESENCE, random};
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stream::LinkStream;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};

/// The command of the frame with which a standby begins.
pub(super) const COMMAND: &[u8] = b"link";

/// The paths of streams.
const CLIENT: &str = "/client";
const HTTP: &str = "/http";
const RELEASE: &str = "/release";
const DRAINING: &str = "/draining";
/// The header with the client's address; none for a client of a Unix socket.
const ADDRESS: &str = "client-address";

/// The headers with the key and the token of a hold to release, in hexadecimal digits.
const KEY: &str = "key";
const TOKEN: &str = "token";

/// The bytes of a stream that are under way in one direction. A client that does not read stops only its own stream.
const STREAM_WINDOW: u32 = 64 * 1024;
/// The bytes of all streams.
const LINK_WINDOW: u32 = (1 << 31) - 1;
/// The number of streams.
const STREAMS: u32 = 1_000_000;
/// The deadline of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// The time between two signs of life.
const BEAT: Duration = Duration::from_millis(500);
/// How many beats a leader may be silent: by then its presence in etcd may have expired, and another one may lead.
const SILENCE_OF_LEADER: u32 = 6;
const _: () = assert!(BEAT.as_millis() * SILENCE_OF_LEADER as u128 == PRESENCE.as_millis());
/// How many beats a standby may be silent. Its clients lose nothing until then. Afterwards they lose their places in
/// the queues.
const SILENCE_OF_STANDBY: u32 = 13;

/// Sets the limits of either side. Both are servers of ours, so no guard against a hostile peer may end the link.
macro_rules! configure {
    ($builder:expr) => {
        $builder
            .initial_window_size($crate::server::link::STREAM_WINDOW)
            .initial_connection_window_size($crate::server::link::LINK_WINDOW)
            .max_concurrent_streams($crate::server::link::STREAMS)
            .max_concurrent_reset_streams(1024)
            .max_local_error_reset_streams(None)
            .max_pending_accept_reset_streams(usize::MAX)
            .max_send_buffer_size($crate::server::link::STREAM_WINDOW as usize)
            .data_frame_budget(usize::MAX / 2)
    };
}
use configure;

/// What a side shows: the exported key of the connection, or without TLS the secret itself.
fn proof(secret: &str, exported: Option<[u8; 32]>) -> String {
    match exported {
        Some(key) => to_hex(&key),
        None => secret.to_owned(),
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The labels of the exported keys of the two sides.
const STANDBY_SHOWS: &[u8] = b"EXPORTER-dflockd-standby";
const LEADER_SHOWS: &[u8] = b"EXPORTER-dflockd-leader";

/// Calls `heard` at each sign of life, and returns when the other side has been silent for `most` beats. They are counted
/// one by one: after a pause of this process, what came meanwhile is seen before the other side is found silent.
async fn watch_for_silence(ping: Option<h2::PingPong>, most: u32, mut heard: impl FnMut()) {
    let Some(mut ping) = ping else { return };
    loop {
        sleep(BEAT).await;
        let mut pong = pin!(ping.ping(h2::Ping::opaque()));
        let mut missed = 0;
        loop {
            match timeout(BEAT, &mut pong).await {
                Ok(Ok(_)) => {
                    heard();
                    break;
                }
                Ok(Err(_)) => return,
                Err(_) => missed += 1,
            }
            if missed == most {
                return;
            }
        }
    }
}

/// How long a new connection is kept waiting while the leader changes: until the presence in etcd of a leader that has
/// died expires, and somewhat longer.
const PATIENCE: Duration = PRESENCE.saturating_add(Duration::from_secs(1));

/// The most connections that are accepted beyond the limits of clients because they may become links.
const GREETINGS: usize = 8;

/// A link to the leader.
pub(crate) type Link = SendRequest<Bytes>;

/// Which server leads, so has the locks, as far as this one knows.
#[derive(Clone)]
pub(crate) enum Leader {
    /// This one.
    Here,
    /// The one at the other end of this link.
    Linked(Link),
    /// Soon another one, or the same over a new link.
    Changing,
    /// Etcd does not answer, or the term of this server has just ended.
    Unknown,
}

/// What this server knows of the others of its service, and they of it.
pub(crate) struct Cluster {
    leader: watch::Sender<Leader>,
    /// What a standby must show to this server while it leads.
    pub(in crate::server) secret: String,
    /// Clients and HTTP requests that are passed on to the leader.
    pub(crate) passed: Count,
    links: Count,
    observer: OnceLock<Observer>,
    /// For connections that may become links, beyond the limits of clients.
    greetings: Semaphore,
    /// To the task that serves standbys: their connections, and what is shown to each.
    standbys: OnceLock<mpsc::UnboundedSender<((Transport, String), Peer)>>,
    /// To the task that answers HTTP: the streams of standbys with such requests.
    http: OnceLock<mpsc::UnboundedSender<Transport>>,
}

/// The number of things that exist.
#[derive(Default)]
pub(crate) struct Count(AtomicUsize);

/// Counted while it exists.
pub(crate) struct Counted<'a>(&'a Count, &'a Notify);

impl Count {
    pub(crate) fn one<'a>(&'a self, changed: &'a Notify) -> Counted<'a> {
        self.0.fetch_add(1, Ordering::Relaxed);
        changed.notify_one();
        Counted(self, changed)
    }

    pub(in crate::server) fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
        self.1.notify_one();
    }
}

impl Cluster {
    pub(in crate::server) fn new() -> Self {
        Self {
            leader: watch::channel(Leader::Changing).0,
            secret: format!("{:016x}{:016x}", random(), random()),
            passed: Count::default(),
            links: Count::default(),
            observer: OnceLock::new(),
            greetings: Semaphore::new(GREETINGS),
            standbys: OnceLock::new(),
            http: OnceLock::new(),
        }
    }

    /// The metrics of etcd; `None` where the locks are in memory.
    pub(in crate::server) fn numbers(&self) -> Option<EtcdNumbers> {
        Some(self.observer.get()?.numbers())
    }

    /// Whether something is under way that is to end before the process does.
    pub(in crate::server) fn is_busy(&self) -> bool {
        self.passed.now() + self.links.now() > 0
    }

    /// This server leads from now on, or no longer.
    pub(in crate::server) fn set_leading(&self, leads: bool) {
        self.leader.send_replace(if leads { Leader::Here } else { Leader::Unknown });
    }

    /// Notes where the locks are, unless they are here: a server that leads learns of another leader by the end of its
    /// own term.
    fn set_elsewhere(&self, leader: Leader) {
        self.leader.send_if_modified(|last| {
            let is_elsewhere = !matches!(last, Leader::Here);
            if is_elsewhere {
                *last = leader;
            }
            is_elsewhere
        });
    }

    /// Returns when this server does not lead.
    async fn leads_no_more(&self) {
        let _ = self.leader.subscribe().wait_for(|leader| !matches!(leader, Leader::Here)).await;
    }

    pub(in crate::server) fn has_link(&self) -> bool {
        matches!(*self.leader.borrow(), Leader::Linked(_))
    }

    pub(in crate::server) fn leads(&self) -> bool {
        matches!(*self.leader.borrow(), Leader::Here)
    }

    /// Where a new connection is served. Waits while that changes.
    pub(crate) async fn leader(&self) -> Leader {
        let mut leader = self.leader.subscribe();
        let known = leader.wait_for(|leader| !matches!(leader, Leader::Changing));
        match timeout(PATIENCE, known).await {
            Ok(Ok(leader)) => leader.clone(),
            Ok(Err(_)) | Err(_) => Leader::Unknown,
        }
    }

    /// From now on, the clients that are passed on get no new holds. Sent over `DRAINING`; the leader acts in
    /// `serve_stream`.
    pub(in crate::server) async fn drain(&self) {
        let leader = self.leader.borrow().clone();
        if let Leader::Linked(link) = leader {
            // The leader acts on the request itself; the stream is not needed.
            let _ = open_stream(link, DRAINING, &[]).await;
        }
    }

    /// The streams of HTTP from standbys; once.
    pub(crate) fn take_http_streams(&self) -> mpsc::UnboundedReceiver<Transport> {
        let (sender, streams) = mpsc::unbounded_channel();
        let _it_is_the_first = self.http.set(sender);
        streams
    }
}

/// A stream to the leader's side of HTTP; `None` if the link is lost.
pub(crate) async fn open_http(link: Link) -> Option<Transport> {
    Some(open_stream(link, HTTP, &[]).await.ok()?.into())
}

/// Opens a stream.
async fn open_stream(
    link: SendRequest<Bytes>,
    path: &str,
    headers: &[(&str, String)],
) -> Result<LinkStream, h2::Error> {
    let (response, sender) = send_request(link, path, headers).await?;
    Ok(LinkStream::of_standby(sender, response))
}

async fn send_request(
    link: SendRequest<Bytes>,
    path: &str,
    headers: &[(&str, String)],
) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
    let mut link = link.ready().await?;
    let mut request = Request::post(format!("http://leader{path}"));
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let Ok(request) = request.body(()) else {
        unreachable!("addresses and digits are valid headers")
    };
    link.send_request(request, false)
}

#[cfg(test)]
mod tests;
