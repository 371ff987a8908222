//! Waits for the previous ticket: a thread blocks in flock(2) on it, and the kernel wakes exactly the next
//! waiter, however the ticket's owner ends.
//!
//! Such a thread can only be ended by the end of what it waits for. So a wait that ends early leaves its
//! thread behind, and the next wait for the same ticket uses it: there are never more threads than tickets
//! that this process has waited for and that still exist.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::SigSet;
use pidlockfile::{Identity, Pid};

use super::Woken;
use super::bell::Bell;
use super::flock;
use super::guarded;
use super::watch::{Alarm, sleep};

/// Enough for a thread that calls flock(2) and writes a byte.
const STACK: usize = 64 * 1024;

/// What rings for the tickets that this process has waited for. A forked child has none of its parent's threads.
static AWAITED: Mutex<BTreeMap<Identity, (Pid, Arc<Bell>)>> = Mutex::new(BTreeMap::new());

/// Waits until the ticket's owner has let go of it (`Change`), the time is over, or the alarm rings.
pub(super) fn wait_for_ticket(
    ticket: Identity,
    file: &Arc<File>,
    time: Duration,
    alarm: Option<&dyn Alarm>,
) -> Woken {
    let bell = bell(ticket, file).ok();
    sleep(bell.as_ref().map(|bell| bell.as_fd()), time, alarm).unwrap_or(Woken::Change)
}

/// The bell that rings when the awaited ticket is gone.
///
/// # Errors
/// Neither descriptor nor thread can be had.
fn bell(ticket: Identity, file: &Arc<File>) -> io::Result<Arc<Bell>> {
    let (this, mut awaited) = (Pid::this(), guarded(&AWAITED));
    awaited.retain(|_, (process, _)| *process == this);
    if let Some((_, bell)) = awaited.get(&ticket) {
        return Ok(Arc::clone(bell));
    }
    let bell = Arc::new(Bell::new()?);
    watch(ticket, file, &bell)?;
    awaited.insert(ticket, (this, Arc::clone(&bell)));
    Ok(bell)
}

/// Starts the thread. It hears no signals: those are the program's, and its stack is small.
fn watch(ticket: Identity, file: &Arc<File>, bell: &Arc<Bell>) -> io::Result<()> {
    let (file, bell) = (Arc::clone(file), Arc::clone(bell));
    let body = move || {
        let gone = flock::wait_until_flock_free(&file);
        guarded(&AWAITED).retain(|_, (_, other)| !Arc::ptr_eq(other, &bell));
        // Where flock(2) fails, waiters look from time to time.
        if gone {
            bell.ring();
        }
    };
    let before = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK);
    let name = format!("ticket {}", ticket.inode);
    let thread = std::thread::Builder::new().name(name).stack_size(STACK).spawn(body);
    let _ = before.map(|mask| mask.thread_set_mask());
    thread.map(drop)
}
