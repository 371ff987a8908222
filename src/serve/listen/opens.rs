//! Programs that open ports without a lock, if they are watched: passes on the kernel's reports, and locks a
//! port for a process that keeps it open for a while.

use std::io;
use std::path::Path;
use std::time::Instant;

use nix::sys::epoll::Epoll;
use ttylock::OpenLook;

use super::super::opens::{OpenWatch, Rounds};
use super::super::service::Asked;
use super::super::status_queries::OURSELVES;
use super::super::status_worker::Seen;
use super::{Daemon, OPENS};
use crate::log::Severity;

/// What the daemon has for programs that open ports.
#[derive(Default)]
pub(super) struct Openers {
    /// With `--watch-opens`.
    watch: Option<OpenWatch>,
    looks: Rounds<Asked, OpenLook>,
}

impl Openers {
    /// Begins to watch.
    ///
    /// # Errors
    /// Without the capability, or on an older kernel.
    pub(super) fn watched(dev_dir: &Path, epoll: &Epoll) -> io::Result<Self> {
        let watch = OpenWatch::begin(dev_dir, epoll, OPENS).map_err(|error| {
            let why = format!("--watch-opens needs CAP_SYS_ADMIN and Linux 5.9: {error}");
            io::Error::new(error.kind(), why)
        })?;
        Ok(Self { watch: Some(watch), looks: Rounds::default() })
    }

    pub(super) const fn are_watched(&self) -> bool {
        self.watch.is_some()
    }
}

impl Daemon<'_> {
    /// Before the first client is served.
    pub(super) fn begin_with_opens(&mut self) {
        let Some(watch) = &self.openers.watch else { return };
        for port in watch.unwatched() {
            self.service.note(Severity::Warning, format_args!("cannot watch {port}"));
        }
        self.find_openers();
    }

    /// All processes that have a port open now, as far as that can be seen: that takes long, so the thread that
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
        let Some(news) = self.openers.watch.as_mut().map(|watch| watch.news(now)) else { return };
        if news.has_gap {
            self.service.lost_sight_of_openers(now);
            self.find_openers();
        }
        for sight in news.sights {
            self.service.saw_opener(&sight, now);
        }
    }

    /// When the next process is to be examined, or the watch needs a turn.
    pub(super) fn next_look_at_openers(&self) -> Option<Instant> {
        let due = self.service.next_look_at_openers();
        let look = self.openers.looks.next_moment(due, Instant::now());
        let watch = self.openers.watch.as_ref().and_then(OpenWatch::next_moment);
        look.into_iter().chain(watch).min()
    }

    pub(super) fn lock_for_openers(&mut self) {
        let Some(watch) = &mut self.openers.watch else { return };
        let began = Instant::now();
        for (port, errno) in watch.refresh(began) {
            self.service
                .note(Severity::Warning, format_args!("cannot watch {port}: {}", errno.desc()));
        }
        self.openers.looks.turn(self.service, began);
        self.watch_holders();
    }
}
