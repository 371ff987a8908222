//! Waits for a lock until `lfp` has it or the time is up, in the service's queue or by asking again. The
//! user's time limit holds, whatever the service does.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use wrapcmd::{Signals, Woken};

use super::outcome::Output;
use super::row::Row;
use super::search::in_the_way;
use crate::client::broker::{Broker, Trouble};
use crate::client::{Client, Error, PATIENCE, whole_seconds};
use ttylock::{Outcome, Request};

/// The pause between two attempts to reach a service that went away while we wait for a lock, and how many attempts are
/// made.
const ABSENCE_PAUSE: Duration = Duration::from_millis(200);
const ABSENCES: u32 = 50;

/// How often a lock is asked for again if no event reports that it is free.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How long the service may take for an answer when the time for waiting is over: it counts whole seconds and
/// begins a little later than we. It has this time for each question, even if there is no time to wait.
const GRACE: Duration = Duration::from_millis(100);

/// What became of waiting.
#[derive(Debug)]
pub(super) enum Waited {
    /// The answer to the last request.
    Answered(Result<Outcome, Trouble>),
    /// With the reasons, where it was not the lock's holder alone.
    TimedOut(Vec<String>),
    Interrupted(Signal),
}

/// The first signal that has arrived and asks for an end.
pub(super) fn ending(signals: &Signals) -> Option<Signal> {
    Signal::try_from(signals.ending()?).ok()
}

/// Waits for the lock in turn, until the deadline or for as long as it takes. `output` is for messages meanwhile.
pub(super) fn wait(
    broker: &mut Broker,
    request: &Request,
    deadline: Option<Instant>,
    signals: Option<&Signals>,
    output: Option<&Output>,
) -> Waited {
    let news = output.filter(|it| it.has_people()).map(|it| (Instant::now(), it));
    let (reached, absences, pause) = (false, 0, FIRST_PAUSE);
    let mut wait = Wait { request, deadline, signals, news, reached, absences, pause };
    wait.report_if_due();
    let patient = !wait.is_over();
    loop {
        if let Some(signal) = signals.and_then(ending) {
            return Waited::Interrupted(signal);
        }
        broker.be_patient(patience(wait.deadline));
        let in_line = patient && broker.has_queue;
        let step = if in_line { wait.queue(broker) } else { wait.try_again(broker) };
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
fn leave_queue(client: &mut Client) -> Result<Outcome, Error> {
    client.be_patient(GRACE);
    client.leave_queue()
}

/// The time between two messages about a wait.
const PERIOD: Duration = Duration::from_secs(60);

/// One wait for one lock.
struct Wait<'a> {
    request: &'a Request,
    deadline: Option<Instant>,
    signals: Option<&'a Signals>,
    /// When the holder in the way is named next to a user at a terminal: at once and again every minute.
    news: Option<(Instant, &'a Output)>,
    /// Whether the service was there at all.
    reached: bool,
    /// How often in a row it was not there any more.
    absences: u32,
    pause: Duration,
}

impl Wait<'_> {
    fn is_over(&self) -> bool {
        left(self.deadline).is_some_and(|left| left.is_zero())
    }

    /// Names the present holder if a message is due.
    fn report_if_due(&mut self) {
        let now = Instant::now();
        let Some((_, output)) = self.news.filter(|(due, _)| *due <= now) else { return };
        self.news = now.checked_add(PERIOD).map(|due| (due, output));
        let rows = in_the_way(&self.request.device);
        let locks = rows.iter().filter(|row| row.holder.scheme.is_lock());
        let holders: Vec<String> = locks.map(Row::sentence).collect();
        if !holders.is_empty() {
            let device = self.request.device.as_str();
            output.remark(&format!("/dev/{device}: waiting\n  {}", holders.join("\n  ")));
        }
    }

    /// Waits in the service's queue. `None`: not decided yet.
    fn queue(&mut self, broker: &mut Broker) -> Option<Waited> {
        let time = left(self.deadline).unwrap_or(Duration::MAX);
        let Request { device, pid } = self.request;
        if let Err(trouble) = broker.ask_service(|client| client.begin_wait(device, *pid, time)) {
            if broker.leaves_lock_files(&trouble) {
                broker.has_queue = false;
                return None;
            }
            return self.absent(trouble);
        }
        self.reached = true;
        let mut signal = None;
        let listen = |client: &mut Client| match self.listen(client, time, &mut signal) {
            Err(Error::Unsupported) => Ok(None),
            answer => answer.map(Some),
        };
        let answer = broker.ask_service(listen);
        if !matches!(answer, Ok(None)) {
            // After giving up, nothing can be asked on this connection.
            broker.close_connection();
        }
        if let Some(signal) = signal {
            broker.may_have_taken |= matches!(answer, Ok(Some(Outcome::Done)));
            return Some(Waited::Interrupted(signal));
        }
        match answer {
            Ok(Some(Outcome::Busy)) => {
                self.absences = 0;
                self.is_over().then(|| Waited::TimedOut(Vec::new()))
            }
            Ok(Some(outcome)) => Some(Waited::Answered(Ok(outcome))),
            Ok(None) => {
                broker.has_queue = false;
                None
            }
            Err(trouble) if trouble.has(Error::is_passing) => self.absent(trouble),
            Err(trouble) => Some(self.out_of_time(trouble)),
        }
    }

    /// The service's answer, unless a signal comes first or the time is up.
    fn listen(
        &mut self,
        client: &mut Client,
        time: Duration,
        signal: &mut Option<Signal>,
    ) -> Result<Outcome, Error> {
        let whole = Duration::from_secs(whole_seconds(time).into());
        let last = Instant::now().checked_add(whole.saturating_add(PATIENCE));
        // The user's time may be up before the service's, which has no fractions.
        let limit = self.deadline.and_then(|deadline| deadline.checked_add(GRACE));
        let until = last.into_iter().chain(limit).min();
        loop {
            let news = self.news.map(|(due, _)| due);
            let time = left(until).into_iter().chain(left(news)).min();
            match wrapcmd::pause(self.signals, Some(client.as_fd()), time) {
                Woken::Ready => return client.finish_wait(),
                Woken::Time if left(until).is_none_or(|left| !left.is_zero()) => {
                    self.report_if_due();
                }
                Woken::Time => return leave_queue(client),
                Woken::Signal => {}
            }
            *signal = self.signals.and_then(ending);
            if signal.is_some() {
                return leave_queue(client);
            }
        }
    }

    /// At the end of the user's time whatever else went wrong is only the reason.
    fn out_of_time(&self, trouble: Trouble) -> Waited {
        if trouble.has(|error| matches!(error, Error::TimedOut)) && self.is_over() {
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
        self.report_if_due();
        let pause = left(self.deadline).map_or(pause, |left| left.min(pause));
        wrapcmd::pause(self.signals, None, Some(pause));
    }
}
