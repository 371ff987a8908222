//! Windows: what it says of processes, and what it has no means for.

pub(crate) mod alike;
pub(crate) mod bell;
pub(crate) mod line;
pub(crate) mod links;
pub(crate) mod system;
pub(crate) mod watch;
