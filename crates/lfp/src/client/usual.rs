//! The service at its usual socket, for those who cannot be asked whether they trust whoever is
//! there: in a directory that others may write, anybody could listen and answer 200 to everything.

use std::fs::metadata;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use super::{Address, Client, Error, UNIX_SOCKET};

impl Client {
    /// Connects to the usual socket, if who listens there is root (a super-server), this user, or
    /// the user whom root gave the socket's directory to.
    ///
    /// # Errors
    /// [`Error::Unreachable`] where somebody else listens; and as [`Client::connect`].
    pub fn usual(patience: Duration) -> Result<Self, Error> {
        let client = Self::connect(&Address::default(), patience)?;
        let listener = client.listener().map_err(Error::Unreachable)?;
        let own = nix::unistd::geteuid().as_raw();
        let is_trusted =
            |uid| uid == 0 || uid == own || chosen_by_root(Path::new(UNIX_SOCKET)) == Some(uid);
        if listener.is_some_and(is_trusted) {
            Ok(client)
        } else {
            Err(Error::Unreachable(io::ErrorKind::PermissionDenied.into()))
        }
    }
}

/// The owner of the socket's directory, if only root can have made or given it: then its own mode
/// matters no more, because whoever else puts a socket there does not become its owner.
pub(crate) fn chosen_by_root(socket: &Path) -> Option<u32> {
    const OTHERS_WRITE: u32 = 0o022;
    let directory = socket.parent()?;
    let above = metadata(directory.parent()?).ok()?;
    let closed = above.uid() == 0 && above.permissions().mode() & OTHERS_WRITE == 0;
    let directory = metadata(directory).ok().filter(|_| closed)?;
    Some(directory.uid())
}
