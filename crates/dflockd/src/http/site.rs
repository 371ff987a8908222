//! One request → one answer. Decides nothing about sockets, and keeps only numbers between requests.
//!
//! Locks over HTTP: one request of a client → one request to the engine → one answer. A client has a session, which is a
//! connection to the engine, or asks for a hold that belongs to no connection. A server that does not lead asks the
//! leader.

use super::gate::{self, Rates, Reach};
use super::metrics;
use super::reply::{self, Fault, JSON, ReplyBody, STATUSES};
use super::request::{self, Deed, Found, KeyKind, MAX_BODY_BYTES, Route, SecretNeeded, request};
use super::{Answering, Seats};
use crate::server::{
    Denied, Full, PARTIES_PER_TURN, Parting, Readiness, SessionId, Shared, Transport, Visit,
    of_handshake,
};
#[cfg(feature = "etcd")]
use crate::server::{Leader, Link, open_http};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes};
#[cfg(feature = "etcd")]
use hyper::client::conn::http1::handshake;
use hyper::header::HeaderMap;
#[cfg(feature = "etcd")]
use hyper::header::{CONNECTION, EXPECT, HOST, HeaderValue, TRANSFER_ENCODING};
use hyper::http::StatusCode;
use hyper::http::request::Parts;
use hyper::{Method, Response};
use leases::wire::tag_of;
use leases::{Answer, Grant, Key, Progress, Refusal, Sight};
use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tracing::field::display;

/// What is served, for programs that make clients.
const OPEN_API: &str = include_str!("openapi.json");
/// Stands for the version in it.
const VERSION_MARK: &str = "VERSION";
const PAGE: &str = include_str!("page/page.html");
/// The marks in the page that the server sets: whether to ask for the secret first, and whether there is one for
/// administrators.
const AUTH_MARK: &str = "data-auth=\"open\"";
const ADMIN_MARK: &str = "data-admin=\"none\"";
/// The least time between two entries in the log about failed TLS handshakes.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);
/// The time for the body of a request.
const BODY_TIME: Duration = Duration::from_secs(10);
/// The header by which a standby says that it is shutting down.
const DRAINING: &str = "draining";
/// The header by which a standby says who has asked it.
pub(super) const ADDRESS: &str = "client-address";

/// The client of a connection.
pub(super) struct Caller {
    pub(super) address: Option<IpAddr>,
    /// Its connection, which the HTTP library uses as well.
    pub(super) wire: Arc<Mutex<Transport>>,
}

impl Caller {
    fn wire(&self) -> MutexGuard<'_, Transport> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ready when the client does not wait for its answer any more. One that closes its sending side has left.
    pub(super) fn poll_parting(&self, cx: &mut Context<'_>) -> Poll<Parting> {
        let mut wire = self.wire();
        if wire.is_draining() {
            return Poll::Ready(Parting::Draining);
        }
        // An error is an end as well.
        wire.poll_end(cx).map(|_| Parting::Left)
    }
}

/// The data that all HTTP connections share.
pub(super) struct Site {
    pub(super) shared: Arc<Shared>,
    pub(super) reach: Reach,
    pub(super) seats: Arc<Seats>,
    rates: Mutex<Rates>,
    answers: [AtomicU64; STATUSES.len()],
    /// When a failed TLS handshake was last logged.
    complained: Mutex<Option<Instant>>,
}

impl Site {
    pub(super) fn new(shared: Arc<Shared>, reach: Reach, seats: Arc<Seats>) -> Self {
        let answers = STATUSES.map(|_| AtomicU64::new(0));
        let http = &shared.settings.http;
        let rates = Mutex::new(Rates::new(http.rate_per_address, http.burst));
        Self { shared, reach, seats, rates, answers, complained: Mutex::default() }
    }

