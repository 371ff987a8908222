//! The locked ports, and on which of them we have set the exclusive mode; the ports with a lock that has ended, where
//! the mode may still be set; and which port to examine next, and when. Names and numbers only; the clock is an
//! argument.
//!
//! Usage: report locks, their ends, and the kernel's events; ask what to examine; examine it, and report the result.
//! An event during an examination causes another one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pidlockfile::Pid;
use pidlockfile::process::ProcessIdentity;
use ttylock::Node;

use crate::limits::{EXCLUSIVE_LOOK_GAP, EXCLUSIVE_LOOK_MOST, EXCLUSIVE_SHARE};

/// The ports, by their real names.
#[derive(Debug, Default)]
pub(in crate::serve) struct Ports {
    held: BTreeMap<String, Held>,
    left: BTreeMap<String, Left>,
    /// Ports that are not watched yet.
    unwatched: BTreeSet<String>,
    /// The port for which all processes that have it open are being searched.
    surveyed: Option<String>,
}

/// A locked port.
#[derive(Debug)]
struct Held {
    who: ProcessIdentity,
    set: Option<Set>,
    /// When to examine it next.
    due: Option<Instant>,
    rests_until: Option<Instant>,
    look: Look,
}

/// The exclusive mode of a port, as we have set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Set {
    /// The device.
    pub(in crate::serve) node: Node,
    /// The number of the holder's descriptor.
    pub(in crate::serve) number: i32,
}

/// A port with a lock that has ended. A process that has it open may still have it in the exclusive mode.
#[derive(Debug)]
struct Left {
    who: ProcessIdentity,
    set: Set,
    /// The processes to examine.
    pids: Vec<Pid>,
    /// One process could not be examined.
    has_doubt: bool,
    due: Instant,
    look: Look,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    None,
    Underway(Instant),
    /// An event has come since that examination began.
    Void(Instant),
}

/// A process to examine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Question {
    pub(in crate::serve) port: String,
    pub(in crate::serve) pid: Pid,
    pub(in crate::serve) why: Why,
}

/// The reason for the examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Why {
    /// The process has the lock: if it has the port open, the port is made exclusive.
    Holds(ProcessIdentity),
    /// The lock has ended: if the process has the port open, that mode is ended.
    Ended(Set),
}

