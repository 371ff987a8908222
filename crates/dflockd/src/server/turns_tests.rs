//! The turns of the runtime: a long task does not keep the news of the kernel from the others.

use super::*;
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
