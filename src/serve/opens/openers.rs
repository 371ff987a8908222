//! Which processes have which ports open without a lock of their own, and which of them is to be examined
//! next. Names and numbers only; the clock is an argument.
//!
//! Usage: report what was seen; ask what to examine now; examine it, and report the result. Examining may
//! take long, and an event in the meantime invalidates its result. The numbers of ports and of processes for
//! each port are bounded: a process that opens a port a thousand times is listed sixteen times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pidlockfile::Pid;
use pidlockfile::process::ProcessIdentity;

use super::Deed;
use crate::limits::{
    CLOSED_DURING_SURVEY, LOOK_GAP, LOOKS_OF_A_USER, OPEN_FOR, OPEN_LOOK_MOST, OPENERS_OF_PORT,
    WATCHED_PORTS,
};
use crate::serve::admission::User;

/// The processes that have ports open.
#[derive(Debug, Default)]
pub(in crate::serve) struct Openers {
    ports: BTreeMap<String, Vec<Opener>>,
    survey: Option<Survey>,
}

/// All processes with open ports were asked for.
#[derive(Debug, Default)]
struct Survey {
    /// What was closed since then.
    closed: BTreeSet<(String, Pid)>,
    /// They are to be asked for once more.
    again: bool,
}

#[derive(Clone, Debug)]
struct Opener {
    who: ProcessIdentity,
    user: User,
    standing: Standing,
    /// It has closed the port, and may have it open still: since then it is to be looked at.
    told: Option<(Instant, Deed)>,
    look: Look,
    /// Since when its lock waits for the kernel's list of locks.
    asked: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// To be looked at then, and if it cannot have the lock, again after this time.
    Due(Instant, Duration),
    /// It has a lock that was taken in its name.
    Locked,
    /// It needs none, or may have none.
    Left,
    /// Whether it has the port open at all, the first look tells.
    Unknown,
}

/// Whether it is looked at just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    None,
    Underway,
    /// Something has happened since that look began.
    Void,
}

/// A process that is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Question {
    pub(in crate::serve) port: String,
    pub(in crate::serve) who: ProcessIdentity,
    pub(in crate::serve) why: Why,
}

/// Why a process is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Why {
    /// It is to have the lock if it still has the port open.
    Due,
    /// It did that.
    Told(Deed),
}

/// What was found when a process was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Verdict {
    /// It has the port open no longer.
    Closed,
    /// The lock was taken in its name.
    Locked,
    /// Somebody else has the lock.
    Later,
    /// The kernel's list of locks is being read.
    Pending,
    /// It has a lock, or is to have none.
    Left,
}

impl Opener {
    /// When it is to be looked at, unless it is looked at just now.
    fn moment(&self) -> Option<Instant> {
        if self.look != Look::None {
            return None;
        }
        self.told.map(|(since, _)| since).or(match self.standing {
            Standing::Due(moment, _) => Some(moment),
            Standing::Locked | Standing::Left | Standing::Unknown => None,
        })
    }

    fn happened(&mut self) {
        if self.look == Look::Underway {
            self.look = Look::Void;
        }
    }
}

/// To be looked at after it has had the port open for a while.
fn due_after(now: Instant) -> Standing {
    Standing::Due(now.checked_add(OPEN_FOR).unwrap_or(now), OPEN_FOR)
}

impl Openers {
    /// A process has opened a port.
    pub(in crate::serve) fn opened(
        &mut self,
        port: &str,
        who: &ProcessIdentity,
        user: User,
        now: Instant,
    ) {
        let Some(opener) = self.enter(port, who, user) else { return };
        opener.happened();
        // It is unknown whether it was opened after that.
        opener.told = opener.told.map(|(since, _)| (since, Deed::Both));
        match opener.standing {
            // It may be another program by now.
            Standing::Left | Standing::Unknown => opener.standing = due_after(now),
            Standing::Due(..) | Standing::Locked => {}
        }
    }

    /// A process has closed a port, and may have it open still.
    pub(in crate::serve) fn may_have_closed(
        &mut self,
        port: &str,
        who: &ProcessIdentity,
        user: User,
        deed: Deed,
        now: Instant,
    ) {
        if let Some(Survey { closed, again }) = &mut self.survey {
            *again |= closed.len() >= CLOSED_DURING_SURVEY;
            if !*again {
                closed.insert((port.to_owned(), who.pid));
            }
        }
        let Some(opener) = self.enter(port, who, user) else { return };
        opener.happened();
        let since = opener.told.map_or(now, |(since, _)| since);
        opener.told = Some((since, deed));
    }

