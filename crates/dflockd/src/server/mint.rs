//! Makes tokens: a fence that starts at the wall clock's nanoseconds, so that it grows across restarts, and
//! random bits from the system.

use leases::{Mint, Token};
use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

const POOL_BYTES: usize = 512;
const SALT_BYTES: usize = 8;

/// Mints the server's tokens.
#[derive(Debug)]
pub(super) struct ServerMint {
    fence: u64,
    pool: [u8; POOL_BYTES],
    used: usize,
    fallback: RandomState,
}

impl ServerMint {
    /// Fences start above the wall clock and above `floor`.
    pub(super) fn new(floor: u64) -> Self {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = u64::try_from(clock.as_nanos()).unwrap_or(0);
        Self::from(clock.max(floor))
    }

    /// Fences start above this one.
    pub(super) fn from(fence: u64) -> Self {
        Self { fence, pool: [0; POOL_BYTES], used: POOL_BYTES, fallback: RandomState::new() }
    }

    /// One system call fills the pool for 64 tokens.
    fn salt(&mut self) -> u64 {
        if self.used >= POOL_BYTES {
            if getrandom::fill(&mut self.pool).is_err() {
                // The keys of a `RandomState` came from the same source while it still answered.
                return self.fallback.hash_one(self.fence);
            }
            self.used = 0;
        }
        let bytes = self.pool.get_mut(self.used..self.used + SALT_BYTES);
        self.used += SALT_BYTES;
        // A salt that was given out is erased here, so it exists only in its hold.
        bytes.map_or(0, |bytes| {
            bytes.iter_mut().fold(0, |salt, byte| (salt << 8) | u64::from(std::mem::take(byte)))
        })
    }
}

impl Mint for ServerMint {
    fn token(&mut self) -> Token {
        self.fence = self.fence.saturating_add(1);
        Token::new(self.fence, self.salt())
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
