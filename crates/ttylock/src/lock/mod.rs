//! The locks of one device: their files, their contents, and taking and releasing them.
//!
//! `names` turns a device into the file names of every dialect, and only `table` combines them with the disk.

mod answer;
pub(crate) mod backoff;
pub(crate) mod directories;
pub(crate) mod exclusive;
pub(crate) mod flock;
mod flock_guards;
mod holder;
pub(crate) mod holder_records;
pub(crate) mod holders;
#[cfg(target_os = "linux")]
pub(crate) mod kernel_buffer;
mod kernel_list;
mod list_thread;
#[cfg(test)]
mod meanwhile;
mod model;
pub(crate) mod names;
mod open;
pub(crate) mod out_of_sight;
#[cfg(target_os = "linux")]
pub(crate) mod port_watch;
pub(crate) mod table;
pub(crate) mod watched;

pub use answer::{Answer, Stop};
pub use model::{Cause, Event, Outcome, Pass, Request, Weight};
