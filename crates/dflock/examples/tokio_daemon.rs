//! A daemon on tokio with one leader: `cargo run -p dflock --example tokio_daemon -- SERVERS KEY`
//!
//! SERVERS are the addresses of one service, separated by commas. The daemon waits for its turn, leads until it is told to
//! end (here: by the end of its input) or the lease is lost, and then stands by again.

use dflock::{Client, ServerAddress, Servers, Settings};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [servers, key] = words.as_slice() else { return Err("SERVERS KEY".into()) };
    let servers: Result<Vec<ServerAddress>, _> = servers.split(',').map(str::parse).collect();
    let mut settings = Settings::new(Servers::AnyOf(servers?));
    // The daemon is told a second before the lease may end, so that it can stop its work.
    settings.margin = Duration::from_secs(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(stand_by(settings, key))
}

async fn stand_by(settings: Settings, key: &str) -> Result<(), Box<dyn Error>> {
    let claim = Client::new(settings)?.lock(key)?.ttl(Duration::from_secs(15))?;
    let mut told_to_end = end_of_input();
    loop {
        let told = |error: &dflock::ClientError| eprintln!("{error}; joins the line again");
        // If the daemon is told to end first, dropping this future leaves the line.
        let lease = tokio::select! {
            lease = claim.acquire_persistently(None, told) => lease?,
            _ = &mut told_to_end => return Ok(()),
        };
        let Some(lease) = lease else { continue };
        tokio::select! {
            () = lead(lease.fence()) => {}
            loss = lease.lost() => eprintln!("leads no longer: {loss}"),
            _ = &mut told_to_end => return Ok(lease.release().await?),
        }
    }
}

/// The work of the leader, without end. It is dropped when it must stop, at its next `await`.
async fn lead(fence: Option<u64>) {
    println!("leads, fence {}", fence.unwrap_or_default());
    std::future::pending().await
}

/// Resolves when standard input ends. A thread reads it, because reading blocks.
fn end_of_input() -> tokio::sync::oneshot::Receiver<()> {
    let (end, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = end.send(());
    });
    ended
}
