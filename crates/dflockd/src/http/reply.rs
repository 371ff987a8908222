//! The HTTP answers, with all headers and error words, and the roster as JSON.
//!
//! The page may run only the one script of this server. No answer may be stored, framed, or taken for another
//! type.

use std::borrow::Cow;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    HeaderValue, REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::http::StatusCode;
use leases::journal::Failed;
use leases::wire::{StatsCursor, refusal_status};
use leases::{Progress, Refusal};

use crate::server::{Numbers, Roster, Shared};

/// The body of an answer. An error ends the connection, so that its client sees that the body is not whole.
pub(super) type ReplyBody = UnsyncBoxBody<Bytes, io::Error>;

/// The approximate size of one piece of a body.
const PIECE_BYTES: usize = 64 * 1024;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    BadRequest,
    /// The same, with what is wrong.
    Invalid(&'static str),
    /// The same: the query, or the body, has another name than these.
    UnknownName(&'static [&'static str]),
    Unauthorized,
    NotFound,
    /// The path has these methods.
    WrongMethod(&'static str),
    NoAdmin,
    /// The engine's word.
    Refused(Refusal),
    ClientCanceled,
    SessionGone,
    MaxSessions,
    MaxSessionsPerAddress,
    RateLimited,
    StoreAway,
    BodyRefused,
    WrongHost,
    WrongOrigin,
    NeedsTls,
}

impl Fault {
    /// Status and word; the word of the reference, if it has any.
    fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest | Self::Invalid(_) | Self::UnknownName(_) => {
                (StatusCode::BAD_REQUEST, "bad_request")
            }
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Self::WrongMethod(_) => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::NoAdmin => (StatusCode::FORBIDDEN, "no_admin_secret_is_set"),
            Self::Refused(refusal) => of_refusal(refusal),
            Self::ClientCanceled => (StatusCode::REQUEST_TIMEOUT, "client_canceled"),
            Self::SessionGone => (StatusCode::GONE, "session_gone"),
            Self::MaxSessions => (StatusCode::SERVICE_UNAVAILABLE, "max_sessions"),
            Self::MaxSessionsPerAddress => (StatusCode::SERVICE_UNAVAILABLE, "max_sessions_per_ip"),
            Self::RateLimited => (StatusCode::TOO_MANY_REQUESTS, "rate_limited"),
            Self::StoreAway => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
            Self::BodyRefused => (StatusCode::PAYLOAD_TOO_LARGE, "body_refused"),
            Self::WrongHost => (StatusCode::MISDIRECTED_REQUEST, "wrong_host"),
            Self::WrongOrigin => (StatusCode::FORBIDDEN, "wrong_origin"),
            Self::NeedsTls => (StatusCode::BAD_REQUEST, "this_port_speaks_https"),
        }
    }

    fn body(self) -> String {
        let word = self.answer().1;
        let detail = self.detail().map(|detail| format!(",\"detail\":\"{detail}\""));
        format!("{{\"error\":\"{word}\"{}}}", detail.unwrap_or_default())
    }

    /// What is wrong, for people, if the word does not say it.
    fn detail(self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Invalid(detail) => detail,
            Self::UnknownName([]) => "this request has no members",
            Self::UnknownName(names) => {
                return Some(format!("unknown name; known are {}", names.join(", ")).into());
            }
            Self::BadRequest => "the query or a header is not valid",
            Self::NotFound => "no such path; a slash in a key is written %2F",
            Self::BodyRefused => "a body has at most 4096 bytes, and GET has none",
            Self::WrongHost => "the name in the address must be localhost or an IP address",
            Self::WrongOrigin => "--http-cors-allowed-origins does not name this page's origin",
            Self::Unauthorized | Self::NoAdmin | Self::WrongMethod(_) | Self::NeedsTls => {
                return None;
            }
            Self::Refused(_) | Self::ClientCanceled | Self::SessionGone => return None,
            Self::MaxSessions | Self::MaxSessionsPerAddress | Self::RateLimited => return None,
            Self::StoreAway => return None,
        }))
    }
}

