//! Which processes have which ports open without a lock of their own, which of them is to be examined next, and what
//! the service is to do for them. Names and numbers only; the clock is an argument.
//!
//! Usage: report what was seen; ask which process to examine now; examine it, and report the result. The numbers of
//! ports and of processes for each port are bounded: a process that opens a port a thousand times is listed sixteen
//! times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pidlockfile::Pid;
use pidlockfile::process::ProcessIdentity;
use ttylock::{Backoff, Cause, Node, Outcome};

use super::events::PortUse;
use crate::limits::{OPENERS_OF_PORT, WATCHED_PORTS};
use crate::serve::queue::{CHECK_EVERY, CHECK_GAP};

/// How long a port is held open without a lock before one is taken for the process that does.
const OPEN_FOR: Duration = Duration::from_secs(1);

/// Time after which a process that could not have the lock of its open port is examined again, if no lock ends before.
const OPEN_CHECK_EVERY: Duration = Duration::from_secs(10);

/// The processes that have ports open.
#[derive(Debug, Default)]
pub(in crate::serve) struct Openers {
    all: BTreeMap<(String, Pid), Opener>,
}

#[derive(Clone, Debug)]
struct Opener {
    who: ProcessIdentity,
    state: OpenerState,
    /// It has closed the port, and may still have it open: since then it is to be examined.
    reported: Option<(Instant, PortUse)>,
    /// The attempts to take its lock that have no answer yet.
    backoff: Option<Backoff>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenerState {
    /// To be examined then.
    Due(Instant),
    /// It could not have the lock, and is examined again then, or when another lock has ended.
    Refused(Instant),
    /// It has this node open, and from that moment the service is to take a lock for it.
    Wanted(Node, Instant),
    /// It has a lock that was taken in its name.
    Locked,
    /// It has closed the port, and the service is to release the lock that was taken in its name.
    Closed,
    /// It needs none, or may have none.
    Left,
    /// It is not known yet whether it has the port open at all.
    Unknown,
}

/// A process that is to be examined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Examination {
    pub(in crate::serve) port: String,
    pub(in crate::serve) who: ProcessIdentity,
    /// What it did; none if it is to have the lock, should it still have the port open.
    reported: Option<PortUse>,
}

/// What the service is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::serve) enum OpenerTask {
    /// Take the port with this node for the process, and [note the outcome](Openers::note_outcome). Earlier attempts may have had
    /// no answer.
    Lock { port: String, who: ProcessIdentity, node: Node, backoff: Option<Backoff> },
    /// Release the lock that was taken for the process.
    Release { port: String, who: ProcessIdentity },
}

impl Opener {
    /// When it is to be examined.
    fn moment(&self) -> Option<Instant> {
        if let Some((since, _)) = self.reported {
            return Some(since);
        }
        let (OpenerState::Due(moment) | OpenerState::Refused(moment)) = self.state else {
            return None;
        };
        Some(moment)
    }
}

/// To be examined after it has had the port open for a while.
fn due_after(now: Instant) -> OpenerState {
    OpenerState::Due(now.checked_add(OPEN_FOR).unwrap_or(now))
}

impl Openers {
    /// A process has opened a port, or closed it.
    pub(super) fn saw(
        &mut self,
        port: &str,
        who: &ProcessIdentity,
        port_use: PortUse,
        now: Instant,
    ) {
        if port_use == PortUse::Opened {
            return self.opened(port, who, now);
        }
        // It may still have the port open by another descriptor.
        if let Some(opener) = self.enter(port, who) {
            let since = opener.reported.map_or(now, |(since, _)| since);
            opener.reported = Some((since, port_use));
        }
    }

    /// A process has opened a port.
    pub(super) fn opened(&mut self, port: &str, who: &ProcessIdentity, now: Instant) {
        let Some(opener) = self.enter(port, who) else { return };
        // It is unknown whether it was opened after that.
        opener.reported = opener.reported.map(|(since, _)| (since, PortUse::Both));
        if opener.state == OpenerState::Closed {
            opener.state = OpenerState::Locked;
        } else if matches!(opener.state, OpenerState::Left | OpenerState::Unknown) {
            // It may be another program by now.
            opener.state = due_after(now);
        }
    }

