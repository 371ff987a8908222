//! The queue of waiters for one lock: first come, first served, and a waiter that dies, by whatever cause,
//! keeps nobody waiting.
//!
//! A waiter's ticket is a file on which it holds flock(2) while it waits; the kernel releases that when the
//! waiter ends. The ticket of the last waiter is called `LOCK.queue`. A new waiter exchanges its own ticket
//! for that one in one step (renameat2(2), `RENAME_EXCHANGE`). It then has the ticket of the waiter before
//! it, under a name of its own, `LOCK.PID.RANDOM.tmp`, and waits until nobody holds flock(2) on it.
//!
//! A ticket says under which name its owner keeps the ticket before it. If the owner gives up or is killed,
//! the next waiter continues to wait for that ticket: it moves it to its own name, the only name that it ever
//! has, and removes it when it leaves. If nobody is behind, the ticket stays until an earlier waiter leaves,
//! and that one removes it. If two leave in the same moment, the one that looks last removes what is left.
//!
//! Only a newcomer ever exchanges tickets, and its own is new: so no waiter can come to wait for itself.
//!
//! All this decides only which process tries next, never which one holds the lock. Where it does not work (no
//! exchange; a sticky directory and another user's ticket), there is no queue, and waiters take the lock in
//! any order.
//!
//! To wait for the previous ticket, a thread blocks in flock(2) on it. The kernel wakes exactly the next waiter,
//! however the ticket's owner ends.
//!
//! Such a thread can only be ended by the end of what it waits for. So a wait that ends early leaves its
//! thread behind, and the next wait for the same ticket uses it: there are never more threads than tickets
//! that this process has waited for and that still exist.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::fcntl::{OFlag, openat};
use nix::sys::signal::SigSet;
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};
use pidlockfile::{Directory, Error, Found, Identity, Name, Pid, Rename, Status};

use super::unix::{
    flock_exclusively, is_flock_free, permission_bits, release_flock, wait_until_flock_free,
};
use super::watch::{Alarm, Bell, sleep};
use super::{Woken, guarded, random};
use crate::record::{QUEUE, beside, maker};

/// How many tickets of the dead are passed over at once: more than can be there by accident.
const MOST_DEAD: usize = 4096;

/// How often a newcomer tries to find its place among others that do so in that moment, and how many tickets
/// are looked at for one whose owner is there.
const TRIES: usize = 64;

/// More than the longest name.
const TICKET_BYTES: usize = 512;

const OPENING: OFlag =
    OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

/// A place in the queue of a lock. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Ticket<'d>(QueuePlace<'d>);

/// The place in the queue itself.
#[derive(Debug)]
struct QueuePlace<'d> {
    queue: Queue<'d>,
    file: File,
    identity: Identity,
    before: Option<Before>,
}

/// The ticket of the waiter before us, and the name it has for us.
#[derive(Debug)]
struct Before {
    name: Name,
    identity: Identity,
    file: Arc<File>,
    /// Under which name its owner has the one before it.
    next: Option<Name>,
}

/// The queue of one lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue<'d> {
    pub(crate) directory: &'d Directory,
    pub(crate) lock: &'d Name,
    /// The permission bits of tickets.
    pub(crate) mode: u32,
}

/// The name of the last ticket.
pub(crate) fn last_name(lock: &Name) -> Option<Name> {
    beside(lock, QUEUE)
}

impl<'d> Queue<'d> {
    /// Whether there may be somebody in the queue.
    pub(crate) fn exists(self) -> bool {
        last_name(self.lock).is_some_and(|last| self.identity(&last).is_some())
    }

    /// Whether there is somebody in the queue.
    pub(crate) fn has_waiters(self) -> bool {
        let mut ticket = last_name(self.lock).and_then(|last| self.open(last));
        for _ in 0..TRIES {
            let Some(last) = ticket else { return false };
            if !is_flock_free(&*last.file) {
                return true;
            }
            ticket = last.next.and_then(|name| self.open(name));
        }
        false
    }