    /// The process among those of the port, if there is room.
    fn enter(&mut self, port: &str, who: &ProcessIdentity, user: User) -> Option<&mut Opener> {
        if !self.ports.contains_key(port) {
            if self.ports.len() >= WATCHED_PORTS {
                return None;
            }
            self.ports.insert(port.to_owned(), Vec::new());
        }
        let openers = self.ports.get_mut(port)?;
        // The process that had the number before has ended.
        openers.retain(|opener| opener.who.pid != who.pid || opener.who == *who);
        if !openers.iter().any(|opener| opener.who == *who) {
            if openers.len() >= OPENERS_OF_PORT {
                return None;
            }
            let (standing, look) = (Standing::Unknown, Look::None);
            openers.push(Opener {
                who: who.clone(),
                user,
                standing,
                told: None,
                look,
                asked: None,
            });
        }
        openers.iter_mut().find(|opener| opener.who == *who)
    }

    /// A process has the port open no longer. True when a lock was taken in its name.
    pub(in crate::serve) fn closed(&mut self, port: &str, who: &ProcessIdentity) -> bool {
        let Some(openers) = self.ports.get_mut(port) else { return false };
        let had = openers.iter().any(|it| it.who == *who && it.standing == Standing::Locked);
        openers.retain(|opener| opener.who != *who);
        if openers.is_empty() {
            self.ports.remove(port);
        }
        had
    }

    /// Processes are gone.
    pub(in crate::serve) fn gone(&mut self, mut is_gone: impl FnMut(&ProcessIdentity) -> bool) {
        self.retain(|opener| !is_gone(&opener.who));
    }

    /// The lock that was taken in a process's name is not that one any more.
    pub(in crate::serve) fn released(&mut self, port: &str, pid: Pid) {
        let openers = self.ports.get_mut(port).into_iter().flatten();
        for opener in openers.filter(|it| it.who.pid == pid && it.standing == Standing::Locked) {
            opener.standing = Standing::Left;
        }
    }

    /// Nobody knows what was opened and closed: only what is locked stays, and is looked at. Everybody
    /// is asked for anew.
    pub(in crate::serve) fn forget_unlocked(&mut self, now: Instant) {
        self.retain(|opener| opener.standing == Standing::Locked);
        for opener in self.ports.values_mut().flatten() {
            opener.happened();
            opener.told.get_or_insert((now, Deed::Both));
        }
    }

    /// All processes with open ports are to be asked for. False when they are already: then that is done once
    /// more.
    pub(in crate::serve) fn survey_begins(&mut self) -> bool {
        if let Some(survey) = &mut self.survey {
            survey.again = true;
            return false;
        }
        self.survey = Some(Survey::default());
        true
    }

    /// The processes that were found. True when all are to be asked for again: the kernel has lost events meanwhile.
    pub(in crate::serve) fn survey_ended(
        &mut self,
        found: impl IntoIterator<Item = (String, ProcessIdentity, User)>,
        now: Instant,
    ) -> bool {
        let Survey { closed, again } = self.survey.take().unwrap_or_default();
        if !again {
            for (port, who, user) in found {
                if !closed.contains(&(port.clone(), who.pid)) {
                    self.opened(&port, &who, user, now);
                }
            }
        }
        again
    }

    fn retain(&mut self, mut keeps: impl FnMut(&Opener) -> bool) {
        self.ports.values_mut().for_each(|openers| openers.retain(&mut keeps));
        self.ports.retain(|_, openers| !openers.is_empty());
    }

    /// A lock has gone: an opener that could not have it may have it now.
    pub(in crate::serve) fn retry(&mut self, now: Instant) {
        for opener in self.ports.values_mut().flatten() {
            if let Standing::Due(moment, pause) = &mut opener.standing {
                // A process that has just opened it is not to be looked at before its time.
                if *pause > OPEN_FOR {
                    *moment = now.min(*moment);
                }
            }
        }
    }

