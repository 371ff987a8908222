//! One request → one answer. Decides nothing about sockets, and keeps only numbers between requests.

use super::gate::{self, Reach};
use super::reply::{self, Fault, JSON, ReplyBody, STATUSES};
use super::route::{self, Route};
use super::seats::{Answering, Seats};
use super::{holders, metrics, query};
use crate::server::{Readiness, Shared, of_handshake};
use hyper::Response;
use hyper::body::Body;
use hyper::http::StatusCode;
use hyper::http::request::Parts;
use leases::Key;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE: &str = include_str!("page/page.html");
/// The marks in the page that the server sets: whether to ask for the secret first, and whether there is one for
/// administrators.
const AUTH_MARK: &str = "data-auth=\"open\"";
const ADMIN_MARK: &str = "data-admin=\"none\"";
/// The least time between two entries in the log about failed TLS handshakes.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);
/// The header by which a standby says that it is shutting down.
pub(super) const DRAINING: &str = "draining";

/// The data that all HTTP connections share.
pub(super) struct Site {
    pub(super) handle: Arc<Shared>,
    pub(super) reach: Reach,
    pub(super) seats: Arc<Seats>,
    answers: [AtomicU64; STATUSES.len()],
    /// When a failed TLS handshake was last logged.
    complained: Mutex<Option<Instant>>,
}

impl Site {
    pub(super) fn new(handle: Arc<Shared>, reach: Reach, seats: Arc<Seats>) -> Self {
        let answers = STATUSES.map(|_| AtomicU64::new(0));
        Self { handle, reach, seats, answers, complained: Mutex::default() }
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

    /// Answers a request. Its body is neither awaited nor read.
    pub(super) async fn answer<B: Body>(
        &self,
        request: hyper::Request<B>,
        answering: &mut Answering,
    ) -> Response<ReplyBody> {
        let has_body = !request.body().is_end_stream();
        let (head, _body) = request.into_parts();
        let mut response = match self.serve(&head, has_body, answering).await {
            Ok(response) => response,
            Err(fault) => {
                if fault == Fault::Unauthorized {
                    tokio::time::sleep(self.handle.penalty()).await;
                }
                reply::fault(fault)
            }
        };
        if has_body {
            reply::close(&mut response);
        }
        let place = STATUSES.iter().position(|&status| status == response.status());
        if let Some(count) = place.and_then(|place| self.answers.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        response
    }

    async fn serve(
        &self,
        head: &Parts,
        has_body: bool,
        answering: &mut Answering,
    ) -> Result<Response<ReplyBody>, Fault> {
        let route = self.judge(head, has_body)?;
        answering.permit();
        #[cfg(feature = "etcd")]
        if route.is_about_locks() && !self.handle.has_locks() {
            let stream = self.handle.standby.open_http().await.ok_or(Fault::StoreAway)?;
            return super::leader::ask(stream, head, self.handle.is_draining()).await;
        }
        self.show(route, head).await
    }

    /// Checks in this order: host, path, method, body, rights.
    fn judge(&self, head: &Parts, has_body: bool) -> Result<Route, Fault> {
        gate::check_host(self.reach, head.version, &head.uri, &head.headers)?;
        let (route, access) = route::find(&head.method, head.uri.path())?;
        if has_body {
            return Err(Fault::BodyRefused);
        }
        if self.reach == Reach::Standby {
            return Ok(route);
        }
        gate::is_allowed(&self.handle.access(), access, gate::shown(&head.headers))?;
        Ok(route)
    }

    async fn show(&self, route: Route, head: &Parts) -> Result<Response<ReplyBody>, Fault> {
        const OK: StatusCode = StatusCode::OK;
        let query = head.uri.query();
        Ok(match route {
            Route::Page => self.page(),
            Route::Fixed(content_type, body) => reply::whole(OK, content_type, body),
            Route::Ready => ready(self.handle.readiness()),
            Route::Stats => reply::stats(&self.handle).await?,
            Route::Holders => self.holders(query, self.is_asked_by_draining(head)).await?,
            Route::Release => self.release(query).await?,
            Route::Kick => {
                let is_known = self.handle.kick_one(query::connection(query)?);
                is_known.then_some(()).ok_or(Fault::NotFound)?;
                reply::whole(OK, JSON, "{\"kicked\":true}")
            }
            Route::Metrics => reply::whole(OK, metrics::CONTENT_TYPE, self.metrics()),
        })
    }

    fn page(&self) -> Response<ReplyBody> {
        let access = self.handle.access();
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
        let roster = self.handle.roster(&query::wanted(query)?).await;
        let mut numbers = self.handle.numbers();
        numbers.draining |= is_draining;
        let body = holders::body(&numbers, &roster);
        self.handle.recorded().await?;
        Ok(reply::whole(StatusCode::OK, JSON, body))
    }

    async fn release(&self, query: Option<&str>) -> Result<Response<ReplyBody>, Fault> {
        let key = query::key(query)?;
        let name = Key::new(&key).ok_or(Fault::BadRequest)?;
        let released = self.handle.force_release(name).await;
        tracing::warn!(key = %key.escape_ascii(), ?released, "released by an administrator");
        match released? {
            0 => Err(Fault::NotHeld),
            count => Ok(reply::whole(StatusCode::OK, JSON, format!("{{\"released\":{count}}}"))),
        }
    }

    fn metrics(&self) -> String {
        let (connections, accepted, pushed_out) = self.seats.numbers();
        let answers = STATUSES.iter().zip(&self.answers);
        metrics::text(
            &self.handle.numbers(),
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

#[cfg(test)]
mod tests {
    use super::super::route::{SCRIPT, STYLE};
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
