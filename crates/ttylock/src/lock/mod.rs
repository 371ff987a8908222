//! The locks of one device: which files they are, what they say, and taking and releasing them.
//!
//! `names` turns a device into the file names of every dialect, and `table` is the only place that joins
//! them with the disk.

pub mod backoff;
pub mod flock;
mod flock_guards;
mod flock_rights;
mod holder;
pub mod holder_records;
mod kernel_list;
mod list_reader;
mod lookout;
pub mod memory;
mod model;
pub mod names;
mod open;
mod passes;
pub mod places;
pub mod table;
mod watched;
pub mod who;

pub use model::{Answer, Cause, Contended, Event, Outcome, Pass, Request, Weight};
