//! The locks of serial devices, for any program.
//!
//! [`device`] says what a client may call a device, which node that is and which other names it
//! has; [`lock`] takes and releases its lock files under every convention of the field, and tells
//! who holds it. The port itself is never opened.
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

pub mod device;
mod dialects;
pub mod directory_stamp;
pub mod limits;
pub mod lock;
mod sys;

pub use device::name::DeviceName;
pub use dialects::Dialect;
pub use dialects::content::{Content, READ_LIMIT, Unreadable};
pub use lock::names::is_lock_file;
pub use lock::table::{Places, Table};
pub use lock::who::Holder;
pub use lock::{Answer, Outcome, Request};
pub use pidlockfile::Pid;