    /// Takes the last place. `None` where there can be no queue.
    pub(crate) fn join(self) -> Option<Ticket<'d>> {
        self.take_place().map(Ticket)
    }

    fn take_place(self) -> Option<QueuePlace<'d>> {
        let last = last_name(self.lock)?;
        let own = self.fresh()?;
        let flags = OPENING | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDWR;
        let mode = permission_bits(self.mode & 0o666);
        let mut file = File::from(openat(self.directory, own.as_os_str(), flags, mode).ok()?);
        let identity = self.ready(&mut file, &own, mode);
        let joined = identity.and_then(|identity| Some((identity, self.put(&own, &last)?)));
        let Some((identity, joined)) = joined else {
            self.remove(&own);
            return None;
        };
        let before = match joined {
            Joined::First => None,
            Joined::Behind => self.open(own),
        };
        Some(QueuePlace { queue: self, file, identity, before })
    }

    /// Makes a new file a ticket.
    fn ready(self, file: &mut File, own: &Name, mode: Mode) -> Option<Identity> {
        let named = fchmod(&*file, mode).is_ok()
            && flock_exclusively(file)
            && file.write_all(own.as_os_str().as_bytes()).is_ok();
        Some(Status::of_open(file).ok().filter(|_| named)?.identity)
    }

    fn put(self, own: &Name, last: &Name) -> Option<Joined> {
        for _ in 0..TRIES {
            match self.rename(own, last, Rename::Exchange) {
                Ok(()) => return Some(Joined::Behind),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => return None,
            }
            match self.rename(own, last, Rename::NoReplace) {
                Ok(()) => return Some(Joined::First),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(_) => return None,
            }
        }
        None
    }

    fn fresh(self) -> Option<Name> {
        beside(self.lock, &format!(".{}.{:016x}.tmp", Pid::this(), random()))
    }

    fn rename(self, from: &Name, to: &Name, how: Rename) -> Result<(), Error> {
        self.directory.rename(from, to, how)
    }

    fn remove(self, name: &Name) {
        let _ = unlinkat(self.directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
    }

    fn identity(self, name: &Name) -> Option<Identity> {
        Status::of_name(self.directory, name).ok().map(|status| status.identity)
    }

    /// Opens a ticket; `None` when it is gone, or is none.
    fn open(self, name: Name) -> Option<Before> {
        let found = self.directory.read(&name, TICKET_BYTES).ok()?;
        let Found::File(ticket) = found else { return None };
        let next = self.is_ticket(ticket.content()).then(|| ticket.content().to_vec());
        let next = next.and_then(|next| Name::new(OsString::from_vec(next)));
        let (identity, file) = (ticket.identity(), Arc::new(ticket.try_clone().ok()?));
        Some(Before { name, identity, file, next })
    }

    /// Whether a file is somebody's ticket, by its content.
    pub(crate) fn is_ticket(self, content: &[u8]) -> bool {
        maker(content, self.lock).is_some()
    }

    /// The ticket before one that nobody holds any more. It gets the name of that one.
    fn pass_over(self, gone: Before) -> Option<Before> {
        let next = gone.next.and_then(|name| self.open(name));
        let moved = next.filter(|next| {
            next.name != gone.name && self.rename(&next.name, &gone.name, Rename::Over).is_ok()
        });
        if moved.is_none() {
            self.remove(&gone.name);
        }
        moved.map(|next| Before { name: gone.name, ..next })
    }

    /// Removes a ticket for which nobody waits, and those before it, up to the first whose owner is there: that
    /// one does the same when it leaves.
    fn remove_abandoned(self, name: Name) {
        let mut name = Some(name);
        for _ in 0..MOST_DEAD {
            let Some(last) = name else { return };
            let ticket = self.open(last.clone());
            self.remove(&last);
            let left = ticket.filter(|ticket| is_flock_free(&*ticket.file));
            name = left.and_then(|ticket| ticket.next);
        }
    }

    /// Removes what is left of the queue if the owner of the last ticket has left: takes the last place and leaves it, so
    /// that a newcomer in that moment keeps its own. Returns whether nothing is left.
    pub(crate) fn sweep(self) -> bool {
        for tried in 0..TRIES {
            let last = last_name(self.lock).and_then(|last| self.open(last));
            if last.is_none_or(|last| !is_flock_free(&*last.file)) {
                return tried > 0;
            }
            let is_over = self.take_place().is_some_and(|mut place| place.leave());
            if !is_over {
                return false;
            }
        }
        true
    }
}

