//! The turns of the runtime: a long task does not keep the news of the kernel from the others.

use super::*;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncReadExt as _;

/// A connection with more to do than a turn does not go on before bytes for others are noticed.
#[test]
fn a_long_task_lets_the_kernels_news_in() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.event_interval(256).enable_io().build().unwrap();
    runtime.block_on(async {
        let (mut near, far) = tokio::net::UnixStream::pair().unwrap();
        let turns = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&turns);
        let long = tokio::spawn(async move {
            while counter.fetch_add(1, Ordering::Relaxed) < 10_000 {
                yield_now().await;
            }
        });
        let waiting = tokio::spawn(async move {
            near.read_u8().await.unwrap();
            turns.load(Ordering::Relaxed)
        });
        yield_now().await;
        far.try_write(b"x").unwrap();
        let seen = waiting.await.unwrap();
        assert!(seen < 10, "{seen}");
        long.abort();
    });
}

/// Two clients have connected; the first has sent nothing yet when the server looks at it. Then both send a request, one
/// after the other. The kernel reports both together, before the server has looked at the second client at all.
#[test]
fn a_new_connection_does_not_overtake_an_earlier_request() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // After each turn, the kernel is asked for news.
    let runtime = builder.event_interval(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let shared = Arc::new(Shared::new(Settings::default()));
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let listener = Listener::from_tcp(socket).unwrap();
        let accepting = tokio::spawn(listener::accept(Arc::clone(&shared), listener));
        let mut first = TcpStream::connect(address).unwrap();
        while shared.core().connections.len() < 1 {
            yield_now().await;
        }
        // Its task waits for its bytes.
        yield_now().await;
        // The listener will take its turn next, and not before all this has arrived.
        let _third = TcpStream::connect(address).unwrap();
        yield_now().await;
        first.write_all(b"l\nk\n1\n").unwrap();
        let mut second = TcpStream::connect(address).unwrap();
        second.write_all(b"l\nk\n0\n").unwrap();
        while shared.core().connections.len() < 3 {
            yield_now().await;
        }
        let answers = tokio::task::spawn_blocking(move || {
            [&mut first, &mut second].map(|stream| {
                let mut answer = [0; 3];
                stream.read_exact(&mut answer).unwrap();
                String::from_utf8_lossy(&answer).into_owned()
            })
        });
        assert_eq!(answers.await.unwrap(), ["ok ", "tim"]);
        accepting.abort();
    });
}
