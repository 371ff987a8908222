//! Windows: what it tells of processes, and replacements for what it lacks.

pub(crate) mod alike;
pub(crate) mod bell;
pub(crate) mod line;
pub(crate) mod links;
pub(crate) mod system;
pub(crate) mod watch;
