//! Work under a lock, without a runtime: `cargo run -p dflock --example plain_thread -- SERVER KEY`
//!
//! It works in small pieces, one for each line of its input, and before each piece checks that it still has the lock.

use dflock::blocking::Client;
use dflock::{ServerAddress, Servers, Settings};
use std::error::Error;
use std::io::{self, BufRead};
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [server, key] = words.as_slice() else { return Err("SERVER KEY".into()) };
    let server: ServerAddress = server.parse()?;
    let settings = Settings::new(Servers::Shards(vec![server]));
    let claim = Client::new(settings)?.lock(key.as_str())?.ttl(Duration::from_secs(30))?;
    let Some(lease) = claim.acquire(Duration::from_secs(60))? else {
        return Err("somebody else has had it for a minute".into());
    };
    // The output has the fence, so that a reader can recognise a late writer.
    let fence = lease.fence().unwrap_or_default();
    println!("has {key}, fence {fence}");
    for line in io::stdin().lock().lines() {
        let line = line?;
        if let Some(loss) = lease.loss() {
            return Err(format!("stopped before {line:?}: {loss}").into());
        }
        println!("{fence} {line}");
    }
    lease.release()?;
    Ok(())
}
