//! Serves one ready connection, and handles the result.

use std::time::Instant;

use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::super::admission::Token;
use super::super::connection::{Connection, Phase, Turn, close};
use super::super::status_worker::{Ended, Seen};
use super::Daemon;
use crate::limits::{ATTEMPTED, TURN_BYTES};
use crate::log::Severity;

impl Daemon<'_> {
    pub(super) fn ready(&mut self, token: Token, flags: EpollFlags, now: Instant) {
        let Some(connection) = self.clients.find(token) else { return };
        match connection.phase {
            // Events other than a hang-up are not of interest.
            Phase::Asking => {
                self.queries.forget(token);
                connection.hang_up();
            }
            Phase::Retrying => {
                if !connection.hang_up() {
                    // A release is done all the same.
                    self.listen_to(token, None);
                    return;
                }
                self.clients.retry_no_more(token);
            }
            Phase::Waiting => {
                let gone = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
                if !flags.intersects(gone) {
                    return;
                }
                self.service.cancel(&mut connection.client);
                connection.phase = Phase::Open;
            }
            Phase::Open | Phase::Sending(_) => {}
        }
        self.turn(token, now);
    }

    pub(super) fn turn(&mut self, token: Token, now: Instant) {
        let Some(connection) = self.clients.find(token) else { return };
        let was_silent = !connection.spoke;
        let mut buffer = [0; TURN_BYTES];
        let turn = connection.turn(self.service, &mut buffer, now);
        if was_silent && connection.spoke {
            let user = connection.client.user();
            self.clients.spoke(user, token);
        }
        self.after(token, turn, now);
        self.watch_holders();
    }

    /// What a connection does after a turn.
    pub(super) fn after(&mut self, token: Token, turn: Turn, now: Instant) {
        let Some(connection) = self.clients.find(token) else { return };
        let hears = connection.hears();
        match &turn {
            Turn::Blocked if !matches!(connection.phase, Phase::Sending(_)) => {
                connection.phase = Phase::Sending(now);
            }
            Turn::Waits => connection.phase = Phase::Waiting,
            Turn::Retries(_) => connection.phase = Phase::Retrying,
            Turn::Asks(_) => connection.phase = Phase::Asking,
            Turn::Blocked | Turn::Quiet | Turn::More | Turn::Over => {}
        }
        let deadline = connection.deadline(self.settings.idle_timeout);
        self.schedule.sweep_by(deadline);
        let reading = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
        let interest = match turn {
            Turn::Over => return self.close(token),
            Turn::Quiet => Some(reading),
            Turn::More => {
                self.clients.defer(token);
                None
            }
            Turn::Blocked => Some(EpollFlags::EPOLLOUT),
            Turn::Waits => Some(EpollFlags::EPOLLRDHUP),
            Turn::Retries(pause) => {
                self.clients.retry_at(now.checked_add(pause).unwrap_or(now), token);
                hears.then_some(EpollFlags::empty())
            }
            Turn::Asks(device) => {
                self.queries.push(token, device);
                Some(EpollFlags::empty())
            }
        };
        if !self.listen_to(token, interest) {
            self.close(token);
        }
    }

    /// Tells epoll what is of interest; with no flags, that is a hang-up alone. Those of no interest are taken out of it,
    /// for it always tells of hang-ups, again and again.
    pub(super) fn listen_to(&mut self, token: Token, interest: Option<EpollFlags>) -> bool {
        let Some(connection) = self.clients.find(token) else { return true };
        let known = std::mem::replace(&mut connection.interest, interest);
        let outcome = match (known, interest) {
            (None, None) => return true,
            (Some(before), Some(after)) if before == after => return true,
            (Some(_), Some(flags)) => {
                self.epoll.modify(&connection.stream, &mut EpollEvent::new(flags, token))
            }
            (None, Some(flags)) => {
                self.epoll.add(&connection.stream, EpollEvent::new(flags, token))
            }
            (Some(_), None) => self.epoll.delete(&connection.stream),
        };
        outcome.is_ok()
    }

    pub(super) fn close(&mut self, token: Token) {
        if let Some(connection) = self.leave(token) {
            close(&connection.stream);
        }
    }

    pub(super) fn end(&mut self, token: Token) {
        if let Some(connection) = self.leave(token) {
            connection.end(&self.service.farewell());
        }
    }

    pub(super) fn leave(&mut self, token: Token) -> Option<Connection> {
        let connection = self.clients.leave(token)?;
        self.queries.forget(token);
        self.service.forget(&connection.client);
        if self.clients.is_empty() {
            self.schedule.last_client_left(Instant::now());
        }
        Some(connection)
    }

    /// The requests that were contended, those of the earliest moment first, some in each round.
    pub(super) fn retry(&mut self, now: Instant) {
        for _ in 0..ATTEMPTED {
            let Some(token) = self.clients.due_retry(now) else { return };
            self.turn(token, now);
        }
    }

    /// A turn for each client that had more to do. Those that still have come again in the next round.
    pub(super) fn serve_unfinished(&mut self, now: Instant) {
        for _ in 0..self.clients.unfinished() {
            let Some(token) = self.clients.next_unfinished() else { return };
            self.turn(token, now);
        }
    }

    /// Has all questions of STAT looked into, if it is time for that.
    pub(super) fn ask_query(&mut self, now: Instant) {
        if !self.status_worker.is_looking() {
            let queries = self.queries.due(now);
            if !queries.is_empty() {
                self.status_worker.ask(queries);
            }
        }
    }

    /// The answers to STAT.
    pub(super) fn answer_queries(&mut self) {
        let surveys = match self.status_worker.surveys() {
            Ok(Some(surveys)) => surveys,
            Ok(None) => return,
            Err(Ended) => {
                self.service
                    .note(Severity::Error, format_args!("the thread that answers STAT has ended"));
                self.ending = true;
                return;
            }
        };
        self.queries.answered(surveys.began, surveys.ended);
        for (token, seen) in surveys.answers {
            self.answer_query(token, seen);
        }
    }

    fn answer_query(&mut self, token: Token, seen: Option<Seen>) {
        let connection = self.clients.find(token).filter(|it| it.phase == Phase::Asking);
        if let Some(connection) = connection {
            self.service.report_seen(&mut connection.client, seen);
            connection.phase = Phase::Open;
            self.turn(token, Instant::now());
        }
    }
}
