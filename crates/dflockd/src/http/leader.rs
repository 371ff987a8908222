//! Requests about locks that a server does not answer itself, because another one leads. They go to the leader over the
//! link, as HTTP/1.1 on a stream of their own.

use super::door::converse;
use super::gate::Reach;
use super::reply::{Fault, ReplyBody};
use super::seats::Seats;
use super::site::{DRAINING, Site};
use crate::server::{Shared, Transport};
use http_body_util::BodyExt;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The most requests of standbys at the same time; for a further one, one is given up: see [`Seats`].
const MAX_REQUESTS: usize = 64;
/// How long the leader may take to begin an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers the requests of servers that do not lead, for as long as the server runs.
pub(crate) async fn serve_standbys(handle: Arc<Shared>) {
    let mut streams = handle.standby.take_http_streams();
    let site = Arc::new(Site::new(handle, Reach::Standby, Seats::new(MAX_REQUESTS)));
    while let Some(stream) = streams.recv().await {
        site.seats.spawn(|seat| converse(Arc::clone(&site), seat, stream));
    }
}

/// The leader's answer to this request, whose right was checked here.
pub(super) async fn ask(
    stream: Transport,
    head: &Parts,
    is_draining: bool,
) -> Result<Response<ReplyBody>, Fault> {
    let mut copy = Request::new(String::new());
    *copy.method_mut() = head.method.clone();
    *copy.uri_mut() = head.uri.clone();
    *copy.headers_mut() = head.headers.clone();
    copy.headers_mut().insert(HOST, HeaderValue::from_static("leader"));
    copy.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    copy.headers_mut().remove(DRAINING);
    if is_draining {
        copy.headers_mut().insert(DRAINING, HeaderValue::from_static("1"));
    }
    let answer = async {
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        sender.send_request(copy).await.ok()
    };
    let answer = timeout(PATIENCE, answer).await.ok().flatten();
    let mut answer = answer.ok_or(Fault::StoreAway)?;
    answer.headers_mut().remove(CONNECTION);
    Ok(answer.map(|body| body.map_err(io::Error::other).boxed_unsync()))
}
