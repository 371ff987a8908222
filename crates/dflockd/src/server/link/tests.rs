//! Streams over a connection in memory, without a server.

use super::stream::{LinkStream, StandbyFacts};
use super::*;
use crate::server::core::Shared;
use crate::server::run_timer;
use crate::server::transport::Peer;
use crate::server::{Settings, listener};
use hyper::body::Bytes;
use hyper::http::{Request, Response};
use leases::Seconds;
use rstest::rstest;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

/// Two ends of a link. Its tasks end with the values.
struct Pair {
    standby: SendRequest<Bytes>,
    leader: h2::server::Connection<DuplexStream, Bytes>,
    running: JoinHandle<()>,
}

impl Pair {
    async fn new() -> Self {
        let (near, far) = tokio::io::duplex(1024);
        let (mut client, mut server) = (h2::client::Builder::new(), h2::server::Builder::new());
        let near = configure!(client).initial_max_send_streams(STREAMS as usize).handshake(near);
        let far = configure!(server).handshake::<_, Bytes>(far);
        let (near, leader) = tokio::join!(near, far);
        let (standby, connection) = near.unwrap();
        let running = tokio::spawn(async move { drop(connection.await) });
        Self { standby, leader: leader.unwrap(), running }
    }

    /// A stream, at both ends.
    async fn open(&mut self) -> (LinkStream, LinkStream) {
        self.open_from(&Arc::default()).await
    }

    async fn open_from(&mut self, facts: &Arc<StandbyFacts>) -> (LinkStream, LinkStream) {
        let request = Request::post("http://leader/client").body(()).unwrap();
        let (response, sender) = self.standby.send_request(request, false).unwrap();
        let standby = LinkStream::of_standby(sender, response);
        let (request, mut respond) = self.leader.accept().await.unwrap().unwrap();
        let sender = respond.send_response(Response::new(()), false).unwrap();
        (standby, LinkStream::of_leader(sender, request.into_body(), Arc::clone(facts)))
    }

    /// Does this while the leader serves the link.
    async fn serve<T>(&mut self, deed: impl Future<Output = T>) -> T {
        tokio::select! {
            done = deed => done,
            _ = self.leader.accept() => panic!("no stream and no end is expected"),
        }
    }

    /// What this end of a stream receives next.
    async fn receive(&mut self, stream: &mut LinkStream) -> io::Result<Vec<u8>> {
        let mut buffer = [0; 4096];
        let count = self.serve(poll_fn(|cx| stream.poll_receive(cx, &mut buffer))).await?;
        Ok(buffer[..count].to_vec())
    }

    /// The link ends.
    async fn end(&mut self) {
        self.running.abort();
        assert!(self.leader.accept().await.is_none_or(|stream| stream.is_err()));
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(Duration::from_secs(20), test).await.expect("the test ends") })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Finishes,
    IsGone,
    FinishesAndIsGone,
    IsDropped,
    LinkEnds,
}

/// How a client ends: whether the leader hears an orderly end of its requests, and whether it may release its holds.
#[rstest]
#[case(Ending::Finishes, true, false)]
#[case(Ending::IsGone, false, false)]
#[case(Ending::FinishesAndIsGone, true, false)]
#[case(Ending::IsDropped, false, true)]
#[case(Ending::LinkEnds, false, true)]
fn the_end_of_a_client_is_told_from_the_end_of_the_link(
    #[case] ending: Ending,
    #[case] is_orderly: bool,
    #[case] is_lost: bool,
) {
    run(async {
        let mut pair = Pair::new().await;
        let (mut standby, mut leader) = pair.open().await;
        assert_eq!(standby.send(b"request").unwrap(), 7);
        if matches!(ending, Ending::Finishes | Ending::FinishesAndIsGone) {
            standby.finish();
        }
        let mut standby = Some(standby);
        if ending == Ending::IsGone {
            tokio::spawn(standby.take().unwrap().end_client());
        }
        let before = pair.receive(&mut leader).await.unwrap();
        assert_eq!(before, b"request", "what was sent before arrives");
        if ending == Ending::IsDropped {
            standby = None;
        }
        let mut buffer = [0; 9];
        let received = if ending == Ending::LinkEnds {
            pair.end().await;
            poll_fn(|cx| leader.poll_receive(cx, &mut buffer)).await
        } else {
            pair.serve(poll_fn(|cx| leader.poll_receive(cx, &mut buffer))).await
        };
        assert_eq!(received.ok(), is_orderly.then_some(0));
        if ending == Ending::FinishesAndIsGone {
            tokio::spawn(standby.take().unwrap().end_client());
            pair.serve(poll_fn(|cx| leader.poll_gone(cx))).await;
        }
        assert_eq!(leader.is_lost(), is_lost);
    });
}

