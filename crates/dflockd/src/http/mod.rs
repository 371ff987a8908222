//! HTTP, off unless a port is named: locks, statistics, health, metrics, and a page that shows holders and waiters. The
//! token of a hold, the right to release it, is only in the answer that grants the hold.
//!
//! ```text
//! this file                     sockets, TLS, how many connections and for how long
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
mod site;

use crate::server::{Headcount, Listener, Shared, Tls, Transport, address};
use gate::Reach;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use reply::{Fault, ReplyBody};
use site::{ADDRESS, Caller, Site};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::timeout;

/// The most connections that have made no request yet, and of all together if the system allows no more. For a further
/// one, one is closed: see [`Seats`].
const MAX_CONNECTIONS: usize = 64;
/// The time for the TLS handshake, for the head of one request, and for silence between requests.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The kernel ends a connection whose peer accepts no part of an answer for this long (`TCP_USER_TIMEOUT`, tcp(7)). Linux
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
    let guests = Arc::new(Mutex::new(Headcount::default()));
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
    let mut streams = shared.cluster.take_http_streams();
    let site = Arc::new(Site::new(shared, Reach::Standby, Seats::new(MAX_REQUESTS, MAX_REQUESTS)));
    while let Some(stream) = streams.recv().await {
        site.seats.spawn(|seat| converse(Arc::clone(&site), seat, stream, None));
    }
}

/// One connection of an address, until it is dropped.
struct Guest(Arc<Mutex<Headcount>>, Option<IpAddr>);

impl Guest {
    /// `None` if the address has `most` connections already; 0 for no limit.
    fn enter(guests: &Arc<Mutex<Headcount>>, address: Option<IpAddr>, most: usize) -> Option<Self> {
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

/// Which connections are closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It has made no request yet, or only refused ones.
    NeverAsked,
    /// Between two requests.
    Idle,
    /// Its request came and was not refused, and its answer is not complete.
    Answering,
}

/// The order in which connections are closed: the rank, and when it began.
type SeatKey = (Rank, u64);

#[derive(Debug, Default)]
struct SeatTable {
    /// Grows with every event.
    clock: u64,
    /// What serves each connection: the first is closed first.
    tasks: BTreeMap<SeatKey, AbortHandle>,
    /// The number of those that have made no request yet, or only refused ones.
    silent: usize,
    accepted: u64,
    pushed_out: u64,
}

/// The seats of one server. A new connection is always accepted. If there are too many, one of them is closed: one that has
/// made no request, or only refused ones; if there is none, one that waits for its next request; and only if all are
/// being answered, one of these. Among equals it is the one whose state changed longest ago. So a flood of connections
/// that are silent, or have no secret, closes only its own, and a client that may ask gets its whole answer.
#[derive(Debug)]
pub(super) struct Seats {
    most: usize,
    most_silent: usize,
    table: Mutex<SeatTable>,
}

/// One connection's seat, free again when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    place: Mutex<SeatKey>,
}

/// An answer that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Answering {
    seat: Arc<Seat>,
    /// The place of the seat, as soon as the request is not refused.
    place: Option<SeatKey>,
}

impl SeatTable {
    /// A place of this rank that begins now.
    const fn place(&mut self, rank: Rank) -> SeatKey {
        self.clock += 1;
        (rank, self.clock)
    }

    fn add(&mut self, place: SeatKey, task: AbortHandle) {
        self.silent += usize::from(place.0 == Rank::NeverAsked);
        self.tasks.insert(place, task);
    }

    fn remove(&mut self, place: SeatKey) -> Option<AbortHandle> {
        let task = self.tasks.remove(&place)?;
        self.silent -= usize::from(place.0 == Rank::NeverAsked);
        Some(task)
    }
}

