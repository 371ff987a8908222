//! Linux: prctl(2).

use nix::sys::prctl;
use nix::sys::signal::Signal;
use std::io;

/// Has the kernel kill this process when the thread that started it ends.
pub(super) fn die_with_parent() -> io::Result<()> {
    Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
}
