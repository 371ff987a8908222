//! The floor on tokio, with the settings of the lock server: what the library costs a server that decides nothing.

use super::{Dialogue, converse};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

/// These two as in the lock server.
const TURNS_PER_LOOK: u32 = 256;
const EVENTS_PER_LOOK: usize = 64;

thread_local! {
    /// Where bytes are received, and the number of grants.
    static COMMON: RefCell<(Vec<u8>, u64)> = RefCell::new((vec![0; 16 * 1024], 0));
}

/// Listens on a port that the system chooses, prints it as the lock server does, and serves until killed.
pub(crate) fn serve() -> io::Result<()> {
    let mut runtime = Builder::new_current_thread();
    runtime.event_interval(TURNS_PER_LOOK).max_io_events_per_tick(EVENTS_PER_LOOK).enable_all();
    runtime.build()?.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        eprintln!("msg=listening addr={}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(serve_peer(stream));
        }
    })
}

async fn serve_peer(mut stream: TcpStream) -> io::Result<()> {
    let mut dialogue = Dialogue::new();
    loop {
        stream.readable().await?;
        let received: io::Result<usize> = COMMON.with_borrow_mut(|(buffer, grants)| {
            let count = stream.try_read(buffer)?;
            converse(&mut dialogue, buffer.get(..count).unwrap_or_default(), grants);
            Ok(count)
        });
        match received {
            Ok(0) => return Ok(()),
            Err(err) if err.kind() == ErrorKind::WouldBlock => continue,
            received => received?,
        };
        stream.write_all(&dialogue.outbox).await?;
        dialogue.outbox.clear();
    }
}
