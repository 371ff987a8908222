//! What a program does about the limit on the size of files (`ulimit -f`, setrlimit(2)).

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::libc::SIGXFSZ;

/// A write past the limit on the size of files fails with `EFBIG` from now on, in this whole process. Without
/// this call the signal SIGXFSZ ends the process, and a lock file that was being written stays behind.
///
/// For programs, at their start; a library leaves signals to its program. The signal is caught rather than
/// ignored, because execve(2) gives a command that the program becomes or starts the default again.
///
/// # Errors
/// The system's, if it does not let the signal be caught.
pub fn catch_file_size_signal() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}
