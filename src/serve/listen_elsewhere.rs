//! Replaces `listen` on other systems than Linux, where a daemon cannot serve many connections: inetd starts
//! a process for each.

use std::io;

use super::listener::Listener;
use super::service::Service;
use super::settings::Settings;

/// Why no client can be served.
const WHY: &str = "--listen and passed sockets need Linux: \
    let inetd start lfpd for each connection (nowait)";

/// Whether there is a daemon on this system: there is none.
///
/// # Errors
/// Why not, always.
pub fn is_possible() -> Result<(), String> {
    Err(WHY.to_owned())
}

/// Serves no client.
///
/// # Errors
/// Why not, always.
pub fn serve(
    _service: &mut Service,
    _listeners: Vec<Listener>,
    _settings: Settings,
) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, WHY))
}
