//! Who opens ports without a lock, where that is watched: what the kernel tells is handed on, and
//! who holds a port open for a while is given its lock.

use std::time::Instant;

use super::Daemon;
use crate::limits::{ATTEMPTED, BUDGET};
use crate::log::Severity;

impl Daemon<'_> {
    /// Before the first client is served.
    pub(super) fn begin_with_opens(&mut self, now: Instant) {
        let Some(watch) = &self.opens else { return };
        for port in watch.unwatched() {
            self.service
                .note(Severity::Warning, format_args!("who opens {port} cannot be watched"));
        }
        self.service.find_openers(now);
    }

    pub(super) fn ports_were_opened(&mut self, now: Instant) {
        let Some(news) = self.opens.as_mut().map(|watch| watch.news(now)) else { return };
        if news.has_gap {
            self.service.lost_sight_of_openers(now);
        }
        for sight in news.sights {
            self.service.saw_opener(&sight, now);
        }
    }

    pub(super) fn lock_for_openers(&mut self) {
        let Some(watch) = &mut self.opens else { return };
        let began = Instant::now();
        for (port, errno) in watch.refresh(began) {
            self.service.note(
                Severity::Warning,
                format_args!("who opens {port} cannot be watched: {}", errno.desc()),
            );
        }
        for _ in 0..ATTEMPTED {
            if !self.service.look_at_opener(Instant::now()) || began.elapsed() >= BUDGET {
                break;
            }
        }
        self.watch_holders();
    }
}
