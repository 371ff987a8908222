//! The HTTP answers, with all headers and error words.
//!
//! The page may run only the one script of this server. No answer may be stored, framed, or taken for another
//! type.

use crate::server::Shared;
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
use leases::Progress;
use leases::journal::Failed;
use leases::wire::StatsCursor;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

/// The body of an answer. An error ends the connection, so that its client sees that the body is not whole.
pub(super) type ReplyBody = UnsyncBoxBody<Bytes, io::Error>;

/// The approximate size of one piece of a body.
const PIECE_BYTES: usize = 64 * 1024;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    BadRequest,
    Unauthorized,
    NotFound,
    MethodNotAllowed,
    PostOnly,
    NoAdmin,
    NotHeld,
    StoreAway,
    BodyRefused,
    WrongHost,
    NeedsTls,
}

impl Fault {
    /// Status and word; the word of the reference, if it has any.
    const fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Self::MethodNotAllowed | Self::PostOnly => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed")
            }
            Self::NoAdmin => (StatusCode::FORBIDDEN, "no_admin_secret_is_set"),
            Self::NotHeld => (StatusCode::NOT_FOUND, "not_held"),
            Self::StoreAway => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
            Self::BodyRefused => (StatusCode::PAYLOAD_TOO_LARGE, "body_refused"),
            Self::WrongHost => (StatusCode::MISDIRECTED_REQUEST, "wrong_host"),
            Self::NeedsTls => (StatusCode::BAD_REQUEST, "this_port_speaks_https"),
        }
    }

    fn body(self) -> String {
        format!("{{\"error\":\"{}\"}}", self.answer().1)
    }
}

impl From<Failed> for Fault {
    fn from(_: Failed) -> Self {
        Self::StoreAway
    }
}

/// The statuses that an answer may have, for counting.
pub(super) const STATUSES: [StatusCode; 9] = [
    StatusCode::OK,
    StatusCode::BAD_REQUEST,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
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

/// The page itself, the only answer that may run a script in a browser.
pub(super) fn page(body: impl Into<Bytes>) -> Response<ReplyBody> {
    let mut response = whole(StatusCode::OK, "text/html; charset=utf-8", body);
    let policy = HeaderValue::from_static(PAGE_POLICY);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    response
}

/// The body of `stats`, however long.
pub(super) async fn stats(handle: &Arc<Shared>) -> Result<Response<ReplyBody>, Failed> {
    Ok(match next_piece(handle, StatsCursor::default()).await? {
        (body, None) => whole(StatusCode::OK, JSON, body),
        first => {
            let (sender, body) = Channel::new(1);
            tokio::spawn(send_pieces(Arc::clone(handle), first, sender));
            build(StatusCode::OK, JSON, body.boxed_unsync())
        }
    })
}

/// A piece, and the cursor for the piece after it.
type Piece = (Bytes, Option<StatsCursor>);

/// The next piece, when it may be told.
async fn next_piece(handle: &Shared, mut cursor: StatsCursor) -> Result<Piece, Failed> {
    let mut piece = String::new();
    loop {
        let progress = handle.pace.step(|| handle.stats_piece(&mut cursor, &mut piece)).await;
        // Reading through the entries of other sections may give no bytes for a long time.
        if progress == Progress::Done || piece.len() >= PIECE_BYTES {
            handle.recorded().await?;
            return Ok((piece.into(), (progress != Progress::Done).then_some(cursor)));
        }
    }
}

/// Makes each further piece when the last but one was taken, until the client has left.
async fn send_pieces(
    handle: Arc<Shared>,
    (mut piece, mut rest): Piece,
    mut sender: Sender<Bytes, io::Error>,
) {
    while sender.send_data(piece).await.is_ok() {
        let Some(cursor) = rest else { return };
        match next_piece(&handle, cursor).await {
            Ok(next) => (piece, rest) = next,
            Err(Failed) => return sender.abort(io::Error::other("holds cannot be recorded")),
        }
    }
}

pub(super) fn fault(fault: Fault) -> Response<ReplyBody> {
    let mut response = whole(fault.answer().0, JSON, fault.body());
    let headers = response.headers_mut();
    match fault {
        Fault::MethodNotAllowed => {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        Fault::PostOnly => {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        Fault::Unauthorized => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // The following bytes of such a connection may not be a request.
        Fault::BodyRefused | Fault::BadRequest | Fault::NeedsTls => close(&mut response),
        Fault::NotFound | Fault::NoAdmin | Fault::NotHeld | Fault::StoreAway | Fault::WrongHost => {
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const FAULTS: [Fault; 11] = [
        Fault::BadRequest,
        Fault::Unauthorized,
        Fault::NotFound,
        Fault::MethodNotAllowed,
        Fault::PostOnly,
        Fault::NoAdmin,
        Fault::NotHeld,
        Fault::StoreAway,
        Fault::BodyRefused,
        Fault::WrongHost,
        Fault::NeedsTls,
    ];

    #[test]
    fn every_fault_is_counted_and_is_json() {
        for fault in FAULTS {
            assert!(STATUSES.contains(&fault.answer().0), "{fault:?}");
            let value: serde_json::Value = serde_json::from_str(&fault.body()).unwrap();
            assert!(value["error"].is_string(), "{fault:?}");
        }
    }
}
