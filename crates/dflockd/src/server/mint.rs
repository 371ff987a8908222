//! Makes tokens: a fence that starts at the wall clock's nanoseconds, so that it grows across restarts, and
//! random bits from the system.

use leases::{Mint, Token};
use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// The salts of so many grants come with one call of the system.
const SALTS: usize = 64;

/// Mints the server's tokens.
pub(super) struct ServerMint {
    fence: u64,
    /// Random numbers that were not used yet.
    salts: Vec<u64>,
}

impl ServerMint {
    /// Fences start above the wall clock and above `floor`.
    pub(super) fn new(floor: u64) -> Self {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = u64::try_from(clock.as_nanos()).unwrap_or(0);
        Self::from(clock.max(floor))
    }

    /// Fences start above this one.
    pub(super) const fn from(fence: u64) -> Self {
        Self { fence, salts: Vec::new() }
    }

    /// A random number that was in no token yet.
    fn salt(&mut self) -> Option<u64> {
        if self.salts.is_empty() {
            let mut bytes = [0; size_of::<u64>() * SALTS];
            getrandom::fill(&mut bytes).ok()?;
            let numbers =
                bytes.chunks_exact(size_of::<u64>()).flat_map(<[u8; size_of::<u64>()]>::try_from);
            self.salts.extend(numbers.map(u64::from_ne_bytes));
        }
        self.salts.pop()
    }
}

impl Mint for ServerMint {
    fn token(&mut self) -> Token {
        self.fence = self.fence.saturating_add(1);
        // The keys of a `RandomState` came from the same source while it still answered.
        let salt = self.salt().unwrap_or_else(|| RandomState::new().hash_one(self.fence));
        Token::new(self.fence, salt)
    }
}

/// A number that nobody can guess.
pub(super) fn random() -> u128 {
    let mut bytes = [0; size_of::<u128>()];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_ne_bytes(bytes),
        // As for salts.
        Err(_) => {
            let half = || u128::from(RandomState::new().hash_one(bytes));
            half() << 64 | half()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_grow_and_salts_differ() {
        let mut mint = ServerMint::new(0);
        let tokens: Vec<Token> = (0..200).map(|_| mint.token()).collect();
        assert!(tokens.windows(2).all(|w| w[0].fence() < w[1].fence()));
        let salts: std::collections::HashSet<_> =
            tokens.iter().map(|token| token.digits()[16..].to_vec()).collect();
        assert_eq!(salts.len(), tokens.len());
    }

    #[test]
    fn fences_grow_though_the_clock_goes_back() {
        let last = u64::MAX / 3;
        assert_eq!(ServerMint::new(last).token().fence(), last + 1);
    }
}