impl Seats {
    /// Seats for at most `most` connections, of which `most_silent` have made no request yet.
    pub(super) fn new(most: usize, most_silent: usize) -> Arc<Self> {
        Arc::new(Self { most, most_silent, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, SeatTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection in a task of its own, and closes another one if no seat is free.
    pub(super) fn spawn<F>(self: &Arc<Self>, serve: impl FnOnce(Seat) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut table = self.table();
        if table.tasks.len() >= self.most || table.silent >= self.most_silent {
            let first = table.tasks.first_key_value().map(|(place, _)| *place);
            if let Some(least) = first.and_then(|place| table.remove(place)) {
                least.abort();
                table.pushed_out += 1;
            }
        }
        table.accepted += 1;
        let place = table.place(Rank::NeverAsked);
        let seat = Seat { seats: Arc::clone(self), place: place.into() };
        table.add(place, tokio::spawn(serve(seat)).abort_handle());
    }

    /// The number of connections now, of those accepted so far, and of those closed to make room.
    pub(super) fn numbers(&self) -> (usize, u64, u64) {
        let table = self.table();
        (table.tasks.len(), table.accepted, table.pushed_out)
    }
}

impl Seat {
    /// The answer to a request that came, which may be refused.
    pub(super) fn begin(self: &Arc<Self>) -> Answering {
        Answering { seat: Arc::clone(self), place: None }
    }

    fn place(&self) -> MutexGuard<'_, SeatKey> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, rank: Rank) -> SeatKey {
        let (mut table, mut place) = (self.seats.table(), self.place());
        let next = table.place(rank);
        if let Some(task) = table.remove(std::mem::replace(&mut *place, next)) {
            table.add(next, task);
        }
        next
    }
}

impl Answering {
    /// Notes that the request is permitted.
    pub(super) fn permit(&mut self) {
        self.place = Some(self.seat.change(Rank::Answering));
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // The next request may have come already.
        let is_last = self.place == Some(*self.seat.place());
        if is_last {
            self.seat.change(Rank::Idle);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let place = *self.place();
        self.seats.table().remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::cell::RefCell;
    use std::future::pending;
    use std::rc::Rc;

    /// Some connections on as many seats; then one more comes.
    #[rstest]
    #[case::the_oldest_of_the_silent("...", 0)]
    #[case::silent_before_idle("i.", 1)]
    #[case::silent_before_answering("a.", 1)]
    #[case::idle_before_answering("aai", 2)]
    #[case::the_oldest_of_the_idle("aii", 1)]
    #[case::the_oldest_of_all_that_are_answered("aa", 0)]
    #[case::one_that_is_asked_again("bi", 1)]
    #[case::refused_before_idle("ir", 1)]
    #[case::refused_before_answering("ar", 1)]
    #[case::refused_as_silent("r.", 0)]
    fn the_least_makes_room(#[case] states: &str, #[case] closed: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let seats = Seats::new(states.len(), states.len());
            let taken = Rc::new(RefCell::new(Vec::new()));
            let enter = || {
                seats.spawn(|seat| {
                    let seat = Arc::new(seat);
                    taken.borrow_mut().push(Arc::downgrade(&seat));
                    async move {
                        pending::<()>().await;
                        drop(seat);
                    }
                });
            };
            states.chars().for_each(|_| enter());
            let mut answers = Vec::new();
            let permitted = |seat: &Arc<Seat>| {
                let mut answer = seat.begin();
                answer.permit();
                answer
            };
            for (seat, state) in taken.borrow().iter().zip(states.chars()) {
                let seat = seat.upgrade().unwrap();
                match state {
                    'a' => answers.push(permitted(&seat)),
                    'i' => drop(permitted(&seat)),
                    'r' => answers.push(seat.begin()),
                    'b' => {
                        // Two requests, one right behind the other.
                        let first = permitted(&seat);
                        answers.push(permitted(&seat));
                        drop(first);
                    }
                    _ => {}
                }
            }
            let seats_of = || seats.table().tasks.len();
            let places = |table: &SeatTable| table.tasks.keys().copied().collect::<Vec<_>>();
            let before = places(&seats.table());
            let last = *taken.borrow()[closed].upgrade().unwrap().place();
            enter();
            let after = places(&seats.table());
            assert!(before.contains(&last) && !after.contains(&last), "{before:?} {after:?}");
            assert_eq!((seats_of(), seats.numbers().2), (states.len(), 1));
        });
    }
}
