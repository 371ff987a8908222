//! The record of holds, as connections see it: which answers wait for it, and what the end of a term changes.

use super::{Core, Readiness, ServerMint};
use crate::server::Settings;
use crate::server::state::{DiskJournal, Doubt, StateDir};
use leases::journal::{Call, Commits, Failed, Journal, Mark, Record, Recovered};
use leases::{AutoRelease, ConnId, Engine, Key, LeaseStart, Moment, Token};
#[cfg(feature = "etcd")]
use leases_etcd::EtcdJournal;
use std::task::{Context, Poll, Waker};

/// The answers and lines that wait for the journal, and the task that drives it.
#[derive(Default)]
pub(in crate::server) struct Recording {
    pub(in crate::server) commits: Commits,
    /// When leases begin; `None` if holds are not recorded.
    leases: Option<LeaseStart>,
    /// The records of one request; kept to reuse its memory.
    set: Vec<Record>,
    recorder: Option<Waker>,
    /// To be woken when a call of the journal has ended.
    waiting: Vec<Waker>,
    /// Holds that were taken away by force, which is not recorded yet.
    taken: Vec<(Mark, ConnId, Token)>,
    is_closing: bool,
    /// No further hold can be recorded.
    pub(in crate::server) is_full: bool,
}

impl Recording {
    pub(super) fn new(settings: &Settings) -> Self {
        #[cfg(feature = "etcd")]
        if settings.is_shared() {
            return Self::of::<EtcdJournal>();
        }
        settings.state.as_ref().map_or_else(Self::default, |_| Self::of::<DiskJournal>())
    }

    fn of<J: Journal>() -> Self {
        let leases = if J::IS_SHARED { LeaseStart::Record } else { LeaseStart::Grant };
        Self { commits: Commits::of::<J>(), leases: Some(leases), ..Self::default() }
    }

    /// Notes the changes of a request.
    pub(super) fn note(&mut self, engine: &mut Engine, now: Moment) {
        if engine.has_changes() {
            engine.take_changes(now, &mut self.set);
            self.commits.note(&mut self.set);
            self.wake_recorder();
        }
    }

    /// When an answer that is decided now may be sent; `None` for at once.
    pub(in crate::server) fn mark(&mut self) -> Option<Mark> {
        // Between two terms nothing is decided, and clients are sent away at once.
        let mark = if self.commits.has_term() { self.commits.mark() } else { None };
        self.wake_recorder();
        mark
    }

    /// What becomes of the holds of connections that a shutdown ends. If holds outlive this process, they stay: a server
    /// that comes again must find what its clients still hold.
    pub(in crate::server) const fn auto_at_shutdown(&self, auto: AutoRelease) -> AutoRelease {
        if self.leases.is_some() { AutoRelease::Off } else { auto }
    }

