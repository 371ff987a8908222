//! Tells a thread, or the loop of the daemon, that there is something for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Readable from a ring until it is silenced.
#[derive(Clone, Debug)]
pub(super) struct Bell(Arc<EventFd>);

impl Bell {
    /// # Errors
    /// The system's.
    pub(super) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_flags(flags)?)))
    }

    pub(super) fn ring(&self) {
        // It fails only if very many rings were not heard yet: then it is readable in any case.
        let _ = self.0.write(1);
    }

    pub(super) fn silence(&self) {
        let _ = self.0.read();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
