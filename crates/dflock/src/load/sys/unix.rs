//! Other systems than Linux: poll(2), which looks at every connection each time, so a run costs more than
//! with their own interfaces. Type-checked, never run so far.

use super::super::connection::Connection;
use super::{Ready, TICK_MS};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::resource::{Usage, UsageWho, getrusage};

/// The set in which connections are watched: all there are.
pub(in crate::load) struct Watch;

impl Watch {
    pub(in crate::load) fn new() -> Result<Self, Errno> {
        Ok(Self)
    }

    pub(in crate::load) fn add(
        &mut self,
        _connection: &Connection,
        _place: usize,
    ) -> Result<(), Errno> {
        Ok(())
    }

    /// To be called when it has got, or got rid of, bytes to send.
    pub(in crate::load) fn change(
        &mut self,
        _connection: &Connection,
        _place: usize,
    ) -> Result<(), Errno> {
        Ok(())
    }

    pub(in crate::load) fn remove(&mut self, _connection: &Connection) -> Result<(), Errno> {
        Ok(())
    }

    /// Waits a moment for any of the connections.
    pub(in crate::load) fn wait(
        &mut self,
        connections: &[Option<Connection>],
        ready: &mut Vec<Ready>,
    ) -> Result<(), Errno> {
        ready.clear();
        let open =
            || connections.iter().enumerate().filter_map(|(place, it)| Some((place, it.as_ref()?)));
        let mut polled: Vec<PollFd<'_>> = open()
            .map(|(_, connection)| PollFd::new(connection.as_fd(), interest(connection)))
            .collect();
        poll(&mut polled, TICK_MS)?;
        let seen = |((place, _), polled): ((usize, &Connection), &PollFd<'_>)| {
            let events = polled.revents().unwrap_or(PollFlags::POLLERR);
            (!events.is_empty()).then(|| Ready {
                place,
                readable: events.intersects(!PollFlags::POLLOUT),
                writable: events.contains(PollFlags::POLLOUT),
            })
        };
        ready.extend(open().zip(&polled).filter_map(seen));
        Ok(())
    }
}

fn interest(connection: &Connection) -> PollFlags {
    let mut flags = PollFlags::POLLIN;
    flags.set(PollFlags::POLLOUT, connection.wants_write());
    flags
}

/// What this thread has used so far, or where threads are not told apart this process.
pub(in crate::load) fn cpu_usage() -> Result<Usage, Errno> {
    #[cfg(any(target_os = "freebsd", target_os = "openbsd"))]
    let who = UsageWho::RUSAGE_THREAD;
    #[cfg(not(any(target_os = "freebsd", target_os = "openbsd")))]
    let who = UsageWho::RUSAGE_SELF;
    getrusage(who)
}
