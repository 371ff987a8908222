//! Makes tokens: a fence that starts at the wall clock's nanoseconds, so that it grows across restarts, and
//! random bits from the system.

use super::fence_file::FenceFile;
use leases::{Mint, Token};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const POOL_BYTES: usize = 512;
const SALT_BYTES: usize = 8;
/// How many fences are noted in advance in the state file.
const FENCES_AHEAD: u64 = 1 << 20;

/// Mints the server's tokens.
#[derive(Debug)]
pub(super) struct ServerMint {
    fence: u64,
    /// The state file permits fences below this.
    ceiling: u64,
    file: Option<Arc<FenceFile>>,
    pool: [u8; POOL_BYTES],
    used: usize,
    fallback: RandomState,
}

impl ServerMint {
    /// Fences start above the wall clock, above `floor` and above the number in the file.
    pub(super) fn new(file: Option<Arc<FenceFile>>, floor: u64) -> Self {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = u64::try_from(clock.as_nanos()).unwrap_or(0);
        let stored = file.as_ref().map_or(0, |file| file.stored());
        let fence = clock.max(stored).max(floor);
        let ceiling = if file.is_some() { fence } else { u64::MAX };
        Self {
            fence,
            ceiling,
            file,
            pool: [0; POOL_BYTES],
            used: POOL_BYTES,
            fallback: RandomState::new(),
        }
    }

    /// If the file cannot be written, the clock alone still keeps fences growing. So the server continues, and logs
    /// that once per million grants.
    fn raise_ceiling(&mut self) {
        self.ceiling = self.fence.saturating_add(FENCES_AHEAD);
        let Some(file) = &self.file else { return };
        if let Err(err) = file.reserve(self.ceiling) {
            tracing::error!(%err, "fence state file cannot be written");
        }
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
        if self.fence >= self.ceiling {
            self.raise_ceiling();
        }
        Token::new(self.fence, self.salt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_grow_and_salts_differ() {
        let mut mint = ServerMint::new(None, 0);
        let tokens: Vec<Token> = (0..200).map(|_| mint.token()).collect();
        assert!(tokens.windows(2).all(|w| w[0].fence() < w[1].fence()));
        let salts: std::collections::HashSet<_> =
            tokens.iter().map(|token| token.digits()[16..].to_vec()).collect();
        assert_eq!(salts.len(), tokens.len());
    }

    #[test]
    fn the_file_keeps_fences_growing_though_the_clock_goes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fence");
        let far = u64::MAX / 3;
        std::fs::write(&path, far.to_be_bytes()).unwrap();
        let mint = || ServerMint::new(Some(Arc::new(FenceFile::open(&path).unwrap())), 0);
        let mut first = mint();
        let last = (0..3).map(|_| first.token().fence()).last().unwrap();
        assert!(last > far);
        assert!(mint().token().fence() > last);
    }

    /// Eight bytes of all ones would leave no greater fence to give out.
    #[test]
    fn a_fence_without_successors_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fence");
        std::fs::write(&path, [0xff; 8]).unwrap();
        assert!(FenceFile::open(&path).is_err());
    }

    #[test]
    fn the_file_is_there_from_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fence");
        FenceFile::open(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0; 8]);
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fence");
        std::fs::write(&path, b"somebody's notes").unwrap();
        assert!(FenceFile::open(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"somebody's notes");
    }
}
