//! Who has the serial ports of this machine: `cargo run -p ttylock --example who -- /dev/ttyUSB0`
//!
//! Without a port: all of them. With very many locks the search may take long; it ends after two seconds.

use std::time::Duration;

use ttylock::{DeviceName, Layout, Table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1);
    let device = port.map(|port| DeviceName::parse(port.as_bytes())).transpose()?;
    let survey = Table::new(Layout::native()).holders(device.as_ref(), Duration::from_secs(2));
    for holder in &survey.holders {
        println!(
            "{}: {:?} {:?} ({:?})",
            holder.device, holder.pid, holder.command, holder.standing
        );
    }
    if !survey.is_complete {
        println!("some processes cannot be seen by this user");
    }
    Ok(())
}
