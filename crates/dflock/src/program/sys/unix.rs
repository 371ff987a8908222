//! Other systems than Linux, by their own functions. Type-checked, never run so far.

use std::io;

/// Has the kernel kill this process when its parent ends (procctl(2), `PROC_PDEATHSIG_CTL`).
#[cfg(target_os = "freebsd")]
pub(super) fn die_with_parent() -> io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};

    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// The system cannot do that: a command outlives a `dflock` that was killed with SIGKILL, and goes on
/// without its lock when the lease is over.
#[cfg(not(target_os = "freebsd"))]
pub(super) fn die_with_parent() -> io::Result<()> {
    Ok(())
}
