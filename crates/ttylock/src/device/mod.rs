//! Devices: their names, and the nodes to which these lead.

pub(crate) mod absent;
pub(crate) mod links;
pub(crate) mod model;
pub(crate) mod name;
pub(crate) mod node;
pub(crate) mod sysfs;
pub(crate) mod udev;
