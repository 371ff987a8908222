//! Locks a port through the service, opens it with the crate serialport or tokio-serial, and copies what is
//! typed to it: `locked PORT [async]`

use std::error::Error;
use std::time::Duration;

use tokio_serial::SerialPortBuilderExt;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let name = words.next().ok_or("which port?")?;

    // Lock first, open then. The guard comes first, so it is dropped last: the port is closed when its lock ends.
    let _locked = lfp::lock_timeout(&name, Duration::from_secs(1))?;
    let settings = serialport::new(&name, 115_200);
    if words.next().is_none() {
        let mut port = settings.open()?;
        std::io::copy(&mut std::io::stdin(), &mut port)?;
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut port = settings.open_native_async()?;
        tokio::io::copy(&mut tokio::io::stdin(), &mut port).await?;
        Ok(())
    })
}
