//! The program `dflockd`: arguments → sockets → server, until a signal ends it.

use crate::server::{Listener, Server, Settings};
use std::io;
use std::net::TcpListener;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Runs the program.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            tracing::error!(%err, "server error");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let port = std::env::var("DFLOCKD_PORT").unwrap_or_else(|_| "6388".to_owned());
        let mut settings = Settings::default();
        if let Some(max) = std::env::var("DFLOCKD_MAX_LOCKS").ok().and_then(|v| v.parse().ok()) {
            settings.caps.max_locks = max;
        }
        let listener = Listener::from_tcp(TcpListener::bind(format!("127.0.0.1:{port}"))?)?;
        let server = Server::new(settings, vec![listener]);
        let handle = server.handle();
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::spawn(async move {
            terminate.recv().await;
            handle.drain();
        });
        server.run().await
    })
}