    /// Logs a failed TLS handshake; at most one in [`COMPLAINT_PAUSE`], because any client can cause it.
    pub(super) fn complain(&self, peer: Option<SocketAddr>, err: &io::Error) {
        let Ok(mut last) = self.complained.lock() else { return };
        if last.is_none_or(|last| last.elapsed() >= COMPLAINT_PAUSE) {
            *last = Some(Instant::now());
            let peer = peer.map(|peer| peer.to_string());
            let err = of_handshake(err);
            tracing::warn!(peer, err, "TLS handshake on the HTTP port failed");
        }
    }

    /// Answers a request.
    pub(super) async fn answer<B>(
        &self,
        request: hyper::Request<B>,
        caller: &Caller,
        answering: &mut Answering,
    ) -> Response<ReplyBody>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
    {
        let (head, body) = request.into_parts();
        let mut unread = Some(body).filter(|body| !body.is_end_stream());
        let mut response = match self.serve(&head, &mut unread, (caller, answering)).await {
            Ok(response) => response,
            Err(fault) => {
                if fault == Fault::Unauthorized {
                    let due = self.shared.refuse_secret();
                    let micros = due.micros_since(self.shared.now());
                    tokio::time::sleep(Duration::from_micros(micros)).await;
                    // After the delay, so that a flood of guesses does not fill the log.
                    let address = caller.address.map(display);
                    tracing::warn!(address, "auth failed on the HTTP port");
                }
                reply::fault(fault)
            }
        };
        if unread.is_some() {
            // The following bytes of such a connection are no request.
            reply::close(&mut response);
        }
        if self.reach != Reach::Standby {
            let origin = gate::allowed_origin(&self.shared.settings.http.origins, &head.headers);
            if let Some(origin) = origin {
                gate::allow_origin(origin, response.headers_mut());
            }
        }
        let place = STATUSES.iter().position(|&status| status == response.status());
        if let Some(count) = place.and_then(|place| self.answers.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        response
    }

    async fn serve<B>(
        &self,
        head: &Parts,
        unread: &mut Option<B>,
        (caller, answering): (&Caller, &mut Answering),
    ) -> Result<Response<ReplyBody>, Fault>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
    {
        if gate::is_preflight(&self.shared.settings.http.origins, &head.method, &head.headers) {
            return Ok(reply::nothing());
        }
        let found = self.judge(head, unread.is_some(), caller)?;
        let body = match unread.take() {
            Some(body) => {
                let (rest, body) = read(body).await;
                *unread = rest;
                body?
            }
            None => Bytes::new(),
        };
        answering.permit();
        #[cfg(feature = "etcd")]
        if found.route.is_about_locks() && !self.shared.has_locks() {
            match self.shared.cluster.leader().await {
                Leader::Here => {}
                Leader::Linked(link) => {
                    let is_draining = self.shared.is_draining();
                    // One that only reads may have closed its sending side.
                    let may_part = found.access == SecretNeeded::Locks;
                    // The end of this server waits for its answer.
                    let cluster = &self.shared.cluster;
                    let _counted = may_part.then(|| cluster.passed.one(&self.shared.changed));
                    let caller = (caller, may_part);
                    return ask_leader(link, (head, body), caller, is_draining).await;
                }
                Leader::Changing | Leader::Unknown => return Err(Fault::StoreAway),
            }
        }
        self.perform(found, (head, &body), caller).await
    }

    /// Checks in this order: host, number of requests, path, method, body, origin, rights.
    fn judge<'a>(
        &self,
        head: &'a Parts,
        has_body: bool,
        caller: &Caller,
    ) -> Result<Found<'a>, Fault> {
        gate::check_host(self.reach, head.version, &head.uri, &head.headers)?;
        let path = head.uri.path();
        if self.reach != Reach::Standby && !matches!(path, "/health" | "/ready") {
            let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
            let is_allowed = rates.allow(self.shared.now(), caller.address);
            is_allowed.then_some(()).ok_or(Fault::RateLimited)?;
        }
        let found = request::find(&head.method, path)?;
        if has_body && matches!(head.method, Method::GET | Method::HEAD) {
            return Err(Fault::BodyRefused);
        }
        if self.reach == Reach::Standby {
            return Ok(found);
        }
        let origins = &self.shared.settings.http.origins;
        if found.access == SecretNeeded::Locks && !gate::may_ask_from_there(origins, &head.headers)
        {
            return Err(Fault::WrongOrigin);
        }
        let key = found.key.as_deref().unwrap_or_default();
        gate::is_allowed(&self.shared.access(), found.access, key, gate::shown(&head.headers))?;
        Ok(found)
    }

    async fn perform(
        &self,
        found: Found<'_>,
        (head, body): (&Parts, &[u8]),
        caller: &Caller,
    ) -> Result<Response<ReplyBody>, Fault> {
        const OK: StatusCode = StatusCode::OK;
        let query = head.uri.query();
        let is_draining = self.is_asked_by_draining(head);
        let key = || found.key.as_deref().ok_or(Fault::BadRequest);
        if !matches!(found.route, Route::Ask(..)) {
            request::no_members(body)?;
        }
        Ok(match found.route {
            Route::Page => self.page(),
            Route::Fixed(content_type, body) => reply::whole(OK, content_type, body),
            Route::OpenApi => {
                let version = env!("CARGO_PKG_VERSION");
                reply::whole(OK, JSON, OPEN_API.replacen(VERSION_MARK, version, 1))
            }
            Route::Ready => ready(self.shared.readiness()),
            Route::Stats => reply::stats(&self.shared).await?,
            Route::Holders => self.holders(query, is_draining).await?,
            Route::Release => self.force_release(query).await?,
            Route::Kick => {
                let is_known = self.shared.kick_one(request::connection(query)?);
                is_known.then_some(()).ok_or(Fault::NotFound)?;
                reply::whole(OK, JSON, "{\"kicked\":true}")
            }
            Route::Metrics => reply::whole(OK, metrics::CONTENT_TYPE, self.metrics()),
            Route::OpenSession => self.open_session(caller, is_draining).await?,
            Route::EndSession => self.end_session(found.name).await?,
            Route::PingSession => self.ping_session(found.name)?,
            Route::ShowKey => self.show_key((head, key()?), caller).await?,
            Route::Ask(form, deed) => {
                let request = (head, key()?, body);
                self.ask((form, deed), request, caller, is_draining).await?
            }
        })
    }

    fn page(&self) -> Response<ReplyBody> {
        let access = self.shared.access();
        let mut page = PAGE.to_owned();
        if !access.is_open() {
            page = page.replace(AUTH_MARK, "data-auth=\"needed\"");
        }
        if !access.admin.is_empty() {
            page = page.replace(ADMIN_MARK, "data-admin=\"offered\"");
        }
        reply::page(page)
    }

    /// Whether the server that the client has asked is shutting down, and is not this one.
    fn is_asked_by_draining(&self, head: &Parts) -> bool {
        self.reach == Reach::Standby && head.headers.contains_key(DRAINING)
    }

    async fn holders(
        &self,
        query: Option<&str>,
        is_draining: bool,
    ) -> Result<Response<ReplyBody>, Fault> {
        let roster = self.shared.roster(&request::roster_query(query)?).await;
        let mut numbers = self.shared.numbers();
        numbers.draining |= is_draining;
        let body = reply::holders_body(&numbers, &roster);
        self.shared.recorded().await?;
        Ok(reply::whole(StatusCode::OK, JSON, body))
    }

    async fn force_release(&self, query: Option<&str>) -> Result<Response<ReplyBody>, Fault> {
        let key = request::key(query)?;
        let name = Key::new(&key).ok_or(Fault::BadRequest)?;
        let released = self.shared.force_release(name).await;
        tracing::warn!(key = %key.escape_ascii(), ?released, "released by an administrator");
        match released? {
            0 => Err(Fault::Refused(Refusal::NotHeld)),
            count => Ok(reply::whole(StatusCode::OK, JSON, format!("{{\"released\":{count}}}"))),
        }
    }

    fn metrics(&self) -> String {
        let (connections, accepted, pushed_out) = self.seats.numbers();
        let answers = STATUSES.iter().zip(&self.answers);
        metrics::text(
            &self.shared.numbers(),
            &metrics::HttpNumbers {
                connections,
                pushed_out,
                accepted,
                answers: answers
                    .map(|(status, count)| (status.as_u16(), count.load(Ordering::Relaxed)))
                    .collect(),
            },
        )
    }
}

