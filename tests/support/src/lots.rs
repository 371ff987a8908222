//! Numbers from a seed, so that a run can be repeated as far as the kernel lets it.

/// Lots from this seed.
#[derive(Debug)]
pub struct Lots(pub u64);

impl Lots {
    /// A number below this one.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }

    /// One of so many.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }
}
