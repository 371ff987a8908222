//! Releases a lock although another process holds `flock(2)` on its file.
//!
//! It must never remove or move the lock of the next holder.

use std::ffi::OsStr;
use std::fs::File;
use std::time::{Duration, SystemTime};

use crate::directory::Directory;
use crate::draft::{Draft, Durability, NewFile, PrivateName, Published};
use crate::errno::Errno;
use crate::error::{Error, Step};
use crate::exchange::{Attempt, Exchange, Otherwise, TRIES_TO_EXCHANGE_BACK};
use crate::found::{Found, OpenFile};
use crate::name::Name;
use crate::process::{Pid, lives};
use crate::status::Age;
use crate::{sys, temporary};

/// The age up to which a draft belongs to a release that is on its way: if its maker is seen to live, and if it is not seen.
/// A process that is stopped in mid-step for longer is not waited for.
const LIVING_DRAFT: Duration = Duration::from_secs(60);
const ANY_DRAFT: Duration = Duration::from_secs(1);

/// Marks the file that stands in for a lock while it is released past a stranger's `flock(2)`:
/// "executable" is on no lock file, and every system lets an owner set it.
const STAND_IN: u32 = 0o100;

/// Releases without `flock(2)`: a stand-in with the same words takes the lock's place, so
/// that the name is never vacant while it is not certain what came out, and then goes. The
/// stand-in is held with `flock(2)` from before it is visible, so nobody breaks it.
///
/// Nothing keeps two releases of this kind apart but their drafts, which everybody can
/// see: each makes its own first, looks for others, and steps back if there are any. So at most
/// one is between that look and the exchange, and none exchanges what another has put there.
pub(crate) fn release(
    directory: &Directory,
    name: &Name,
    opened: &OpenFile,
    prefix: &OsStr,
) -> Result<Attempt, Error> {
    let age = Age::of([opened.modified()], SystemTime::now());
    if opened.status().mode & STAND_IN != 0 && !age.reaches(LIVING_DRAFT) {
        // Another release of the same lock is at this point, or was killed there.
        return Ok(Attempt::Changed);
    }
    let claim = NewFile {
        content: opened.content(),
        mode: (opened.status().mode & 0o666) | STAND_IN,
        prefix,
        durability: Durability::Memory,
    };
    // All releases of this lock past a `flock(2)` see each other by this name.
    let private = PrivateName::new(directory, temporary::for_release(prefix, Pid::this(), name));
    // Outsiders may not open it before `flock(2)` on it is ours.
    let hold = |file: &File| sys::try_lock_inode(file)?.then_some(()).ok_or(Errno::WOULDBLOCK);
    let draft = private.and_then(|private| Draft::write(private, &claim, hold));
    let draft = draft.map_err(Error::at(Step::Prepare, name))?;
    if others_release(directory, name, opened, &draft)? {
        return Ok(Attempt::Changed);
    }
    match (Exchange { directory, name, opened, claim: &claim }).run(draft, Otherwise::Rename)? {
        Attempt::Done(held) => remove_stand_in(directory, name, &claim, &held),
        Attempt::Changed | Attempt::Contended => Ok(Attempt::Changed),
    }
}

/// Whether another release of this lock past a `flock(2)` is on its way. Drafts of the dead do
/// not count, nor those of users that may not remove the lock: they may be planted. One that is
/// older than the lock is for an earlier one, and its maker too late as a rule.
fn others_release(
    directory: &Directory,
    name: &Name,
    opened: &OpenFile,
    own: &Draft<'_>,
) -> Result<bool, Error> {
    let listed = sys::list(directory).map_err(|errno| Error::new(Step::List, ".", errno))?;
    let now = SystemTime::now();
    let owners = [0, sys::own_user(), opened.status().owner];
    Ok(listed.iter().filter(|other| *other != own.private.as_os_str()).any(|other| {
        let Some(maker) = temporary::releaser(other, name.as_os_str()) else { return false };
        let Ok(stat) = sys::inspect(directory, other) else { return false };
        let age = Age::of([stat.modified], now);
        let is_older = stat.modified < opened.modified();
        let most = if is_older { ANY_DRAFT } else { LIVING_DRAFT };
        stat.mode & STAND_IN != 0
            && owners.contains(&stat.owner)
            // Its maker may have a number of its own in a container.
            && (!age.reaches(most) && lives(maker) || !age.reaches(ANY_DRAFT) && !is_older)
    }))
}

/// The last step of a release past a `flock(2)`: only the stand-in goes, and not if a program has written its own number into
/// it. While a breaker has it aside, it is about to put it back.
fn remove_stand_in(
    directory: &Directory,
    name: &Name,
    claim: &NewFile<'_>,
    held: &Published,
) -> Result<Attempt, Error> {
    for _ in 0..TRIES_TO_EXCHANGE_BACK {
        match directory.read(name, claim.content.len().saturating_add(1))? {
            Found::File(there) if there.identity() == held.identity => {
                if there.content() != claim.content {
                    return Ok(Attempt::Done(()));
                }
                match (Exchange { directory, name, opened: &there, claim }).remove()? {
                    Attempt::Done(()) => return Ok(Attempt::Done(())),
                    Attempt::Changed | Attempt::Contended => {}
                }
            }
            Found::File(_) | Found::Nothing | Found::Obstacle(_) if held.has_a_name() => {}
            Found::File(_) | Found::Nothing | Found::Obstacle(_) => return Ok(Attempt::Done(())),
        }
    }
    Ok(Attempt::Changed)
}
