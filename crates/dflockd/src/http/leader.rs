//! Requests about locks that a server does not answer itself, because another one leads. They go to the leader over the
//! link, as HTTP/1.1 on a stream of their own.

use super::door::converse;
use super::gate::Reach;
use super::reply::{Fault, ReplyBody};
use super::seats::Seats;
use super::site::{ADDRESS, Caller, DRAINING, Site};
use crate::server::{Link, Shared, open_http};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONNECTION, EXPECT, HOST, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// The most requests of standbys at the same time; for a further one, one is given up: see [`Seats`].
const MAX_REQUESTS: usize = 10_000;

/// Answers the requests of servers that do not lead, for as long as the server runs.
pub(crate) async fn serve_standbys(handle: Arc<Shared>) {
    let mut streams = handle.standby.take_http_streams();
    let site = Arc::new(Site::new(handle, Reach::Standby, Seats::new(MAX_REQUESTS, MAX_REQUESTS)));
    while let Some(stream) = streams.recv().await {
        site.seats.spawn(|seat| converse(Arc::clone(&site), seat, stream, None));
    }
}

/// The leader's answer to this request, whose right was checked here.
pub(super) async fn ask(
    link: Link,
    (head, body): (&Parts, Bytes),
    (caller, may_part): (&Caller, bool),
    is_draining: bool,
) -> Result<Response<ReplyBody>, Fault> {
    let mut copy = Request::new(Full::new(body));
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
    address.into_iter().for_each(|it| drop(headers.insert(ADDRESS, it)));
    let answer = async {
        let stream = open_http(link).await?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        sender.send_request(copy).await.ok()
    };
    let mut answer = pin!(answer);
    let answer = poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(answer.ok_or(Fault::StoreAway)),
        // The leader ends what nobody waits for. It learns by itself that this server shuts down.
        Poll::Pending if !may_part => Poll::Pending,
        Poll::Pending => caller.poll_parting(cx).map(|_| Err(Fault::ClientCanceled)),
    });
    let mut answer = answer.await?;
    answer.headers_mut().remove(CONNECTION);
    Ok(answer.map(|body| body.map_err(io::Error::other).boxed_unsync()))
}