    /// The process among those of the port, if there is room.
    fn enter(&mut self, port: &str, who: &ProcessIdentity) -> Option<&mut Opener> {
        let key = (port.to_owned(), who.pid);
        // The process that had the number before has ended.
        if self.all.get(&key).is_some_and(|it| it.who != *who) {
            self.all.remove(&key);
        }
        if !self.all.contains_key(&key) {
            let of_port = self.all.keys().filter(|(of, _)| of == port).count();
            let ports: BTreeSet<&String> = self.all.keys().map(|(of, _)| of).collect();
            if of_port >= OPENERS_OF_PORT || of_port == 0 && ports.len() >= WATCHED_PORTS {
                return None;
            }
        }
        let state = OpenerState::Unknown;
        let new = || Opener { who: who.clone(), state, reported: None, backoff: None };
        Some(self.all.entry(key).or_insert_with(new))
    }

    fn find(&mut self, port: &str, who: &ProcessIdentity) -> Option<&mut Opener> {
        self.all.get_mut(&(port.to_owned(), who.pid)).filter(|opener| opener.who == *who)
    }

    fn forget(&mut self, port: &str, who: &ProcessIdentity) {
        if self.find(port, who).is_some() {
            self.all.remove(&(port.to_owned(), who.pid));
        }
    }

    /// Processes are gone.
    pub(in crate::serve) fn gone(&mut self, mut is_gone: impl FnMut(&ProcessIdentity) -> bool) {
        self.all.retain(|_, opener| !is_gone(&opener.who));
    }

    /// The lock that was taken in a process's name is not that one any more.
    pub(in crate::serve) fn released(&mut self, port: &str, pid: Pid) {
        let key = (port.to_owned(), pid);
        self.all.retain(|other, it| *other != key || it.state != OpenerState::Closed);
        if let Some(opener) = self.all.get_mut(&key).filter(|it| it.state == OpenerState::Locked) {
            opener.state = OpenerState::Left;
        }
    }

    /// Events were lost: only the processes with a lock in their name stay, and are examined. All others are to be
    /// searched for.
    pub(super) fn forget_unlocked(&mut self, now: Instant) {
        self.all.retain(|_, it| matches!(it.state, OpenerState::Locked | OpenerState::Closed));
        for opener in self.all.values_mut() {
            opener.reported.get_or_insert((now, PortUse::Both));
        }
    }

    /// A lock has gone: an opener that could not have it may have it now.
    pub(in crate::serve) fn retry(&mut self, now: Instant) {
        for opener in self.all.values_mut() {
            if let OpenerState::Refused(moment) = &mut opener.state {
                *moment = now.min(*moment);
            }
        }
    }

    /// The process to examine now: the one that has waited longest.
    pub(super) fn next(&self, now: Instant) -> Option<Examination> {
        let due = self.all.iter().filter_map(|((port, _), it)| Some((it.moment()?, port, it)));
        let (_, port, opener) =
            due.filter(|(moment, ..)| *moment <= now).min_by_key(|(moment, ..)| *moment)?;
        let reported = opener.reported.map(|(_, port_use)| port_use);
        Some(Examination { port: port.clone(), who: opener.who.clone(), reported })
    }

    /// A process was examined: whether it has the port open by this node; none if that is unknown.
    pub(super) fn answered(
        &mut self,
        Examination { port, who, reported }: &Examination,
        node: Option<Node>,
        is_open: Option<bool>,
        now: Instant,
    ) {
        let Some(opener) = self.find(port, who) else { return };
        opener.reported = None;
        let had_lock = matches!(opener.state, OpenerState::Locked | OpenerState::Closed);
        match (reported, is_open, opener.state) {
            (None, None | Some(true), OpenerState::Due(_) | OpenerState::Refused(_)) => {
                match node {
                    Some(node) => opener.state = OpenerState::Wanted(node, now),
                    None => opener.refuse(now),
                }
            }
            (Some(_), Some(true), OpenerState::Unknown | OpenerState::Left) => {
                opener.state = due_after(now);
            }
            (_, Some(true), OpenerState::Closed) => opener.state = OpenerState::Locked,
            (_, Some(true), _) => {}
            // It has opened and closed the port once more, or for once.
            (Some(PortUse::Both), None, state) if state != OpenerState::Unknown => {}
            _ if had_lock => opener.state = OpenerState::Closed,
            _ => self.forget(port, who),
        }
    }

    /// Whether the service is to do something.
    pub(super) fn has_tasks(&self, now: Instant) -> bool {
        self.all.values().any(|opener| opener.has_task(now))
    }

