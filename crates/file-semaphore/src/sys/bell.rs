//! Lets one thread wake another that waits in poll(2).

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Readable once it was rung.
#[derive(Debug)]
pub(crate) struct Bell {
    near: UnixStream,
    far: UnixStream,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let (near, far) = UnixStream::pair()?;
        Ok(Self { near, far })
    }

    pub(crate) fn ring(&self) {
        let _ = self.far.shutdown(Shutdown::Both);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }
}
