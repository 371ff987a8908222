//! One stream of the link: bytes in both directions, and why they end. Used by both sides.

use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use hyper::body::Bytes;
use hyper::http::{HeaderMap, StatusCode};
use leases::Moment;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::time::timeout;

/// A client is gone: RFC 9113, 7: the connection behind a tunnel was reset or abnormally closed.
const GONE: Reason = Reason::CONNECT_ERROR;

/// How long the last bytes of a client that is gone may take to the leader. The leader needs no reset to end a client
/// that sends no more, unless the client waits.
const FLUSH: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct LinkStream {
    sender: SendStream<Bytes>,
    receiver: Receiver,
    /// Received and not read yet; at most the window of a stream.
    ahead: Vec<u8>,
    end: Option<StreamEnd>,
    has_finished: bool,
    /// What the leader knows of its standby; unused on the standby's side.
    standby: Arc<StandbyFacts>,
}

/// What the leader knows of a standby.
#[derive(Default)]
pub(in crate::server) struct StandbyFacts {
    /// Whether it is shutting down.
    pub(super) is_draining: AtomicBool,
    /// It has shown that it ran at this time or later, in microseconds.
    pub(super) ran_at: AtomicU64,
}

enum Receiver {
    /// The leader has not accepted the stream yet.
    Awaited(ResponseFuture),
    Open(RecvStream),
}

/// How the other side has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    /// It sends no more.
    Finished,
    /// The client is gone.
    Gone,
    /// It is not known what became of it.
    Lost,
}

fn end_of(err: &h2::Error) -> StreamEnd {
    if err.is_reset() && err.is_remote() && err.reason() == Some(GONE) {
        StreamEnd::Gone
    } else {
        StreamEnd::Lost
    }
}

fn broken() -> io::Error {
    ErrorKind::ConnectionReset.into()
}

impl LinkStream {
    pub(super) fn of_leader(
        sender: SendStream<Bytes>,
        receiver: RecvStream,
        standby: Arc<StandbyFacts>,
    ) -> Self {
        Self::new(sender, Receiver::Open(receiver), standby)
    }

    pub(super) fn of_standby(sender: SendStream<Bytes>, response: ResponseFuture) -> Self {
        Self::new(sender, Receiver::Awaited(response), Arc::default())
    }

    fn new(sender: SendStream<Bytes>, receiver: Receiver, standby: Arc<StandbyFacts>) -> Self {
        let ahead = Vec::new();
        Self { sender, receiver, ahead, end: None, has_finished: false, standby }
    }

    /// Whether the standby is shutting down, so that its clients should go elsewhere.
    pub(in crate::server) fn is_draining(&self) -> bool {
        self.standby.is_draining.load(Ordering::Relaxed)
    }

    /// The standby has shown that it ran then, or later. What it had sent before that has been received.
    pub(in crate::server) fn ran_at(&self) -> Moment {
        Moment::from_micros(self.standby.ran_at.load(Ordering::Acquire))
    }

    /// Whether the client's holds must stay, because nobody has said that it is gone.
    pub(in crate::server) fn is_lost(&self) -> bool {
        self.end == Some(StreamEnd::Lost)
    }

