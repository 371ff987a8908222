//! How long a request waits for another process that is breaking the same lock file. Nothing here sleeps.
//!
//! Breaking takes microseconds, but any user may hold `flock(2)` on a world-readable file for ever. Only the service's
//! own processes can be in the gate, so a request waits longer for these.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use pidlockfile::Occupant;
use pidlockfile::process::Start;

use super::Cause;

/// The pauses between the attempts of one request: some 30 milliseconds in all.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(4),
    Duration::from_millis(8),
    Duration::from_millis(16),
];

/// The pause while the kernel's list of locks is being read, and after the last of [`PAUSES`].
const SHORT: Duration = Duration::from_millis(5);

/// The first and the longest pause of a request that waits for a process in the gate. Each is twice as long as the one
/// before, less a random part of up to a half: otherwise those that wait come at the same moments.
const FIRST_AT_THE_GATE: Duration = Duration::from_micros(50);
const LONGEST_AT_THE_GATE: Duration = Duration::from_millis(5);

/// How long a request waits for a process that stays in the gate, and how long while others take turns there: on a busy
/// machine, the process inside may get no processor for a while. Clients wait at least a second for their answer.
const FOR_ONE_INSIDE: Duration = Duration::from_millis(700);
const FOR_ALL_INSIDE: Duration = Duration::from_secs(4);

/// How often the gate is tried at least, and how often while one process stays inside. A process that tries much less often
/// than its pauses say is on a busy machine, where that one gets no processor either.
const TRIES: u32 = 20;
const TRIES_FOR_ONE_INSIDE: u32 = 100;

/// The tries of one request to enter the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AtTheGate {
    tries: u32,
    /// When it was tried first.
    since: Option<Instant>,
    /// Who was inside at the last try, since when, and how many tries there had been before.
    seen: Option<(Occupant, Instant, u32)>,
    /// The last attempt ended there.
    is_there: bool,
}

/// Counts the attempts of one request at a contended lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    asked: Instant,
    attempts: usize,
    /// When the last pause is over. Before the first attempt, when the request came.
    exhausted_at: Instant,
    gate: AtTheGate,
    is_last: bool,
    /// An attempt of this UNLOCK has released a lock of the caller.
    pub(crate) has_released: bool,
    /// When the process began that had the number of the lock's owner at the first attempt of an UNLOCK or a PASS.
    pub(crate) owner: Option<Start>,
}

impl Backoff {
    /// Before the first attempt of a request that came at that moment.
    #[must_use]
    pub fn since(asked: Instant) -> Self {
        let gate = AtTheGate::default();
        Self {
            asked,
            attempts: 0,
            exhausted_at: asked,
            gate,
            is_last: false,
            has_released: false,
            owner: None,
        }
    }

    /// The same as if all pauses were over: the next attempt gives a final answer.
    #[must_use]
    pub fn exhausted(self, now: Instant) -> Self {
        if self.is_exhausted() {
            return self;
        }
        Self { attempts: PAUSES.len(), exhausted_at: now, ..self }
    }

    /// The same, for the last attempt: it does not wait for the gate either.
    #[must_use]
    pub fn last(self, now: Instant) -> Self {
        Self { is_last: true, ..self.exhausted(now) }
    }

    /// When the request came.
    #[must_use]
    pub fn asked(self) -> Instant {
        self.asked
    }

    /// When the pauses are over. The next attempt needs a reading of the kernel's list that began later: another process may
    /// have taken the lock file meanwhile.
    #[must_use]
    pub(crate) fn exhausted_at(self) -> Instant {
        self.exhausted_at
    }

    /// Whether all pauses are over: the next attempt gives a final answer, even if another process holds a lock file by
    /// `flock(2)`. An earlier one ends there, and the caller tries again a moment later.
    #[must_use]
    pub fn is_exhausted(self) -> bool {
        self.attempts >= PAUSES.len()
    }

    /// Whether the last attempt ended at the gate.
    pub(crate) fn is_at_the_gate(self) -> bool {
        self.gate.is_there
    }

    /// Whether a request waits longer for that process, which is in the gate.
    #[must_use]
    pub(crate) fn waits_for(self, occupant: Occupant, now: Instant) -> bool {
        let AtTheGate { tries, since, seen, .. } = self.gate;
        let lasts = |since: Instant, time| now.saturating_duration_since(since) >= time;
        let stays = seen.is_some_and(|(it, at, before)| {
            let tried = tries.saturating_sub(before) >= TRIES_FOR_ONE_INSIDE;
            it == occupant && tried && lasts(at, FOR_ONE_INSIDE)
        });
        let is_over = since.is_some_and(|since| lasts(since, FOR_ALL_INSIDE)) && tries >= TRIES;
        !(self.is_last || stays || is_over)
    }