/// The body of a request, or why there is none; what is left of it then comes back.
async fn read<B>(body: B) -> (Option<B>, Result<Bytes, Fault>)
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    let mut body = body;
    let whole = timeout(BODY_TIME, Limited::new(&mut body, MAX_BODY_BYTES).collect()).await;
    match whole {
        Ok(Ok(whole)) => (None, Ok(whole.to_bytes())),
        Ok(Err(err)) if err.is::<http_body_util::LengthLimitError>() => {
            (Some(body), Err(Fault::BodyRefused))
        }
        Ok(Err(_)) | Err(_) => (Some(body), Err(Fault::ClientCanceled)),
    }
}

/// 200 or 503, with the reason in a word.
fn ready(readiness: Readiness) -> Response<ReplyBody> {
    let is_ready = readiness == Readiness::READY;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let Readiness { word, closed_micros } = readiness;
    let wait = match closed_micros.div_ceil(1_000_000) {
        0 => String::new(),
        seconds => format!(",\"grants_in_s\":{seconds}"),
    };
    reply::whole(status, JSON, format!("{{\"status\":\"{word}\"{wait}}}"))
}

/// The leader's answer to this request, whose right was checked here. It goes over the link, as HTTP/1.1 on a stream of
/// its own.
#[cfg(feature = "etcd")]
async fn ask_leader(
    link: Link,
    (head, body): (&Parts, Bytes),
    (caller, may_part): (&Caller, bool),
    is_draining: bool,
) -> Result<Response<ReplyBody>, Fault> {
    let mut copy = hyper::Request::new(http_body_util::Full::new(body));
    *copy.method_mut() = head.method.clone();
    *copy.uri_mut() = head.uri.clone();
    *copy.headers_mut() = head.headers.clone();
    let headers = copy.headers_mut();
    headers.insert(HOST, HeaderValue::from_static("leader"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    // The library writes the length of the copy.
    headers.remove(TRANSFER_ENCODING);
    headers.remove(EXPECT);
    headers.remove(DRAINING);
    headers.remove(ADDRESS);
    if is_draining {
        headers.insert(DRAINING, HeaderValue::from_static("1"));
    }
    let address = caller.address.and_then(|it| HeaderValue::try_from(it.to_string()).ok());
    if let Some(address) = address {
        headers.insert(ADDRESS, address);
    }
    let answer = async {
        let stream = open_http(link).await?;
        let (mut sender, connection) =
            handshake(hyper_util::rt::TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        sender.send_request(copy).await.ok()
    };
    let mut answer = std::pin::pin!(answer);
    let answer = std::future::poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(answer.ok_or(Fault::StoreAway)),
        // The leader ends what nobody waits for. It learns by itself that this server shuts down.
        Poll::Pending if !may_part => Poll::Pending,
        Poll::Pending => caller.poll_parting(cx).map(|_| Err(Fault::ClientCanceled)),
    });
    let mut answer = answer.await?;
    answer.headers_mut().remove(CONNECTION);
    Ok(answer.map(|body| body.map_err(io::Error::other).boxed_unsync()))
}

/// The session of a request.
const SESSION: &str = "x-dflockd-session";
/// The name of the client, for people.
const NAME: &str = "x-dflockd-name";

impl From<Denied> for Fault {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Gone => Self::SessionGone,
            Denied::Left => Self::ClientCanceled,
            Denied::Draining => Self::Refused(Refusal::Draining),
            Denied::Failed => Self::StoreAway,
        }
    }
}

