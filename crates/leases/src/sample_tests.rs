//! What tests in several places begin with: a mint that counts, limits in nobody's way.

use leases::{Caps, Mint, Seconds, Token};

/// Tokens one after another, from the one after this.
pub(crate) struct Counting(pub(crate) u64);

impl Mint for Counting {
    fn token(&mut self) -> Token {
        self.0 += 1;
        Token::new(self.0, self.0)
    }
}

pub(crate) const CAPS: Caps = {
    let mut caps = Caps::DEFAULT;
    caps.max_locks = 1000;
    caps.max_entries = usize::MAX;
    caps.max_entries_per_connection = usize::MAX;
    caps
};

pub(crate) fn seconds(count: u64) -> Seconds {
    Seconds::new(count).unwrap()
}
