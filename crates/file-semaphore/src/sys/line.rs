//! The line of waiters for one lock: first come, first served, and a waiter that dies, by whatever cause,
//! keeps nobody waiting.
//!
//! A waiter's ticket is a file on which it holds flock(2) while it waits; the kernel releases that when the
//! waiter ends. The ticket of the last waiter is called `LOCK.queue`. A new waiter exchanges its own ticket
//! for that one in one step (renameat2(2), `RENAME_EXCHANGE`). It then has the ticket of the waiter before
//! it, under a name of its own, `LOCK.PID.RANDOM.tmp`, and waits until nobody holds flock(2) on it.
//!
//! A ticket says under which name its owner keeps the ticket before it. If the owner gives up or is killed,
//! the next waiter continues to wait for that ticket: it moves it to its own name, the only name that it ever
//! has, and removes it when it leaves. If the last waiter leaves in the same moment as another one, the one
//! that looks last removes what is left.
//!
//! All this decides only which process tries next, never which one holds the lock. Where it does not work (no
//! exchange; a sticky directory and another user's ticket), there is no line, and waiters take the lock in
//! any order.

use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};
use pidlockfile::{Directory, Identity, Name, Pid, Status};

use super::rename::{How, rename};
use super::turn::{self, Turn};
use super::{alike, flock};
use crate::temporary::{QUEUE, beside, maker};

/// How many tickets of the dead are passed over at once: more than can be there by accident.
const MOST_DEAD: usize = 4096;

/// How often a newcomer tries to find its place among others that do so in that moment.
const TRIES: usize = 64;

/// More than the longest name.
const TICKET_BYTES: u64 = 512;

const OPENING: OFlag =
    OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

/// A place in the line of a lock. Dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct Ticket<'d>(Standing<'d>);

/// The place itself.
#[derive(Debug)]
struct Standing<'d> {
    line: Line<'d>,
    file: File,
    identity: Identity,
    before: Option<Before>,
}

/// The ticket of the waiter before us, and the name it has for us.
#[derive(Debug)]
struct Before {
    name: Name,
    file: Arc<File>,
}

/// The line of one lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'d> {
    pub(crate) directory: &'d Directory,
    pub(crate) lock: &'d Name,
    /// The permission bits of tickets.
    pub(crate) mode: u32,
}

/// The name of the last ticket.
pub(crate) fn last_name(lock: &Name) -> Option<Name> {
    beside(lock, QUEUE)
}

impl<'d> Line<'d> {
    /// Whether there may be somebody in the line.
    pub(crate) fn exists(self) -> bool {
        last_name(self.lock).is_some_and(|last| self.identity(&last).is_some())
    }

    /// Whether there is somebody in the line.
    pub(crate) fn stands(self) -> bool {
        let last = last_name(self.lock).and_then(|last| self.open(last));
        last.is_some_and(|last| !flock::is_free(&*last.file))
    }

