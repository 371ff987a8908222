//! One instance at a time: `cargo run -p pidlockfile --example one_instance -- ~/.local/state/lock/report`
//!
//! Works until the end of its input, and ends with an error if another process has the lock.

use pidlockfile::try_lock;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the path of the lock file")?;
    let Some(lock) = try_lock(&path)? else {
        let holder = std::fs::read_to_string(&path).unwrap_or_default();
        return Err(format!("process {} has {path}", holder.trim()).into());
    };
    println!("works");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    drop(lock);
    Ok(())
}