    /// Ready when the answer may be sent.
    ///
    /// # Errors
    /// The term is over, so it may be wrong.
    pub(in crate::server) fn poll_recorded(
        &mut self,
        mark: Mark,
        cx: &Context<'_>,
    ) -> Poll<Result<(), Failed>> {
        match self.commits.may_send(mark) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                self.waiting.push(cx.waker().clone());
                Poll::Pending
            }
            Err(Failed) => Poll::Ready(Err(Failed)),
        }
    }

    /// The next call of the journal; `None` if the server ends.
    pub(in crate::server) fn poll_call(&mut self, cx: &Context<'_>) -> Poll<Option<Call>> {
        self.register(cx);
        match self.commits.begin() {
            None if !self.is_closing => Poll::Pending,
            call => Poll::Ready(call),
        }
    }

    /// How many clients may send further requests as soon as the call of these records has ended; 0 if the records that
    /// wait already fill the next call.
    pub(in crate::server) fn coming_back(&self, records: &[Record]) -> u64 {
        let answered = if self.commits.has_backlog() { 0 } else { self.waiting.len() };
        answered.min(records.len()) as u64
    }

    /// Ready when this many records were noted in this term.
    pub(in crate::server) fn poll_noted(&mut self, noted: u64, cx: &Context<'_>) -> Poll<()> {
        self.register(cx);
        if self.commits.noted() >= noted { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(in crate::server) fn poll_closing(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.register(cx);
        if self.is_closing { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The term is to end after the last commit.
    pub(in crate::server) fn close(&mut self) {
        self.is_closing = true;
        if let Some(recorder) = &self.recorder {
            recorder.wake_by_ref();
        }
    }

    fn wake_recorder(&self) {
        if self.commits.is_due() {
            if let Some(recorder) = &self.recorder {
                recorder.wake_by_ref();
            }
        }
    }

    fn register(&mut self, cx: &Context<'_>) {
        self.recorder = Some(cx.waker().clone());
    }
}

impl Core {
    /// Whether requests about locks can be served.
    pub(in crate::server) fn is_available(&self) -> bool {
        self.recording.commits.has_term()
    }

    /// Whether the term has ended in which a connection came.
    pub(in crate::server) fn is_of_past_term(&self, id: ConnId) -> bool {
        let term = self.recording.commits.term();
        self.connections.get(id).is_some_and(|seat| seat.term != term)
    }

    /// A call of the journal has ended.
    pub(in crate::server) fn end_call(
        &mut self,
        outcome: Result<(), Failed>,
        records: &[Record],
        now: Moment,
    ) {
        self.recording.commits.end(outcome);
        if outcome.is_err() {
            return self.end_term();
        }
        if self.recording.leases == Some(LeaseStart::Record) {
            for record in records {
                if let Record::Granted(hold) | Record::Extended(hold) = record {
                    let key = Key::new(&hold.key);
                    if let Some(key) = key {
                        self.engine.start_lease(now, key, hold.token);
                    }
                }
            }
            self.rearm();
        }
        self.recording.waiting.drain(..).for_each(Waker::wake);
        for (mark, id, token) in std::mem::take(&mut self.recording.taken) {
            self.report_taken(mark, id, token);
        }
    }

    /// A hold was taken from a connection: it hears of it when that is recorded.
    pub(super) fn note_taken(&mut self, id: ConnId, token: Token) {
        match self.recording.mark() {
            Some(mark) => self.report_taken(mark, id, token),
            None => self.note_lost(id, token),
        }
    }

    fn note_lost(&mut self, id: ConnId, token: Token) {
        self.connections.note_lost(id, token);
        self.rearm();
    }

    fn report_taken(&mut self, mark: Mark, id: ConnId, token: Token) {
        match self.recording.commits.may_send(mark) {
            Ok(true) => self.note_lost(id, token),
            Ok(false) => self.recording.taken.push((mark, id, token)),
            Err(Failed) => {}
        }
    }

    /// What was not recorded never happened, so the engine is emptied. Every connection ends and releases nothing.
    pub(in crate::server) fn end_term(&mut self) {
        if self.recording.commits.has_term() {
            self.recording.commits.end_term();
        }
        self.engine.restart(ServerMint::new(0));
        self.recording.waiting.drain(..).for_each(Waker::wake);
        self.recording.taken.clear();
        self.connections.drop_answers();
        self.connections.wake_all();
        self.end_sessions(Moment::default(), AutoRelease::Off);
    }

    /// The engine continues with the recorded holds.
    pub(in crate::server) fn begin_term(&mut self, recovered: &Recovered, now: Moment) {
        let Some(leases) = self.recording.leases else { return };
        self.engine.restart(match leases {
            LeaseStart::Grant => ServerMint::new(recovered.next_fence),
            LeaseStart::Record => ServerMint::from(recovered.next_fence),
        });
        self.engine.record(leases);
        recovered.restore(now, &mut self.engine);
        self.recording.commits.begin_term();
        self.rearm();
    }

    /// Sets how many holds can be recorded beside those that are committed.
    pub(in crate::server) fn set_room(&mut self, holds: usize) {
        self.recording.is_full = holds == 0;
        let waiting = if holds < usize::MAX { self.recording.commits.waiting_grants() } else { 0 };
        self.engine.set_room(holds.saturating_sub(waiting));
        self.rearm();
    }

    /// Whether clients should be sent to another server, and why.
    pub(in crate::server) fn readiness(&self, state: Option<&StateDir>, now: Moment) -> Readiness {
        let (is_kept, is_available) = (state.is_some(), self.is_available());
        let closed_micros = self.engine.closed_until().micros_since(now);
        match state.and_then(StateDir::doubt) {
            _ if self.engine.is_draining() => Readiness::of("draining"),
            _ if !is_available && is_kept => Readiness::of("state_unwritable"),
            _ if !is_available => Readiness::of("store_unavailable"),
            _ if is_kept && self.recording.is_full => Readiness::of("state_full"),
            _ if closed_micros == 0 => Readiness::READY,
            Some(Doubt::Damaged) => Readiness { word: "state_damaged", closed_micros },
            Some(Doubt::OtherBoot) => Readiness { word: "machine_restarted", closed_micros },
            None => Readiness { word: "startup_grace", closed_micros },
        }
    }
}

#[cfg(test)]
#[cfg(feature = "etcd")]
mod tests {
    use super::super::Shared;
    use super::*;
    use crate::sample::take;
    use leases::{Answer, Claim, Refusal, Request, Seconds, Ttl, Verdict};

    const NOW: Moment = Moment::from_micros(0);

    /// Makes the calls of the journal that are due; returns their number.
    fn record(core: &mut Core, now: Moment) -> usize {
        let mut calls = 0;
        while let Some(call) = core.recording.commits.begin() {
            let Call::Commit(records) = call else { panic!("nothing is only confirmed") };
            core.end_call(Ok(()), &records, now);
            calls += 1;
        }
        calls
    }

    /// The journal may be quicker than the client that is woken.
    #[test]
    fn a_hand_over_is_one_commit() {
        let settings = Settings::default();
        let shared = Shared::new(settings.clone());
        let mut core = shared.core();
        core.recording = Recording::of::<EtcdJournal>();
        core.begin_term(&Recovered::default(), NOW);
        let [holder, waiter] = [(); 2].map(|()| core.admit(&settings, None).unwrap().0);
        let Ok(Verdict::Now(Answer::Granted(grant))) = core.ask(NOW, holder, take(b"k", 9)) else {
            panic!("it is free");
        };
        let (key, timeout) = (Key::new(b"k").unwrap(), Seconds::new(9).unwrap());
        let wait = Request::Acquire { key, claim: Claim::LOCK, timeout, ttl: None };
        assert_eq!(core.ask(NOW, waiter, wait), Ok(Verdict::Later));
        assert_eq!(record(&mut core, NOW), 1);
        core.ask(NOW, holder, Request::Release { key, token: Some(grant.token) }).unwrap();
        assert_eq!(record(&mut core, NOW), 1);
        let (answer, mark) = core.connections.take_answer(waiter, NOW).unwrap();
        assert!(matches!(answer, Answer::Granted(_)));
        assert_eq!(core.recording.commits.may_send(mark.unwrap()), Ok(true));
        assert_eq!(record(&mut core, NOW), 0);
    }

    /// The server stands still for longer than a lease before the waiter's task runs.
    #[test]
    fn a_waiter_gets_no_lease_that_has_ended() {
        for is_in_etcd in [false, true] {
            let settings = Settings::default();
            let shared = Shared::new(settings.clone());
            let mut core = shared.core();
            if is_in_etcd {
                core.recording = Recording::of::<EtcdJournal>();
                core.begin_term(&Recovered::default(), NOW);
            }
            let [holder, waiter] = [(); 2].map(|()| core.admit(&settings, None).unwrap().0);
            let Ok(Verdict::Now(Answer::Granted(grant))) = core.ask(NOW, holder, take(b"k", 9))
            else {
                panic!("it is free");
            };
            let (key, timeout) = (Key::new(b"k").unwrap(), Seconds::new(9).unwrap());
            let ttl = Ttl::new(9);
            let wait = Request::Acquire { key, claim: Claim::LOCK, timeout, ttl };
            assert_eq!(core.ask(NOW, waiter, wait), Ok(Verdict::Later));
            core.ask(NOW, holder, Request::Release { key, token: Some(grant.token) }).unwrap();
            let later = |seconds| NOW.after(Seconds::new(seconds).unwrap());
            let (answer, mark) = core.connections.take_answer(waiter, later(20)).unwrap();
            if !is_in_etcd {
                assert_eq!(answer, Answer::Refused(Refusal::LeaseExpired));
                continue;
            }
            assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
            assert_eq!(core.recording.commits.may_send(mark.unwrap()), Ok(false));
            assert!(record(&mut core, later(20)) > 0);
            assert_eq!(core.recording.commits.may_send(mark.unwrap()), Ok(true));
            for (seconds, holders) in [(28, 1), (29, 0)] {
                core.engine.advance(later(seconds));
                assert_eq!(core.engine.census().locks.holders, holders, "{seconds}");
            }
        }
    }

    /// However long the commit takes, the client has its whole lease.
    #[test]
    fn a_lease_begins_with_its_commit() {
        let settings = Settings::default();
        let shared = Shared::new(settings.clone());
        let mut core = shared.core();
        core.recording = Recording::of::<EtcdJournal>();
        core.begin_term(&Recovered::default(), NOW);
        let (holder, _) = core.admit(&settings, None).unwrap();
        core.ask(NOW, holder, take(b"k", 9)).unwrap();
        for (seconds, holders) in [(20, 1), (28, 1), (29, 0)] {
            let now = NOW.after(Seconds::new(seconds).unwrap());
            core.engine.advance(now);
            assert_eq!(core.engine.census().locks.holders, holders, "{seconds}");
            if seconds == 20 {
                assert_eq!(record(&mut core, now), 1);
            }
        }
    }
}
