//! Serves many connections in one process and one thread: accepts them, and gives turns to those that have something to
//! do.
//!
//! There is no thread or process for each connection, and nothing in memory that a restart would lose, because locks
//! are files. Every piece of work is bounded, so one client never keeps another waiting for long. Two things take
//! longer. A thread prepares the answer to STAT for all clients that ask. And a LOCK that must give its files back
//! waits for another process in the gate, for up to ten seconds.

mod turns;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use pidlockfile::Pid;
use ttylock::subordinate;

use super::Settings;
use super::admission::{ConnectionLimits, Decision};
use super::clients::{Clients, Shares, descriptors, own};
use super::connection::Connection;
use super::listener::{Listener, SocketOrigin};
use super::notify::Notify;
use super::opener_locks::serve_openers;
use super::ports::{ExclusivePorts, OpenPorts};
use super::queue::CHECK_EVERY;
use super::service::Service;
use super::watches::Watches;
use super::wire::{Wire, timeout_until};
use super::worker::StatusWorker;
use crate::limits::{CONNECTIONS, READ_BYTES};
use crate::log::Severity;

/// Age at which the lock directories are opened anew, because others may be there by now.
const REOPEN_EVERY: Duration = Duration::from_secs(30);

/// Events that are not about a connection have the highest bit; the bits below it are their kind, and the rest is a number.
const SPECIAL: u64 = 1 << 63;
const SIGNALS: u64 = SPECIAL;
const CHANGES: u64 = SPECIAL | 1 << 62;
const LISTENERS: u64 = SPECIAL | 1 << 61;
const PROCESSES: u64 = SPECIAL | 1 << 60;
const OPENS: u64 = SPECIAL | 1 << 59;
const ANSWERS: u64 = SPECIAL | 1;
const NUMBER: u64 = (1 << 60) - 1;

/// Events taken at once.
const EVENTS: usize = 256;

