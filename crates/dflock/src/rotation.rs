//! Servers that know the same key: which one is asked first. Pure.

use super::address::ServerAddress;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long to wait for one server before the next is tried as well (RFC 8305 says 250 ms).
pub(super) const HEAD_START: Duration = Duration::from_millis(250);

/// Equivalent servers. Remembers which one answered last.
pub(super) struct Rotation {
    /// At least one.
    servers: Vec<ServerAddress>,
    at: AtomicUsize,
}

impl Rotation {
    pub(super) fn of(servers: Vec<&ServerAddress>) -> Self {
        Self { servers: servers.into_iter().cloned().collect(), at: AtomicUsize::new(0) }
    }

    /// How many there are.
    pub(super) fn width(&self) -> u32 {
        u32::try_from(self.servers.len()).unwrap_or(u32::MAX).max(1)
    }

    /// All of them with their numbers, with the one to ask first in front.
    pub(super) fn in_order(&self) -> Vec<(usize, ServerAddress)> {
        let first = self.at.load(Ordering::Relaxed);
        let numbered = self.servers.iter().cloned().enumerate();
        numbered.cycle().skip(first).take(self.servers.len()).collect()
    }

    /// The one to ask first.
    pub(super) fn first(&self) -> Option<ServerAddress> {
        self.servers.get(self.at.load(Ordering::Relaxed)).cloned()
    }

    /// This one is asked first from now on.
    pub(super) fn turn_to(&self, number: usize) {
        self.at.store(number, Ordering::Relaxed);
    }

    /// The next server is asked first from now on, because this one answers but cannot be used.
    pub(super) fn turn(&self) {
        let next = self.at.load(Ordering::Relaxed).saturating_add(1);
        self.turn_to(next.checked_rem(self.servers.len()).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::Rotation;
    use crate::address::ServerAddress;

    #[test]
    fn each_server_is_asked_in_its_turn() {
        let servers: Vec<ServerAddress> =
            ["a:1", "b:1", "c:1"].map(|text| text.parse().unwrap()).into();
        let rotation = Rotation::of(servers.iter().collect());
        let order = || -> String {
            let order = rotation.in_order();
            assert!(order.iter().all(|(at, server)| *server == servers[*at]));
            order.iter().filter_map(|(_, server)| server.host()).collect()
        };
        assert_eq!((rotation.width(), order()), (3, "abc".to_owned()));
        rotation.turn();
        assert_eq!(order(), "bca");
        rotation.turn_to(2);
        assert_eq!(order(), "cab");
        rotation.turn();
        assert_eq!(order(), "abc");
    }
}
