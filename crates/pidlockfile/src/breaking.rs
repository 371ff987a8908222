//! Publishes, breaks and releases locks: removes exactly the file that was judged, and no other.
//!
//! `flock(2)` on the judged file, and a gate, keep apart the processes that break or release it. If a program that
//! does not know this interferes, that is noticed afterwards and undone.

use std::ffi::OsStr;
use std::time::Duration;

use crate::directory::Directory;
use crate::draft::{Draft, NewFile, Published};
use crate::errno::Errno;
use crate::error::{Error, Step};
use crate::exchange::{Attempt, Exchange, Otherwise, is_still, unlink_held};
use crate::flocked::Flocked;
#[cfg(unix)]
use crate::forced;
use crate::found::{CONTENT_BYTES, Found, OpenFile};
use crate::gate::{Entry, Occupant};
use crate::name::Name;
use crate::sys;

/// How often letting go is tried while another process is at the file, and the pause between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(2);

impl Directory {
    /// Creates a lock, complete or not at all. An existing name is never replaced: `None` if the name is taken.
    ///
    /// The finished temporary file is renamed to the name without replacing; where that is
    /// unknown, it is linked to it; where there are no hard links either, the lock is created
    /// exclusively and filled in place, as the old programs do.
    ///
    /// # Errors
    /// [`Step::Prepare`] or [`Step::Publish`] with the system's reason; nothing is left behind.
    pub fn publish(&self, name: &Name, claim: &NewFile<'_>) -> Result<Option<Published>, Error> {
        let draft = Draft::new(self, claim).map_err(Error::at(Step::Prepare, name))?;
        draft.publish(name, claim).map_err(|errno| Error::new(Step::Publish, name, errno))
    }

    /// Breaks a stale lock and takes its place in one step.
    ///
    /// Only the very file that was judged, with the very content that was judged, is removed.
    ///
    /// # Errors
    /// With the system's reason; [`Error::is_not_permitted`] where the file belongs to somebody
    /// else in a sticky directory. The old lock then stands as it was.
    pub fn replace(
        &self,
        name: &Name,
        mut opened: OpenFile,
        claim: &NewFile<'_>,
    ) -> Result<Attempt<Published>, Error> {
        let draft = || Draft::new(self, claim).map_err(Error::at(Step::Prepare, name)).map(Some);
        self.exchange_held(name, &mut opened, claim, draft, Otherwise::Rename)
    }

