//! Devices: what a client may name, which node it is, and what each system calls its locks.

pub(crate) mod absent;
pub mod links;
pub mod name;
pub mod node;
pub mod os;
pub mod sysfs;
pub mod udev;
