//! One instance at a time: works, or names the running instance.
//!
//! `cargo run -p file-semaphore --example one_at_a_time -- ~/.local/state/lock/report`

use file_semaphore::{Error, Semaphore};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the path of the lock")?;
    let report = Semaphore::open(path)?;
    match report.try_acquire(Some("report")) {
        Ok(held) => {
            println!("working as process {}", held.info().pid());
            // Dropping it releases too; this also reports whether it was held to the end.
            held.release()?;
        }
        Err(Error::AlreadyLocked { holder: Some(info), .. }) => {
            println!("process {} is at it since {}", info.pid(), info.timestamp());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
