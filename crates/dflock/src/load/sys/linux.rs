//! Linux: readiness of connections by epoll(7).

use super::super::connection::Connection;
use super::{Ready, TICK_MS};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Usage, UsageWho, getrusage};

const EVENTS_PER_WAIT: usize = 512;

/// The set in which connections are watched.
pub(in crate::load) struct Watch {
    epoll: Epoll,
    events: [EpollEvent; EVENTS_PER_WAIT],
}

impl Watch {
    /// Watches nothing yet.
    pub(in crate::load) fn new() -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, events: [EpollEvent::empty(); EVENTS_PER_WAIT] })
    }

    pub(in crate::load) fn add(
        &mut self,
        connection: &Connection,
        place: usize,
    ) -> Result<(), Errno> {
        self.epoll.add(connection.as_fd(), interest(connection, place))
    }

    /// To be called when it has got, or got rid of, bytes to send.
    pub(in crate::load) fn change(
        &mut self,
        connection: &Connection,
        place: usize,
    ) -> Result<(), Errno> {
        self.epoll.modify(connection.as_fd(), &mut interest(connection, place))
    }

    pub(in crate::load) fn remove(&mut self, connection: &Connection) -> Result<(), Errno> {
        self.epoll.delete(connection.as_fd())
    }

    /// Waits a moment for any of the connections.
    pub(in crate::load) fn wait(
        &mut self,
        _connections: &[Option<Connection>],
        ready: &mut Vec<Ready>,
    ) -> Result<(), Errno> {
        ready.clear();
        let count = self.epoll.wait(&mut self.events, EpollTimeout::from(TICK_MS))?;
        let seen = |event: &EpollEvent| Ready {
            place: usize::try_from(event.data()).unwrap_or(usize::MAX),
            readable: event.events().intersects(!EpollFlags::EPOLLOUT),
            writable: event.events().contains(EpollFlags::EPOLLOUT),
        };
        ready.extend(self.events.iter().take(count).map(seen));
        Ok(())
    }
}

fn interest(connection: &Connection, place: usize) -> EpollEvent {
    let mut flags = EpollFlags::EPOLLIN;
    flags.set(EpollFlags::EPOLLOUT, connection.wants_write());
    EpollEvent::new(flags, u64::try_from(place).unwrap_or(u64::MAX))
}

/// What this thread has used so far.
pub(in crate::load) fn cpu_usage() -> Result<Usage, Errno> {
    getrusage(UsageWho::RUSAGE_THREAD)
}
