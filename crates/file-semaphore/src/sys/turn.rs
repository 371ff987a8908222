//! Waits for the previous ticket: a thread blocks in flock(2) on it, and the kernel wakes exactly the next
//! waiter, however the ticket's owner ends.
//!
//! Such a thread can only be ended by the end of what it waits for. So a wait that ends early leaves its
//! thread behind, and the next wait for the same ticket uses it: there are never more threads than tickets
//! that this process has waited for and that still exist.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::SigSet;
use pidlockfile::{Identity, Pid};

use super::Woken;
use super::bell::Bell;
use super::flock;
use super::watch::{Alarm, sleep};

/// Enough for a thread that calls flock(2) and writes a byte.
const STACK: usize = 64 * 1024;

static TURNS: Mutex<Turns> = Mutex::new(Turns::NONE);

/// What a process has of all its lines.
struct Turns {
    /// A forked child has none of its parent's threads.
    process: Option<Pid>,
    awaited: BTreeMap<Identity, Arc<Bell>>,
}

impl Turns {
    const NONE: Self = Self { process: None, awaited: BTreeMap::new() };
}

fn turns() -> MutexGuard<'static, Turns> {
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let this = Some(Pid::this());
    if turns.process != this {
        *turns = Turns { process: this, ..Turns::NONE };
    }
    turns
}

/// A wait for the end of a ticket.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Rings then. None where neither descriptor nor thread can be had.
    bell: Option<Arc<Bell>>,
}

impl Turn {
    pub(super) fn after(ticket: Identity, file: &Arc<File>) -> Self {
        let mut turns = turns();
        if let Some(bell) = turns.awaited.get(&ticket) {
            return Self { bell: Some(Arc::clone(bell)) };
        }
        let Ok(bell) = Bell::new().map(Arc::new) else { return Self { bell: None } };
        if watch(ticket, file, &bell).is_err() {
            return Self { bell: None };
        }
        turns.awaited.insert(ticket, Arc::clone(&bell));
        Self { bell: Some(bell) }
    }

    /// Until the ticket's owner has let go of it (`Change`), the time is over, or the alarm rings.
    pub(crate) fn wait(&self, time: Duration, alarm: Option<&dyn Alarm>) -> Woken {
        sleep(self.bell.as_ref().map(|bell| bell.as_fd()), time, alarm).unwrap_or(Woken::Change)
    }
}

/// Starts the thread. It hears no signals: those are the program's, and its stack is small.
fn watch(ticket: Identity, file: &Arc<File>, bell: &Arc<Bell>) -> std::io::Result<()> {
    let (file, bell) = (Arc::clone(file), Arc::clone(bell));
    let body = move || {
        let gone = flock::wait_until_free(&file);
        let mut turns = turns();
        turns.awaited.retain(|_, other| !Arc::ptr_eq(other, &bell));
        drop(turns);
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
