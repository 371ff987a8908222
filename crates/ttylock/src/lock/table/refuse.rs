//! Reasons to refuse a lock that are not lock files: `flock(2)` on the port, and too many locks.

use pidlockfile::{Pid, process};

use super::Stop;
use super::state::State;
use crate::device::node::{Node, ResolvedDevice};
use crate::limits::LOCKS_OF_A_USER;
use crate::lock::directories::Place;
use crate::lock::flock::{self, Completeness, FlockHolder, Sight};
use crate::lock::open::{self, LOOKS_FOR_A_LOCK};
use crate::lock::{Cause, Weight};

/// The most records that are read to count those of one user.
const RECORDS_COUNTED: usize = 4096;

/// A missing device may be locked, just as an unplugged one may be unlocked. But there is a limit, because users
/// can invent names.
pub(super) fn refuse_invented(
    state: &mut State,
    resolved: &ResolvedDevice,
    own: &Place,
) -> Result<(), Stop> {
    if resolved.is_device() || !own.is_crowded() {
        return Ok(());
    }
    let (device, dir) = (resolved.real(), own.path.display());
    let text = format!("refused {device}: there is no such device, and {dir} is full of locks");
    state.say(Weight::Notice, text);
    Err(Stop::Denied)
}

/// One user must not fill the lock directory. Only recorded locks count, not files that others put into the directory.
pub(super) fn refuse_one_too_many(state: &mut State, pid: Pid) -> Result<(), Stop> {
    if state.records.has_room_for_all(LOCKS_OF_A_USER) {
        return Ok(());
    }
    let uid = process::owner(pid);
    // A daemon knows which user asks for a missing process.
    if uid == Some(0) || (uid.is_none() && state.guards.is_a_daemons()) {
        return Ok(());
    }
    if state.records.count_of(uid, RECORDS_COUNTED) < LOCKS_OF_A_USER {
        return Ok(());
    }
    let who = uid.map_or_else(|| "processes that are gone".to_owned(), |uid| format!("uid {uid}"));
    let text = format!("refused pid {pid}: {who} has {LOCKS_OF_A_USER} locks");
    state.say(Weight::Notice, text);
    Err(Stop::Denied)
}

/// Programs that lock the open port leave no file, but the kernel's list shows them.
pub(super) fn refuse_flock(
    state: &mut State,
    resolved: &ResolvedDevice,
    asking: Pid,
) -> Result<(), Stop> {
    let Some(node) = resolved.node else { return Ok(()) };
    let Sight { holders, completeness } = match state.flocks.holders(&node, state.backoff.asked()) {
        Ok(Some(sight)) => sight,
        Ok(None) => return Err(Stop::NotYet(Cause::Reading)),
        Err(error) => {
            state.say_unseen(|| Some(format!("in /proc/locks: {error}")));
            return Ok(());
        }
    };
    // A process for one session would report it in each session.
    if state.guards.is_a_daemons() {
        state.say_unseen(|| (!flock::sees_all()).then(|| "of other pid namespaces".into()));
    }
    let device = resolved.real();
    if let Some(holder) = holders.into_iter().find(|it| *it != FlockHolder::Process(asking)) {
        state.say(Weight::Info, format!("{device} is busy: flock held by {holder}"));
        return Err(Stop::Busy(state.process_of(holder)));
    }
    match completeness {
        Completeness::Whole => Ok(()),
        Completeness::Partial(most_of) => refuse_open(state, device, &node, asking, most_of),
    }
}

/// The kernel's list is too long to be read, or changes too fast: a process that has the port open may also have
/// locked it.
fn refuse_open(
    state: &mut State,
    device: &str,
    node: &Node,
    asking: Pid,
    most_of: Option<u32>,
) -> Result<(), Stop> {
    let openers = open::openers(&[*node], LOOKS_FOR_A_LOCK, None);
    let Some(opener) = openers.opener(0, Some(asking)) else { return Ok(()) };
    let who = match opener {
        FlockHolder::Process(pid) => format!("pid {pid} has it open"),
        FlockHolder::Unseen => "it is not known which processes have it open".to_owned(),
    };
    let too_many = flock::too_many(most_of);
    state.say(Weight::Warning, format!("{device} is busy: {too_many}, and {who}"));
    Err(Stop::Busy(state.process_of(opener)))
}
