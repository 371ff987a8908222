//! The ports that this process has locked by opening them, and those that it has closed while the service did
//! not answer: these are released as soon as it answers.
//!
//! One thread pays at a time. A port that is owed is locked again only when the service has confirmed its
//! release: a release that arrives after the new lock would end that one.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lfp::client::RELEASE_PATIENCE;
use pidlockfile::Pid;
use rustix::process::{getpid, getppid};
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};
use ttylock::{DeviceName, Outcome};

use crate::held::{Held, Key};
use crate::mode::timeout;
use crate::service::{NoAnswer, Service, may_be_paid, pay_later, rest};

static TAKEN: Held = Held::new();

/// Whether there was ever a port, in this process or in one that it descends from.
static ANY: AtomicBool = AtomicBool::new(false);

/// The process that is paying, and the second until which that may take; 0: none is. A thread that leaves its
/// turn by siglongjmp(3) never ends it.
static TURN: AtomicU64 = AtomicU64::new(0);

/// The thread whose turn it is.
static PAYER: AtomicU32 = AtomicU32::new(0);

/// Longer than the service has to answer; in seconds.
const GRACE_SECS: u64 = 2;

/// How often a thread looks whether another one's turn has ended.
const LOOK: Duration = Duration::from_millis(1);

/// From now on it has this one.
pub(crate) fn add(number: u64, name: &DeviceName) {
    ANY.store(true, Ordering::Release);
    TAKEN.insert(key(number), name, parent());
}

/// Whether it has the port.
pub(crate) fn has(number: u64) -> bool {
    !none() && TAKEN.contains(key(number))
}

/// Whether it has the port for the service, or may have it, and for the program no more.
pub(crate) fn owes(number: u64) -> bool {
    !none() && TAKEN.owes(key(number))
}

/// Whether it surely has the port, which it has no more: the lock goes on as a lock file's.
pub(crate) fn gives_up(number: u64) -> bool {
    TAKEN.remove(key(number))
}

/// Whether there can be nothing to release at all, for close(2): one read where this process has never had
/// a port, nor one that it descends from.
pub(crate) fn none() -> bool {
    !ANY.load(Ordering::Acquire)
}

/// The port has been closed: the service is to be told, now or later.
pub(crate) fn closed(number: u64) {
    TAKEN.turns(key(number));
}

/// The lock may be this process's without being asked for any more.
pub(crate) fn owe(number: u64, name: &DeviceName) {
    ANY.store(true, Ordering::Release);
    TAKEN.owe(key(number), name, parent());
}

/// The service was told that the lock is free, and has not answered.
pub(crate) fn doubt(number: u64, name: &DeviceName) {
    ANY.store(true, Ordering::Release);
    TAKEN.doubt(key(number), name, parent());
}

/// Pays what is owed from earlier, if the service may answer. To be called where a port is opened or something
/// closed.
pub(crate) fn pay() {
    pay_within(timeout().min(RELEASE_PATIENCE));
}

/// Pays for what was closed just now.
pub(crate) fn pay_now() {
    pay_within(timeout());
}

fn pay_within(time: Duration) {
    if !none() && may_be_paid() && TAKEN.owes_anything(this()) {
        if let Some(turn) = Turn::begin() {
            let _ = turn.pay(time);
        }
    }
}

/// Pays before a device is locked again, so that nothing is owed for it any more. While another thread pays,
/// this one waits; a signal handler that has interrupted the payer does not.
pub(crate) fn clear(number: u64) -> Result<(), NoAnswer> {
    let end = seconds().saturating_add(timeout().as_secs()).saturating_add(GRACE_SECS);
    while owes(number) && seconds() < end {
        if let Some(turn) = Turn::begin() {
            turn.pay(timeout())?;
            break;
        }
        if PAYER.load(Ordering::Relaxed) == thread() {
            break;
        }
        rest(LOOK);
    }
    if owes(number) { Err(NoAnswer::Busy) } else { Ok(()) }
}

/// The right to pay. What its thread closes meanwhile pays nothing.
struct Turn {
    word: u64,
}

impl Turn {
    /// None: it is another thread's of this process, or this one's own already.
    fn begin() -> Option<Self> {
        let now = seconds();
        let before = TURN.load(Ordering::Acquire);
        if before >> 32 == u64::from(this()) && now < before & u64::from(u32::MAX) {
            return None;
        }
        let end = now.saturating_add(timeout().as_secs()).saturating_add(GRACE_SECS);
        let word = u64::from(this()) << 32 | end & u64::from(u32::MAX);
        TURN.compare_exchange(before, word, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        PAYER.store(thread(), Ordering::Relaxed);
        Some(Self { word })
    }

    fn pay(self, time: Duration) -> Result<(), NoAnswer> {
        let mut service = Service::reach_within(time)?;
        let mut is_refused = false;
        TAKEN.tell(this(), |name| {
            // What is not its own, or no device any more, need not be released. Busy: it could not be.
            let is_done = service.unlock(name, Pid::this())? != Outcome::Busy;
            is_refused |= !is_done;
            Some(is_done)
        });
        if is_refused {
            pay_later();
        }
        // Its connection is closed within the turn: closing it would pay again.
        drop(service);
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // It may be another's: of a child of vfork(2), or because this one has taken too long.
        let _ = TURN.compare_exchange(self.word, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Of the monotonic clock.
fn seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::Monotonic).tv_sec).unwrap_or_default()
}

fn thread() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

fn key(device: u64) -> Key {
    Key { process: this(), device }
}

fn this() -> u32 {
    getpid().as_raw_nonzero().get().unsigned_abs()
}

fn parent() -> u32 {
    getppid().map_or(0, |parent| parent.as_raw_nonzero().get().unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_turn_and_it_expires() {
        let turn = Turn::begin().unwrap();
        assert!(Turn::begin().is_none(), "what it closes pays nothing");
        let other = std::thread::spawn(|| Turn::begin().is_none());
        assert!(other.join().unwrap());
        drop(turn);
        // Left without an end, as by siglongjmp(3), and long ago.
        std::mem::forget(Turn::begin().unwrap());
        let left = TURN.load(Ordering::Relaxed);
        TURN.store(left & !u64::from(u32::MAX), Ordering::Relaxed);
        let turn = Turn::begin().unwrap();
        // A child of vfork(2) has begun its own meanwhile.
        let childs = u64::from(this() + 1) << 32 | u64::from(u32::MAX);
        TURN.store(childs, Ordering::Relaxed);
        drop(turn);
        assert_eq!(TURN.load(Ordering::Relaxed), childs, "it is the child's to end");
        assert!(Turn::begin().is_some(), "it keeps nobody else from paying");
    }
}
