//! Many connections in one process and one thread: who is served when, and for how long.
//!
//! No thread and no process per connection, and nothing in memory that a restart would lose: locks
//! are files. Every piece of work is bounded (one reading, a few commands, a few new connections),
//! so that one client never keeps another waiting for long; and when many have much to say, those
//! who say most come last. Only the answer to STAT takes longer than a moment: there is one at a
//! time, and they take at most a part of the daemon's time.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use pidlockfile::Pid;
use ttylock::lock::Outcome;

use ttylock::device::name::DeviceName;
use ttylock::limits::KEPT_FILES;

use super::Service;
use super::address::{Listener, Origin};
use super::connection::{Connection, Phase, Turn, close};
use super::crowd::{Admission, Crowd, Token};
use super::notify::Notify;
use super::waking::{Changes, Ends, Watch};
use crate::journal::Severity;
use crate::limits::{
    ACCEPT_PAUSE, ACCEPTED, ATTEMPTED, CROWDED, LISTEN_BACKLOG, OWN_DESCRIPTORS, REOPEN_EVERY,
    SETTLE_AFTER, SKIPPING_PAUSE, SLICE, SURVEY_SHARE, SWEEP_EVERY, TURN_BYTES, WATCHED_PROCESSES,
};
use crate::protocol::queue::{Attempt, WaiterId};

/// How a daemon behaves.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a connection may ask nothing.
    pub idle_timeout: Duration,
    /// Connections in all. Fewer when the system does not give enough descriptors.
    pub limit: usize,
    /// Connections of one user.
    pub limit_per_user: usize,
    /// When the daemon ends by itself.
    pub stay: Stay,
}

/// When a daemon ends without being told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// Never.
    Forever,
    /// When it has had nothing to do for the idle time: whoever started it listens on, and starts
    /// another (inetd `wait`).
    WhileNeeded,
}

/// Events that are not about a connection have the highest bit; the rest tells which.
const SPECIAL: u64 = 1 << 63;
const SIGNALS: u64 = SPECIAL;
const CHANGES: u64 = SPECIAL | 1 << 62;
const LISTENERS: u64 = SPECIAL | 1 << 61;
const PROCESSES: u64 = SPECIAL | 1 << 60;
const NUMBER: u64 = (1 << 60) - 1;

/// A token's lower bits are a place among the connections.
const PLACE_BITS: u32 = 20;

/// Events taken at once.
const EVENTS: usize = 256;

/// The connections, each at the place its token tells.
#[derive(Debug, Default)]
struct Connections {
    places: Vec<Option<Connection>>,
    free: Vec<usize>,
    serial: u64,
}

impl Connections {
    /// A new token: larger than all before it.
    fn token(&mut self) -> Token {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len().saturating_sub(1)
        });
        self.serial = self.serial.saturating_add(1);
        self.serial << PLACE_BITS | u64::try_from(place).unwrap_or_default()
    }

    fn place(token: Token) -> usize {
        usize::try_from(token & ((1 << PLACE_BITS) - 1)).unwrap_or(usize::MAX)
    }

    fn put(&mut self, connection: Connection) {
        let place = Self::place(connection.token);
        if let Some(free) = self.places.get_mut(place) {
            *free = Some(connection);
        }
    }

    fn find(&mut self, token: Token) -> Option<&mut Connection> {
        let connection = self.places.get_mut(Self::place(token))?.as_mut();
        connection.filter(|connection| connection.token == token)
    }

    fn take(&mut self, token: Token) -> Option<Connection> {
        self.find(token)?;
        let place = Self::place(token);
        let connection = self.places.get_mut(place)?.take();
        self.free.push(place);
        connection
    }

    fn tokens(&self) -> Vec<Token> {
        self.places.iter().flatten().map(|connection| connection.token).collect()
    }
}

struct Daemon<'s> {
    service: &'s mut Service,
    settings: Settings,
    epoll: Epoll,
    signals: SignalFd,
    listeners: Vec<Listener>,
    notify: Notify,
    crowd: Crowd,
    connections: Connections,
    /// Those with more to do than fitted into a turn.
    more: VecDeque<Token>,
    /// Those within an endless line, and when they are next looked at.
    skipping: VecDeque<(Instant, Token)>,
    /// Those whose request is tried again, and when.
    retries: BTreeSet<(Instant, Token)>,
    surveys: VecDeque<(Token, Option<DeviceName>)>,
    survey_after: Instant,
    ends: Ends,
    /// Somebody's end will not be told.
    looks_for_the_gone: bool,
    changes: Option<Changes>,
    accept_after: Option<Instant>,
    next_sweep: Option<Instant>,
    settle_by: Option<Instant>,
    reopened: Instant,
    quiet_since: Instant,
    turned_away: u64,
    told_turned_away: Option<Instant>,
    ending: bool,
}