    /// Takes the last place. `None` where there can be no line.
    pub(crate) fn join(self) -> Option<Ticket<'d>> {
        self.stand().map(Ticket)
    }

    fn stand(self) -> Option<Standing<'d>> {
        let last = last_name(self.lock)?;
        let own = self.fresh()?;
        let flags = OPENING | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDWR;
        let mode = alike::bits(self.mode & 0o666);
        let mut file = File::from(openat(self.directory, own.as_os_str(), flags, mode).ok()?);
        let identity = self.ready(&mut file, &own, mode);
        identity.into_iter().for_each(turn::joined);
        let joined = identity.and_then(|identity| Some((identity, self.put(&own, &last)?)));
        let Some((identity, joined)) = joined else {
            identity.into_iter().for_each(turn::left);
            self.remove(&own);
            return None;
        };
        let before = match joined {
            Joined::First => None,
            Joined::Behind => self.open(own),
        };
        Some(Standing { line: self, file, identity, before })
    }

    /// Makes a new file a ticket.
    fn ready(self, file: &mut File, own: &Name, mode: Mode) -> Option<Identity> {
        let named = fchmod(&*file, mode).is_ok()
            && flock::exclude(file)
            && file.write_all(own.as_os_str().as_bytes()).is_ok();
        Some(Status::of_open(file).ok().filter(|_| named)?.identity)
    }

    fn put(self, own: &Name, last: &Name) -> Option<Joined> {
        for _ in 0..TRIES {
            match self.rename(own, last, How::Exchange) {
                Ok(()) => return Some(Joined::Behind),
                Err(Errno::ENOENT) => {}
                Err(_) => return None,
            }
            match self.rename(own, last, How::NoReplace) {
                Ok(()) => return Some(Joined::First),
                Err(Errno::EEXIST) => {}
                Err(_) => return None,
            }
        }
        None
    }

    fn fresh(self) -> Option<Name> {
        let random = RandomState::new().build_hasher().finish();
        beside(self.lock, &format!(".{}.{random:016x}.tmp", Pid::this()))
    }

    fn rename(self, from: &Name, to: &Name, how: How) -> Result<(), Errno> {
        rename(self.directory, from.as_os_str(), to.as_os_str(), how)
    }

    fn remove(self, name: &Name) {
        let _ = unlinkat(self.directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
    }

    fn identity(self, name: &Name) -> Option<Identity> {
        Status::of_name(self.directory, name).ok().map(|status| status.identity)
    }

    /// Opens a ticket; `None` when it is gone, or is none.
    fn open(self, name: Name) -> Option<Before> {
        let flags = OPENING | OFlag::O_RDONLY;
        let file = File::from(openat(self.directory, name.as_os_str(), flags, Mode::empty()).ok()?);
        file.metadata().ok()?.is_file().then(|| Before { name, file: Arc::new(file) })
    }

    /// Under which name the owner of a ticket has the one before it.
    fn name_in(self, ticket: &File) -> Option<Name> {
        let mut name = Vec::new();
        ticket.take(TICKET_BYTES).read_to_end(&mut name).ok()?;
        maker(&name, self.lock)?;
        Name::new(OsString::from_vec(name))
    }

    /// Whether a file is somebody's ticket, by its content.
    pub(crate) fn is_ticket(self, content: &[u8]) -> bool {
        maker(content, self.lock).is_some()
    }

    /// The ticket before one that nobody holds any more, under the name that had.
    fn pass_over(self, gone: Before) -> Option<Before> {
        let next = self.name_in(&gone.file).and_then(|name| self.open(name));
        let moved = next.filter(|next| {
            next.name != gone.name && self.rename(&next.name, &gone.name, How::Over).is_ok()
        });
        if moved.is_none() {
            self.remove(&gone.name);
        }
        moved.map(|next| Before { name: gone.name, file: next.file })
    }

    /// Removes what is left of the line if its last one is in it no more: takes the last place and
    /// leaves it, so that a newcomer in that moment keeps its own. Whether there was anything.
    pub(crate) fn sweep(self) -> bool {
        for tried in 0..TRIES {
            let last = last_name(self.lock).and_then(|last| self.open(last));
            if last.is_none_or(|last| !flock::is_free(&*last.file)) {
                return tried > 0;
            }
            let Some(mut place) = self.stand() else { return false };
            place.leave();
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

    /// A wait for the end of the one before. `None`: there is none.
    pub(crate) fn turn(&self) -> Option<Turn> {
        let before = self.0.before.as_ref()?;
        Some(Turn::after(Status::of_open(&before.file).ok()?.identity, &before.file))
    }
}

impl Standing<'_> {
    fn is_first(&mut self) -> bool {
        for _ in 0..MOST_DEAD {
            let Some(before) = self.before.take() else { return true };
            if !flock::is_free(&*before.file) {
                self.before = Some(before);
                return false;
            }
            self.before = self.line.pass_over(before);
        }
        true
    }

    /// Leaves, and lets go of the ticket, which wakes the next waiter.
    fn leave(&mut self) {
        self.is_first();
        let _ = self.tidy();
        flock::release(&self.file);
        turn::left(self.identity);
    }

    /// Leaves no name behind that nobody needs. The next waiter finds out by itself.
    fn tidy(&self) -> Option<()> {
        let last = last_name(self.line.lock)?;
        let identity = self.identity;
        if self.line.identity(&last)? != identity {
            return Some(());
        }
        // Nobody is behind. The ticket before becomes the last again, or there is none.
        let (own, how) = match &self.before {
            Some(before) => (before.name.clone(), How::Exchange),
            None => (self.line.fresh()?, How::NoReplace),
        };
        let (from, to) = if self.before.is_some() { (&own, &last) } else { (&last, &own) };
        self.line.rename(from, to, how).ok()?;
        if self.line.identity(&own)? == identity {
            self.line.remove(&own);
        } else {
            // Somebody came in that moment: back.
            self.line.rename(&own, &last, how).ok()?;
        }
        Some(())
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.0.leave();
        // The last waiter may have handed its place back to us, or we to one that left in this moment.
        self.0.line.sweep();
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
