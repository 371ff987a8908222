//! One connected socket: receive some bytes, send some bytes, notice that the peer is gone.
//! Knows nothing of requests.

use socket2::SockRef;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};

/// A socket of either family.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn socket(&self) -> SockRef<'_> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream),
            Self::Unix(stream) => SockRef::from(stream),
        }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    /// What is known of readiness now; asked only when something is.
    fn readiness(&self, cx: &mut Context<'_>, interest: Interest) -> Ready {
        let poll = match self {
            Self::Tcp(stream) => pin!(stream.ready(interest)).poll(cx),
            Self::Unix(stream) => pin!(stream.ready(interest)).poll(cx),
        };
        match poll {
            Poll::Ready(Ok(ready)) => ready,
            Poll::Ready(Err(_)) | Poll::Pending => Ready::EMPTY,
        }
    }

    /// Waits for the next word of the kernel instead of the last one.
    fn forget_readiness(&self, interest: Interest) {
        let seen = || -> io::Result<()> { Err(ErrorKind::WouldBlock.into()) };
        let _ = match self {
            Self::Tcp(stream) => stream.try_io(interest, seen),
            Self::Unix(stream) => stream.try_io(interest, seen),
        };
    }
}

/// See the module.
pub(super) struct Transport {
    stream: Stream,
    /// Bytes may wait in the kernel although readiness was taken as seen.
    unread: bool,
}

impl Transport {
    pub(super) const fn new(stream: Stream) -> Self {
        Self { stream, unread: false }
    }

    /// Receives into `buffer`; 0 means the peer will send no more.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.unread {
            match receive(&self.stream, buffer) {
                Err(err) if err.kind() == ErrorKind::WouldBlock => self.unread = false,
                result => return Poll::Ready(result),
            }
        }
        let mut buffer = ReadBuf::new(buffer);
        // A read that fills less than the buffer also tells tokio that the kernel has no more,
        // so that a request costs one call (epoll(7), edge-triggered).
        ready!(self.stream.poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Ready when the peer has ended its side, though bytes before that end are left unread.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            if self.stream.readiness(cx, Interest::READABLE).is_read_closed() {
                return Poll::Ready(Ok(()));
            }
            self.unread = true;
            self.stream.forget_readiness(Interest::READABLE);
        }
    }

    /// Ready when nothing sent could arrive any more.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if ready!(self.stream.poll_write_ready(cx)).is_err()
                || self.stream.readiness(cx, Interest::WRITABLE).is_write_closed()
            {
                return Poll::Ready(());
            }
            self.stream.forget_readiness(Interest::WRITABLE);
        }
    }

    /// Asks the peer's kernel whether somebody is still there, after the peer has ended its side.
    ///
    /// A closed and a half-closed peer look the same until something is sent. One byte of urgent
    /// data answers it: a closed socket resets the connection, a half-closed one takes the byte
    /// aside, where no ordinary read sees it. Sent at most once per connection, as a second
    /// urgent byte would turn the first into ordinary data. (Between processes of one machine
    /// the kernel tells the two apart by itself.)
    pub(super) fn probe(&self) {
        if matches!(self.stream, Stream::Tcp(_)) {
            // A failure shows itself as readiness, which is watched.
            let _ = self.stream.socket().send_out_of_band(b"\n");
        }
    }

    /// Sends what the kernel takes at once, perhaps nothing. Asks the kernel, not tokio, whose
    /// knowledge [`Transport::poll_gone`] may have thrown away.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.stream.socket().send(bytes) {
                Err(err) if err.kind() == ErrorKind::Interrupted => {}
                Err(err) if err.kind() == ErrorKind::WouldBlock => return Ok(0),
                result => return result,
            }
        }
    }

    /// Sends from `bytes`, at least one.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.send(bytes) {
                Ok(0) => {
                    self.stream.forget_readiness(Interest::WRITABLE);
                    ready!(self.stream.poll_write_ready(cx))?;
                }
                result => return Poll::Ready(result),
            }
        }
    }

    /// Closes gently: what the peer sent too much is read, so that the kernel does not answer it
    /// with a reset that overtakes our last reply.
    pub(super) fn say_goodbye(&self, buffer: &mut [u8]) {
        const ROUNDS: usize = 16;
        let _ = self.stream.socket().shutdown(Shutdown::Write);
        for _ in 0..ROUNDS {
            if !matches!(receive(&self.stream, buffer), Ok(1..)) {
                break;
            }
        }
    }
}

fn receive(stream: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match io::Read::read(&mut &*stream.socket(), buffer) {
            Err(err) if err.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
