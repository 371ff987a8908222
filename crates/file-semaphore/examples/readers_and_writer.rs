//! Many readers, one writer: a wait that another thread ends, and a lock that is watched.
//!
//! `cargo run -p file-semaphore --example readers_and_writer -- ~/.local/state/lock/index`

use file_semaphore::{Cancel, Error, Semaphore};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the path of the lock")?;
    let index = Semaphore::open(path)?;
    let one = index.request().shared().acquire()?;
    let other = index.request().shared().acquire()?;
    println!("{} readers", index.readers()?.len());

    let cancel = Cancel::new()?;
    let ended = cancel.clone();
    let interrupt = std::thread::spawn(move || ended.cancel());
    let writer = index.request().cancelled_by(&cancel).acquire();
    println!("no writer meanwhile: {}", matches!(writer, Err(Error::Cancelled)));
    interrupt.join().map_err(|_| "the thread")?;

    one.release()?;
    other.release()?;
    let writer = index.try_acquire(Some("rebuild"))?;
    writer.renew()?;
    println!("still held: {}", writer.still_held()?);
    Ok(())
}
