//! The locks of serial devices, for any program.
//!
//! [`DeviceName`] is what a client may call a device, [`follow`] tells which node that is. A [`Table`] takes
//! and releases lock files under every convention of the field, as [`Places`] says where, and tells who
//! holds a device. The port itself is never opened.
//!
//! ```no_run
//! use ttylock::{DeviceName, Outcome, Pid, Places, Request, Table};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut table = Table::new(Places::native());
//! let device = DeviceName::parse(b"/dev/ttyUSB0").map_err(|_| "no device's name")?;
//! let request = Request { device, pid: Pid::this() };
//! match table.lock(&request).outcome {
//!     Outcome::Done => { /* The port is this process's. */ }
//!     Outcome::Busy => println!("{:?}", table.holders(&request.device)),
//!     Outcome::Denied => println!("the lock directory cannot be written"),
//! }
//! table.unlock(&request);
//! # Ok(()) }
//! ```

mod device;
mod dialects;
mod directory_stamp;
pub mod limits;
mod lock;
mod sys;

pub use device::links::Links;
pub use device::model::{Access, Node, Numbers, ResolveError, ResolvedDevice};
pub use device::name::{DeviceName, NAME_BYTES, NotADevice};
pub use device::node::follow;
pub use device::udev::links as udev_links;
pub use dialects::Dialect;
pub use dialects::content::{Content, READ_LIMIT, Unreadable};
pub use lock::backoff::{Backoff, Contention};
pub use lock::names::is_lock_file;
pub use lock::table::{Names, Places, Survey, Table};
pub use lock::who::{
    Holder, NoLook, OpenLook, Progress, Scheme, Standing, opener, openers_of, serial_devices,
};
pub use lock::{Answer, Cause, Contended, Event, Outcome, Pass, Request, Weight};
pub use pidlockfile::Pid;

/// What tests of other crates need.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::directory_stamp::SETTLED;
    pub use crate::limits::{KEPT_WITHOUT_DEVICE, LOCK_FILES_OF_A_USER, NAMES_OF_A_LOCK};
}
