//! For tests only: fails, kills or reorders any system call of this crate, per thread. Pure.
//!
//! A thread with no plan makes its calls as usual.

use std::cell::RefCell;

use rustix::io::Errno;

use super::schedule::Turn;

/// What a dead actor's calls answer; it is not there to read it.
const DEAD: Errno = Errno::SHUTDOWN;

/// What happens to one actor's calls, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Call `at` fails without effect.
    Fail { at: usize, errno: Errno },
    /// Call `at` does its work, and answers that it failed: a lost answer.
    Lost { at: usize, errno: Errno },
    /// The actor is dead from call `at` on: no call has an effect.
    Die { at: usize },
}

#[derive(Default)]
struct Actor {
    fault: Option<Fault>,
    /// Calls that this file system does not know.
    unknown: &'static [(&'static str, Errno)],
    turn: Option<Turn>,
    made: Vec<&'static str>,
    dead: bool,
}

thread_local! {
    static ACTOR: RefCell<Actor> = RefCell::default();
}

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Trace<T> {
    pub(crate) result: T,
    /// The names of the calls that were asked for.
    pub(crate) calls: Vec<&'static str>,
    /// Whether the fault's turn came.
    pub(crate) dead: bool,
}

/// Runs one actor on this thread under a fault.
pub(crate) fn under<T>(
    fault: Fault,
    unknown: &'static [(&'static str, Errno)],
    turn: Option<Turn>,
    work: impl FnOnce() -> T,
) -> Trace<T> {
    ACTOR.with_borrow_mut(|actor| {
        *actor = Actor { fault: Some(fault), unknown, turn, ..Actor::default() };
    });
    let result = work();
    let Actor { made, dead, turn, .. } = ACTOR.take();
    drop(turn);
    Trace { result, calls: made, dead }
}

/// Whether this thread's actor has died.
pub(crate) fn is_dead() -> bool {
    ACTOR.with_borrow(|actor| actor.dead)
}

/// Every system call of the crate comes through here.
pub(crate) fn call<T>(
    name: &'static str,
    work: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    if is_dead() {
        // A dead process has no lock, even if one that another test is starting has its descriptor for a moment.
        return if name == "flock-un" { work() } else { Err(DEAD) };
    }
    // Not while the cell is borrowed: others run meanwhile, on their own threads.
    if let Some(turn) = ACTOR.with_borrow(|actor| actor.turn.clone()) {
        turn.wait(name);
    }
    let (fault, number, unknown) = ACTOR.with_borrow_mut(|actor| {
        let number = actor.made.len();
        actor.made.push(name);
        let unknown = actor.unknown.iter().find(|(call, _)| *call == name);
        (actor.fault.unwrap_or(Fault::None), number, unknown.map(|(_, errno)| *errno))
    });
    match fault {
        Fault::Fail { at, errno } if at == number => Err(errno),
        Fault::Lost { at, errno } if at == number && unknown.is_none() => work().and(Err(errno)),
        Fault::Die { at } if at == number => {
            ACTOR.with_borrow_mut(|actor| actor.dead = true);
            Err(DEAD)
        }
        Fault::None | Fault::Fail { .. } | Fault::Lost { .. } | Fault::Die { .. } => {
            unknown.map_or_else(work, Err)
        }
    }
}
