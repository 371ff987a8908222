//! Unix sockets.

use std::io;
use std::path::Path;
use tokio::net::UnixStream;

/// Connects; the caller limits the time.
pub(super) async fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path).await
}
