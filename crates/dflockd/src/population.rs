//! How many connections there are, and how many of each address. Pure.

use std::collections::HashMap;
use std::net::IpAddr;

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

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
}