/// Where a newcomer stands.
enum Joined {
    First,
    Behind,
}

impl Ticket<'_> {
    /// Whether all earlier waiters are gone. Passes over those that left or died.
    pub(crate) fn is_first(&mut self) -> bool {
        self.0.is_first()
    }

    /// Waits until the waiter before is gone (`Change`), the time is over, or the alarm rings. `None`: this is the first.
    pub(crate) fn wait(&mut self, time: Duration, alarm: Option<&dyn Alarm>) -> Option<Woken> {
        if self.is_first() {
            return None;
        }
        let before = self.0.before.as_ref()?;
        Some(wait_for_ticket(before.identity, &before.file, time, alarm))
    }
}

impl QueuePlace<'_> {
    fn is_first(&mut self) -> bool {
        for _ in 0..MOST_DEAD {
            let Some(before) = self.before.take() else { return true };
            if !is_flock_free(&*before.file) {
                self.before = Some(before);
                return false;
            }
            self.before = self.queue.pass_over(before);
        }
        true
    }

    /// Releases the ticket, which wakes the next waiter, and removes the names that nobody needs. `false`: an earlier
    /// waiter removes them when it leaves.
    fn leave(&mut self) -> bool {
        if self.is_first() {
            self.remove_queue();
        }
        release_flock(&self.file);
        let Some(before) = self.before.take() else { return true };
        if self.is_nameless() && self.queue.identity(&before.name) == Some(before.identity) {
            self.queue.remove_abandoned(before.name);
            return true;
        }
        // Checked again: its owner may have left before this one, and then it saw that this one was there.
        is_flock_free(&*before.file)
    }

    /// Removes the queue if this waiter, the first one, is also the last one.
    fn remove_queue(&self) -> Option<()> {
        let last = last_name(self.queue.lock)?;
        if self.queue.identity(&last)? == self.identity {
            let aside = self.queue.fresh()?;
            self.queue.rename(&last, &aside, Rename::NoReplace).ok()?;
            self.put_back_or_remove(&last, aside);
        }
        Some(())
    }

    /// Checks the ticket that was moved aside. If it is that of a waiter that came in this moment, it becomes the last
    /// again; if there is another queue by now, nobody waits for that ticket.
    fn put_back_or_remove(&self, last: &Name, aside: Name) {
        let is_own = self.queue.identity(&aside) == Some(self.identity);
        if is_own || self.queue.rename(&aside, last, Rename::NoReplace).is_err() {
            self.queue.remove_abandoned(aside);
        }
    }

    /// Whether no waiter can come to wait for this one.
    fn is_nameless(&self) -> bool {
        Status::of_open(&self.file).is_ok_and(|status| status.links == 0)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.0.leave();
        self.0.queue.sweep();
    }
}

/// Enough for a thread that calls flock(2) and writes a byte.
const STACK: usize = 64 * 1024;

/// What rings for the tickets that this process has waited for. A forked child has none of its parent's threads.
static AWAITED: Mutex<BTreeMap<Identity, (Pid, Arc<Bell>)>> = Mutex::new(BTreeMap::new());

/// Waits until the ticket's owner has released it (`Change`), the time is over, or the alarm rings.
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
        let gone = wait_until_flock_free(&file);
        guarded(&AWAITED).retain(|_, (_, other)| !Arc::ptr_eq(other, &bell));
        // Where flock(2) fails, waiters check from time to time.
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

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