/// Sends until that fails.
async fn send_on(stream: &mut LinkStream) {
    let failed = poll_fn(|cx| {
        loop {
            match stream.send(b"answer") {
                Ok(0) if std::task::ready!(stream.poll_room(cx)).is_ok() => {}
                Ok(1..) => {}
                Ok(0) | Err(_) => return std::task::Poll::Ready(()),
            }
        }
    });
    failed.await;
}

/// A leader that notices the end of the link by an answer that it cannot send releases nothing either.
#[test]
fn an_answer_that_cannot_be_sent_is_no_end_of_the_client() {
    run(async {
        let mut pair = Pair::new().await;
        let (_standby, mut leader) = pair.open().await;
        pair.end().await;
        send_on(&mut leader).await;
        assert!(leader.is_lost());
    });
}

/// Its bytes may be on their way, so its holds stay. A standby that runs would have passed them on.
#[test]
fn a_client_is_late_only_if_its_standby_is_heard_of() {
    run(async {
        let settings = Settings { read_timeout: Seconds::new(1).unwrap(), ..Settings::default() };
        let (shared, facts) = (Arc::new(Shared::new(settings)), Arc::<StandbyFacts>::default());
        let timer = tokio::spawn(run_timer(Arc::clone(&shared)));
        let mut pair = Pair::new().await;
        let (mut client, stream) = pair.open_from(&facts).await;
        let seat = listener::admit(&shared, Peer::Unix).unwrap();
        listener::spawn(&shared, stream.into(), seat, Peer::Unix);
        client.send(b"l\nk\n0\n").unwrap();
        assert!(pair.receive(&mut client).await.unwrap().starts_with(b"ok "));
        // From now on nobody serves the link.
        let (begun, held) = (Instant::now(), || shared.core().engine.census().locks.holders);
        while begun.elapsed() < Duration::from_secs(9) {
            assert_eq!(held(), 1, "after {:?}", begun.elapsed());
            sleep(Duration::from_millis(50)).await;
        }
        facts.ran_at.store(shared.now().micros(), Ordering::Release);
        while held() > 0 {
            sleep(Duration::from_millis(50)).await;
        }
        timer.abort();
    });
}

/// A client that does not read fills the window of its own stream, and no other.
#[test]
fn a_client_that_does_not_read_stops_nobody_else() {
    run(async {
        let mut pair = Pair::new().await;
        let (mut idle, mut full) = pair.open().await;
        let (mut reader, mut other) = pair.open().await;
        let mut sent = 0;
        while let Ok(count @ 1..) = full.send(&[b'x'; 4096]) {
            sent += count;
        }
        assert_eq!(sent, STREAM_WINDOW as usize);
        assert_eq!(other.send(b"answer").unwrap(), 6);
        assert_eq!(pair.receive(&mut reader).await.unwrap(), b"answer");
        // It reads again, and there is room again.
        while sent > 0 {
            sent -= pair.receive(&mut idle).await.unwrap().len();
        }
        pair.serve(poll_fn(|cx| full.poll_room(cx))).await.unwrap();
    });
}

/// The leader learns that a client is gone though more answers are on the way than the client ever read.
#[test]
fn unread_answers_do_not_hide_that_a_client_is_gone() {
    run(async {
        let mut pair = Pair::new().await;
        let (standby, mut leader) = pair.open().await;
        while let Ok(1..) = leader.send(&[b'x'; 4096]) {}
        tokio::spawn(standby.end_client());
        pair.serve(poll_fn(|cx| leader.poll_room(cx))).await.unwrap();
        assert!(pair.receive(&mut leader).await.is_err());
        assert!(!leader.is_lost());
    });
}

/// A leader that goes on sending to a client that is gone is told so.
#[test]
fn a_leader_that_only_sends_learns_that_a_client_is_gone() {
    run(async {
        let mut pair = Pair::new().await;
        let (standby, mut leader) = pair.open().await;
        tokio::spawn(standby.end_client());
        pair.serve(send_on(&mut leader)).await;
        assert!(!leader.is_lost());
    });
}

/// Under TLS the secret itself is never shown.
#[test]
fn what_is_shown() {
    assert_eq!(proof("5ec7e7", None), "5ec7e7");
    assert_eq!(proof("5ec7e7", Some([0xa0; 32])), "a0".repeat(32));
}