    /// The next thing that the service is to do. A lock stays to be taken until the outcome is
    /// [noted](Self::note_outcome).
    pub(super) fn next_task(&mut self, now: Instant) -> Option<OpenerTask> {
        let ((port, _), opener) = self.all.iter().find(|(_, opener)| opener.has_task(now))?;
        let (port, who) = (port.clone(), opener.who.clone());
        if let OpenerState::Wanted(node, _) = opener.state {
            return Some(OpenerTask::Lock { port, who, node, backoff: opener.backoff });
        }
        self.forget(&port, &who);
        Some(OpenerTask::Release { port, who })
    }

    /// The lock of a process that has closed the port could not be released yet: it is examined again.
    pub(in crate::serve) fn release_later(
        &mut self,
        port: &str,
        who: &ProcessIdentity,
        now: Instant,
    ) {
        let Some(opener) = self.enter(port, who) else { return };
        // It may have been seen again since.
        let is_new = opener.state == OpenerState::Unknown;
        let port_use = if is_new { PortUse::Closed } else { PortUse::Both };
        opener.state = OpenerState::Locked;
        opener.reported = Some((now.checked_add(CHECK_EVERY).unwrap_or(now), port_use));
    }

    /// Notes what became of a lock that was to be taken. Done: the process has it. Busy: another process has it. Denied: this one
    /// has a lock already, or gets none. Err: it is not known yet, and why. False if it has closed the port meanwhile.
    #[must_use]
    pub(in crate::serve) fn note_outcome(
        &mut self,
        port: &str,
        who: &ProcessIdentity,
        outcome: Result<Outcome, Cause>,
        now: Instant,
    ) -> bool {
        let Some(opener) = self.find(port, who) else { return false };
        let before = opener.backoff.take();
        match (outcome, opener.state) {
            (Ok(Outcome::Done), _) => opener.state = OpenerState::Locked,
            (Ok(Outcome::Denied), OpenerState::Wanted(..)) => opener.state = OpenerState::Left,
            (Ok(Outcome::Busy), OpenerState::Wanted(..)) => opener.refuse(now),
            (Err(cause), OpenerState::Wanted(node, _)) => {
                opener.backoff.insert(before.unwrap_or(Backoff::since(now))).pause(cause, now);
                let soon = now.checked_add(CHECK_GAP).unwrap_or(now);
                opener.state = OpenerState::Wanted(node, soon);
            }
            // It has closed the port and opened it again meanwhile.
            (Ok(Outcome::Denied | Outcome::Busy) | Err(_), _) => {}
        }
        true
    }

    /// When a process is to be examined, or the service is to be asked again.
    pub(super) fn next_moment(&self, now: Instant) -> Option<Instant> {
        let wanted = |it: &Opener| {
            let OpenerState::Wanted(_, at) = it.state else { return None };
            (at > now).then_some(at)
        };
        let moment = |it: &Opener| it.moment().into_iter().chain(wanted(it)).min();
        self.all.values().filter_map(moment).min()
    }

    /// All processes with open ports, or those of one port.
    pub(in crate::serve) fn of<'s>(
        &'s self,
        port: Option<&'s str>,
    ) -> impl Iterator<Item = (&'s str, &'s ProcessIdentity)> {
        let is_asked = move |name: &str| port.is_none_or(|port| port == name);
        let known = |it: &Opener| !matches!(it.state, OpenerState::Unknown | OpenerState::Closed);
        let wanted = self.all.iter().filter(move |((name, _), it)| is_asked(name) && known(it));
        wanted.map(|((name, _), it)| (name.as_str(), &it.who))
    }
}

impl Opener {
    fn has_task(&self, now: Instant) -> bool {
        matches!(self.state, OpenerState::Wanted(_, from) if from <= now)
            || self.state == OpenerState::Closed
    }

    fn refuse(&mut self, now: Instant) {
        self.state = OpenerState::Refused(now.checked_add(OPEN_CHECK_EVERY).unwrap_or(now));
    }
}

#[cfg(test)]
mod tests {
    use pidlockfile::process::Start;
    use ttylock::Numbers;

    use super::*;

    const PORT: &str = "ttyS0";

    fn pid(number: i64) -> Pid {
        Pid::new(number).unwrap()
    }

    fn who(number: i64) -> ProcessIdentity {
        ProcessIdentity::bare(pid(number))
    }

    fn node() -> Node {
        let numbers = Numbers { major: 4, minor: 64 };
        Node { file_system: numbers, inode: 1, device: Some(numbers) }
    }

    fn saw(openers: &mut Openers, number: i64, port_use: PortUse, now: Instant) {
        openers.saw(PORT, &who(number), port_use, now);
    }