/// A client of both protocols reads the same words; two are of this one alone.
fn of_refusal(refusal: Refusal) -> (StatusCode, &'static str) {
    let status = match refusal {
        Refusal::NotHeld => StatusCode::NOT_FOUND,
        Refusal::LimitMismatch
        | Refusal::AlreadyEnqueued
        | Refusal::NotEnqueued
        | Refusal::LeaseExpired => StatusCode::CONFLICT,
        Refusal::MaxLocks | Refusal::MaxWaiters | Refusal::Draining | Refusal::NoSpace | _ => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    let word = refusal_status(refusal).strip_prefix("error_");
    let own = if refusal == Refusal::NotHeld { "not_held" } else { "state_full" };
    (status, word.unwrap_or(own))
}

impl From<Failed> for Fault {
    fn from(_: Failed) -> Self {
        Self::StoreAway
    }
}

/// The statuses that an answer may have, for counting.
pub(super) const STATUSES: [StatusCode; 14] = [
    StatusCode::OK,
    StatusCode::NO_CONTENT,
    StatusCode::BAD_REQUEST,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::CONFLICT,
    StatusCode::GONE,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::MISDIRECTED_REQUEST,
    StatusCode::SERVICE_UNAVAILABLE,
];

pub(super) const JSON: &str = "application/json";

/// `form-action` too, because a form sent by the browser would put the secret into the address.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const OTHER_POLICY: &str = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'";

/// Makes an answer with this body.
pub(super) fn whole(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<ReplyBody> {
    let body = Full::new(body.into()).map_err(|never: Infallible| match never {});
    build(status, content_type, body.boxed_unsync())
}

/// Success without more to say.
pub(super) fn nothing() -> Response<ReplyBody> {
    let mut response = whole(StatusCode::NO_CONTENT, JSON, Bytes::new());
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// The page itself, the only answer that may run a script in a browser.
pub(super) fn page(body: impl Into<Bytes>) -> Response<ReplyBody> {
    let mut response = whole(StatusCode::OK, "text/html; charset=utf-8", body);
    let policy = HeaderValue::from_static(PAGE_POLICY);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    response
}

/// The body of `stats`, however long.
pub(super) async fn stats(shared: &Arc<Shared>) -> Result<Response<ReplyBody>, Failed> {
    Ok(match next_piece(shared, StatsCursor::default()).await? {
        (body, None) => whole(StatusCode::OK, JSON, body),
        first => {
            let (sender, body) = Channel::new(1);
            tokio::spawn(send_pieces(Arc::clone(shared), first, sender));
            build(StatusCode::OK, JSON, body.boxed_unsync())
        }
    })
}

/// A piece, and the cursor for the piece after it.
type Piece = (Bytes, Option<StatsCursor>);

/// The next piece, when it may be sent.
async fn next_piece(shared: &Shared, mut cursor: StatsCursor) -> Result<Piece, Failed> {
    let mut piece = String::new();
    loop {
        let progress = shared.pace.step(|| shared.stats_piece(&mut cursor, &mut piece)).await;
        // Reading through the entries of other sections may give no bytes for a long time.
        if progress == Progress::Done || piece.len() >= PIECE_BYTES {
            shared.recorded().await?;
            return Ok((piece.into(), (progress != Progress::Done).then_some(cursor)));
        }
    }
}

/// Makes each further piece when the last but one was taken, until the client has left.
async fn send_pieces(
    shared: Arc<Shared>,
    (mut piece, mut rest): Piece,
    mut sender: Sender<Bytes, io::Error>,
) {
    while sender.send_data(piece).await.is_ok() {
        let Some(cursor) = rest else { return };
        match next_piece(&shared, cursor).await {
            Ok(next) => (piece, rest) = next,
            Err(Failed) => return sender.abort(io::Error::other("the term is over")),
        }
    }
}

pub(super) fn fault(fault: Fault) -> Response<ReplyBody> {
    let mut response = whole(fault.answer().0, JSON, fault.body());
    let headers = response.headers_mut();
    if let Fault::WrongMethod(methods) = fault {
        headers.insert(ALLOW, HeaderValue::from_static(methods));
    }
    if fault == Fault::Unauthorized {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    // The following bytes of such a connection may not be a request.
    let is_broken = [Fault::BodyRefused, Fault::BadRequest, Fault::ClientCanceled, Fault::NeedsTls];
    if is_broken.contains(&fault) {
        close(&mut response);
    }
    response
}

/// Makes this the last answer of its connection.
pub(super) fn close(response: &mut Response<ReplyBody>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}

fn build(status: StatusCode, content_type: &'static str, body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers: [(HeaderName, &'static str); 7] = [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, OTHER_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// `keys` has `shown` of the `matching` keys in use, those with the longest queues first. Each key has some of its
/// `held` holders, the longest hold first, and the first of its `waiters` waiters. Connections have the numbers of
/// `stats` and the log.
pub(super) fn holders_body(numbers: &Numbers, roster: &Roster) -> String {
    let Roster { entries, shown, matching } = roster;
    let census = &numbers.census;
    format!(
        "{{\"version\":\"{}\",\"uptime_s\":{},\"draining\":{},\"connections\":{},\
         \"keys_in_use\":{},\"holders\":{},\"waiters\":{},\"matching\":{matching},\"shown\":{shown},\
         \"keys\":[{entries}]}}",
        env!("CARGO_PKG_VERSION"),
        numbers.uptime.as_secs(),
        numbers.draining,
        numbers.open_connections,
        census.locks.in_use + census.semaphores.in_use,
        census.locks.holders + census.semaphores.holders,
        census.locks.waiters + census.semaphores.waiters,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULTS: [Fault; 18] = [
        Fault::BadRequest,
        Fault::UnknownName(&[]),
        Fault::UnknownName(&["key", "limit"]),
        Fault::Invalid("the body is not a JSON object"),
        Fault::Unauthorized,
        Fault::NotFound,
        Fault::WrongMethod("POST"),
        Fault::NoAdmin,
        Fault::ClientCanceled,
        Fault::SessionGone,
        Fault::MaxSessions,
        Fault::MaxSessionsPerAddress,
        Fault::RateLimited,
        Fault::StoreAway,
        Fault::BodyRefused,
        Fault::WrongHost,
        Fault::WrongOrigin,
        Fault::NeedsTls,
    ];

    #[test]
    fn every_fault_is_counted_and_is_json() {
        let refused = Refusal::ALL.map(Fault::Refused);
        for fault in FAULTS.into_iter().chain(refused) {
            assert!(STATUSES.contains(&fault.answer().0), "{fault:?}");
            let value: serde_json::Value = serde_json::from_str(&fault.body()).unwrap();
            assert!(value["error"].is_string(), "{fault:?}");
        }
    }

    #[test]
    fn the_document_has_every_word() {
        let document: serde_json::Value =
            serde_json::from_str(include_str!("openapi.json")).unwrap();
        let words = &document["components"]["schemas"]["ErrorCode"]["enum"];
        let mut words: Vec<_> =
            words.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        let refused = Refusal::ALL.map(Fault::Refused);
        let faults = FAULTS.into_iter().chain(refused);
        let mut answered: Vec<_> = faults.map(|fault| fault.answer().1).collect();
        for list in [&mut words, &mut answered] {
            list.sort_unstable();
            list.dedup();
        }
        assert_eq!(words, answered);
    }
}
