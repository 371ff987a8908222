//! How many connections there are, how many of each address, and how many requests an address may make by HTTP in a
//! second. Pure.

use std::collections::HashMap;
use std::net::IpAddr;

use leases::Moment;

/// Why there is no room for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    All,
    Address,
}

/// The connections of one kind, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Population {
    count: usize,
    addresses: HashMap<IpAddr, usize>,
}

impl Population {
    /// All of them.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Caps: of all connections, and of those of one address; 0 for none.
    pub(crate) fn room_for(
        &self,
        address: Option<IpAddr>,
        most: usize,
        each: usize,
    ) -> Result<(), Full> {
        let present = address.and_then(|address| self.addresses.get(&address));
        if most > 0 && self.count >= most {
            Err(Full::All)
        } else if each > 0 && present.is_some_and(|count| *count >= each) {
            Err(Full::Address)
        } else {
            Ok(())
        }
    }

    pub(crate) fn add(&mut self, address: Option<IpAddr>) {
        self.count += 1;
        if let Some(address) = address {
            *self.addresses.entry(address).or_insert(0) += 1;
        }
    }

    pub(crate) fn remove(&mut self, address: Option<IpAddr>) {
        self.count -= 1;
        let Some(address) = address else { return };
        if let Some(count) = self.addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&address);
            }
        }
    }
}

/// The most addresses that are remembered. If more ask in one moment, all of them start anew.
const MOST_ADDRESSES: usize = 65_536;

/// A bucket of requests for each address: so many in a second, and so many at once.
#[derive(Debug)]
pub(crate) struct Rates {
    /// The time that one request takes of the bucket; 0 for no limit.
    each_micros: u64,
    burst_micros: u64,
    /// When the bucket of each address is full again.
    full_at: HashMap<IpAddr, Moment>,
}

impl Rates {
    /// `rate` 0 for no limit.
    pub(crate) fn new(rate: usize, burst: usize) -> Self {
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let each_micros = 1_000_000_u64.checked_div(rate).unwrap_or(0);
        let burst_micros = each_micros.saturating_mul(u64::try_from(burst).unwrap_or(u64::MAX));
        Self { each_micros, burst_micros, full_at: HashMap::new() }
    }

    /// Counts a request, if it may come now.
    pub(crate) fn allow(&mut self, now: Moment, address: Option<IpAddr>) -> bool {
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
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn connections_of_an_address() {
        let mut guests = Population::default();
        let address = |number: u32| Some(Ipv4Addr::from(number).into());
        let enter = |guests: &mut Population, address| {
            let has_room = guests.room_for(address, 0, 2).is_ok();
            if has_room {
                guests.add(address);
            }
            has_room
        };
        assert_eq!([(); 3].map(|()| enter(&mut guests, address(1))), [true, true, false]);
        assert!(enter(&mut guests, address(2)) && enter(&mut guests, None));
        guests.remove(address(1));
        assert_eq!([(); 2].map(|()| enter(&mut guests, address(1))), [true, false]);
        (0..2).for_each(|_| guests.remove(address(1)));
        guests.remove(address(2));
        assert!(guests.addresses.is_empty());
    }

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