    /// What to look at now: among the users with the fewest looks under way, the opener that has waited
    /// longest. The look lasts until it is [answered](Self::answered) or [left](Self::put_back).
    pub(in crate::serve) fn next(&mut self, now: Instant) -> Option<Question> {
        let all = || self.ports.values().flatten();
        let mut underway: BTreeMap<User, usize> = BTreeMap::new();
        for opener in all().filter(|opener| opener.look != Look::None) {
            let looks = underway.entry(opener.user).or_default();
            *looks = looks.saturating_add(1);
        }
        let of_user = |opener: &Opener| underway.get(&opener.user).copied().unwrap_or_default();
        let due = self.ports.iter_mut().flat_map(|(port, openers)| {
            openers.iter_mut().filter_map(move |it| Some((it.moment()?, port, it)))
        });
        let due = due.filter(|(moment, _, it)| *moment <= now && of_user(it) < LOOKS_OF_A_USER);
        let (_, port, opener) = due.min_by_key(|(moment, _, it)| (of_user(it), *moment))?;
        opener.look = Look::Underway;
        let why = opener.told.map_or(Why::Due, |(_, deed)| Why::Told(deed));
        Some(Question { port: port.clone(), who: opener.who.clone(), why })
    }

    fn find(&mut self, port: &str, who: &ProcessIdentity) -> Option<&mut Opener> {
        self.ports.get_mut(port)?.iter_mut().find(|opener| opener.who == *who)
    }

    /// It was not looked at, and is to be looked at as before.
    pub(in crate::serve) fn put_back(&mut self, Question { port, who, .. }: &Question) {
        if let Some(opener) = self.find(port, who) {
            opener.look = Look::None;
        }
    }

    /// The look has come to its end. False when it tells nothing: something has happened meanwhile, and it
    /// is to be looked at again; or it is of no interest any more.
    pub(in crate::serve) fn answered(&mut self, Question { port, who, why }: &Question) -> bool {
        let Some(opener) = self.find(port, who) else { return false };
        let is_good = std::mem::replace(&mut opener.look, Look::None) == Look::Underway;
        if is_good && matches!(why, Why::Told(_)) {
            opener.told = None;
        }
        is_good
    }

    /// It has the port open, as a look has told.
    pub(in crate::serve) fn is_open(&mut self, port: &str, who: &ProcessIdentity, now: Instant) {
        if let Some(opener) = self.find(port, who) {
            if matches!(opener.standing, Standing::Unknown | Standing::Left) {
                opener.standing = due_after(now);
            }
        }
    }

    /// Whether it has the port open, a look could not tell.
    pub(in crate::serve) fn is_untold(&mut self, port: &str, who: &ProcessIdentity) {
        if self.find(port, who).is_some_and(|opener| opener.standing == Standing::Unknown) {
            self.closed(port, who);
        }
    }

    /// When it was looked at first, if the kernel's list of locks has been read ever since.
    pub(in crate::serve) fn asked(&self, port: &str, who: &ProcessIdentity) -> Option<Instant> {
        self.ports.get(port)?.iter().find(|opener| opener.who == *who)?.asked
    }

    /// When the next process is to be examined.
    pub(in crate::serve) fn next_moment(&self) -> Option<Instant> {
        self.ports.values().flatten().filter_map(Opener::moment).min()
    }

    /// What was found when it was looked at.
    pub(in crate::serve) fn settle(
        &mut self,
        port: &str,
        who: &ProcessIdentity,
        verdict: Verdict,
        now: Instant,
    ) {
        let Some(opener) = self.find(port, who) else { return };
        opener.asked = opener.asked.or(Some(now)).filter(|_| verdict == Verdict::Pending);
        opener.standing = match verdict {
            Verdict::Closed => {
                self.closed(port, who);
                return;
            }
            Verdict::Locked => Standing::Locked,
            Verdict::Left => Standing::Left,
            Verdict::Pending => {
                let Standing::Due(_, pause) = opener.standing else { return };
                Standing::Due(now.checked_add(LOOK_GAP).unwrap_or(now), pause)
            }
            Verdict::Later => {
                let pause = match opener.standing {
                    Standing::Due(_, pause) => pause.saturating_mul(2).min(OPEN_LOOK_MOST),
                    Standing::Locked | Standing::Left | Standing::Unknown => OPEN_FOR,
                };
                Standing::Due(now.checked_add(pause).unwrap_or(now), pause)
            }
        };
    }