    /// The process to examine now has the port open, or not, or that cannot be seen.
    fn examine(openers: &mut Openers, is_open: Option<bool>, now: Instant) -> Option<Pid> {
        let examination = openers.next(now)?;
        openers.answered(&examination, Some(node()), is_open, now);
        Some(examination.who.pid)
    }

    fn task(number: i64) -> Option<OpenerTask> {
        Some(OpenerTask::Lock {
            port: PORT.to_owned(),
            who: who(number),
            node: node(),
            backoff: None,
        })
    }

    fn release(number: i64) -> Option<OpenerTask> {
        Some(OpenerTask::Release { port: PORT.to_owned(), who: who(number) })
    }

    fn note_outcome(openers: &mut Openers, number: i64, outcome: Outcome, now: Instant) {
        assert!(openers.note_outcome(PORT, &who(number), Ok(outcome), now));
    }

    /// A process has the port open and a lock in its name.
    fn locked(number: i64, now: Instant) -> Openers {
        let mut openers = Openers::default();
        saw(&mut openers, number, PortUse::Opened, now);
        assert_eq!(examine(&mut openers, Some(true), now + OPEN_FOR), Some(pid(number)));
        assert_eq!(openers.next_task(now + OPEN_FOR), task(number));
        note_outcome(&mut openers, number, Outcome::Done, now);
        assert_eq!((openers.next_task(now), openers.next_moment(now)), (None, None));
        openers
    }

    fn pids(openers: &Openers) -> Vec<i64> {
        openers.of(None).map(|(_, who)| i64::from(who.pid.as_raw())).collect()
    }

    /// The next attempt counts the locks since it was first asked.
    #[test]
    fn the_service_is_asked_again_soon_after_the_kernels_locks_were_read() {
        let (mut openers, mut now) = (Openers::default(), Instant::now());
        saw(&mut openers, 5, PortUse::Opened, now);
        now += OPEN_FOR;
        let first = now;
        examine(&mut openers, Some(true), now);
        for attempt in 0..3 {
            let Some(OpenerTask::Lock { backoff, .. }) = openers.next_task(now) else {
                panic!("no task")
            };
            assert_eq!(backoff.map(Backoff::asked), Some(first).filter(|_| attempt > 0));
            assert!(openers.note_outcome(PORT, &who(5), Err(Cause::Reading), now));
            assert!(!openers.has_tasks(now));
            assert_eq!(openers.next_moment(now), now.checked_add(CHECK_GAP));
            now += CHECK_GAP;
        }
        note_outcome(&mut openers, 5, Outcome::Busy, now);
        assert_eq!(openers.next_moment(now), Some(now + OPEN_CHECK_EVERY));
    }

    #[test]
    fn a_lock_is_released_once_after_the_close() {
        let now = Instant::now();
        for is_open in [Some(false), None] {
            let mut openers = locked(5, now);
            saw(&mut openers, 5, PortUse::Closed, now);
            assert_eq!(examine(&mut openers, is_open, now), Some(pid(5)));
            assert_eq!((openers.next_task(now), openers.next_task(now)), (release(5), None));
        }
        // By another descriptor, it is still open; or it was opened again before the service came to it.
        for (port_use, is_open) in [(PortUse::Closed, Some(true)), (PortUse::Both, None)] {
            let mut openers = locked(5, now);
            saw(&mut openers, 5, port_use, now);
            assert_eq!(examine(&mut openers, is_open, now), Some(pid(5)));
            assert_eq!((openers.next_task(now), pids(&openers)), (None, vec![5]));
        }
        let mut openers = locked(5, now);
        saw(&mut openers, 5, PortUse::Closed, now);
        examine(&mut openers, Some(false), now);
        assert_eq!(openers.next_task(now), release(5));
        openers.release_later(PORT, &who(5), now);
        assert_eq!((examine(&mut openers, Some(false), now), openers.next_task(now)), (None, None));
        let later = openers.next_moment(now).unwrap();
        examine(&mut openers, Some(false), later);
        assert_eq!((openers.next_task(later), openers.next_task(later)), (release(5), None));
        let mut openers = locked(5, now);
        saw(&mut openers, 5, PortUse::Closed, now);
        examine(&mut openers, Some(false), now);
        saw(&mut openers, 5, PortUse::Opened, now);
        assert_eq!((openers.next_task(now), pids(&openers)), (None, vec![5]));
    }

