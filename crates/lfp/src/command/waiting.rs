//! Waits for a lock until `lfp` has it or the time is up, in the service's queue or by asking again. The
//! user's time limit holds, whatever the service does.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use wrapcmd::{Signals, Woken};

use super::denial::Reason;
use super::output::Output;
use super::report::in_the_way;
use super::row::Row;
use crate::client::broker::{Broker, Service, Trouble};
use crate::client::{Client, Error, PATIENCE, whole_seconds};
use ttylock::{Outcome, Request};

/// How long and how often a service that went away is looked for while we wait for a lock.
const ABSENCE_PAUSE: Duration = Duration::from_millis(200);
const ABSENCES: u32 = 50;

/// How often a lock is asked for again if no event reports that it is free.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The service counts whole seconds and begins a little later than we: so long after the end of
/// the time its answer is still listened for, and so long it has for each question even where
/// there is no time at all.
const GRACE: Duration = Duration::from_millis(100);

/// What became of waiting.
#[derive(Debug)]
pub(super) enum Waited {
    /// The answer to the last request.
    Answered(Result<Outcome, Trouble>),
    /// With the reasons, where it was not the lock's holder alone.
    TimedOut(Vec<Reason>),
    Interrupted(Signal),
}

/// LOCK, in turn, until the deadline; without one, for as long as it takes.
pub(super) fn wait(
    broker: &mut Broker,
    request: &Request,
    deadline: Option<Instant>,
    signals: Option<&Signals>,
    news: &mut News<'_>,
) -> Waited {
    let mut wait =
        Wait { request, deadline, signals, news, reached: false, absences: 0, pause: FIRST_PAUSE };
    let patient = !wait.is_over();
    loop {
        if let Some(signal) = signals.and_then(Signals::ending) {
            return Waited::Interrupted(signal);
        }
        broker.be_patient(patience(wait.deadline));
        let step = match broker {
            Broker::Service(service) if patient && service.has_queue => wait.queue(service),
            Broker::Service(_) | Broker::Files(_) => wait.try_again(broker),
        };
        if let Some(waited) = step {
            return waited;
        }
    }
}

/// How long the service may take for its next answer.
pub(super) fn patience(deadline: Option<Instant>) -> Duration {
    let limit = left(deadline).map(|left| left.saturating_add(GRACE));
    limit.map_or(PATIENCE, |limit| limit.min(PATIENCE))
}

/// `None` without end.
fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Leaves the line. The answer may have been on its way.
fn give_up(service: &mut Service) -> Result<Outcome, Error> {
    service.be_patient(GRACE);
    let outcome = service.hear(Client::give_up_wait);
    service.client = None;
    outcome
}

/// The time between two messages about a wait.
const PERIOD: Duration = Duration::from_secs(60);

/// Messages to a user at a terminal while `lfp` waits: which holder is in the way, at once and again every minute.
#[derive(Debug)]
pub(super) struct News<'a> {
    request: &'a Request,
    output: &'a Output,
    /// When the next message is due; `None` if nobody reads it.
    due: Option<Instant>,
}

impl<'a> News<'a> {
    /// Names the holder in the way. Calls `rows` only if somebody reads the message.
    pub(super) fn begin(
        request: &'a Request,
        rows: impl FnOnce() -> Vec<Row>,
        output: &'a Output,
    ) -> Self {
        let mut news = Self::none(request, output);
        if output.has_people() {
            news.tell(&rows());
        }
        news
    }

    /// Without messages.
    pub(super) fn none(request: &'a Request, output: &'a Output) -> Self {
        Self { request, output, due: None }
    }

    /// The time until the next message; `None` if there will be none.
    pub(super) fn left(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Names the present holder if a message is due.
    pub(super) fn tell_if_due(&mut self) {
        if self.due.is_some_and(|due| due <= Instant::now()) {
            self.tell(&in_the_way(&self.request.device));
        }
    }

    fn tell(&mut self, rows: &[Row]) {
        self.due = Instant::now().checked_add(PERIOD);
        let holders: Vec<String> =
            rows.iter().filter(|row| row.holder.scheme.is_lock()).map(Row::sentence).collect();
        if !holders.is_empty() {
            let device = self.request.device.as_str();
            let text = format!("/dev/{device}: waiting\n  {}", holders.join("\n  "));
            self.output.remark(&text);
        }
    }
}

/// One wait for one lock.
struct Wait<'a, 'news> {
    request: &'a Request,
    deadline: Option<Instant>,
    signals: Option<&'a Signals>,
    news: &'a mut News<'news>,
    /// Whether the service was there at all.
    reached: bool,
    /// How often in a row it was not there any more.
    absences: u32,
    pause: Duration,
}

impl Wait<'_, '_> {
    fn is_over(&self) -> bool {
        left(self.deadline).is_some_and(|left| left.is_zero())
    }

