//! Holds a serial port while its input lasts: `cargo run -p lfp --example guard -- SOCKET PORT SECONDS`
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [socket, port, seconds] = words.as_slice() else { return Err("three words".into()) };
    let server = lfp::Address::Unix(socket.into());
    let held = lfp::client::lock_at(&server, port, Duration::from_secs_f64(seconds.parse()?))?;
    println!("holds /dev/{}", held.device().as_str());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
