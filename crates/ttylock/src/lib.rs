//! The locks of serial devices, for any program. A port itself is never opened.
//!
//! A program that wants a port for itself takes it with the crate `lfp` (`lfp::try_lock`), which uses the service or the
//! lock files.
//!
//! [`DeviceName`] is a name that a client may use for a device, and [`follow`] finds its node. A [`Table`] takes and
//! releases lock files for any process, under all known conventions. [`Layout`] says where they are. It also tells
//! who holds a device:
//!
//! ```no_run
//! use std::time::Duration;
//! use ttylock::{Outcome, Pid, Layout, Request, Table};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut table = Table::new(Layout::native());
//! let request = Request { device: "/dev/ttyUSB0".parse()?, pid: Pid::this() };
//! match table.lock(&request).outcome() {
//!     Outcome::Done => { /* The port is this process's. */ }
//!     Outcome::Busy => {
//!         let survey = table.holders(Some(&request.device), Duration::from_secs(1));
//!         println!("{:?}", survey.holders);
//!     }
//!     Outcome::Denied => println!("the lock directory cannot be written"),
//! }
//! table.unlock(&request);
//! # Ok(()) }
//! ```

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod device;
mod dialects;
mod layout;
pub mod limits;
mod lock;
pub mod subordinate;
mod sys;
pub mod tcp;

pub use device::node::follow;
pub use device::other_names::{Links, udev_links};
pub use device::{
    Access, DeviceName, Node, NotADevice, Numbers, ResolveError, ResolvedDevice, has_serial_driver,
};
pub use dialects::Dialect;
pub use dialects::content::{Content, READ_LIMIT, Unreadable};
pub use dialects::forms::{BEGINNING, SLASH_SIGNS};
pub use layout::{Layout, STATE_DIR};
pub use limits::NAME_BYTES;
pub use lock::backoff::Backoff;
pub use lock::exclusive::{Closing, Duplicate, NoDuplicate};
pub use lock::held_files::HeldFiles;
pub use lock::holder_records::Applicant;
pub use lock::holders::{
    Holder, OutOfSight, Scheme, Standing, Survey, all_openers, command, has_open, held_by,
    one_line, opener, openers_of, out_of_sight, serial_devices, tell_exclusive,
};
pub use lock::names::is_temporary;
#[cfg(target_os = "linux")]
pub use lock::port_watch::{Examined, PortWatch, Trigger, rest_after};
pub use lock::table::{Checked, DeviceFiles, Table};
pub use lock::{Answer, Cause, Event, Outcome, Pass, Request, Stop, Weight};
pub use pidlockfile::Pid;
#[cfg(target_os = "linux")]
pub use sys::peer_groups;

/// Threads of a daemon.
pub mod thread {
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
}

/// What tests of other crates need.
#[doc(hidden)]
pub mod for_tests {
    #[cfg(target_os = "linux")]
    pub use crate::lock::kernel_buffer::widen;
}
/// The README's examples are tests, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod test_processes;
