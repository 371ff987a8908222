//! Opens the port that is named, as programs in Rust do, and keeps it until its input ends.

use std::io::Read;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).ok_or("which port?")?;
    let _port = serialport::new(port, 9600).open()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
