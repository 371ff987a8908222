//! A limit of the service that the client keeps. Pure.

/// The longest time that one WAIT to a service may name, in seconds: one day (the service's own
/// limit). A client that waits longer asks again.
pub(crate) const WAIT_MAX_SECS: u32 = 86_400;