struct Daemon<'s> {
    service: &'s mut Service,
    settings: Settings,
    epoll: Epoll,
    signals: SignalFd,
    notify: Notify,
    listeners: Vec<Listener>,
    /// The end of the pause after a connection that could not be accepted.
    accept_after: Option<Instant>,
    clients: Clients,
    status_worker: StatusWorker,
    watches: Watches,
    /// When to search for what the kernel does not report.
    search_at: Option<Instant>,
    reopened: Instant,
    /// The lock directory is missing, which is reported once.
    lacks_lock_dir: bool,
    /// There has been no client since.
    quiet: Instant,
    ending: bool,
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
        service.offer_to_wait();
        subordinate::read();
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
        if settings.watch_opens {
            let log = service.journal.log.another();
            let opens = OpenPorts::start(&service.authority.dev_dir, log)?;
            epoll.add(&opens, EpollEvent::new(EpollFlags::EPOLLIN, OPENS))?;
            service.ports.opens = Some(opens);
        }
        let own = own(service.table.directories().len(), settings.exclusive_except.is_some());
        let shares = Shares::of(descriptors(), own, settings.limit);
        if shares.connections < settings.limit {
            service.journal.log.record(
                Severity::Warning,
                &format_args!("descriptors for {} connections only", shares.connections),
            );
        }
        service.table.keep_open(shares.kept);
        let caps = ConnectionLimits { all: shares.connections, per_user: settings.limit_per_user };
        let now = Instant::now();
        // After signals were blocked and capabilities given up, which a thread inherits.
        let status_worker = StatusWorker::start(service.table.layout().clone())?;
        epoll.add(&status_worker, EpollEvent::new(EpollFlags::EPOLLIN, ANSWERS))?;
        let mut daemon = Self {
            service,
            epoll,
            signals,
            notify: Notify::from_env(now),
            listeners,
            accept_after: None,
            clients: Clients::within(caps, settings.idle_timeout),
            status_worker,
            watches: Watches::of_up_to(shares.watched),
            search_at: None,
            reopened: now,
            lacks_lock_dir: false,
            quiet: now,
            ending: false,
            settings,
        };
        daemon.watch_holders();
        daemon.service.log_events();
        daemon.check_lock_dir();
        if let Some(exempt) = &daemon.settings.exclusive_except {
            let Service { table, authority, journal, ports, .. } = &mut *daemon.service;
            let (layout, log) = (table.layout().clone(), journal.log.another());
            ports.exclusive = Some(ExclusivePorts::start(exempt, layout, authority.clone(), log)?);
        }
        daemon.notify.ready();
        Ok(daemon)
    }

    fn run(mut self) -> io::Result<()> {
        while !self.ending {
            let now = self.take_events()?;
            self.notify.alive(now);
            self.try_waiters();
            self.search(now);
            self.refresh(now);
            if self.accept_after.take_if(|moment| *moment <= now).is_some() {
                self.listen_for(EpollFlags::EPOLLIN);
            }
            self.ending |= self.idle_end().is_some_and(|end| end <= now);
        }
        self.drain();
        Ok(())
    }

    /// Serves the clients that have sent something, each once. Those that do not fit into one call come first in the
    /// next one.
    fn take_events(&mut self) -> io::Result<Instant> {
        let of_clients = self.clients.next_moment();
        let moments = [
            of_clients,
            self.idle_end(),
            self.accept_after,
            self.search_at,
            self.notify.next_moment(),
            self.service.queue.next_moment(),
        ];
        let mut events = [EpollEvent::empty(); EVENTS];
        let timeout = timeout_until(moments.into_iter().flatten().min());
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
        if of_clients.is_some_and(|moment| moment <= now) {
            self.serve_due(now);
        }
        Ok(now)
    }

    /// An event that is not about a connection.
    fn happened(&mut self, number: u64, now: Instant) {
        if number == SIGNALS {
            self.signalled();
        } else if number == ANSWERS {
            self.answer_queries();
        } else if number == CHANGES {
            let changes = self.watches.changes();
            changes.iter().for_each(|change| self.service.queue.changed(None, change, now));
        } else if number == OPENS {
            serve_openers(self.service);
            self.watch_holders();
        } else if number & LISTENERS == LISTENERS {
            self.accept(usize::try_from(number & NUMBER).unwrap_or(usize::MAX), now);
        } else if let Some(pid) = i64::try_from(number & NUMBER).ok().and_then(Pid::new) {
            self.watches.forget_process(pid);
            self.process_gone(pid);
        }
    }

    fn signalled(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            if Signal::try_from(number) == Ok(Signal::SIGHUP) {
                self.service.table.reopen();
                self.service.journal.log.record(
                    Severity::Notice,
                    &format_args!("SIGHUP: opening the lock directories again"),
                );
                self.check_lock_dir();
            } else {
                self.ending = true;
            }
        }
    }

    /// Accepts one connection; the next one after those that have something to do.
    fn accept(&mut self, number: usize, now: Instant) {
        let Some(listener) = self.listeners.get(number) else { return };
        let error = match listener.accept() {
            Ok(stream) => return self.enter(stream, now),
            Err(error) => error,
        };
        let errno = error.raw_os_error().map(Errno::from_raw);
        if !matches!(errno, Some(Errno::EAGAIN | Errno::EINTR | Errno::ECONNABORTED)) {
            // No descriptor or no memory is left.
            self.service
                .journal
                .log
                .record(Severity::Error, &format_args!("cannot accept a connection: {error}"));
            self.accept_after = now.checked_add(CHECK_EVERY);
            self.listen_for(EpollFlags::empty());
        }
    }

    fn listen_for(&self, flags: EpollFlags) {
        for (number, listener) in (0_u64..).zip(&self.listeners) {
            let mut event = EpollEvent::new(flags, LISTENERS | number);
            // It can fail only for a descriptor that is not registered, and each is.
            let _ = self.epoll.modify(listener, &mut event);
        }
    }

    fn enter(&mut self, stream: OwnedFd, now: Instant) {
        let id = self.clients.next_id();
        let client = self.service.welcome(stream.as_fd(), id);
        let owner = client.owner;
        let mut connection = Connection::new(Wire::Socket(stream), client, now);
        let decision = self.clients.decide(owner, now);
        if decision != Decision::Welcome {
            let crowded = format_args!("too many connections: one is refused or closed");
            self.service.journal.of_user(owner.user, Severity::Warning, crowded);
        }
        match decision {
            Decision::Welcome => {}
            Decision::Instead(other) => self.end(other),
            Decision::TurnedAway => return connection.end(&self.service.farewell()),
        }
        connection.greet(self.service, now);
        let nothing = EpollEvent::new(EpollFlags::EPOLLONESHOT, id);
        if self.epoll.add(&connection.wire, nothing).is_err() {
            return connection.wire.close();
        }
        self.clients.members.insert(id, connection);
        self.after(id);
    }

    /// The directories may be others by now, and those that are watched too; so may the ranges of subordinate users.
    fn refresh(&mut self, now: Instant) {
        if now.saturating_duration_since(self.reopened) >= REOPEN_EVERY {
            self.reopened = now;
            self.service.table.reopen();
            self.check_lock_dir();
            subordinate::read();
            self.watches.forget_directories();
        }
    }

    /// The system's lock directory may come later than the daemon. Until then every lock is refused, and the log and
    /// `systemctl status` say why.
    fn check_lock_dir(&mut self) {
        let lock_dir = &self.service.table.layout().lock_dir;
        let seen = std::fs::metadata(lock_dir);
        let is_missing = seen.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if is_missing == self.lacks_lock_dir {
            return;
        }
        self.lacks_lock_dir = is_missing;
        let shown = lock_dir.display();
        let (severity, text) = match is_missing {
            true => (
                Severity::Error,
                format!("nothing can be locked: the lock directory {shown} does not exist"),
            ),
            false => (Severity::Notice, format!("the lock directory {shown} exists now")),
        };
        self.notify.status(if is_missing { &text } else { "" });
        self.service.journal.log.record(severity, &format_args!("{text}"));
    }

    /// A process is gone. Files of its locks that could not be removed are tried again later.
    fn process_gone(&mut self, pid: Pid) {
        self.service.process_gone(pid);
        self.search_for_leftovers(Instant::now());
    }

    /// Searches when the next of these files is due, a second from now at the earliest: one whose holder may live after all
    /// stays due.
    fn search_for_leftovers(&mut self, now: Instant) {
        let next = self.service.table.held_files().next_attempt();
        let next = next.map(|moment| moment.saturating_duration_since(now).max(CHECK_EVERY));
        next.into_iter().for_each(|time| self.search_within(time));
    }

    /// Searches once a second for ended holders that the kernel does not report, and for processes that have got a number
    /// with a lock; and for holders whose locks could not be removed, when these are due.
    fn search(&mut self, now: Instant) {
        if self.search_at.take_if(|moment| *moment <= now).is_none() {
            return;
        }
        let next = self.service.table.held_files().next_attempt();
        if self.watches.polls_for_ends || next.is_some_and(|moment| moment <= now) {
            for pid in self.service.table.ended_holders(now) {
                self.service.process_gone(pid);
            }
            self.watches.polls_for_ends &= !self.service.table.held_files().is_empty();
        }
        self.service.check_newcomers();
        if self.watches.polls_for_ends || !self.service.for_missing.is_empty() {
            self.search_at = now.checked_add(CHECK_EVERY);
        }
        self.search_for_leftovers(now);
    }

    /// When a daemon that is not needed any more ends, unless a client comes.
    fn idle_end(&mut self) -> Option<Instant> {
        let is_needed =
            !self.clients.members.is_empty() || !self.service.table.held_files().is_empty();
        if !self.settings.ends_when_idle || is_needed {
            return None;
        }
        self.quiet.checked_add(self.settings.idle_timeout)
    }

    /// The end: new clients of our own listeners get the goodbye; what has arrived is done, except requests that wait, and
    /// those behind them if their client is still there; all clients get the goodbye. A listener that was handed over stays
    /// open for the next daemon.
    fn drain(&mut self) {
        for listener in std::mem::take(&mut self.listeners) {
            let SocketOrigin::Ours(file) = &listener.origin else { continue };
            if let Some(file) = file {
                file.remove();
            }
            for _ in 0..CONNECTIONS {
                let Ok(stream) = listener.accept() else { break };
                let client = self.service.welcome(stream.as_fd(), self.clients.next_id());
                let connection = Connection::new(Wire::Socket(stream), client, Instant::now());
                connection.end(&self.service.farewell());
            }
        }
        let mut unfinished = self.clients.ids();
        // As many rounds as one reading has bytes: all of them are obeyed, and a client that goes on sending keeps nobody.
        for _ in 0..READ_BYTES {
            unfinished.retain(|id| self.last_turn(*id, Instant::now()));
            if unfinished.is_empty() {
                break;
            }
        }
        for id in self.clients.ids() {
            self.end(id);
        }
        self.service.ports.end();
        self.service.log_events();
        self.service.journal.log.record(Severity::Info, &format_args!("ends"));
    }
}