/// Serves until a signal says otherwise.
///
/// # Errors
/// The system's, when it does not give what a daemon needs to begin.
pub fn serve(
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
        let shares = Shares::of(descriptors(settings.limit), settings.limit);
        if shares.connections < settings.limit {
            service.journal.record(
                Severity::Warning,
                &format_args!("room for {} connections only", shares.connections),
            );
        }
        service.table.keep_open(shares.kept);
        let now = Instant::now();
        let mut daemon = Self {
            service,
            settings,
            epoll,
            signals,
            listeners,
            notify: Notify::from_env(now),
            crowd: Crowd::new(shares.connections, settings.limit_per_user),
            connections: Connections::default(),
            more: VecDeque::new(),
            skipping: VecDeque::new(),
            retries: BTreeSet::new(),
            surveys: VecDeque::new(),
            survey_after: now,
            ends: Ends::of_up_to(shares.watched),
            looks_for_the_gone: false,
            changes: None,
            accept_after: None,
            next_sweep: None,
            settle_by: None,
            reopened: now,
            quiet_since: now,
            turned_away: 0,
            told_turned_away: None,
            ending: false,
        };
        daemon.watch_holders();
        daemon.notify.ready();
        Ok(daemon)
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let timeout = self.timeout();
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(errno) => return Err(errno.into()),
            };
            let now = Instant::now();
            let is_crowded =
                count.saturating_add(self.more.len()).saturating_add(self.skipping.len())
                    >= CROWDED;
            for event in events.iter().take(count) {
                self.happened(event.data(), event.events(), is_crowded, now);
            }
            self.notify.alive(now);
            self.slice(is_crowded, now);
            self.retry(now);
            self.try_waiters();
            self.survey();
            self.sweep(now);
            self.settle(now);
            if self.ending || self.is_no_longer_needed(now) {
                self.drain();
                return Ok(());
            }
        }
    }

    /// How long there is nothing to do if nothing happens.
    fn timeout(&self) -> EpollTimeout {
        if !self.more.is_empty() {
            return EpollTimeout::ZERO;
        }
        let skipping = self.skipping.front().map(|(moment, _)| *moment);
        let retry = self.retries.first().map(|(moment, _)| *moment);
        let survey = (!self.surveys.is_empty()).then_some(self.survey_after);
        let end = match self.settings.stay {
            Stay::WhileNeeded if self.crowd.is_empty() => {
                self.quiet_since.checked_add(self.settings.idle_timeout)
            }
            Stay::WhileNeeded | Stay::Forever => None,
        };
        let moments = [
            skipping,
            retry,
            survey,
            end,
            self.accept_after,
            self.next_sweep,
            self.settle_by,
            self.notify.next_moment(),
            self.service.waiting.queue.next_moment(),
        ];
        let Some(moment) = moments.into_iter().flatten().min() else { return EpollTimeout::NONE };
        let left = moment.saturating_duration_since(Instant::now());
        // Rounded up, lest the last part of a millisecond be spent in turning round.
        let up = left.saturating_add(Duration::from_micros(999));
        let up = Duration::from_millis(u64::try_from(up.as_millis()).unwrap_or(u64::MAX));
        EpollTimeout::try_from(up).unwrap_or(EpollTimeout::MAX)
    }

    /// Under a load without end, it is done every [`SETTLE_AFTER`] all the same.
    fn settle(&mut self, now: Instant) {
        if !self.service.is_unsettled() {
            self.settle_by = None;
            return;
        }
        let by =
            *self.settle_by.get_or_insert_with(|| now.checked_add(SETTLE_AFTER).unwrap_or(now));
        if now >= by {
            self.service.settle();
            self.settle_by = None;
        }
    }

    fn happened(&mut self, number: u64, flags: EpollFlags, is_crowded: bool, now: Instant) {
        if number & SPECIAL == 0 {
            self.ready(number, flags, is_crowded, now);
        } else if number == SIGNALS {
            self.signalled();
        } else if number == CHANGES {
            let changes = self.changes.as_ref().map(Changes::take).unwrap_or_default();
            changes.iter().for_each(|change| self.service.changed(change));
        } else if number & LISTENERS == LISTENERS {
            self.accept(usize::try_from(number & NUMBER).unwrap_or(usize::MAX), now);
        } else if let Some(pid) = i64::try_from(number & NUMBER).ok().and_then(Pid::new) {
            self.ends.forget(pid);
            self.service.process_gone(pid);
            if self.service.table.watches(pid) {
                // Its parent has not taken note yet, and nobody tells when it does.
                self.look_for_the_gone();
            }
        }
    }

    fn signalled(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            if Signal::try_from(number) == Ok(Signal::SIGHUP) {
                self.service.table.reopen();
                self.service.journal.record(
                    Severity::Notice,
                    &format_args!("SIGHUP: the lock directories are opened anew"),
                );
            } else {
                self.ending = true;
            }
        }
    }

    // New connections.

    fn accept(&mut self, number: usize, now: Instant) {
        self.refresh(now);
        for _ in 0..ACCEPTED {
            let Some(listener) = self.listeners.get(number) else { return };
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
    fn dispense(&mut self) -> bool {
        let Some(token) = self.crowd.dispensable() else { return false };
        self.end(token);
        true
    }

    fn pause_accepting(&mut self, error: &io::Error, now: Instant) {
        if self.accept_after.is_none() {
            self.service
                .journal
                .record(Severity::Error, &format_args!("no connection can be taken: {error}"));
        }
        self.accept_after = now.checked_add(ACCEPT_PAUSE);
        self.listen_for(EpollFlags::empty());
    }

    fn listen_for(&mut self, flags: EpollFlags) {
        for (number, listener) in (0_u64..).zip(&self.listeners) {
            let mut event = EpollEvent::new(flags, LISTENERS | number);
            // It can fail only for a descriptor that is not registered, and each is.
            let _ = self.epoll.modify(listener, &mut event);
        }
    }

    fn enter(&mut self, stream: std::os::fd::OwnedFd, now: Instant) {
        let token = self.connections.token();
        let client = self.service.welcome_to_wait(stream.as_fd(), WaiterId(token));
        let user = client.user();
        match self.crowd.judge(user) {
            Admission::Welcome => {}
            Admission::Instead(other) => {
                self.count_turned_away(now);
                self.end(other);
            }
            Admission::TurnedAway => {
                self.count_turned_away(now);
                self.connections.free.push(Connections::place(token));
                Connection::new(stream, client, token, now).end(&self.service.farewell());
                return;
            }
        }
        self.crowd.enter(user, token);
        let mut connection = Connection::new(stream, client, token, now);
        let turn = connection.greet(self.service);
        self.connections.put(connection);
        self.after(token, turn, false, now);
    }

    /// One line a while, however many there are.
    fn count_turned_away(&mut self, now: Instant) {
        self.turned_away = self.turned_away.saturating_add(1);
        let told = self.told_turned_away;
        if told.is_none_or(|told| now.saturating_duration_since(told) >= REOPEN_EVERY) {
            let count = std::mem::take(&mut self.turned_away);
            self.service.journal.record(
                Severity::Warning,
                &format_args!("too many connections: {count} turned away or closed"),
            );
            self.told_turned_away = Some(now);
        }
    }

    // Connections.

    fn ready(&mut self, token: Token, flags: EpollFlags, is_crowded: bool, now: Instant) {
        let Some(connection) = self.connections.find(token) else { return };
        match connection.phase {
            Phase::Surveying | Phase::Retrying => return,
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
        self.turn(token, is_crowded, now);
    }

    fn turn(&mut self, token: Token, is_crowded: bool, now: Instant) {
        let Some(connection) = self.connections.find(token) else { return };
        let was_silent = !connection.spoke;
        let mut buffer = [0; TURN_BYTES];
        let turn = connection.turn(self.service, &mut buffer, now);
        if was_silent && connection.spoke {
            self.crowd.spoke(connection.client.user(), token);
        }
        self.after(token, turn, is_crowded, now);
        self.watch_holders();
    }

    /// What a connection does after a turn.
    fn after(&mut self, token: Token, turn: Turn, is_crowded: bool, now: Instant) {
        let Some(connection) = self.connections.find(token) else { return };
        let reading = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
        let interest = match turn {
            Turn::Over => return self.close(token),
            Turn::Quiet => Some(reading),
            Turn::Hungry if !is_crowded => Some(reading),
            Turn::Hungry if connection.client.is_skipping() => {
                let moment = now.checked_add(SKIPPING_PAUSE).unwrap_or(now);
                self.skipping.push_back((moment, token));
                None
            }
            Turn::Hungry | Turn::More => {
                self.more.push_back(token);
                None
            }
            Turn::Blocked => {
                if !matches!(connection.phase, Phase::Sending(_)) {
                    connection.phase = Phase::Sending(now);
                }
                Some(EpollFlags::EPOLLOUT)
            }
            Turn::Waits => {
                connection.phase = Phase::Waiting;
                Some(EpollFlags::EPOLLRDHUP)
            }
            Turn::Retries(pause) => {
                connection.phase = Phase::Retrying;
                self.retries.insert((now.checked_add(pause).unwrap_or(now), token));
                None
            }
            Turn::Asks(device) => {
                connection.phase = Phase::Surveying;
                self.surveys.push_back((token, device));
                None
            }
        };
        let deadline = connection.deadline(self.settings.idle_timeout);
        self.next_sweep = self.next_sweep.into_iter().chain(deadline).min();
        if !self.listen_to(token, interest) {
            self.close(token);
        }
    }

    /// Tells epoll what is of interest. Those of no interest are taken out of it, for it always
    /// tells of hang-ups, again and again.
    fn listen_to(&mut self, token: Token, interest: Option<EpollFlags>) -> bool {
        let Some(connection) = self.connections.find(token) else { return true };
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

    fn close(&mut self, token: Token) {
        if let Some(connection) = self.leave(token) {
            close(&connection.stream);
        }
    }

    fn end(&mut self, token: Token) {
        if let Some(connection) = self.leave(token) {
            connection.end(&self.service.farewell());
        }
    }

    fn leave(&mut self, token: Token) -> Option<Connection> {
        let connection = self.connections.take(token)?;
        self.crowd.leave(connection.client.user(), token);
        self.service.forget(&connection.client);
        if self.crowd.is_empty() {
            self.quiet_since = Instant::now();
        }
        Some(connection)
    }

    /// The requests that were contended, those of the earliest moment first, some in each round.
    fn retry(&mut self, now: Instant) {
        for _ in 0..ATTEMPTED {
            let Some((moment, token)) = self.retries.first().copied() else { return };
            if moment > now {
                return;
            }
            self.retries.remove(&(moment, token));
            self.turn(token, false, now);
        }
    }

    /// A piece of work for those who have much to say.
    fn slice(&mut self, is_crowded: bool, now: Instant) {
        while self.skipping.front().is_some_and(|(moment, _)| *moment <= now) {
            if let Some((_, token)) = self.skipping.pop_front() {
                self.more.push_back(token);
            }
        }
        // Those that come back to the line in this slice have their turn in the next one.
        for _ in 0..self.more.len() {
            if Instant::now().saturating_duration_since(now) >= SLICE {
                return;
            }
            let Some(token) = self.more.pop_front() else { return };
            self.turn(token, is_crowded, now);
        }
    }

    // Those who wait, and what frees a device.

    fn try_waiters(&mut self) {
        if self.service.waiting.queue.is_empty() {
            self.changes = None;
            return;
        }
        for _ in 0..ATTEMPTED {
            let now = Instant::now();
            let Some(attempt) = self.service.waiting.queue.due(now) else { break };
            self.try_heads(attempt, now);
        }
        let now = Instant::now();
        for WaiterId(token) in self.service.waiting.expire(now) {
            if let Some(connection) = self.connections.find(token) {
                connection.client.give_up();
                connection.phase = Phase::Open;
                self.turn(token, false, now);
            }
        }
        if self.changes.is_none() && !self.service.waiting.queue.is_empty() {
            self.watch_directories();
        }
    }

    /// Tries the first who waits, and where he is busy the first of the next user.
    fn try_heads(&mut self, first: Attempt, now: Instant) {
        let mut next = Some(first);
        while let Some(attempt) = next {
            let token = attempt.waiter.0;
            let Some(connection) = self.connections.find(token) else {
                self.service.waiting.leave(attempt.waiter, now);
                return;
            };
            // Looked up before: an attempt that is not busy takes him out of the line.
            next = self.service.waiting.queue.next_head(&attempt);
            if self.service.attempt(&mut connection.client, &attempt) == Outcome::Busy {
                self.watch_blocker(&attempt.device);
                self.pass_over_own_changes(&attempt);
                continue;
            }
            connection.phase = Phase::Open;
            self.turn(token, false, now);
            return;
        }
    }

    /// A device that is asked for by another name has several lock files. Those that an attempt
    /// took before it met a conflict, it has given back: that is no news.
    fn pass_over_own_changes(&mut self, attempt: &Attempt) {
        if attempt.request.device.below_dev() == &*attempt.device {
            return;
        }
        let now = Instant::now();
        for change in self.changes.as_ref().map(Changes::take).unwrap_or_default() {
            self.service.waiting.changed_but_for(Some(&attempt.device), &change, now);
        }
    }

    /// Without it, each device is looked at once a second.
    fn watch_directories(&mut self) {
        let directories = self.service.table.directories();
        self.changes = Changes::watch(&directories, &self.epoll, CHANGES).ok();
        // What went between the look and the watch.
        let now = Instant::now();
        if self.changes.is_some() {
            self.service.waiting.changed(&super::Change::Everything, now);
        }
    }

    fn watch_blocker(&mut self, device: &str) {
        let Some(pid) = self.service.waiting.blocker(device) else { return };
        if self.watch_end(pid) == Watch::Gone {
            self.service.process_gone(pid);
        }
    }

    /// The holders of locks: these are removed when they end.
    fn watch_holders(&mut self) {
        for pid in self.service.table.take_newly_watched() {
            match self.watch_end(pid) {
                Watch::Set => {}
                Watch::Gone => self.service.process_gone(pid),
                Watch::Impossible => self.look_for_the_gone(),
            }
        }
    }

    /// Somebody's end will not be told.
    fn look_for_the_gone(&mut self) {
        self.looks_for_the_gone = true;
        self.next_sweep = self.next_sweep.into_iter().chain([Instant::now()]).min();
    }

    fn watch_end(&mut self, pid: Pid) -> Watch {
        if self.ends.is_full() {
            let service = &*self.service;
            self.ends.retain(|pid| service.minds(pid));
        }
        let number = u64::try_from(pid.as_raw()).unwrap_or_default();
        self.ends.watch(pid, &self.epoll, PROCESSES | number)
    }

    /// One answer to STAT, if it is time for one.
    fn survey(&mut self) {
        let began = Instant::now();
        if began < self.survey_after {
            return;
        }
        while let Some((token, device)) = self.surveys.pop_front() {
            let Some(connection) = self.connections.find(token) else { continue };
            self.service.survey(&mut connection.client, device.as_ref());
            connection.phase = Phase::Open;
            let spent = began.elapsed();
            let pause = spent.saturating_mul(SURVEY_SHARE.saturating_sub(1));
            self.survey_after = began.checked_add(spent.saturating_add(pause)).unwrap_or(began);
            self.turn(token, false, Instant::now());
            return;
        }
    }

    // Time.

    fn sweep(&mut self, now: Instant) {
        if self.accept_after.is_some_and(|moment| moment <= now) {
            self.accept_after = None;
            self.listen_for(EpollFlags::EPOLLIN);
        }
        if self.next_sweep.is_none_or(|moment| moment > now) {
            return;
        }
        self.refresh(now);
        let idle_timeout = self.settings.idle_timeout;
        let mut next: Option<Instant> = None;
        let mut over = Vec::new();
        for connection in self.connections.places.iter_mut().flatten() {
            let Some(deadline) = connection.deadline(idle_timeout) else { continue };
            if deadline <= now {
                over.push((connection.token, connection.phase));
            } else {
                next = next.into_iter().chain([deadline]).min();
            }
        }
        for (token, phase) in over {
            match (phase, self.connections.find(token)) {
                (Phase::Sending(_), Some(connection)) => {
                    // What it has said is still obeyed, as if it had gone.
                    connection.stop_talking();
                    self.turn(token, false, now);
                }
                (_, _) => self.end(token),
            }
        }
        if self.looks_for_the_gone {
            for pid in self.service.table.the_gone() {
                self.service.process_gone(pid);
            }
            self.looks_for_the_gone = self.service.table.watches_any();
            let soon = now.checked_add(Duration::from_secs(1));
            next = next.into_iter().chain(soon.filter(|_| self.looks_for_the_gone)).min();
        }
        let earliest = now.checked_add(SWEEP_EVERY);
        self.next_sweep =
            self.next_sweep.filter(|moment| *moment > now).into_iter().chain(next).min();
        self.next_sweep = self.next_sweep.map(|next| earliest.map_or(next, |e| next.max(e)));
    }

    fn refresh(&mut self, now: Instant) {
        if now.saturating_duration_since(self.reopened) >= REOPEN_EVERY {
            self.reopened = now;
            self.service.table.reopen();
            // The watched directories may be others by now.
            self.changes = None;
        }
    }

    fn is_no_longer_needed(&self, now: Instant) -> bool {
        self.settings.stay == Stay::WhileNeeded
            && self.crowd.is_empty()
            && !self.service.table.watches_any()
            && now.saturating_duration_since(self.quiet_since) >= self.settings.idle_timeout
    }

    /// The end: who knocks at our own doors is told so; what has arrived is done; all are told.
    /// A door that was handed over stays open for the next daemon.
    fn drain(&mut self) {
        for listener in std::mem::take(&mut self.listeners) {
            let Origin::Ours(file) = &listener.origin else { continue };
            if let Some(file) = file {
                file.remove();
            }
            for _ in 0..LISTEN_BACKLOG {
                let Ok(stream) = listener.accept() else { break };
                let client = self.service.welcome(stream.as_fd());
                let connection = Connection::new(stream, client, 0, Instant::now());
                connection.end(&self.service.farewell());
            }
        }
        for token in self.connections.tokens() {
            if let Some(connection) = self.connections.find(token) {
                if connection.phase == Phase::Retrying {
                    connection.client.retry_no_more();
                    connection.phase = Phase::Open;
                }
                if connection.phase == Phase::Open {
                    self.turn(token, false, Instant::now());
                }
            }
            self.end(token);
        }
        self.service.settle();
        self.service.journal.record(Severity::Info, &format_args!("ends"));
    }
}

/// How the descriptors are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    connections: usize,
    kept: usize,
    watched: usize,
}

impl Shares {
    fn of(descriptors: usize, wanted: usize) -> Self {
        let spare = descriptors.saturating_sub(OWN_DESCRIPTORS);
        let eighth = spare / 8;
        let (kept, watched) = (eighth.min(KEPT_FILES), eighth.min(WATCHED_PROCESSES));
        let left = spare.saturating_sub(kept).saturating_sub(watched);
        Self { connections: left.min(wanted).max(1), kept, watched }
    }
}

/// How many descriptors this process may have, after asking for enough.
fn descriptors(connections: usize) -> usize {
    let needed = connections
        .saturating_add(KEPT_FILES)
        .saturating_add(WATCHED_PROCESSES)
        .saturating_add(OWN_DESCRIPTORS);
    let needed = u64::try_from(needed).unwrap_or(u64::MAX);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return OWN_DESCRIPTORS };
    let wanted = needed.max(soft).min(hard);
    let given = match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(_) => soft,
    };
    usize::try_from(given).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plenty(100_000, 4096, 4096, KEPT_FILES, WATCHED_PROCESSES)]
    #[case::common(1024, 4096, 720, 120, 120)]
    #[case::few(80, 4096, 12, 2, 2)]
    #[case::too_few(10, 4096, 1, 0, 0)]
    #[case::wanted(1024, 5, 5, 120, 120)]
    fn descriptors_are_shared_out(
        #[case] descriptors: usize,
        #[case] wanted: usize,
        #[case] connections: usize,
        #[case] kept: usize,
        #[case] watched: usize,
    ) {
        assert_eq!(Shares::of(descriptors, wanted), Shares { connections, kept, watched });
    }

    #[test]
    fn a_token_grows_though_places_are_used_again() {
        let mut connections = Connections::default();
        let first = connections.token();
        connections.free.push(Connections::place(first));
        let second = connections.token();
        assert_eq!(Connections::place(first), Connections::place(second));
        assert!(second > first && second & SPECIAL == 0);
    }
}
