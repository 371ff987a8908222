//! Serves many connections in one process and one thread: which connection is served when, and for how long.
//!
//! There is no thread or process for each connection, and nothing in memory that a restart would lose,
//! because locks are files. Every piece of work is bounded (one read, a few commands, a few new connections),
//! and the connections take turns, so one client never keeps another waiting for long. Only the answer to STAT takes
//! longer: a thread prepares it for all clients that ask.

mod arrivals;
mod sweep;
mod turns;
mod waiters;

use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use pidlockfile::Pid;

use arrivals::Arrivals;
use sweep::Schedule;

use super::clients::Clients;
use super::descriptors::{Shares, descriptors, own, spare_memory};
use super::listener::Listener;
use super::notify::Notify;
use super::ports::Opens;
use super::service::Service;
use super::settings::Settings;
use super::status_queries::StatusQueries;
use super::status_worker::StatusWorker;
use super::watches::Watches;
use crate::limits::EXCLUSIVE_DESCRIPTORS;
use crate::log::Severity;

/// Events that are not about a connection have the highest bit; the rest tells which.
const SPECIAL: u64 = 1 << 63;
const SIGNALS: u64 = SPECIAL;
const CHANGES: u64 = SPECIAL | 1 << 62;
const LISTENERS: u64 = SPECIAL | 1 << 61;
const PROCESSES: u64 = SPECIAL | 1 << 60;
const OPENS: u64 = SPECIAL | 1 << 59;
const SURVEYS: u64 = SPECIAL | 1;
const NUMBER: u64 = (1 << 60) - 1;

/// Events taken at once.
const EVENTS: usize = 256;

struct Daemon<'s> {
    service: &'s mut Service,
    settings: Settings,
    epoll: Epoll,
    signals: SignalFd,
    notify: Notify,
    arrivals: Arrivals,
    clients: Clients,
    queries: StatusQueries,
    status_worker: StatusWorker,
    watches: Watches,
    schedule: Schedule,
    ending: bool,
}

/// Whether there is a daemon on this system: there is.
///
/// # Errors
/// Never.
pub(crate) fn is_possible() -> Result<(), String> {
    Ok(())
}

/// Serves until a signal says otherwise.
///
/// # Errors
/// The system's, when it does not give what a daemon needs to begin.
pub(crate) fn serve(
    service: &mut Service,
    listeners: Vec<Listener>,
    settings: Settings,
) -> io::Result<()> {
    Daemon::new(service, listeners, settings)?.run()
}

impl<'s> Daemon<'s> {
    fn new(
        service: &'s mut Service,
        listeners: Vec<Listener>,
        settings: Settings,
    ) -> io::Result<Self> {
        spare_memory()?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let handled = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
        handled.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&handled, flags)?;
        epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))?;
        for (number, listener) in (0_u64..).zip(&listeners) {
            listener.never_wait()?;
            epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENERS | number))?;
        }
        if settings.opens == Opens::Watched {
            epoll.add(service.watch_opens()?, EpollEvent::new(EpollFlags::EPOLLIN, OPENS))?;
        }
        let looks = if service.makes_exclusive() { EXCLUSIVE_DESCRIPTORS } else { 0 };
        let own = own(service.directories().len(), looks);
        let shares = Shares::of(descriptors(own, settings.limit), own, settings.limit);
        if shares.connections < settings.limit {
            service.note(
                Severity::Warning,
                format_args!("descriptors for {} connections only", shares.connections),
            );
        }
        service.keep_open(shares.kept);
        let now = Instant::now();
        // After signals were blocked and capabilities given up, which a thread inherits.
        let status_worker = StatusWorker::start(service.layout().clone())?;
        epoll.add(&status_worker, EpollEvent::new(EpollFlags::EPOLLIN, SURVEYS))?;
        let mut daemon = Self {
            service,
            settings,
            epoll,
            signals,
            notify: Notify::from_env(now),
            arrivals: Arrivals::at(listeners),
            clients: Clients::up_to(shares.connections, settings.limit_per_user),
            queries: StatusQueries::none(now),
            status_worker,
            watches: Watches::of_up_to(shares.watched),
            schedule: Schedule::since(now),
            ending: false,
        };
        daemon.watch_holders();
        daemon.service.begin_exclusive()?;
        daemon.notify.ready();
        Ok(daemon)
    }

    fn run(mut self) -> io::Result<()> {
        loop {
            let timeout = self.timeout();
            let now = self.take_events(timeout)?;
            self.work(now);
            if self.ending || self.is_no_longer_needed(now) {
                self.drain();
                return Ok(());
            }
        }
    }

    /// Serves the clients that have sent something, each once. Those that do not fit into one call come first in the
    /// next one.
    fn take_events(&mut self, timeout: EpollTimeout) -> io::Result<Instant> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let now = Instant::now();
        for event in events.iter().take(count) {
            if event.data() & SPECIAL == 0 {
                self.ready(event.data(), event.events(), now);
            } else {
                self.happened(event.data(), now);
            }
        }
        Ok(now)
    }

    /// The work besides; each part of it is bounded.
    fn work(&mut self, now: Instant) {
        self.notify.alive(now);
        self.serve_unfinished(now);
        self.retry(now);
        self.try_waiters();
        self.ask_query(now);
        self.sweep(now);
        self.flush(now);
    }

    /// How long there is nothing to do if nothing happens.
    fn timeout(&mut self) -> EpollTimeout {
        if self.clients.unfinished() > 0 {
            return EpollTimeout::ZERO;
        }
        let moments = [
            self.clients.next_moment(),
            self.queries.next_moment().filter(|_| !self.status_worker.is_looking()),
            self.idle_end(),
            self.arrivals.next_moment(),
            self.schedule.next_moment(),
            self.notify.next_moment(),
            self.service.next_look(),
        ];
        let Some(moment) = moments.into_iter().flatten().min() else { return EpollTimeout::NONE };
        let left = moment.saturating_duration_since(Instant::now());
        // Rounded up, lest the last part of a millisecond be spent in turning round.
        let up = left.saturating_add(Duration::from_micros(999));
        let up = Duration::from_millis(u64::try_from(up.as_millis()).unwrap_or(u64::MAX));
        EpollTimeout::try_from(up).unwrap_or(EpollTimeout::MAX)
    }

    fn happened(&mut self, number: u64, now: Instant) {
        if number == SIGNALS {
            self.signalled();
        } else if number == SURVEYS {
            self.answer_queries();
        } else if number == CHANGES {
            let changes = self.watches.changes();
            changes.iter().for_each(|change| self.service.changed(change));
        } else if number == OPENS {
            self.service.serve_openers();
            self.watch_holders();
        } else if number & LISTENERS == LISTENERS {
            self.accept(usize::try_from(number & NUMBER).unwrap_or(usize::MAX), now);
        } else if let Some(pid) = i64::try_from(number & NUMBER).ok().and_then(Pid::new) {
            self.watches.end_was_told(pid);
            self.service.process_gone(pid);
        }
    }

    fn signalled(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            if Signal::try_from(number) == Ok(Signal::SIGHUP) {
                self.service.reopen();
                self.service.note(
                    Severity::Notice,
                    format_args!("SIGHUP: opening the lock directories again"),
                );
            } else {
                self.ending = true;
            }
        }
    }
}
