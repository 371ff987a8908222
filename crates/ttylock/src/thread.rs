//! Threads of a daemon.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Bytes of a thread's stack: nothing that a daemon has a thread for goes deep.
const STACK: usize = 256 << 10;

/// Starts a thread with a small stack.
///
/// # Errors
/// The system's, if no thread can be started.
pub fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work)
}
