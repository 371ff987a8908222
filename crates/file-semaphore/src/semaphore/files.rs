//! The lock files of a semaphore, one for each slot: opens, takes and reads them. Replaces no file that it did not read
//! and judge a moment ago, and never waits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pidlockfile::{
    Attempt, Directory, Found, Name, NewFile, Obstacle, Pid, Published, Status, Step,
};

use crate::config::Config;
use crate::error::{Error, InTheWay, PathProblem};
use crate::judge::{HeldStatus, Judge};
use crate::limits::{LONGEST_FILE, LONGEST_NAME, MODE_BITS, MOST_READINGS};
use crate::path::{self, Place};
use crate::record::{Holder, LockInfo, Tag};
use crate::semaphore::{Free, Guard, SlotStatus};
use crate::sys::line::Line;
use crate::sys::{now_seconds, number};
use crate::temporary::beside;

/// What is in the way of something, or else the thing.
pub(crate) type Tried<T> = Result<T, InTheWay>;

#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) directory: Directory,
    pub(crate) place: Place,
    pub(crate) names: Vec<Name>,
    pub(crate) config: Config,
    pub(crate) judge: Judge,
}

/// For what a lock is taken, and in whose name.
pub(crate) struct Claimant<'a> {
    pub(crate) tag: Option<&'a str>,
    /// Gives the holder to record; called only when the lock is about to be taken.
    pub(crate) holder: &'a mut dyn FnMut() -> Result<Holder, Error>,
}

impl Files {
    /// Follows symbolic links to their target, which need not exist; the parent directory must.
    pub(crate) fn open(path: &Path, config: Config) -> Result<Arc<Self>, Error> {
        let place = path::resolve(path)?;
        let names = slot_names(&place.name, config.slots.count()).ok_or_else(|| {
            Error::InvalidPath { path: path.to_owned(), problem: PathProblem::TooLong }
        })?;
        let directory = Directory::open(&place.directory)?;
        let judge = Judge::new(config);
        Ok(Arc::new(Self { directory, place, names, config, judge }))
    }

    /// Where the lock file is; with several slots the name they begin with.
    pub(crate) fn path(&self) -> PathBuf {
        self.path_of(&self.place.name)
    }

    /// Where a slot's lock file is.
    pub(crate) fn path_of(&self, name: &Name) -> PathBuf {
        self.place.directory.join(name)
    }

    /// Whether the path still leads to the open directory: a waiter in one that was moved away would
    /// wait for a lock that no other process means.
    pub(crate) fn check_place(&self) -> Result<(), Error> {
        let ours = self.directory.identity();
        let now = Status::of_path(&self.place.directory);
        match now.is_ok_and(|status| status.identity == ours) {
            true => Ok(()),
            false => Err(Error::InvalidPath { path: self.path(), problem: PathProblem::Moved }),
        }
    }

