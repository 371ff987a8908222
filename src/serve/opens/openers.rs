//! Which processes have which ports open without a lock of their own, and when each is to be looked
//! at. Names and numbers only; the clock is an argument.
//!
//! Tell it what was seen; ask whom to look at now, look, and tell it the verdict. Both the ports and
//! the processes of each are bounded: whoever opens a port a thousand times is listed sixteen times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pidlockfile::Pid;
use pidlockfile::process::ProcessIdentity;

use crate::limits::{LOOK_GAP, OPEN_FOR, OPEN_LOOK_MOST, OPENERS_OF_PORT, WATCHED_PORTS};

/// Those who have ports open.
#[derive(Debug, Default)]
pub(in crate::serve) struct Openers {
    ports: BTreeMap<String, Vec<Opener>>,
}

#[derive(Clone, Debug)]
struct Opener {
    who: ProcessIdentity,
    standing: Standing,
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

impl Openers {
    /// A process has opened a port.
    pub(in crate::serve) fn opened(&mut self, port: &str, who: &ProcessIdentity, now: Instant) {
        if !self.ports.contains_key(port) {
            if self.ports.len() >= WATCHED_PORTS {
                return;
            }
            self.ports.insert(port.to_owned(), Vec::new());
        }
        let Some(openers) = self.ports.get_mut(port) else { return };
        let due = Standing::Due(now.checked_add(OPEN_FOR).unwrap_or(now), OPEN_FOR);
        // Whoever had the number before has ended.
        openers.retain(|opener| opener.who.pid != who.pid || opener.who == *who);
        let is_full = openers.len() >= OPENERS_OF_PORT;
        match openers.iter_mut().find(|opener| opener.who == *who) {
            // It may be another program by now.
            Some(opener) if opener.standing == Standing::Left => opener.standing = due,
            Some(_) => {}
            None if is_full => {}
            None => openers.push(Opener { who: who.clone(), standing: due, asked: None }),
        }
    }

    /// A process has the port open no longer. True when a lock was taken in its name.
    pub(in crate::serve) fn closed(&mut self, port: &str, pid: Pid) -> bool {
        let Some(openers) = self.ports.get_mut(port) else { return false };
        let had = openers.iter().any(|it| it.who.pid == pid && it.standing == Standing::Locked);
        openers.retain(|opener| opener.who.pid != pid);
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

    /// Nobody knows what was opened and closed: only what is locked stays.
    pub(in crate::serve) fn forget_unlocked(&mut self) {
        self.retain(|opener| opener.standing == Standing::Locked);
    }

    fn retain(&mut self, mut keeps: impl FnMut(&Opener) -> bool) {
        self.ports.values_mut().for_each(|openers| openers.retain(&mut keeps));
        self.ports.retain(|_, openers| !openers.is_empty());
    }

    /// A lock has gone: whoever could not have it may have it now.
    pub(in crate::serve) fn retry(&mut self, now: Instant) {
        for opener in self.ports.values_mut().flatten() {
            if let Standing::Due(moment, pause) = &mut opener.standing {
                // Who has opened it only now is not to be looked at before his time.
                if *pause > OPEN_FOR {
                    *moment = now.min(*moment);
                }
            }
        }
    }

    /// Whom to look at now.
    pub(in crate::serve) fn due(&self, now: Instant) -> Option<(String, ProcessIdentity)> {
        let all = self.moments().filter(|(_, _, moment)| *moment <= now);
        all.min_by_key(|(_, _, moment)| *moment)
            .map(|(port, who, _)| (port.to_owned(), who.clone()))
    }

    /// When it was looked at first, if the kernel's list of locks has been read ever since.
    pub(in crate::serve) fn asked(&self, port: &str, who: &ProcessIdentity) -> Option<Instant> {
        self.ports.get(port)?.iter().find(|opener| opener.who == *who)?.asked
    }

    /// When there is somebody to look at.
    pub(in crate::serve) fn next_moment(&self) -> Option<Instant> {
        self.moments().map(|(_, _, moment)| moment).min()
    }

    fn moments(&self) -> impl Iterator<Item = (&str, &ProcessIdentity, Instant)> {
        self.ports.iter().flat_map(|(port, openers)| {
            openers.iter().filter_map(|opener| match opener.standing {
                Standing::Due(moment, _) => Some((port.as_str(), &opener.who, moment)),
                Standing::Locked | Standing::Left => None,
            })
        })
    }

    /// What was found when it was looked at.
    pub(in crate::serve) fn settle(
        &mut self,
        port: &str,
        who: &ProcessIdentity,
        verdict: Verdict,
        now: Instant,
    ) {
        let openers = self.ports.get_mut(port).into_iter().flatten();
        let Some(opener) = openers.into_iter().find(|opener| opener.who == *who) else { return };
        opener.asked = opener.asked.or(Some(now)).filter(|_| verdict == Verdict::Pending);
        opener.standing = match verdict {
            Verdict::Closed => {
                self.closed(port, who.pid);
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
                    Standing::Locked | Standing::Left => OPEN_FOR,
                };
                Standing::Due(now.checked_add(pause).unwrap_or(now), pause)
            }
        };
    }

    /// Whether nobody is known to have a port open.
    pub(in crate::serve) fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// All who have ports open, or one port.
    pub(in crate::serve) fn of<'s>(
        &'s self,
        port: Option<&'s str>,
    ) -> impl Iterator<Item = (&'s str, &'s ProcessIdentity)> {
        let wanted = self.ports.iter().filter(move |(name, _)| port.is_none_or(|it| it == *name));
        wanted.flat_map(|(name, openers)| openers.iter().map(move |it| (name.as_str(), &it.who)))
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

    /// A fork-and-exit opener leaves its number to anybody.
    #[test]
    fn who_has_the_number_now_is_not_who_opened_it() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        let later = ProcessIdentity { start: Start::At(9), ..who(5) };
        openers.opened("ttyS0", &who(5), now);
        openers.settle("ttyS0", &later, Verdict::Locked, now);
        assert_eq!(openers.due(now + OPEN_FOR), Some(("ttyS0".to_owned(), who(5))));
        openers.gone(|opener| *opener == later);
        openers.opened("ttyS0", &later, now);
        assert_eq!(openers.of(None).collect::<Vec<_>>(), [("ttyS0", &later)]);
    }