impl Ports {
    pub(in crate::serve) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.left.is_empty()
    }

    /// A process has locked a port.
    pub(in crate::serve) fn locked(&mut self, port: &str, who: &ProcessIdentity, now: Instant) {
        let (set, rests_until, look) = (None, None, Look::None);
        let held = Held { who: who.clone(), set, due: Some(now), rests_until, look };
        self.held.insert(port.to_owned(), held);
        self.unwatched.insert(port.to_owned());
    }

    /// The locked ports that are not watched yet.
    pub(in crate::serve) fn take_unwatched(&mut self) -> BTreeSet<String> {
        let mut unwatched = std::mem::take(&mut self.unwatched);
        unwatched.retain(|port| self.held.contains_key(port));
        unwatched
    }

    /// Ports with these names may have new nodes.
    pub(in crate::serve) fn watch_anew(&mut self, is_meant: impl Fn(&str) -> bool, now: Instant) {
        for (port, held) in self.held.iter_mut().filter(|(port, _)| is_meant(port)) {
            self.unwatched.insert(port.clone());
            held.happened(now);
        }
    }

    /// A port was opened or closed.
    pub(in crate::serve) fn happened(&mut self, port: &str, now: Instant) {
        if let Some(held) = self.held.get_mut(port) {
            held.happened(now);
        }
    }

    pub(in crate::serve) fn is_held(&self, port: &str) -> bool {
        self.held.contains_key(port)
    }

    /// The process that has the lock of a port.
    pub(in crate::serve) fn holder(&self, port: &str) -> Option<&ProcessIdentity> {
        self.held.get(port).map(|held| &held.who)
    }

    /// The ports that are locked for the process with this number.
    pub(in crate::serve) fn of(&self, pid: Pid) -> Vec<String> {
        let of = self.held.iter().filter(|(_, held)| held.who.pid == pid);
        of.map(|(port, _)| port.clone()).collect()
    }

    /// The exclusive mode of a locked port, if we have set it.
    pub(in crate::serve) fn set_of(&self, port: &str) -> Option<Set> {
        self.held.get(port)?.set
    }

    /// Notes whether the mode of a port is ours.
    pub(in crate::serve) fn note(&mut self, port: &str, set: Option<Set>) {
        if let Some(held) = self.held.get_mut(port) {
            held.set = set;
        }
    }

    /// The next of the ports on which we have set the mode, in turn.
    pub(in crate::serve) fn next_exclusive(&self, after: &str) -> Option<String> {
        let is_set = |(_, held): &(&String, &Held)| held.set.is_some();
        let mut ports = self.held.iter().filter(is_set).map(|(port, _)| port);
        let first = ports.clone().next().cloned();
        ports.find(|port| port.as_str() > after).cloned().or(first)
    }

    /// All of these ports.
    pub(in crate::serve) fn all_exclusive(&self) -> Vec<String> {
        let is_set = self.held.iter().filter(|(_, held)| held.set.is_some());
        is_set.map(|(port, _)| port.clone()).collect()
    }

    /// The lock of a port has ended. The caller says whether the mode is already ended.
    pub(in crate::serve) fn ended(&mut self, port: &str) -> Option<(ProcessIdentity, Option<Set>)> {
        self.unwatched.remove(port);
        self.held.remove(port).map(|held| (held.who, held.set))
    }

    /// A lock has ended, and its mode is still to be ended.
    pub(in crate::serve) fn leave(
        &mut self,
        port: &str,
        (who, set): (ProcessIdentity, Set),
        now: Instant,
    ) {
        let (pids, has_doubt, look) = (vec![who.pid], false, Look::None);
        let left = Left { who, set, pids, has_doubt, due: now, look };
        self.left.insert(port.to_owned(), left);
    }

    /// Whether the mode of an earlier lock is still to be ended.
    pub(in crate::serve) fn is_left(&self, port: &str) -> bool {
        self.left.contains_key(port)
    }

    /// The next process to examine.
    pub(in crate::serve) fn next(&mut self, now: Instant) -> Option<Question> {
        let left =
            self.left.iter_mut().filter(|(_, left)| left.moment().is_some_and(|it| it <= now));
        if let Some((port, left)) = left.min_by_key(|(_, left)| left.due) {
            let pid = left.pids.pop()?;
            left.look = Look::Underway(now);
            return Some(Question { port: port.clone(), pid, why: Why::Ended(left.set) });
        }
        let held =
            self.held.iter_mut().filter(|(_, held)| held.moment().is_some_and(|it| it <= now));
        let (port, held) = held.min_by_key(|(_, held)| held.moment())?;
        held.due = None;
        held.look = Look::Underway(now);
        let why = Why::Holds(held.who.clone());
        Some(Question { port: port.clone(), pid: held.who.pid, why })
    }

    /// The process was not examined; it will be examined later.
    pub(in crate::serve) fn put_back(&mut self, question: &Question, later: Instant) {
        match question.why {
            Why::Holds(_) => {
                if let Some(held) = self.held.get_mut(&question.port) {
                    (held.due, held.look) = (Some(later), Look::None);
                }
            }
            Why::Ended(_) => {
                if let Some(left) = self.left.get_mut(&question.port) {
                    left.pids.push(question.pid);
                    (left.due, left.look) = (later, Look::None);
                }
            }
        }
    }

    /// The examination is complete, and its results were reported before. `is_open`: whether the process has the port
    /// open; none if that is unknown.
    pub(in crate::serve) fn answered(
        &mut self,
        question: &Question,
        is_open: Option<bool>,
        now: Instant,
    ) {
        match &question.why {
            Why::Holds(who) => {
                let held = self.held.get_mut(&question.port).filter(|held| held.who == *who);
                if let Some(held) = held {
                    held.answered(now);
                }
            }
            Why::Ended(_) => {
                let Some(left) = self.left.get_mut(&question.port) else { return };
                left.look = Look::None;
                left.has_doubt |= is_open.is_none();
            }
        }
    }

    /// A mode has ended, and nothing of the lock is left. Returns its holder and the mode.
    pub(in crate::serve) fn forget_left(&mut self, port: &str) -> Option<(ProcessIdentity, Set)> {
        if self.surveyed.as_deref() == Some(port) {
            self.surveyed = None;
        }
        self.left.remove(port).map(|left| (left.who, left.set))
    }

    /// The next port for which all processes that have it open are to be searched; one at a time.
    pub(in crate::serve) fn next_survey(&mut self, now: Instant) -> Option<String> {
        if self.surveyed.is_some() {
            return None;
        }
        let is_wanted = |left: &Left| left.is_idle() && left.due <= now;
        let (port, _) = self.left.iter().find(|(_, left)| is_wanted(left))?;
        self.surveyed = Some(port.clone());
        self.surveyed.clone()
    }

    /// Whether a search is under way.
    pub(in crate::serve) fn is_surveyed(&self, port: Option<&str>) -> bool {
        self.surveyed.is_some() && (port.is_none() || self.surveyed.as_deref() == port)
    }

    /// The processes that have the port open were found. Returns the name of the port if there are none among those
    /// that could be examined.
    pub(in crate::serve) fn was_surveyed(
        &mut self,
        pids: Vec<Pid>,
        now: Instant,
    ) -> Option<String> {
        let port = self.surveyed.take()?;
        let left = self.left.get_mut(&port)?;
        if pids.is_empty() && !left.has_doubt {
            return Some(port);
        }
        // A process that closes the port meanwhile, or cannot be examined, is searched for once more.
        (left.pids, left.has_doubt) = (pids, false);
        left.due = now;
        if left.pids.is_empty() {
            left.due = now.checked_add(EXCLUSIVE_LOOK_MOST).unwrap_or(now);
        }
        None
    }

    /// When the next step is due.
    pub(in crate::serve) fn next_moment(&self) -> Option<Instant> {
        let left = self.left.values().filter(|left| left.look == Look::None).map(|left| left.due);
        let left = left.filter(|_| {
            self.surveyed.is_none() || self.left.values().any(|it| !it.pids.is_empty())
        });
        left.chain(self.held.values().filter_map(Held::moment)).min()
    }
}

