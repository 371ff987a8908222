//! Serves many connections in one process and one thread: which connection is served when, and for how long.
//!
//! There is no thread or process for each connection, and nothing in memory that a restart would lose,
//! because locks are files. Every piece of work is bounded (one read, a few commands, a few new connections),
//! so one client never keeps another waiting for long. If many clients are busy, users take turns, and among
//! the connections of a user the busiest come last. Only the answer to STAT takes longer: a thread prepares
//! it for one client at a time, and for a limited part of the time.

mod arrivals;
mod exclusive;
mod opens;
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
use exclusive::Exclusive;
use opens::Openers;
use sweep::Schedule;

use super::clients::Clients;
use super::descriptors::{Shares, descriptors, own, spare_memory};
use super::listener::Listener;
use super::notify::Notify;
use super::opens::Opens;
use super::service::Service;
use super::settings::Settings;
use super::status_queries::StatusQueries;
use super::status_worker::StatusWorker;
use super::watches::Watches;
use crate::limits::{BUDGET, CROWDED, EXCLUSIVE_LOOKS, LOOKS_AT_ONCE};
use crate::log::Severity;

/// Events that are not about a connection have the highest bit; the rest tells which.
const SPECIAL: u64 = 1 << 63;
const SIGNALS: u64 = SPECIAL;
const CHANGES: u64 = SPECIAL | 1 << 62;
const LISTENERS: u64 = SPECIAL | 1 << 61;
const PROCESSES: u64 = SPECIAL | 1 << 60;
const OPENS: u64 = SPECIAL | 1 << 59;
const PORTS: u64 = SPECIAL | 1 << 58;
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
    openers: Openers,
    exclusive: Exclusive,
    schedule: Schedule,
    turns: u64,
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
        let openers = match settings.opens {
            Opens::Ignored => Openers::default(),
            Opens::Watched => Openers::watched(service.dev_dir(), &epoll)?,
        };
        let looks = if openers.are_watched() { LOOKS_AT_ONCE } else { 0 };
        let looks =
            looks.saturating_add(if service.makes_exclusive() { EXCLUSIVE_LOOKS } else { 0 });
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
            openers,
            exclusive: Exclusive::default(),
            schedule: Schedule::since(now),
            turns: 0,
            ending: false,
        };
        daemon.watch_holders();
        daemon.begin_with_opens();
        daemon.begin_exclusive()?;
        daemon.notify.ready();
        Ok(daemon)
    }

    fn run(mut self) -> io::Result<()> {
        loop {
            let timeout = self.timeout();
            let (now, is_crowded) = self.take_events(timeout)?;
            self.work(now, is_crowded);
            if self.ending || self.is_no_longer_needed(now) {
                self.drain();
                return Ok(());
            }
        }
    }

    /// The clients that have sent something, each once. True when there are many.
    fn take_events(&mut self, timeout: EpollTimeout) -> io::Result<(Instant, bool)> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let now = Instant::now();
        let is_crowded = count.saturating_add(self.clients.unserved()) >= CROWDED;
        let mut ready = Vec::new();
        for event in events.iter().take(count) {
            if event.data() & SPECIAL == 0 {
                ready.push((event.data(), event.events()));
            } else {
                self.happened(event.data(), now);
            }
        }
        self.give_turns(ready, is_crowded, now);
        Ok((now, is_crowded))
    }

    /// Those that get no turn now are told of again: they are still ready.
    fn give_turns(&mut self, ready: Vec<(u64, EpollFlags)>, is_crowded: bool, now: Instant) {
        let began = Instant::now();
        for (token, flags) in self.clients.in_turns(ready) {
            self.ready(token, flags, is_crowded, now);
            if began.elapsed() >= BUDGET {
                return;
            }
        }
    }

    /// What is done besides, each part of it within bounds.
    fn work(&mut self, now: Instant, is_crowded: bool) {
        self.notify.alive(now);
        self.serve_backlog(is_crowded, now);
        self.retry(now);
        self.try_waiters();
        self.lock_for_openers();
        self.keep_ports_exclusive();
        self.ask_query(now);
        self.sweep(now);
        self.flush(now);
    }

    /// How long there is nothing to do if nothing happens.
    fn timeout(&mut self) -> EpollTimeout {
        if self.clients.backlog() > 0 {
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
            self.next_look_at_openers(),
            self.next_exclusive(),
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
            self.ports_were_opened(now);
        } else if number == PORTS {
            self.happened_to_ports(now);
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use rstest::rstest;
    use syslog::Facility;
    use ttylock::{Dialect, Layout, Table};

    use super::*;
    use crate::log::{Destination, Log};
    use crate::peer::{Access, Rule};
    use crate::protocol::reply::Version;
    use crate::serve::address::Address;
    use crate::serve::authority::Authority;
    use crate::serve::settings::Stay;

    fn service(root: &Path) -> Service {
        let dev_dir = root.join("dev");
        let layout = Layout {
            dialect: Dialect::native(),
            dev_dir: dev_dir.clone(),
            udev_dir: root.join("udev"),
            lock_dir: root.join("lock"),
            search_dirs: Vec::new(),
            state_dir: root.join("state"),
        };
        let authority =
            Authority { rule: Rule::Own, access: Access::OfDevice, dev_dir, force_group: None };
        let log = Log::new(Destination::Syslog(Facility::Daemon), Severity::Error);
        Service::new(Version::original(), authority, Table::new(layout), log)
    }

    /// How many lines have arrived.
    fn lines(stream: &mut UnixStream) -> usize {
        let mut said = [0; 65536];
        let length = stream.read(&mut said).unwrap_or(0);
        said[..length].iter().filter(|byte| **byte == b'\n').count()
    }

    const SETTINGS: Settings = Settings {
        idle_timeout: Duration::from_secs(300),
        limit: 200,
        limit_per_user: 200,
        stay: Stay::Forever,
        opens: Opens::Ignored,
    };

    /// A daemon's side, and clients that have been greeted.
    fn greeted(daemon: &mut Daemon<'_>, path: &Path, count: usize) -> Vec<UnixStream> {
        let connect = |_| {
            let stream = UnixStream::connect(path).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        };
        let mut clients: Vec<UnixStream> = (0..count).map(connect).collect();
        while daemon.clients.tokens().len() < count {
            daemon.take_events(EpollTimeout::ZERO).unwrap();
        }
        clients.iter_mut().for_each(|client| assert_eq!(lines(client), 1));
        clients
    }

    /// However many connections a user has, another one's turn is the second.
    #[test]
    fn users_take_turns() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("socket");
        let listener = Listener::at(&Address::Unix(path.clone())).unwrap();
        let mut service = service(root.path());
        let mut daemon = Daemon::new(&mut service, vec![listener], SETTINGS).unwrap();
        let mut clients = greeted(&mut daemon, &path, 51);
        let tokens = daemon.clients.tokens();
        let other = *tokens.last().unwrap();
        let peer = &mut daemon.clients.find(other).unwrap().client.peer;
        *peer = peer.clone().map(|peer| peer.of_user(4_000_000));
        clients.iter_mut().for_each(|client| client.write_all(&b"noop\n".repeat(50)).unwrap());
        let before = daemon.turns;
        // On a slow machine the time is over after the first turn, and the next time begins anew.
        let mut times = 0;
        let mut turn = before;
        while turn <= before {
            times += 1;
            daemon.take_events(EpollTimeout::ZERO).unwrap();
            turn = daemon.clients.find(other).unwrap().last_turn;
        }
        assert!((before + 1..=before + 1 + times).contains(&turn), "{turn} after {before}");
        // All have more to do; so it goes on.
        while daemon.clients.backlog() < 51 {
            daemon.take_events(EpollTimeout::ZERO).unwrap();
        }
        let order: Vec<u64> = std::iter::from_fn(|| daemon.clients.next_in_backlog()).collect();
        assert!(order.iter().take(2).any(|token| *token == other), "{order:?}");
    }

    /// Where many clients send much, a client that sends little is served before them: they have had
    /// their turn.
    #[rstest]
    #[case::many_commands("noop\n".repeat(4000))]
    #[case::few_in_each_reading(format!("{}\n", "x".repeat(250)).repeat(80))]
    #[case::lines_without_end("x".repeat(20_000))]
    fn the_busiest_clients_come_last(#[case] much: String) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("socket");
        let listener = Listener::at(&Address::Unix(path.clone())).unwrap();
        let mut service = service(root.path());
        let mut daemon = Daemon::new(&mut service, vec![listener], SETTINGS).unwrap();
        let mut clients = greeted(&mut daemon, &path, CROWDED + 1);
        let mut honest = clients.pop().unwrap();
        clients.iter_mut().for_each(|client| {
            let _ = client.write(much.as_bytes()).unwrap();
        });
        // Each has its first turn.
        while daemon.clients.unserved() < CROWDED {
            daemon.take_events(EpollTimeout::ZERO).unwrap();
        }
        clients.iter_mut().for_each(|client| while lines(client) > 0 {});
        honest.write_all(b"noop\n").unwrap();
        daemon.take_events(EpollTimeout::ZERO).unwrap();
        assert_eq!(lines(&mut honest), 1);
        assert_eq!(clients.iter_mut().map(lines).sum::<usize>(), 0);
        // And they are not forgotten.
        assert_eq!(daemon.clients.unserved(), CROWDED);
    }
}