    /// Whether no process is known to have a port open.
    pub(in crate::serve) fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// All processes with open ports, or those of one port.
    pub(in crate::serve) fn of<'s>(
        &'s self,
        port: Option<&'s str>,
    ) -> impl Iterator<Item = (&'s str, &'s ProcessIdentity)> {
        let wanted = self.ports.iter().filter(move |(name, _)| port.is_none_or(|it| it == *name));
        let known = |opener: &&Opener| opener.standing != Standing::Unknown;
        wanted.flat_map(move |(name, openers)| {
            openers.iter().filter(known).map(move |it| (name.as_str(), &it.who))
        })
    }
}

#[cfg(test)]
mod tests {
    use pidlockfile::process::Start;

    use super::*;

    fn pid(number: i64) -> Pid {
        Pid::new(number).unwrap()
    }

    fn who(number: i64) -> ProcessIdentity {
        ProcessIdentity::bare(pid(number))
    }

    const USER: User = Some(1000);

    /// The opener to look at, which is put back at once.
    fn due(openers: &mut Openers, now: Instant) -> Option<(String, ProcessIdentity)> {
        let question = openers.next(now)?;
        openers.put_back(&question);
        Some((question.port, question.who))
    }

    fn told(port: &str, number: i64, deed: Deed) -> Question {
        Question { port: port.to_owned(), who: who(number), why: Why::Told(deed) }
    }