impl Held {
    fn moment(&self) -> Option<Instant> {
        if self.look != Look::None {
            return None;
        }
        self.due.max(self.due.and(self.rests_until))
    }

    fn happened(&mut self, now: Instant) {
        self.due.get_or_insert(now);
        if let Look::Underway(since) = self.look {
            self.look = Look::Void(since);
        }
    }

    /// The next examination comes after a rest, a multiple of the time that this one took: a foreign process may open
    /// and close the port all the time.
    fn answered(&mut self, now: Instant) {
        let (Look::Underway(since) | Look::Void(since)) = self.look else { return };
        if matches!(self.look, Look::Void(_)) {
            self.due.get_or_insert(now);
        }
        self.look = Look::None;
        if self.set.is_none() {
            // The holder may open another node of the same number, which is not watched.
            self.due = self.due.or_else(|| now.checked_add(EXCLUSIVE_LOOK_MOST));
        }
        let spent = now.saturating_duration_since(since);
        let rest: Duration = spent.saturating_mul(EXCLUSIVE_SHARE);
        let rest = rest.clamp(EXCLUSIVE_LOOK_GAP, EXCLUSIVE_LOOK_MOST);
        self.rests_until = now.checked_add(rest);
    }
}

impl Left {
    /// When the next process is to be examined.
    fn moment(&self) -> Option<Instant> {
        (self.look == Look::None && !self.pids.is_empty()).then_some(self.due)
    }

