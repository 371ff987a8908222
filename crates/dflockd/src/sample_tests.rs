//! Samples for the tests of several files: those of the engine's own tests, and a request.

use leases::{Claim, Key, Request, Seconds, Ttl};

#[path = "../../leases/src/sample_tests.rs"]
mod engine;

pub(crate) use engine::{CAPS, Counting, seconds};

/// The lock of this name for so many seconds, without waiting.
pub(crate) fn take(name: &[u8], lease: u64) -> Request<'_> {
    let (key, ttl) = (Key::new(name).unwrap(), Some(Ttl::new(lease).unwrap()));
    Request::Acquire { key, claim: Claim::LOCK, timeout: Seconds::ZERO, ttl }
}