    /// After fork and exit of an opener, any process may get its number.
    #[test]
    fn a_process_with_the_number_now_did_not_open_the_port() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        let later = ProcessIdentity { start: Start::At(9), ..who(5) };
        openers.opened("ttyS0", &who(5), USER, now);
        openers.settle("ttyS0", &later, Verdict::Locked, now);
        assert_eq!(due(&mut openers, now + OPEN_FOR), Some(("ttyS0".to_owned(), who(5))));
        openers.gone(|opener| *opener == later);
        openers.opened("ttyS0", &later, USER, now);
        assert_eq!(openers.of(None).collect::<Vec<_>>(), [("ttyS0", &later)]);
    }

    #[test]
    fn a_process_with_a_port_open_is_examined_after_a_second() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), USER, now);
        openers.opened("ttyS0", &who(5), USER, now + OPEN_FOR / 2);
        assert_eq!(due(&mut openers, now + OPEN_FOR / 2), None);
        assert_eq!(openers.next_moment(), Some(now + OPEN_FOR));
        assert_eq!(due(&mut openers, now + OPEN_FOR), Some(("ttyS0".to_owned(), who(5))));
        openers.settle("ttyS0", &who(5), Verdict::Locked, now);
        assert_eq!(openers.next_moment(), None);
        assert!(openers.closed("ttyS0", &who(5)));
        assert!(!openers.closed("ttyS0", &who(5)));
        assert_eq!(openers.of(None).count(), 0);
    }

    #[test]
    fn a_process_that_closes_it_before_is_not_examined() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), USER, now);
        assert!(!openers.closed("ttyS0", &who(5)));
        openers.opened("ttyS0", &who(6), USER, now);
        openers.gone(|opener| *opener == who(6));
        assert_eq!(due(&mut openers, now + OPEN_FOR), None);
    }

    #[test]
    fn a_process_refused_the_lock_is_examined_ever_more_rarely() {
        let (mut openers, mut now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), USER, now);
        let mut looks = 0;
        let end = now + Duration::from_secs(600);
        while let Some(moment) = openers.next_moment().filter(|moment| *moment < end) {
            now = moment;
            looks += 1;
            openers.settle("ttyS0", &who(5), Verdict::Later, now);
        }
        assert!((20..=30).contains(&looks), "{looks}");
        openers.opened("ttyS1", &who(6), USER, now);
        openers.retry(now);
        assert_eq!(due(&mut openers, now), Some(("ttyS0".to_owned(), who(5))));
        openers.settle("ttyS0", &who(5), Verdict::Left, now);
        assert_eq!(due(&mut openers, now), None, "it has been open for no time");
    }

    /// What it waits for is soon there, and then it counts what was held since it was first asked.
    #[test]
    fn a_process_is_examined_soon_after_the_kernels_locks_were_read() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), USER, now);
        let first = now + OPEN_FOR;
        for look in 0..3 {
            let moment = first + LOOK_GAP * look;
            assert_eq!(openers.next_moment(), Some(moment));
            openers.settle("ttyS0", &who(5), Verdict::Pending, moment);
            assert_eq!(openers.asked("ttyS0", &who(5)), Some(first));
        }
        openers.settle("ttyS0", &who(5), Verdict::Later, first + LOOK_GAP * 3);
        assert_eq!(openers.asked("ttyS0", &who(5)), None);
        assert_eq!(openers.next_moment(), Some(first + LOOK_GAP * 3 + OPEN_FOR * 2));
    }

    #[test]
    fn a_lock_that_was_given_up_is_not_given_up_twice() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), USER, now);
        openers.settle("ttyS0", &who(5), Verdict::Locked, now);
        openers.released("ttyS0", pid(5));
        assert!(!openers.closed("ttyS0", &who(5)));
    }

    /// Two processes have one port open, and one of them another port as well.
    #[test]
    fn a_verdict_applies_to_one_process_and_one_port() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        assert!(openers.is_empty());
        for (port, process) in [("ttyS0", 5), ("ttyS0", 6), ("ttyS1", 5)] {
            openers.opened(port, &who(process), USER, now);
        }
        openers.settle("ttyS0", &who(5), Verdict::Locked, now);
        // A program that opens its port a second time has its lock already.
        openers.opened("ttyS0", &who(5), USER, now);
        let later = now + OPEN_FOR;
        openers.settle("ttyS1", &who(5), Verdict::Closed, later);
        assert_eq!(due(&mut openers, later), Some(("ttyS0".to_owned(), who(6))));
        openers.released("ttyS0", pid(6));
        assert!(!openers.closed("ttyS0", &who(6)), "the lock is the other's");
        openers.released("ttyS0", pid(6));
        assert_eq!(openers.of(None).collect::<Vec<_>>(), [("ttyS0", &who(5))]);
        assert!(!openers.is_empty() && openers.closed("ttyS0", &who(5)) && openers.is_empty());
    }

    #[test]
    fn a_process_without_need_of_a_lock_may_be_another_program_later() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), USER, now);
        openers.settle("ttyS0", &who(5), Verdict::Left, now);
        assert_eq!(openers.next_moment(), None);
        openers.opened("ttyS0", &who(5), USER, now);
        assert_eq!(openers.next_moment(), Some(now + OPEN_FOR));
    }

    #[test]
    fn after_lost_events_only_locked_ports_are_kept() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        for process in [5, 6, 7] {
            openers.opened("ttyS0", &who(process), USER, now);
        }
        openers.opened("ttyS1", &who(6), USER, now);
        openers.settle("ttyS0", &who(5), Verdict::Locked, now);
        openers.settle("ttyS0", &who(6), Verdict::Left, now);
        openers.forget_unlocked(now);
        assert_eq!(openers.of(None).collect::<Vec<_>>(), [("ttyS0", &who(5))]);
        openers.gone(|opener| *opener == who(6));
        assert!(openers.closed("ttyS0", &who(5)));
    }

    #[test]
    fn ports_and_openers_are_bounded() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        for number in 1..=100 {
            openers.opened("ttyS0", &who(number), USER, now);
        }
        assert_eq!(openers.of(Some("ttyS0")).count(), OPENERS_OF_PORT);
        for number in 1..2 * WATCHED_PORTS {
            openers.opened(&format!("ttyS{number}"), &who(5), USER, now);
        }
        assert_eq!(openers.ports.len(), WATCHED_PORTS);
        openers.forget_unlocked(now);
        assert_eq!(openers.of(None).count(), 0);
    }

    /// A process that closes a port may have it open by another descriptor, so it is looked at, and at once.
    #[test]
    fn a_process_that_closes_a_port_is_examined() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), USER, now);
        openers.settle("ttyS0", &who(5), Verdict::Locked, now);
        openers.may_have_closed("ttyS0", &who(5), USER, Deed::Closed, now);
        let question = openers.next(now).unwrap();
        assert_eq!(question, told("ttyS0", 5, Deed::Closed));
        assert_eq!(openers.next(now), None, "one look at a time");
        assert!(openers.answered(&question));
        openers.is_open("ttyS0", &who(5), now);
        assert_eq!((openers.next_moment(), openers.of(None).count()), (None, 1));
        assert!(openers.closed("ttyS0", &who(5)), "its lock is still there");
    }

    /// One that was handed the port open is known by its first closing; one that has nothing open is
    /// not listed meanwhile.
    #[test]
    fn an_unknown_process_is_listed_once_a_look_has_found_the_port_open() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        for number in [5, 6] {
            openers.may_have_closed("ttyS0", &who(number), USER, Deed::Both, now);
            assert_eq!(openers.of(None).count(), 0);
            assert!(openers.next(now).is_some_and(|question| openers.answered(&question)));
        }
        openers.is_open("ttyS0", &who(5), now);
        openers.is_untold("ttyS0", &who(6));
        assert_eq!(openers.of(None).collect::<Vec<_>>(), [("ttyS0", &who(5))]);
        openers.is_untold("ttyS0", &who(5));
        assert_eq!(openers.next_moment(), Some(now + OPEN_FOR));
    }

    /// A look that began before the port was opened or closed once more tells nothing.
    #[test]
    fn an_open_or_close_during_a_look_makes_it_void() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.may_have_closed("ttyS0", &who(5), USER, Deed::Closed, now);
        let question = openers.next(now).unwrap();
        openers.opened("ttyS0", &who(5), USER, now);
        assert!(!openers.answered(&question));
        let question = openers.next(now).unwrap();
        assert_eq!(question, told("ttyS0", 5, Deed::Both), "in an order that nobody knows");
        openers.may_have_closed("ttyS0", &who(5), USER, Deed::Closed, now);
        assert!(!openers.answered(&question));
        let question = openers.next(now).unwrap();
        assert_eq!(question, told("ttyS0", 5, Deed::Closed));
        assert!(openers.answered(&question));
        assert!(!openers.closed("ttyS0", &who(5)));
        assert!(!openers.answered(&question), "nobody asks any more");
    }

    #[test]
    fn a_process_not_examined_is_examined_later() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), USER, now);
        let later = now + OPEN_FOR;
        let question = openers.next(later).unwrap();
        assert_eq!((openers.next(later), openers.next_moment()), (None, None));
        openers.put_back(&question);
        assert_eq!(openers.next(later), Some(question));
    }

    /// However many processes of one user are to be looked at, and however long that takes, there is
    /// room for those of another.
    #[test]
    fn users_share_the_looks() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        for number in 1..=12 {
            openers.may_have_closed("ttyS0", &who(number), USER, Deed::Closed, now);
        }
        let later = now + Duration::from_secs(1);
        openers.may_have_closed("ttyS1", &who(13), Some(1001), Deed::Closed, later);
        assert_eq!(openers.next(later), Some(told("ttyS0", 1, Deed::Closed)));
        assert_eq!(openers.next(later), Some(told("ttyS1", 13, Deed::Closed)));
        let others = std::iter::from_fn(|| openers.next(later)).count();
        assert_eq!(others, LOOKS_OF_A_USER - 1);
    }

    /// What was lost may have been the closing of a port that is locked.
    #[test]
    fn after_lost_events_locked_ports_are_examined_again() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), USER, now);
        openers.settle("ttyS0", &who(5), Verdict::Locked, now);
        openers.forget_unlocked(now);
        assert_eq!(openers.next(now), Some(told("ttyS0", 5, Deed::Both)));
    }

    /// Finding the processes with open ports takes a while; what was closed meanwhile is not open.
    #[test]
    fn a_process_found_has_not_closed_the_port_meanwhile() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        let found = || [5, 6].map(|number| ("ttyS0".to_owned(), who(number), USER));
        assert!(openers.survey_begins());
        openers.may_have_closed("ttyS0", &who(5), USER, Deed::Closed, now);
        assert!(openers.next(now).is_some_and(|question| openers.answered(&question)));
        openers.closed("ttyS0", &who(5));
        assert!(!openers.survey_ended(found(), now));
        assert_eq!(openers.of(None).collect::<Vec<_>>(), [("ttyS0", &who(6))]);
        // Asked for once more meanwhile, or too much was closed: unknown.
        assert!(openers.survey_begins() && !openers.survey_begins());
        assert!(openers.survey_ended(found(), now));
        assert!(openers.survey_begins());
        for number in 0..=CLOSED_DURING_SURVEY {
            let number = i64::try_from(number).unwrap() + 1;
            openers.may_have_closed("ttyS9", &who(number), USER, Deed::Closed, now);
        }
        assert!(openers.survey_ended(found(), now));
    }
}