    /// After fork and exit of an opener, any process may get its number.
    #[test]
    fn a_process_with_the_number_now_did_not_open_the_port() {
        let now = Instant::now();
        let mut openers = locked(5, now);
        let later = ProcessIdentity { start: Start::At(9), ..who(5) };
        assert!(!openers.note_outcome(PORT, &later, Ok(Outcome::Done), now));
        openers.gone(|opener| *opener == later);
        assert_eq!(pids(&openers), [5]);
        openers.opened(PORT, &later, now);
        assert_eq!(openers.of(None).collect::<Vec<_>>(), [(PORT, &later)]);
    }

    #[test]
    fn a_process_refused_the_lock_is_examined_again_when_a_lock_has_ended() {
        let (mut openers, mut now) = (Openers::default(), Instant::now());
        saw(&mut openers, 5, PortUse::Opened, now);
        now += OPEN_FOR;
        for _ in 0..3 {
            assert!(examine(&mut openers, Some(true), now).is_some());
            note_outcome(&mut openers, 5, Outcome::Busy, now);
            assert_eq!(openers.next_moment(now), Some(now + OPEN_CHECK_EVERY));
            now += OPEN_CHECK_EVERY;
        }
        assert!(examine(&mut openers, Some(true), now).is_some());
        note_outcome(&mut openers, 5, Outcome::Busy, now);
        saw(&mut openers, 6, PortUse::Opened, now);
        openers.retry(now);
        assert_eq!(examine(&mut openers, Some(true), now), Some(pid(5)));
        note_outcome(&mut openers, 5, Outcome::Denied, now);
        assert_eq!(openers.next(now), None, "the other has it open for no time");
        // It may be another program later.
        saw(&mut openers, 5, PortUse::Opened, now);
        assert_eq!(openers.next_moment(now), Some(now + OPEN_FOR));
    }

    /// It is the process's own by now, or another's.
    #[test]
    fn a_lock_that_was_given_up_is_not_given_up_twice() {
        let now = Instant::now();
        for is_closed in [true, false] {
            let mut openers = locked(5, now);
            saw(&mut openers, 5, PortUse::Closed, now);
            if is_closed {
                examine(&mut openers, Some(false), now);
            }
            openers.released(PORT, pid(6));
            openers.released(PORT, pid(5));
            examine(&mut openers, Some(false), now);
            assert_eq!(openers.next_task(now), None);
        }
    }

    /// It closes the port while the service takes the lock.
    #[test]
    fn a_lock_that_comes_too_late_is_noticed() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        saw(&mut openers, 5, PortUse::Opened, now);
        examine(&mut openers, Some(true), now + OPEN_FOR);
        assert_eq!(openers.next_task(now + OPEN_FOR), task(5));
        saw(&mut openers, 5, PortUse::Closed, now);
        examine(&mut openers, Some(false), now);
        assert!(!openers.note_outcome(PORT, &who(5), Ok(Outcome::Done), now));
    }

    /// One that was handed the port open is known by its first close.
    #[test]
    fn an_unknown_process_is_listed_when_it_is_found_to_have_the_port_open() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        for (number, is_open) in [(5, Some(true)), (6, None)] {
            saw(&mut openers, number, PortUse::Both, now);
            assert!(!pids(&openers).contains(&number));
            assert_eq!(examine(&mut openers, is_open, now), Some(pid(number)));
        }
        assert_eq!((pids(&openers), openers.next_moment(now)), (vec![5], Some(now + OPEN_FOR)));
    }

    #[test]
    fn after_lost_events_only_locked_ports_are_kept_and_examined() {
        let now = Instant::now();
        let mut openers = locked(5, now);
        saw(&mut openers, 6, PortUse::Opened, now);
        openers.forget_unlocked(now);
        assert_eq!(pids(&openers), [5]);
        assert_eq!(examine(&mut openers, Some(false), now), Some(pid(5)));
        assert_eq!(openers.next_task(now), release(5));
    }

    #[test]
    fn ports_and_openers_are_bounded() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        for number in 1..=100 {
            saw(&mut openers, number, PortUse::Opened, now);
        }
        assert_eq!(openers.of(Some(PORT)).count(), OPENERS_OF_PORT);
        for number in 1..2 * WATCHED_PORTS {
            openers.opened(&format!("ttyS{number}"), &who(5), now);
        }
        let ports: BTreeSet<&String> = openers.all.keys().map(|(port, _)| port).collect();
        assert_eq!(ports.len(), WATCHED_PORTS);
        openers.forget_unlocked(now);
        assert_eq!(openers.of(None).count(), 0);
    }
}
