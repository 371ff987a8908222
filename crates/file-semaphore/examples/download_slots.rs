//! At most three downloads at a time, on the whole machine, of all users.
//!
//! `cargo run -p file-semaphore --example download_slots -- ~/.local/state/lock/downloads URL...`

use std::time::Duration;

use file_semaphore::{Config, Semaphore, Slots};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or("the path of the lock")?;
    let mut config = Config::default();
    config.slots = Slots::new(3).ok_or("1 to 1024")?;
    let downloads = Semaphore::with_config(path, config)?;
    for url in words {
        let held = downloads.request().tag(&url).timeout(Duration::from_secs(60)).acquire()?;
        println!("slot {}: {url}", held.slot());
    }
    Ok(())
}