    #[test]
    fn who_holds_a_port_open_is_looked_at_after_a_second() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), now);
        openers.opened("ttyS0", &who(5), now + OPEN_FOR / 2);
        assert_eq!(openers.due(now + OPEN_FOR / 2), None);
        assert_eq!(openers.next_moment(), Some(now + OPEN_FOR));
        assert_eq!(openers.due(now + OPEN_FOR), Some(("ttyS0".to_owned(), who(5))));
        openers.settle("ttyS0", &who(5), Verdict::Locked, now);
        assert_eq!(openers.next_moment(), None);
        assert!(openers.closed("ttyS0", pid(5)));
        assert!(!openers.closed("ttyS0", pid(5)));
        assert_eq!(openers.of(None).count(), 0);
    }

    #[test]
    fn who_closes_it_before_is_not_looked_at() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), now);
        assert!(!openers.closed("ttyS0", pid(5)));
        openers.opened("ttyS0", &who(6), now);
        openers.gone(|opener| *opener == who(6));
        assert_eq!(openers.due(now + OPEN_FOR), None);
    }

    #[test]
    fn who_cannot_have_the_lock_is_looked_at_ever_more_rarely_and_when_a_lock_goes() {
        let (mut openers, mut now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), now);
        let mut looks = 0;
        let end = now + Duration::from_secs(600);
        while let Some(moment) = openers.next_moment().filter(|moment| *moment < end) {
            now = moment;
            looks += 1;
            openers.settle("ttyS0", &who(5), Verdict::Later, now);
        }
        assert!((20..=30).contains(&looks), "{looks}");
        openers.opened("ttyS1", &who(6), now);
        openers.retry(now);
        assert_eq!(openers.due(now), Some(("ttyS0".to_owned(), who(5))));
        openers.settle("ttyS0", &who(5), Verdict::Left, now);
        assert_eq!(openers.due(now), None, "it has been open for no time");
    }

    /// What it waits for is soon there, and then it counts what was held since it was first asked.
    #[test]
    fn while_the_kernels_locks_are_read_it_is_looked_at_soon() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), now);
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
        openers.opened("ttyS0", &who(5), now);
        openers.settle("ttyS0", &who(5), Verdict::Locked, now);
        openers.released("ttyS0", pid(5));
        assert!(!openers.closed("ttyS0", pid(5)));
    }

    /// Two processes have one port open, and one of them another port as well.
    #[test]
    fn what_is_told_of_one_process_and_port_is_nothing_to_the_others() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        assert!(openers.is_empty());
        for (port, process) in [("ttyS0", 5), ("ttyS0", 6), ("ttyS1", 5)] {
            openers.opened(port, &who(process), now);
        }
        openers.settle("ttyS0", &who(5), Verdict::Locked, now);
        // A program that opens its port a second time has its lock already.
        openers.opened("ttyS0", &who(5), now);
        let later = now + OPEN_FOR;
        openers.settle("ttyS1", &who(5), Verdict::Closed, later);
        assert_eq!(openers.due(later), Some(("ttyS0".to_owned(), who(6))));
        openers.released("ttyS0", pid(6));
        assert!(!openers.closed("ttyS0", pid(6)), "the lock is the other's");
        openers.released("ttyS0", pid(6));
        assert_eq!(openers.of(None).collect::<Vec<_>>(), [("ttyS0", &who(5))]);
        assert!(!openers.is_empty() && openers.closed("ttyS0", pid(5)) && openers.is_empty());
    }

    #[test]
    fn who_needed_no_lock_may_be_another_program_when_it_opens_the_port_again() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        openers.opened("ttyS0", &who(5), now);
        openers.settle("ttyS0", &who(5), Verdict::Left, now);
        assert_eq!(openers.next_moment(), None);
        openers.opened("ttyS0", &who(5), now);
        assert_eq!(openers.next_moment(), Some(now + OPEN_FOR));
    }

    #[test]
    fn when_nobody_knows_what_was_opened_only_what_is_locked_stays() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        for process in [5, 6, 7] {
            openers.opened("ttyS0", &who(process), now);
        }
        openers.opened("ttyS1", &who(6), now);
        openers.settle("ttyS0", &who(5), Verdict::Locked, now);
        openers.settle("ttyS0", &who(6), Verdict::Left, now);
        openers.forget_unlocked();
        assert_eq!(openers.of(None).collect::<Vec<_>>(), [("ttyS0", &who(5))]);
        openers.gone(|opener| *opener == who(6));
        assert!(openers.closed("ttyS0", pid(5)));
    }

    #[test]
    fn ports_and_openers_are_bounded() {
        let (mut openers, now) = (Openers::default(), Instant::now());
        for number in 1..=100 {
            openers.opened("ttyS0", &who(number), now);
        }
        assert_eq!(openers.of(Some("ttyS0")).count(), OPENERS_OF_PORT);
        for number in 1..2 * WATCHED_PORTS {
            openers.opened(&format!("ttyS{number}"), &who(5), now);
        }
        assert_eq!(openers.ports.len(), WATCHED_PORTS);
        openers.forget_unlocked();
        assert_eq!(openers.of(None).count(), 0);
    }
}
