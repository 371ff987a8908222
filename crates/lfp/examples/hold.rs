//! Holds a serial port until the end of its input: `cargo run -p lfp --example hold -- /dev/ttyUSB0`
use std::time::Duration;

use lfp::{Address, Client, DeviceName, Outcome, Pid};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "/dev/ttyUSB0".to_owned());
    let device = DeviceName::parse(port.as_bytes())?;

    // The service where it usually is, with five seconds for each of its answers.
    let mut client = Client::connect(&Address::default(), Duration::from_secs(5))?;
    match client.lock(&device, Pid::this())? {
        Outcome::Done => println!("{port} is ours, until we let go or end"),
        Outcome::Busy => {
            for holder in client.status(Some(&device))? {
                println!("{port} is in use: {:?} {:?}", holder.pid, holder.command);
            }
            return Ok(());
        }
        Outcome::Denied => return Err("we may not lock it".into()),
    }

    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    client.unlock(&device, Pid::this())?;
    Ok(())
}