impl Site {
    async fn open_session(
        &self,
        caller: &Caller,
        is_draining: bool,
    ) -> Result<Response<ReplyBody>, Fault> {
        if is_draining || self.shared.is_draining() {
            return Err(Fault::Refused(Refusal::Draining));
        }
        self.shared.recorded().await?;
        let opened = self.shared.open_session(caller.address);
        let id = opened.map_err(|full| match full {
            Full::All => Fault::MaxSessions,
            Full::Address => Fault::MaxSessionsPerAddress,
        })?;
        let idle = self.shared.settings.http.session_idle.count();
        let body = format!("{{\"session_id\":\"{id}\",\"idle_timeout_s\":{idle}}}");
        Ok(reply::whole(StatusCode::OK, JSON, body))
    }

    async fn end_session(&self, id: &str) -> Result<Response<ReplyBody>, Fault> {
        let id = SessionId::parse(id.as_bytes()).ok_or(Fault::SessionGone)?;
        self.shared.end_session(id).then_some(()).ok_or(Fault::SessionGone)?;
        // What it held is free, whatever happens next.
        self.shared.recorded().await?;
        Ok(reply::nothing())
    }

    fn ping_session(&self, id: &str) -> Result<Response<ReplyBody>, Fault> {
        let id = SessionId::parse(id.as_bytes()).ok_or(Fault::SessionGone)?;
        Visit::of(&self.shared, id).ok_or(Fault::SessionGone)?;
        Ok(reply::nothing())
    }