    /// Waits for more bytes in `ahead`, or the end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let receiver = loop {
            match &mut self.receiver {
                Receiver::Open(receiver) => break receiver,
                Receiver::Awaited(response) => match ready!(Pin::new(response).poll(cx)) {
                    Ok(response) if response.status() == StatusCode::OK => {
                        self.receiver = Receiver::Open(response.into_body());
                    }
                    Ok(_) => {
                        self.end = Some(StreamEnd::Finished);
                        return Poll::Ready(());
                    }
                    Err(err) => {
                        self.end = Some(end_of(&err));
                        return Poll::Ready(());
                    }
                },
            }
        };
        match ready!(receiver.poll_data(cx)) {
            Some(Ok(bytes)) => self.ahead.extend_from_slice(&bytes),
            Some(Err(err)) => self.end = Some(end_of(&err)),
            None => {
                self.end = Some(match ready!(receiver.poll_trailers(cx)) {
                    Ok(None) => StreamEnd::Finished,
                    Ok(Some(_)) => StreamEnd::Gone,
                    Err(err) => end_of(&err),
                });
            }
        }
        Poll::Ready(())
    }

    /// Receives; 0 means that the other side sends no more.
    pub(in crate::server) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        while self.ahead.is_empty() && self.end.is_none() {
            ready!(self.poll_more(cx));
        }
        if self.ahead.is_empty() {
            let is_orderly = self.end == Some(StreamEnd::Finished);
            return Poll::Ready(if is_orderly { Ok(0) } else { Err(broken()) });
        }
        let count = buffer.len().min(self.ahead.len());
        for (to, from) in buffer.iter_mut().zip(self.ahead.drain(..count)) {
            *to = from;
        }
        if let Receiver::Open(receiver) = &mut self.receiver {
            // It fails when the stream has ended, and then nobody waits for it.
            let _ = receiver.flow_control().release_capacity(count);
        }
        Poll::Ready(Ok(count))
    }

    /// Ready when the other side has ended, even if earlier bytes are unread.
    pub(in crate::server) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.end.is_none() {
            ready!(self.poll_more(cx));
        }
        Poll::Ready(if self.end == Some(StreamEnd::Finished) { Ok(()) } else { Err(broken()) })
    }

    /// Ready when a client that sends no more is gone, or may be.
    pub(in crate::server) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !matches!(self.end, Some(StreamEnd::Gone | StreamEnd::Lost)) {
            let is_gone = matches!(ready!(self.sender.poll_reset(cx)), Ok(GONE));
            self.end = Some(if is_gone { StreamEnd::Gone } else { StreamEnd::Lost });
        }
        Poll::Ready(())
    }

    /// The other side does not receive any more. Unless it has said that the client is gone, that is not known.
    fn note_break(&mut self) -> io::Error {
        let mut now = Context::from_waker(Waker::noop());
        let is_gone = self.end == Some(StreamEnd::Gone)
            || matches!(self.sender.poll_reset(&mut now), Poll::Ready(Ok(GONE)));
        self.end = Some(if is_gone { StreamEnd::Gone } else { StreamEnd::Lost });
        broken()
    }

    /// Sends as much as there is room for, perhaps nothing.
    pub(in crate::server) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sender.reserve_capacity(bytes.len());
        let room = self.sender.capacity().min(bytes.len());
        let piece = bytes.get(..room).unwrap_or_default();
        if !piece.is_empty() {
            let sent = self.sender.send_data(Bytes::copy_from_slice(piece), false);
            sent.map_err(|_| self.note_break())?;
        }
        Ok(room)
    }

    /// Ready when there may be room to send. Call it only after [`LinkStream::send`] took nothing.
    pub(in crate::server) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(self.sender.poll_capacity(cx)) {
            Some(Ok(_)) => Poll::Ready(Ok(())),
            Some(Err(_)) | None => Poll::Ready(Err(self.note_break())),
        }
    }

    /// Sends no more.
    pub(in crate::server) fn finish(&mut self) {
        if !std::mem::replace(&mut self.has_finished, true) {
            let _ = self.sender.send_data(Bytes::new(), true);
        }
    }

    /// Tells the leader that the client is gone. The bytes of the client must arrive first: HTTP/2 drops what a reset
    /// overtakes, so the leader gets time to read them. Meanwhile its answers are received and dropped, because it
    /// could not read on while nobody takes them.
    pub(super) async fn end_client(mut self) {
        if !self.has_finished {
            let _ = self.sender.send_trailers(HeaderMap::new());
        }
        let mut buffer = [0; 4096];
        let ended =
            async { while let Ok(1..) = poll_fn(|cx| self.poll_receive(cx, &mut buffer)).await {} };
        if timeout(FLUSH, ended).await.is_err() {
            self.sender.send_reset(GONE);
        }
    }
}