    /// All known processes were examined.
    fn is_idle(&self) -> bool {
        self.look == Look::None && self.pids.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use ttylock::Numbers;

    use super::*;

    const PORT: &str = "ttyS9";

    fn who(number: i64) -> ProcessIdentity {
        ProcessIdentity::bare(pid(number))
    }

    fn pid(number: i64) -> Pid {
        Pid::new(number).unwrap()
    }

    fn set() -> Set {
        let numbers = Numbers { major: 4, minor: 73 };
        let node = Node { file_system: numbers, inode: 1, device: Some(numbers) };
        Set { node, number: 3 }
    }

    fn holds(number: i64) -> Question {
        Question { port: PORT.to_owned(), pid: pid(number), why: Why::Holds(who(number)) }
    }

    fn ended(number: i64) -> Question {
        Question { port: PORT.to_owned(), pid: pid(number), why: Why::Ended(set()) }
    }

    /// However often foreign processes open and close a port, examining its holder takes only a part of the time.
    #[test]
    fn examining_a_port_takes_a_bounded_part_of_the_time() {
        let (mut ports, mut now) = (Ports::default(), Instant::now());
        ports.locked(PORT, &who(5), now);
        let (begin, mut looking) = (now, Duration::ZERO);
        for looks in [1, 5, 200].map(Duration::from_millis) {
            assert_eq!(ports.next(now), Some(holds(5)));
            ports.happened(PORT, now);
            assert_eq!(ports.next(now), None, "it is looked at already");
            now += looks;
            looking += looks;
            ports.answered(&holds(5), Some(false), now);
            assert_eq!(ports.next(now), None, "it rests");
            now = ports.next_moment().expect("it is to be looked at again");
        }
        let part = looking.as_secs_f64() / (now - begin).as_secs_f64();
        assert!(part < 0.2, "{part}");
        assert_eq!(ports.next(now), Some(holds(5)));
        ports.answered(&holds(5), Some(false), now);
        let later = now.checked_add(EXCLUSIVE_LOOK_MOST);
        assert_eq!(ports.next_moment(), later, "it is not exclusive yet");
        ports.note(PORT, Some(set()));
        assert_eq!(ports.next(later.unwrap()), Some(holds(5)));
        ports.answered(&holds(5), Some(true), now);
        assert_eq!(ports.next_moment(), None, "it is exclusive, and nothing has happened");
    }

    /// An event during an examination may have come after its result.
    #[test]
    fn an_event_during_a_look_causes_another_look() {
        let (mut ports, now) = (Ports::default(), Instant::now());
        ports.locked(PORT, &who(5), now);
        let question = ports.next(now).expect("a look");
        ports.happened(PORT, now);
        ports.answered(&question, Some(false), now);
        let later = ports.next_moment().expect("another look");
        assert_eq!(ports.next(later), Some(holds(5)));
    }

    /// The result about an earlier holder says nothing about the next one.
    #[test]
    fn an_answer_is_about_its_holder() {
        let (mut ports, now) = (Ports::default(), Instant::now());
        ports.locked(PORT, &who(5), now);
        let question = ports.next(now).expect("a look");
        assert_eq!(ports.ended(PORT), Some((who(5), None)));
        ports.locked(PORT, &who(6), now);
        ports.answered(&question, Some(true), now);
        assert_eq!(ports.next(now), Some(holds(6)));
        assert_eq!(ports.of(pid(6)), [PORT]);
        assert_eq!(ports.of(pid(5)), [] as [String; 0]);
    }

    /// After a lock has ended, its holder is examined, then all processes that have the port open, until none has.
    #[test]
    fn a_port_left_open_is_searched_until_no_process_has_it() {
        let (mut ports, now) = (Ports::default(), Instant::now());
        ports.leave(PORT, (who(5), set()), now);
        assert!(ports.is_left(PORT));
        assert_eq!(ports.next_survey(now), None, "the holder first");
        assert_eq!(ports.next(now), Some(ended(5)));
        ports.answered(&ended(5), Some(false), now);
        assert_eq!(ports.next(now), None);
        assert_eq!(ports.next_survey(now).as_deref(), Some(PORT));
        assert_eq!(ports.next_survey(now), None, "once");
        assert!(ports.is_surveyed(Some(PORT)) && !ports.is_surveyed(Some("ttyS1")));
        assert_eq!(ports.was_surveyed(vec![pid(6), pid(7)], now), None);
        assert_eq!(ports.next(now), Some(ended(7)));
        ports.put_back(&ended(7), now);
        assert_eq!(ports.next(now), Some(ended(7)));
        ports.answered(&ended(7), None, now);
        assert_eq!(ports.next(now), Some(ended(6)));
        ports.answered(&ended(6), Some(false), now);
        // One process could not be examined, so the port is not known to be closed.
        assert!(ports.next_survey(now).is_some());
        assert_eq!(ports.was_surveyed(Vec::new(), now), None);
        let later = ports.next_moment().expect("another survey");
        assert!(later > now && ports.next_survey(now).is_none());
        assert!(ports.next_survey(later).is_some());
        assert_eq!(ports.was_surveyed(Vec::new(), later).as_deref(), Some(PORT));
        assert_eq!(ports.forget_left(PORT), Some((who(5), set())));
        assert!(ports.is_empty());
    }

    #[test]
    fn exclusive_ports_are_examined_in_turn() {
        let (mut ports, now) = (Ports::default(), Instant::now());
        assert_eq!(ports.next_exclusive(""), None);
        for port in ["a", "b", "c"] {
            ports.locked(port, &who(5), now);
        }
        for port in ["a", "c"] {
            ports.note(port, Some(set()));
        }
        assert_eq!(ports.all_exclusive(), ["a", "c"]);
        assert_eq!(
            ["", "a", "b", "c"].map(|it| ports.next_exclusive(it).unwrap()),
            ["a", "c", "c", "a"]
        );
        assert_eq!(ports.take_unwatched().len(), 3);
        assert!(ports.take_unwatched().is_empty());
        ports.watch_anew(|port| port != "a", now);
        ports.ended("b");
        assert_eq!(ports.take_unwatched(), BTreeSet::from(["c".to_owned()]));
    }
}
