//! Devices: what a client may name, which node it is, and what else that is called.

pub(crate) mod absent;
pub mod links;
pub mod model;
pub mod name;
pub mod node;
pub mod sysfs;
pub mod udev;
