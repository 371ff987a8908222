//! Linux: `/proc/self/exe`, prctl(2).

use nix::sys::prctl;
use nix::sys::signal::Signal;
use std::io;
use std::path::PathBuf;

/// This program, also when another file has its name by now.
pub(in crate::program) fn itself() -> io::Result<PathBuf> {
    Ok(PathBuf::from("/proc/self/exe"))
}

/// Has the kernel kill this process when the thread that started it ends.
pub(in crate::program) fn die_with_parent() -> io::Result<()> {
    Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
}