    /// Holds a judged file, and lets it and a draft change places. `draft` makes that while the file is held; without one,
    /// the lock has changed.
    pub(crate) fn exchange_held<'d>(
        &self,
        name: &Name,
        opened: &mut OpenFile,
        claim: &NewFile<'_>,
        draft: impl FnOnce() -> Result<Option<Draft<'d>>, Error>,
        otherwise: Otherwise,
    ) -> Result<Attempt<Published>, Error> {
        match self.hold(name, opened)? {
            Attempt::Done(()) => {}
            // What comes out is looked at in any case.
            Attempt::Contended if opened.ignores_flock() => {}
            Attempt::Contended => return Ok(Attempt::Contended),
            Attempt::Changed => return Ok(Attempt::Changed),
        }
        // Before the last look, so that nothing lies between that and the step.
        let Some(draft) = draft()? else { return Ok(Attempt::Changed) };
        Exchange { directory: self, name, opened, claim }.run(draft, otherwise)
    }

    /// Removes a lock that is the caller's own, even while another process holds `flock(2)` on
    /// it: in a world-readable directory anybody can, and must not keep an owner from letting go.
    ///
    /// `prefix` is the start of the private name that is used then. As the holder of that `flock(2)` might
    /// also be breaking the lock, try [`Directory::try_release`] for longer than breaking takes
    /// before this; the crate's documentation says what could happen otherwise.
    /// If there is no room for it, a caller in the gate removes the lock without it.
    ///
    /// # Errors
    /// With the system's reason.
    #[cfg_attr(windows, expect(unused_variables, reason = "there no private name is used"))]
    pub fn release(
        &self,
        name: &Name,
        mut opened: OpenFile,
        prefix: impl AsRef<OsStr>,
    ) -> Result<Attempt, Error> {
        let held = self.hold(name, &mut opened)?;
        let remove = || match remove_held(self, name, &opened)? {
            Attempt::Done(()) => Ok(Attempt::Done(())),
            Attempt::Changed | Attempt::Contended => Ok(Attempt::Changed),
        };
        match held {
            Attempt::Done(()) => remove(),
            #[cfg(unix)]
            Attempt::Contended => match forced::release(self, name, &opened, prefix.as_ref()) {
                // Any user may fill the file system. In the gate, nobody else replaces the file.
                Err(error) if error.step == Step::Prepare && opened.passage.is_some() => remove(),
                outcome => outcome,
            },
            // A process that has the file open without sharing it keeps even the owner from removing it.
            #[cfg(windows)]
            Attempt::Contended => Err(Error::new(Step::Exclude, name, Errno::BUSY)),
            Attempt::Changed => Ok(Attempt::Changed),
        }
    }

    /// Like [`Directory::release`], but steps back, when another process holds
    /// `flock(2)` on the file: it is most likely breaking it, and then the name is its to fill.
    /// What was judged stale, and not the caller's own, must be removed like this, or by
    /// [`Directory::try_release_each`] with a prefix where programs write into stale files.
    ///
    /// # Errors
    /// [`Step::Exclude`], [`Step::Inspect`] or [`Step::Remove`] with the system's reason.
    pub fn try_release(&self, name: &Name, mut opened: OpenFile) -> Result<Attempt, Error> {
        match self.hold(name, &mut opened)? {
            Attempt::Done(()) => remove_held(self, name, &opened),
            other @ (Attempt::Contended | Attempt::Changed) => Ok(other),
        }
    }

    /// The same for a lock whose file may have several names: they go in this order, up to one that cannot be removed. A name
    /// that leads to another file is left alone. But if the file has a further name meanwhile, it may have been moved aside
    /// for a moment, and the answer is [`Attempt::Contended`]. Tells which names went.
    ///
    /// With `prefix`, the start of a private name, for a lock whose process has ended: a program that keeps no rules may write
    /// its own number into such a file until the name is gone. So each name leads to the file under a private one, and that
    /// is looked at once more, and gets its name back if it has changed.
    ///
    /// # Errors
    /// As [`Directory::try_release`]. If a name cannot be removed, those before it are.
    pub fn try_release_each(
        &self,
        names: &[Name],
        opened: &mut OpenFile,
        prefix: Option<&OsStr>,
    ) -> Result<Attempt<Vec<Name>>, Error> {
        let Some(first) = names.first() else { return Ok(Attempt::Changed) };
        match self.hold(first, opened)? {
            Attempt::Done(()) => {}
            Attempt::Contended => return Ok(Attempt::Contended),
            Attempt::Changed => return Ok(Attempt::Changed),
        }
        let mut leading = Vec::with_capacity(names.len());
        for name in names {
            let seen = self.find(name.as_os_str()).map_err(Error::at(Step::Inspect, name))?;
            leading.extend(seen.filter(|seen| opened.was_seen_so(seen)).map(|_| name));
        }
        let says_so = || opened.says_the_same().map_err(Error::at(Step::Inspect, first));
        let count = u64::try_from(leading.len()).unwrap_or(u64::MAX);
        let has_others = || sys::has_more_names_than(&opened.file.file, count);
        if leading.len() < names.len() && has_others() {
            return Ok(Attempt::Contended);
        } else if leading.is_empty() || !says_so()? {
            return Ok(Attempt::Changed);
        }
        let mut gone = Vec::with_capacity(leading.len());
        let claim = prefix.map(|prefix| NewFile::new(&[], prefix));
        for name in leading {
            let removed = match &claim {
                Some(claim) => Exchange { directory: self, name, opened, claim }.remove(),
                None => unlink_held(self, name),
            };
            match removed {
                Ok(Attempt::Done(())) => gone.push(name.clone()),
                Ok(Attempt::Changed | Attempt::Contended) => {}
                Err(error) if gone.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(if gone.is_empty() { Attempt::Changed } else { Attempt::Done(gone) })
    }

    /// Removes a lock that this process published and kept open: the descriptor says exactly
    /// which file it is, so nothing has to be read again.
    ///
    /// # Errors
    /// [`Step::Exclude`], [`Step::Inspect`] or [`Step::Remove`] with the system's reason.
    pub fn withdraw(&self, name: &Name, published: &Published) -> Result<Attempt, Error> {
        let lock = sys::try_lock_created(self, name.as_os_str(), &published.file);
        let Some(_lock) = lock.map_err(Error::at(Step::Exclude, name))? else {
            return Ok(Attempt::Contended);
        };
        match sys::inspect(self, name.as_os_str()) {
            Ok(seen) if seen.identity == published.identity => unlink_held(self, name),
            Ok(_) | Err(Errno::NOENT) if published.has_a_name() => Ok(Attempt::Contended),
            Ok(_) | Err(Errno::NOENT) => Ok(Attempt::Changed),
            Err(errno) => Err(Error::new(Step::Inspect, name, errno)),
        }
    }

    /// Goes through this directory's gate ([`Directory::gated`]), and asks for `flock(2)` on a judged file, both for
    /// as long as it is kept: no maker of it is still at work then ([`Directory::guarding`]), and nobody breaks or
    /// releases it by this crate. Contended while another process has one of them; if that is the `flock(2)`, we are
    /// in the gate, and the caller may [`OpenFile::ignore_flock`] it.
    ///
    /// # Errors
    /// [`Step::Enter`] or [`Step::Exclude`] with the system's reason. After the first, the caller must not break or
    /// remove the file: another process may be at it.
    pub fn hold(&self, name: &Name, opened: &mut OpenFile) -> Result<Attempt, Error> {
        let failed = Error::at(Step::Exclude, name);
        if matches!(self.enter(name, opened)?, Entry::Occupied(_)) {
            return Ok(Attempt::Contended);
        }
        let is_ours = match opened.try_lock() {
            // NFS makes it a write lock on the whole file, which asks for a writable opening.
            Err(Errno::BADF) => match sys::open_to_write(self, name.as_os_str()) {
                Ok(file) => {
                    if sys::stat_open(&file).map_err(&failed)?.identity != opened.identity() {
                        return Ok(Attempt::Changed);
                    }
                    let writable = Flocked::writable(file);
                    let is_ours = writable.try_lock().map_err(&failed)?;
                    opened.writable = is_ours.then_some(writable);
                    is_ours
                }
                Err(Errno::NOENT) => return Ok(Attempt::Changed),
                // Another process has it open to exclude others.
                #[cfg(windows)]
                Err(Errno::BUSY) => false,
                Err(errno) => return Err(failed(errno)),
            },
            outcome => outcome.map_err(&failed)?,
        };
        Ok(if is_ours { Attempt::Done(()) } else { Attempt::Contended })
    }

    /// As [`Directory::withdraw`], but waits for other processes, for a fifth of a second. A breaker is at a file for
    /// milliseconds. A process that holds `flock(2)` on it for longer is not breaking it, and must not keep its owner
    /// from letting go. `prefix` is the start of the private name that is used then.
    ///
    /// # Errors
    /// As [`Directory::release`].
    pub fn withdraw_patiently(
        &self,
        name: &Name,
        published: &Published,
        prefix: impl AsRef<OsStr>,
    ) -> Result<Attempt, Error> {
        for _ in 0..TRIES {
            match self.withdraw(name, published)? {
                Attempt::Contended => std::thread::sleep(PAUSE),
                outcome @ (Attempt::Done(()) | Attempt::Changed) => return Ok(outcome),
            }
        }
        match self.read(name, CONTENT_BYTES)? {
            Found::File(opened) if opened.identity() == published.identity => {
                self.release(name, opened, prefix)
            }
            Found::File(_) | Found::Nothing | Found::Obstacle(_) => Ok(Attempt::Changed),
        }
    }

    /// Goes through this directory's gate ([`Directory::gated`]) on account of a judged file, for as long as that is
    /// kept. Without a gate that we may enter, `flock(2)` decides alone. Every method that breaks or removes a file
    /// calls this by itself, and enters once; only [`Directory::withdraw`] does not.
    ///
    /// # Errors
    /// [`Step::Enter`] with the system's reason. The caller must not break or remove the file: another process may be at
    /// it.
    pub fn enter(&self, name: &Name, opened: &mut OpenFile) -> Result<Entry, Error> {
        if let Some(passage) = &opened.passage {
            return Ok(Entry::Inside(passage.clone()));
        } else if opened.is_ungated {
            return Ok(Entry::NoGate);
        }
        let named = |error: Error| Error::new(error.step, name, error.errno);
        let entry = self.try_enter().map_err(named)?;
        match &entry {
            Entry::Inside(passage) => opened.passage = Some(passage.clone()),
            Entry::NoGate => opened.is_ungated = true,
            Entry::Occupied(_) => {}
        }
        Ok(entry)
    }

    /// Enters this directory's gate before a lock is read. The files that are judged afterwards get the passage
    /// ([`OpenFile::enter_by`]).
    ///
    /// # Errors
    /// As [`Directory::enter`].
    pub fn try_enter(&self) -> Result<Entry, Error> {
        let Some(gate) = &self.gate else { return Ok(Entry::NoGate) };
        gate.try_enter().map_err(|errno| Error::new(Step::Enter, ".", errno))
    }

    /// The process that is in this directory's gate now, for a caller that has waited for it and does nothing inside yet.
    /// `None` also where that cannot be seen. To see that nobody is inside, this keeps others out for a moment, and writes
    /// nothing.
    #[must_use]
    pub fn occupant(&self) -> Option<Occupant> {
        self.gate.as_ref()?.occupant()
    }
}

impl OpenFile {
    /// Holds the file by the `flock(2)` that this process has kept on it since it published it. The caller may keep another
    /// descriptor of the same opening: then the `flock(2)` does not end with this value.
    pub fn hold_by(&mut self, kept: Published) {
        // On Windows, an open file keeps others out already.
        let is_held = || cfg!(windows) || kept.try_hold().is_ok_and(|it| it);
        if kept.identity == self.identity() && is_held() {
            self.writable = Some(Flocked::lent(kept.file));
        }
    }
}

/// Contended: the file has another name than this, so it was moved aside for a moment.
fn remove_held(directory: &Directory, name: &Name, opened: &OpenFile) -> Result<Attempt, Error> {
    match is_still(directory, name, opened)? {
        true => unlink_held(directory, name),
        false if is_aside(directory, name, opened) => Ok(Attempt::Contended),
        false => Ok(Attempt::Changed),
    }
}

fn is_aside(directory: &Directory, name: &Name, opened: &OpenFile) -> bool {
    let seen = directory.identity_of(name.as_os_str());
    seen.is_ok_and(|seen| seen != Some(opened.identity())) && opened.has_a_name()
}
