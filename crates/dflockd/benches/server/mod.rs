//! Server processes under measurement.
//!
//! Starts only children of this program and ends them when dropped.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server on loopback.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Server {
    /// The lock server, with room for every benchmark.
    pub(crate) fn dflockd() -> io::Result<Self> {
        Self::dflockd_with(&[])
    }

    /// The same, with these variables in its environment.
    pub(crate) fn dflockd_with(settings: &[(&str, &str)]) -> io::Result<Self> {
        let program = option_env!("CARGO_BIN_EXE_dflockd")
            .ok_or_else(|| io::Error::other("built without the dflockd program"))?;
        Self::of(program, settings)
    }

    /// A build of the lock server.
    pub(crate) fn of(program: &str, settings: &[(&str, &str)]) -> io::Result<Self> {
        let port = free_port()?;
        let child = Command::new(program)
            .env("DFLOCKD_HOST", "127.0.0.1")
            .env("DFLOCKD_PORT", port.to_string())
            .env("DFLOCKD_MAX_LOCKS", "4000000")
            .env("DFLOCKD_READ_TIMEOUT_S", "3600")
            .envs(settings.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)) };
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(server.address).is_err() {
            if Instant::now() > deadline {
                return Err(io::Error::other("dflockd did not start"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago. Somebody may take it before the server does; then the server
/// does not start and the benchmark says so.
fn free_port() -> io::Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}
