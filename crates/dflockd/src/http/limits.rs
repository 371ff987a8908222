//! How many requests an address may make by HTTP in a second. Pure.

use leases::Moment;
use std::collections::HashMap;
use std::net::IpAddr;

/// The most addresses that are remembered. If more ask in one moment, all of them start anew.
const MOST_ADDRESSES: usize = 65_536;

/// A bucket of requests for each address: so many in a second, and so many at once.
#[derive(Debug)]
pub(super) struct Rates {
    /// The time that one request takes of the bucket; 0 for no limit.
    each_micros: u64,
    burst_micros: u64,
    /// When the bucket of each address is full again.
    full_at: HashMap<IpAddr, Moment>,
}

impl Rates {
    /// `rate` 0 for no limit.
    pub(super) fn new(rate: usize, burst: usize) -> Self {
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let each_micros = 1_000_000_u64.checked_div(rate).unwrap_or(0);
        let burst_micros = each_micros.saturating_mul(u64::try_from(burst).unwrap_or(u64::MAX));
        Self { each_micros, burst_micros, full_at: HashMap::new() }
    }

    /// Counts a request, if it may come now.
    pub(super) fn allow(&mut self, now: Moment, address: Option<IpAddr>) -> bool {
        let Some(address) = address.filter(|_| self.each_micros > 0) else { return true };
        if self.full_at.len() >= MOST_ADDRESSES {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= MOST_ADDRESSES {
                self.full_at.clear();
            }
        }
        let full_at = self.full_at.entry(address).or_insert(now);
        let next = (*full_at).max(now).after_micros(self.each_micros);
        let is_allowed = next.micros_since(now) <= self.burst_micros;
        if is_allowed {
            *full_at = next;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    fn address(number: u32) -> Option<IpAddr> {
        Some(Ipv4Addr::from(number).into())
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut rates = Rates::new(10, 3);
        let mut ask = |millis| rates.allow(at(millis), address(1));
        assert_eq!([ask(0), ask(0), ask(0), ask(0)], [true, true, true, false]);
        assert_eq!([ask(99), ask(100), ask(100)], [false, true, false]);
        assert_eq!([ask(9000), ask(9000), ask(9000), ask(9000)], [true, true, true, false]);
        assert!(rates.allow(at(9000), address(2)), "another address has its own");
        assert!(rates.allow(at(9000), None), "a Unix socket has no address");
    }

    #[test]
    fn without_a_rate_all_may_come() {
        let mut rates = Rates::new(0, 0);
        assert!((0..1000).all(|_| rates.allow(at(0), address(1))));
        assert!(rates.full_at.is_empty());
    }

    #[test]
    fn however_many_ask_few_are_remembered() {
        let mut rates = Rates::new(1, 1);
        for number in 0..200_000 {
            assert!(rates.allow(at(0), address(number)));
            assert!(rates.full_at.len() <= MOST_ADDRESSES);
        }
    }
}