    /// Asks the engine for what the request says.
    async fn ask(
        &self,
        (form, deed): (KeyKind, Deed),
        (head, name, body): (&Parts, &[u8], &[u8]),
        caller: &Caller,
        is_draining: bool,
    ) -> Result<Response<ReplyBody>, Fault> {
        let key = key(name)?;
        let (is_alone, is_shared) = request::manner(head.uri.query())?;
        let form = match form {
            KeyKind::Lock if is_shared => KeyKind::Shared,
            KeyKind::Semaphore if is_shared => {
                return Err(Fault::Invalid("a semaphore cannot be shared"));
            }
            KeyKind::Lock | KeyKind::Shared | KeyKind::Semaphore => form,
        };
        // As the reference: a client whose session is gone learns that, whatever it has sent.
        let visit = self.visit(&head.headers, is_alone, deed, caller)?;
        let request = request(deed, form, key, body)?;
        let mut poll_peer = |cx: &mut Context<'_>| caller.poll_parting(cx);
        answer_as_json(form, &visit.ask(request, is_draining, &mut poll_peer).await?)
    }

    /// The connection to the engine by which a request is made.
    fn visit(
        &self,
        headers: &HeaderMap,
        is_alone: bool,
        deed: Deed,
        caller: &Caller,
    ) -> Result<Visit<'_>, Fault> {
        let visit = match (headers.get(SESSION), is_alone) {
            (Some(id), false) => {
                let id = SessionId::parse(id.as_bytes()).ok_or(Fault::SessionGone)?;
                Visit::of(&self.shared, id).ok_or(Fault::SessionGone)?
            }
            (None, true) if matches!(deed, Deed::Enqueue | Deed::Wait) => {
                return Err(Fault::Invalid("a place in a line needs a session"));
            }
            (None, true) => Visit::alone(&self.shared, caller.address),
            (None, false) => {
                return Err(Fault::Invalid("X-Dflockd-Session, or ?session=none, is missing"));
            }
            (Some(_), true) => {
                return Err(Fault::Invalid(
                    "X-Dflockd-Session and ?session=none exclude each other",
                ));
            }
        };
        if let Some(name) = headers.get(NAME) {
            visit.set_name(name.as_bytes());
        }
        Ok(visit)
    }

    /// Who has the key, and who waits; on request, as soon as its holders are others than the client has seen.
    async fn show_key(
        &self,
        (head, name): (&Parts, &[u8]),
        caller: &Caller,
    ) -> Result<Response<ReplyBody>, Fault> {
        let key = key(name)?;
        let sight = match request::watched(head.uri.query())? {
            None => self.shared.sight(key),
            Some((last, timeout)) => {
                let visit = Visit::alone(&self.shared, caller.address);
                let mut poll_peer = |cx: &mut Context<'_>| caller.poll_parting(cx);
                let seen = visit.watch(key, Some(last), timeout, &mut poll_peer).await?;
                seen.map_err(Fault::Refused)?
            }
        };
        let body = key_as_json(&self.shared, key, sight.as_ref()).await;
        self.shared.recorded().await?;
        Ok(reply::whole(StatusCode::OK, JSON, body))
    }
}

