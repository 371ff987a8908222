//! What tests in several places begin with: a mint that counts, limits in nobody's way.

use leases::{Caps, Mint, Seconds, Token, Ttl};

/// Tokens one after another, from the one after this.
pub(crate) struct Counting(pub(crate) u64);

impl Mint for Counting {
    fn token(&mut self) -> Token {
        self.0 += 1;
        Token::new(self.0, self.0)
    }
}

pub(crate) const CAPS: Caps = Caps {
    default_ttl: Ttl::new(33).unwrap(),
    max_locks: 1000,
    max_waiters: 0,
    gc_interval: Seconds::new(5).unwrap(),
    gc_max_idle: Seconds::new(60).unwrap(),
    disconnect_grace: Seconds::ZERO,
    max_entries: usize::MAX,
    max_entries_per_connection: usize::MAX,
};

pub(crate) fn seconds(count: u64) -> Seconds {
    Seconds::new(count).unwrap()
}
