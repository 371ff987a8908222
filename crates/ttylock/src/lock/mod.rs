//! The locks of one device: which files they are, what they say, and taking and releasing them.
//!
//! `names` turns a device into the file names of every dialect, and `table` is the only place that joins
//! them with the disk.

pub(crate) mod backoff;
pub(crate) mod flock;
mod flock_guards;
mod flock_rights;
mod holder;
pub(crate) mod holder_records;
mod kernel_list;
mod list_reader;
mod lookout;
pub(crate) mod memory;
mod model;
pub(crate) mod names;
mod open;
mod passes;
pub(crate) mod places;
pub(crate) mod table;
mod watched;
pub(crate) mod who;

pub use model::{Answer, Cause, Contended, Event, Outcome, Pass, Request, Weight};
