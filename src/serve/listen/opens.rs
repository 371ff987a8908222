//! Programs that open ports without a lock, if they are watched: passes on the kernel's reports, and locks a
//! port for a process that keeps it open for a while.

use std::time::Instant;

use super::super::status_queries::OURSELVES;
use super::super::status_worker::Seen;
use super::Daemon;
use crate::log::Severity;

impl Daemon<'_> {
    /// Before the first client is served.
    pub(super) fn begin_with_opens(&mut self) {
        let Some(watch) = &self.opens else { return };
        for port in watch.unwatched() {
            self.service.note(Severity::Warning, format_args!("cannot watch {port}"));
        }
        self.find_openers();
    }

    /// Everybody who has a port open now, as far as that can be seen: that takes long, so the thread that
    /// looks for STAT does it.
    fn find_openers(&mut self) {
        if self.service.is_to_find_openers() {
            self.queries.push(OURSELVES, None);
        }
    }

    pub(super) fn found_openers(&mut self, seen: Option<Seen>, now: Instant) {
        let holders = seen.map(|seen| seen.holders).unwrap_or_default();
        if self.service.found_openers(&holders, now) {
            self.queries.push(OURSELVES, None);
        }
    }

    pub(super) fn ports_were_opened(&mut self, now: Instant) {
        let Some(news) = self.opens.as_mut().map(|watch| watch.news(now)) else { return };
        if news.has_gap {
            self.service.lost_sight_of_openers(now);
            self.find_openers();
        }
        for sight in news.sights {
            self.service.saw_opener(&sight, now);
        }
    }

    /// When there is somebody to look at.
    pub(super) fn next_look_at_openers(&self) -> Option<Instant> {
        let due = self.service.next_look_at_openers();
        self.looks.next_moment(due, Instant::now())
    }

    pub(super) fn lock_for_openers(&mut self) {
        let Some(watch) = &mut self.opens else { return };
        let began = Instant::now();
        for (port, errno) in watch.refresh(began) {
            self.service
                .note(Severity::Warning, format_args!("cannot watch {port}: {}", errno.desc()));
        }
        self.looks.turn(self.service, began);
        self.watch_holders();
    }
}