    /// Waits in the service's queue. `None`: not decided yet.
    fn queue(&mut self, service: &mut Service) -> Option<Waited> {
        let time = left(self.deadline).unwrap_or(Duration::MAX);
        let Request { device, pid } = self.request;
        if let Err(trouble) = service.ask(|client| client.begin_wait(device, *pid, time)) {
            if service.leaves_lock_files(&trouble) {
                service.has_queue = false;
                return None;
            }
            return self.absent(trouble);
        }
        service.may_have_taken = true;
        self.reached = true;
        match self.listen(service, whole_seconds(time)) {
            Ok(Ok(Outcome::Busy)) => {
                self.absences = 0;
                self.is_over().then(|| Waited::TimedOut(Vec::new()))
            }
            Ok(Ok(outcome)) => Some(Waited::Answered(Ok(outcome))),
            Ok(Err(Error::Unsupported)) => {
                service.has_queue = false;
                None
            }
            Ok(Err(error)) => {
                let passing = error.is_passing();
                let trouble = service.lost(error);
                if passing { self.absent(trouble) } else { Some(self.out_of_time(trouble)) }
            }
            Err(signal) => Some(Waited::Interrupted(signal)),
        }
    }

    /// The service's answer, unless a signal comes first or the time is up.
    fn listen(
        &mut self,
        service: &mut Service,
        seconds: u32,
    ) -> Result<Result<Outcome, Error>, Signal> {
        let due = Instant::now().checked_add(Duration::from_secs(seconds.into()));
        let last = due.and_then(|due| due.checked_add(PATIENCE));
        let limit = self.deadline.and_then(|deadline| deadline.checked_add(GRACE));
        let until = last.into_iter().chain(limit).min();
        loop {
            let Some(client) = &service.client else { return Ok(Err(Error::Closed)) };
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.into_iter().chain(self.news.left()).min();
            match wrapcmd::pause(self.signals, Some(client.as_fd()), left) {
                Woken::Ready => return Ok(service.hear(Client::finish_wait)),
                Woken::Time if until.is_none_or(|until| Instant::now() < until) => {
                    self.news.tell_if_due();
                }
                // The user's time is up before the service's, which has no fractions.
                Woken::Time if due.is_some_and(|due| Instant::now() < due) => {
                    return Ok(Ok(give_up(service).unwrap_or(Outcome::Busy)));
                }
                Woken::Time => return Ok(give_up(service)),
                Woken::Signal => {}
            }
            if let Some(signal) = self.signals.and_then(Signals::ending) {
                let outcome = give_up(service);
                service.may_have_taken |= matches!(outcome, Ok(Outcome::Done));
                return Err(signal);
            }
        }
    }

    /// At the end of the user's time whatever else went wrong is only the reason.
    fn out_of_time(&self, trouble: Trouble) -> Waited {
        if trouble.is_silence() && self.is_over() {
            Waited::TimedOut(trouble.reasons())
        } else {
            Waited::Answered(Err(trouble))
        }
    }

    /// The service is being restarted, perhaps; the lock is worth some patience.
    fn absent(&mut self, trouble: Trouble) -> Option<Waited> {
        if !self.reached {
            return Some(self.out_of_time(trouble));
        }
        self.absences = self.absences.saturating_add(1);
        if self.is_over() {
            return Some(Waited::TimedOut(trouble.reasons()));
        }
        if self.absences > ABSENCES {
            return Some(Waited::Answered(Err(trouble)));
        }
        self.rest(ABSENCE_PAUSE);
        None
    }

    /// Asks once, and rests a while if it was in vain.
    fn try_again(&mut self, broker: &mut Broker) -> Option<Waited> {
        match broker.lock(self.request) {
            Ok(Outcome::Busy) => {
                self.reached = true;
                self.absences = 0;
            }
            Ok(outcome) => return Some(Waited::Answered(Ok(outcome))),
            Err(trouble) => return self.absent(trouble),
        }
        if self.is_over() {
            return Some(Waited::TimedOut(Vec::new()));
        }
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        self.rest(pause);
        None
    }

    /// A pause that a signal ends.
    fn rest(&mut self, pause: Duration) {
        self.news.tell_if_due();
        let pause = left(self.deadline).map_or(pause, |left| left.min(pause));
        wrapcmd::pause(self.signals, None, Some(pause));
    }
}
