//! New connections: how many are accepted, and which others are closed for them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::super::admission::Decision;
use super::super::connection::Connection;
use super::super::descriptors::spare_memory;
use super::{Daemon, LISTENERS};
use crate::limits::{ACCEPT_PAUSE, ACCEPTED, REOPEN_EVERY};
use crate::log::Severity;
use crate::protocol::queue::WaiterId;

impl Daemon<'_> {
    pub(super) fn accept(&mut self, number: usize, now: Instant) {
        self.refresh(now);
        for _ in 0..ACCEPTED {
            let Some(listener) = self.listeners.get(number) else { return };
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
        if self.accept_after.is_none() {
            self.service.note(Severity::Error, format_args!("cannot accept a connection: {error}"));
        }
        self.accept_after = now.checked_add(ACCEPT_PAUSE);
        self.listen_for(EpollFlags::empty());
    }

    pub(super) fn listen_for(&mut self, flags: EpollFlags) {
        for (number, listener) in (0_u64..).zip(&self.listeners) {
            let mut event = EpollEvent::new(flags, LISTENERS | number);
            // It can fail only for a descriptor that is not registered, and each is.
            let _ = self.epoll.modify(listener, &mut event);
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
        self.after(token, turn, false, now);
    }

    /// One line a while, however many there are.
    pub(super) fn count_turned_away(&mut self, now: Instant) {
        self.turned_away = self.turned_away.saturating_add(1);
        let told = self.told_turned_away;
        if told.is_none_or(|told| now.saturating_duration_since(told) >= REOPEN_EVERY) {
            let count = std::mem::take(&mut self.turned_away);
            self.service.note(
                Severity::Warning,
                format_args!("too many connections: {count} refused or closed"),
            );
            self.told_turned_away = Some(now);
        }
    }
}