fn key(name: &[u8]) -> Result<Key<'_>, Fault> {
    Key::new(name).ok_or(Fault::Invalid("a key has 1 to 256 bytes, and no white space"))
}

/// The tag is that of a moment before the lists are read: what changes meanwhile comes with the next watch.
async fn key_as_json(shared: &Shared, key: Key<'_>, sight: Option<&Sight>) -> String {
    let mut body = format!("{{\"tag\":\"{:016x}\",", tag_of(sight));
    if let Some(sight) = sight {
        // Writing to a String cannot fail.
        let _ = write!(body, "\"fence\":\"{}\",", sight.fence);
    }
    let start = body.len();
    let mut report = shared.whole_key_report(key);
    let mut step = || shared.key_piece(&mut report, &mut { PARTIES_PER_TURN }, &mut body);
    while shared.pace.step(&mut step).await != Progress::Done {}
    // The brace of the object is there already.
    body.remove(start);
    body
}

/// The answer of the engine as JSON.
fn answer_as_json(form: KeyKind, answer: &Answer) -> Result<Response<ReplyBody>, Fault> {
    let body = match answer {
        Answer::Granted(grant) => grant_as_json("ok", form, grant),
        Answer::Acquired(grant) => grant_as_json("acquired", form, grant),
        Answer::Queued => "{\"status\":\"queued\"}".to_owned(),
        Answer::TimedOut => "{\"status\":\"timeout\"}".to_owned(),
        Answer::Renewed(ttl) => format!("{{\"remaining_s\":{}}}", ttl.span().count()),
        Answer::Released => return Ok(reply::nothing()),
        Answer::Refused(refusal) => return Err(Fault::Refused(*refusal)),
        // Several locks cannot be asked for here.
        Answer::All(_) | _ => return Err(Fault::BadRequest),
    };
    Ok(reply::whole(StatusCode::OK, JSON, body))
}

/// A fence is text, because many readers of JSON round numbers of its size.
fn grant_as_json(status: &str, form: KeyKind, grant: &Grant) -> String {
    let (digits, ttl) = (grant.token.digits(), grant.ttl.span().count());
    let (token, fence) = (String::from_utf8_lossy(&digits), grant.token.fence());
    // To the engine, a semaphore with one slot is a lock.
    let slot = (form == KeyKind::Semaphore).then(|| grant.slot.unwrap_or(0));
    let slot = slot.map_or_else(String::new, |slot| format!(",\"slot\":{slot}"));
    format!(
        "{{\"status\":\"{status}\",\"token\":\"{token}\",\"lease_ttl_s\":{ttl},\
         \"fence\":\"{fence}\"{slot}}}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::request::{SCRIPT, STYLE};
    use super::*;

    /// Without its mark, the page cannot ask for a secret.
    #[test]
    fn the_page_has_its_mark_and_nothing_inline() {
        assert_eq!((PAGE.matches(AUTH_MARK).count(), PAGE.matches(ADMIN_MARK).count()), (1, 1));
        assert!(!PAGE.contains("style="), "inline style is not allowed by the policy");
        let is_handler = |rest: &str| {
            rest.starts_with(|sign: char| sign.is_ascii_lowercase())
                && rest.trim_start_matches(|sign: char| sign.is_ascii_lowercase()).starts_with('=')
        };
        assert!(!PAGE.split(" on").skip(1).any(is_handler), "no inline handlers");
        assert_eq!(PAGE.matches("<script").count(), PAGE.matches("></script>").count());
        for text in [PAGE, STYLE, SCRIPT] {
            assert!(!text.contains("//cdn") && !text.contains("https://"), "no other server");
        }
        // Text becomes text, never markup.
        for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!SCRIPT.contains(sink), "{sink}");
        }
    }
}
