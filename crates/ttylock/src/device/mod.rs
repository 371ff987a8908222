//! Devices: what a client may name, which node it is, and what else that is called.

pub(crate) mod absent;
pub(crate) mod links;
pub(crate) mod model;
pub(crate) mod name;
pub(crate) mod node;
pub(crate) mod sysfs;
pub(crate) mod udev;
