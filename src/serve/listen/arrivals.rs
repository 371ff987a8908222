//! New connections: how many are accepted, and which others are closed for them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use super::super::admission::Decision;
use super::super::connection::Connection;
use super::super::descriptors::spare_memory;
use super::super::listener::Listener;
use super::{Daemon, LISTENERS};
use crate::limits::{ACCEPT_PAUSE, ACCEPTED, REOPEN_EVERY};
use crate::log::Severity;
use crate::protocol::queue::WaiterId;

/// The listeners, and what they turned away.
pub(super) struct Arrivals {
    listeners: Vec<Listener>,
    /// Nothing is accepted before.
    accept_after: Option<Instant>,
    /// Connections closed or refused that were not told of yet.
    turned_away: u64,
    told_turned_away: Option<Instant>,
}

impl Arrivals {
    pub(super) const fn at(listeners: Vec<Listener>) -> Self {
        Self { listeners, accept_after: None, turned_away: 0, told_turned_away: None }
    }

    /// The end of the pause after a connection that could not be accepted.
    pub(super) const fn next_moment(&self) -> Option<Instant> {
        self.accept_after
    }

    /// From here on there are none.
    pub(super) fn take_listeners(&mut self) -> Vec<Listener> {
        std::mem::take(&mut self.listeners)
    }

    fn listen_for(&self, flags: EpollFlags, epoll: &Epoll) {
        for (number, listener) in (0_u64..).zip(&self.listeners) {
            let mut event = EpollEvent::new(flags, LISTENERS | number);
            // It can fail only for a descriptor that is not registered, and each is.
            let _ = epoll.modify(listener, &mut event);
        }
    }

    /// The number that is to be told now: one line a while, however many there are.
    fn count_turned_away(&mut self, now: Instant) -> Option<u64> {
        self.turned_away = self.turned_away.saturating_add(1);
        let told = self.told_turned_away;
        if told.is_some_and(|told| now.saturating_duration_since(told) < REOPEN_EVERY) {
            return None;
        }
        self.told_turned_away = Some(now);
        Some(std::mem::take(&mut self.turned_away))
    }
}

impl Daemon<'_> {
    pub(super) fn accept(&mut self, number: usize, now: Instant) {
        self.refresh(now);
        for _ in 0..ACCEPTED {
            let Some(listener) = self.arrivals.listeners.get(number) else { return };
            if let Err(error) = spare_memory() {
                return self.pause_accepting(&error, now);
            }
            match listener.accept() {
                Ok(stream) => self.enter(stream, now),
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EAGAIN) => return,
                    Some(Errno::EINTR | Errno::ECONNABORTED) => {}
                    Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)
                        if self.dispense() => {}
                    _ => return self.pause_accepting(&error, now),
                },
            }
        }
    }

    /// Closes one connection so that there is a descriptor for another.
    pub(super) fn dispense(&mut self) -> bool {
        let Some(token) = self.clients.dispensable() else { return false };
        self.end(token);
        true
    }

    pub(super) fn pause_accepting(&mut self, error: &io::Error, now: Instant) {
        if self.arrivals.accept_after.is_none() {
            self.service.note(Severity::Error, format_args!("cannot accept a connection: {error}"));
        }
        self.arrivals.accept_after = now.checked_add(ACCEPT_PAUSE);
        self.arrivals.listen_for(EpollFlags::empty(), &self.epoll);
    }

    /// Once the pause is over.
    pub(super) fn accept_again(&mut self, now: Instant) {
        if self.arrivals.accept_after.take_if(|moment| *moment <= now).is_some() {
            self.arrivals.listen_for(EpollFlags::EPOLLIN, &self.epoll);
        }
    }

    pub(super) fn enter(&mut self, stream: OwnedFd, now: Instant) {
        let token = self.clients.token();
        let client = self.service.welcome_to_wait(stream.as_fd(), WaiterId(token));
        let user = client.user();
        match self.clients.judge(user) {
            Decision::Welcome => {}
            Decision::Instead(other) => {
                self.count_turned_away(now);
                self.end(other);
            }
            Decision::TurnedAway => {
                self.count_turned_away(now);
                self.clients.give_back(token);
                Connection::new(stream, client, token, now).end(&self.service.farewell());
                return;
            }
        }
        let mut connection = Connection::new(stream, client, token, now);
        let turn = connection.greet(self.service);
        self.clients.enter(connection);
        self.after(token, turn, now);
    }

    fn count_turned_away(&mut self, now: Instant) {
        if let Some(count) = self.arrivals.count_turned_away(now) {
            self.service.note(
                Severity::Warning,
                format_args!("too many connections: {count} refused or closed"),
            );
        }
    }
}