    /// The pause before the next attempt. Each call counts an attempt that had no answer, unless the list was being
    /// read.
    pub fn pause(&mut self, cause: Cause, now: Instant) -> Duration {
        self.gate.is_there = matches!(cause, Cause::Gate(_));
        match cause {
            Cause::Reading => return SHORT,
            Cause::Gate(occupant) => return self.gate.pause(occupant, now),
            Cause::Contended => {}
        }
        let pause = PAUSES.get(self.attempts).copied();
        self.attempts += 1;
        if let Some(pause) = pause {
            self.exhausted_at = now.checked_add(pause).unwrap_or(now);
        }
        pause.unwrap_or(SHORT)
    }
}

impl AtTheGate {
    fn pause(&mut self, occupant: Occupant, now: Instant) -> Duration {
        let doubled =
            FIRST_AT_THE_GATE.saturating_mul(1_u32.checked_shl(self.tries).unwrap_or(u32::MAX));
        let most = doubled.min(LONGEST_AT_THE_GATE);
        self.since.get_or_insert(now);
        if self.seen.is_none_or(|(it, ..)| it != occupant) {
            self.seen = Some((occupant, now, self.tries));
        }
        self.tries = self.tries.saturating_add(1);
        // The standard library keys each hasher from the system's random source.
        let random = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or(0);
        most / 2 + (most / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use pidlockfile::{Found, Name, NewFile};
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_backoff_gives_up_after_a_bounded_number_of_pauses() {
        let asked = Instant::now();
        let (mut backoff, mut now) = (Backoff::since(asked), asked);
        let mut pauses = Vec::new();
        while !backoff.is_exhausted() {
            assert_eq!(backoff.pause(Cause::Reading, now), SHORT);
            pauses.push(backoff.pause(Cause::Contended, now));
            now += pauses[pauses.len() - 1];
            assert!(pauses.len() < 100, "without an end");
        }
        assert_eq!(pauses, PAUSES);
        let later = now + Duration::from_secs(1);
        assert_eq!(backoff.pause(Cause::Contended, later), SHORT);
        for decided in [backoff, backoff.exhausted(later)] {
            assert_eq!((decided.asked(), decided.exhausted_at()), (asked, now));
        }
        let exhausted = Backoff::since(asked).exhausted(later);
        assert!(exhausted.is_exhausted() && exhausted.exhausted_at() == later);
        assert!((20..50).contains(&pauses.iter().sum::<Duration>().as_millis()));
    }

    /// Another one each time, as it is seen in the gate.
    fn occupant() -> Occupant {
        let scratch = tempfile::tempdir().unwrap();
        let open = || pidlockfile::Directory::open(scratch.path()).unwrap();
        let (name, claim) = (Name::new("LCK..x").unwrap(), NewFile::new(b"1\n", "x"));
        assert!(open().publish(&name, &claim).unwrap().is_some());
        let gated = || open().gated(open().as_gate());
        let Found::File(mut opened) = open().read(&name, 64).unwrap() else { panic!("gone") };
        let entered = gated().enter(&name, &mut opened).unwrap();
        assert!(matches!(entered, pidlockfile::Entry::Inside(_)));
        gated().occupant().unwrap()
    }

    #[test]
    fn the_pauses_at_the_gate_double_and_are_not_the_same() {
        let (now, occupant) = (Instant::now(), occupant());
        let pauses = || {
            let mut backoff = Backoff::since(now);
            (0..12).map(|_| backoff.pause(Cause::Gate(occupant), now)).collect::<Vec<_>>()
        };
        let (ours, others) = (pauses(), pauses());
        for (number, pause) in (0..).zip(&ours) {
            let most = LONGEST_AT_THE_GATE.min(FIRST_AT_THE_GATE * 2_u32.pow(number));
            assert!((most / 2..=most).contains(pause), "{number}: {pause:?}");
        }
        assert_ne!(ours, others);
        // A request that waits there gives the holder of a `flock(2)` no less time.
        let mut backoff = Backoff::since(now);
        for _ in 0..12 {
            backoff.pause(Cause::Gate(occupant), now);
        }
        assert!(!backoff.is_exhausted() && backoff.is_at_the_gate());
        backoff.pause(Cause::Contended, now);
        assert!(!backoff.is_at_the_gate());
    }

    /// The milliseconds between two tries, and for how many it waits.
    #[rstest]
    #[case::one_that_stays(5, false, 700)]
    #[case::one_that_stays_on_a_busy_machine(20, false, 2000)]
    #[case::one_that_stays_on_a_very_busy_machine(100, false, 4000)]
    #[case::others_that_take_turns(10, true, 4000)]
    #[case::others_that_take_turns_and_few_tries(1000, true, 20_000)]
    fn nobody_waits_for_ever_at_the_gate(
        #[case] each: u64,
        #[case] take_turns: bool,
        #[case] expected: u64,
    ) {
        let begun = Instant::now();
        let mut backoff = Backoff::since(begun);
        let mut inside = occupant();
        let mut waited = 0;
        loop {
            let now = begun + Duration::from_millis(waited);
            if !backoff.waits_for(inside, now) {
                break;
            }
            assert!(!backoff.last(now).waits_for(inside, now));
            backoff.pause(Cause::Gate(inside), now);
            waited += each;
            if take_turns {
                inside = occupant();
            }
        }
        assert_eq!(waited, expected);
    }
}
