//! Windows: tokio has no Unix sockets there.

use std::io;
use std::path::Path;
use tokio::net::TcpStream;

/// Never connects; the stream is one that is never there.
pub(super) async fn connect(_path: &Path) -> io::Result<TcpStream> {
    let words = "there are no Unix sockets on Windows; name a host";
    Err(io::Error::new(io::ErrorKind::Unsupported, words))
}
