//! A port for the HTTP side of a server under test.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// The HTTP port cannot be 0, which means none. So: one below those the system gives out by
/// itself, and free a moment ago.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(20_000 + next % 12_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