    /// The line of its waiters.
    pub(crate) fn line(&self) -> Line<'_> {
        Line { directory: &self.directory, lock: &self.place.name, mode: self.config.mode }
    }

    /// Errors of a file in the directory name it whole.
    pub(crate) fn located<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| error.within(&self.place.directory))
    }

    /// This process as a holder.
    pub(crate) fn own_holder(&self) -> Result<Holder, Error> {
        let pid = Pid::this();
        Holder::of(pid, self.judge.here()).ok_or(Error::NoHolder { pid: number(pid) })
    }

    /// Takes the first slot that is free or stale.
    pub(crate) fn attempt(
        self: &Arc<Self>,
        claimant: &mut Claimant<'_>,
    ) -> Result<Tried<Guard>, Error> {
        let mut first = InTheWay::default();
        for (index, name) in self.names.iter().enumerate() {
            match self.located(self.take(name, claimant))? {
                Ok((published, info)) => {
                    return Ok(Ok(Guard::new(
                        Arc::clone(self),
                        (index, name.clone()),
                        published,
                        info,
                    )));
                }
                Err(in_the_way) => first = first.or(in_the_way),
            }
        }
        Ok(Err(first))
    }

    /// Takes one slot if it is free or stale. Repeats itself only when the file changed between
    /// the look and the deed, which is somebody else's progress.
    fn take(
        &self,
        name: &Name,
        claimant: &mut Claimant<'_>,
    ) -> Result<Tried<(Published, LockInfo)>, Error> {
        for _ in 0..MOST_READINGS {
            match self.directory.read(name, LONGEST_FILE + 1)? {
                Found::Nothing => {
                    if let Some(taken) = self.publish(name, claimant)? {
                        return Ok(Ok(taken));
                    }
                }
                Found::File(judged) => {
                    let seen = self.judge.judge(&judged);
                    if !seen.stale {
                        return Ok(Err(seen.in_the_way(|| self.path_of(name))?));
                    }
                    let in_the_way = InTheWay::of(seen.lock_info());
                    let owner = judged.status().owner;
                    let info = self.info(claimant)?;
                    let text = info.to_text();
                    match self.directory.replace(name, judged, &self.words(name, &text)) {
                        Ok(Attempt::Done(published)) => return Ok(Ok((published, info))),
                        Ok(Attempt::Changed) => {}
                        // The process that is breaking it is about to hold it.
                        Ok(Attempt::Contended) => return Ok(Err(in_the_way)),
                        Err(error) if may_go(&error) => {
                            return Ok(Err(InTheWay { left_by: Some(owner), ..in_the_way }));
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Found::Obstacle(Obstacle::Unreadable) => return Ok(Err(InTheWay::default())),
                Found::Obstacle(Obstacle::Link | Obstacle::Directory | Obstacle::Special) => {
                    return Err(Error::Obstacle { path: self.path_of(name) });
                }
            }
        }
        Ok(Err(InTheWay::default()))
    }

    fn publish(
        &self,
        name: &Name,
        claimant: &mut Claimant<'_>,
    ) -> Result<Option<(Published, LockInfo)>, Error> {
        let info = self.info(claimant)?;
        let text = info.to_text();
        match self.directory.publish(name, &self.words(name, &text)) {
            Ok(published) => Ok(published.map(|published| (published, info))),
            // A cleaner in another pid namespace took our temporary file for an orphan.
            Err(error) if error.step == Step::Publish && is_absent(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn info(&self, claimant: &mut Claimant<'_>) -> Result<LockInfo, Error> {
        let tag = claimant.tag.and_then(|tag| Tag::clean_to(tag, self.config.longest_tag));
        Ok(LockInfo::new((claimant.holder)()?, now_seconds(), tag))
    }

    fn words<'a>(&self, name: &'a Name, text: &'a str) -> NewFile<'a> {
        let mut file = NewFile::new(text.as_bytes(), name);
        file.mode = self.config.mode & MODE_BITS;
        file.durability = self.config.durability;
        file
    }

    /// Every slot as it is now.
    pub(crate) fn status(&self) -> Result<Vec<SlotStatus>, Error> {
        let status = |name| {
            Ok(match self.directory.read(name, LONGEST_FILE + 1)? {
                Found::Nothing => SlotStatus::Free,
                Found::File(judged) => SlotStatus::Held(self.judge.judge(&judged)),
                Found::Obstacle(Obstacle::Unreadable) => SlotStatus::Held(HeldStatus::UNREADABLE),
                Found::Obstacle(Obstacle::Link | Obstacle::Directory | Obstacle::Special) => {
                    SlotStatus::Obstacle
                }
            })
        };
        self.names.iter().map(|name| self.located(status(name))).collect()
    }

    /// Whether a slot, or all, could be taken, or else the holder of the first that cannot.
    pub(crate) fn look(&self, wanted: Free) -> Result<Tried<()>, Error> {
        let mut first: Option<InTheWay> = None;
        for status in self.status()? {
            match status {
                SlotStatus::Held(held) if !held.stale => {
                    let in_the_way = held.in_the_way(|| self.path())?;
                    first = Some(first.unwrap_or_default().or(in_the_way));
                }
                SlotStatus::Free | SlotStatus::Held(_) if wanted == Free::One => return Ok(Ok(())),
                SlotStatus::Free | SlotStatus::Held(_) => {}
                SlotStatus::Obstacle => return Err(self.obstacle()),
            }
        }
        Ok(first.map_or(Ok(()), Err))
    }

    pub(crate) fn obstacle(&self) -> Error {
        Error::Obstacle { path: self.path() }
    }
}

/// Whether a stale lock could not be broken because it is another user's, in a sticky directory: that
/// one, or root, may yet remove it. On Windows nobody can be told apart so.
fn may_go(error: &pidlockfile::Error) -> bool {
    cfg!(unix) && error.step == Step::Break && error.is_not_permitted()
}

fn is_absent(error: &pidlockfile::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// The lock files of a semaphore, with room for the temporary name beside each.
fn slot_names(name: &Name, count: u32) -> Option<Vec<Name>> {
    let fits = |name: &Name| name.as_os_str().len() <= LONGEST_NAME;
    if count == 1 {
        return fits(name).then(|| vec![name.clone()]);
    }
    let slot = |number| beside(name, &format!(".{number}")).filter(fits);
    (1..=count).map(slot).collect()
}
