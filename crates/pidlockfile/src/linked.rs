//! One lock file with several names: hard links to one file, which was written once.

use std::time::{Duration, SystemTime};

use crate::directory::Directory;
use crate::draft::{Draft, NewFile, PrivateName, Published};
use crate::errno::Errno;
use crate::error::{Error, Step};
use crate::exchange::{Attempt, Otherwise};
use crate::found::{CONTENT_BYTES, Found, OpenFile};
use crate::gate::Passage;
use crate::name::Name;
use crate::status::{Identity, Status};
use crate::sys;
use crate::temporary;

/// A complete lock file that has a private name, and is given the names of a lock: [`Directory::linked`].
///
/// If a process is killed meanwhile, the file has some of its names. The private name is swept.
#[derive(Debug)]
pub struct Linked<'d> {
    directory: &'d Directory,
    claim: NewFile<'d>,
    draft: Draft<'d>,
}

impl Directory {
    /// Writes a lock file that gets its names afterwards. Several names only on a file system that shows one file under
    /// all of them, and counts them: some in user space do neither.
    ///
    /// # Errors
    /// [`Step::Prepare`] with the system's reason; nothing is left behind.
    pub fn linked<'d>(&'d self, claim: &NewFile<'d>) -> Result<Linked<'d>, Error> {
        let draft = Draft::new(self, claim);
        let draft = draft.map_err(|errno| Error::new(Step::Prepare, ".", errno))?;
        Ok(Linked { directory: self, claim: *claim, draft })
    }

    /// Undoes [`Linked::exchange`]: a name and a private one change places once more, if the name leads to the judged file,
    /// which is held.
    ///
    /// # Errors
    /// As [`Directory::replace`].
    pub fn exchange_again(
        &self,
        name: &Name,
        private: &Name,
        opened: &mut OpenFile,
    ) -> Result<Attempt, Error> {
        let failed = Error::at(Step::Inspect, private);
        let file = opened.try_clone().map_err(|error| failed(sys::errno(&error)))?;
        let there = || {
            let seen = self.find(private.as_os_str()).map_err(&failed)?;
            let Some(Status { identity, modified, .. }) = seen else { return Ok(None) };
            let private = PrivateName::new(self, private.as_os_str().to_owned());
            let private = private.map_err(&failed)?;
            Ok(Some(Draft { private, made: Published { file, identity, modified } }))
        };
        let claim = NewFile::new(&[], "");
        Ok(self.exchange_held(name, opened, &claim, there, Otherwise::Fail)?.map(|_| ()))
    }

    /// Removes a private name of a file that has, or had, a name of a lock.
    ///
    /// # Errors
    /// [`Step::Remove`] with the system's reason, also if it is no private name.
    pub fn discard(&self, private: &Name) -> Result<(), Error> {
        let failed = Error::at(Step::Remove, private);
        if private.further_temporary(0).is_none() {
            return Err(failed(Errno::INVAL));
        }
        match sys::unlink(self, private.as_os_str()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }
}

impl Name {
    /// The name of a further link to the temporary file of this name, which has a number: [`Linked::exchange`]. `None` if
    /// this is no name of a temporary file.
    #[must_use]
    pub fn further_temporary(&self, number: usize) -> Option<Self> {
        Self::new(temporary::further(self.as_str(), number)?)
    }
}

impl Linked<'_> {
    /// Which file it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.draft.made.identity
    }

    /// When it was written, by the file system's clock.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        self.draft.made.modified
    }

    /// The name that it has until it has those of a lock.
    #[must_use]
    pub fn private_name(&self) -> &Name {
        self.draft.private.name()
    }

    /// Gives it a time a whole second earlier: an earlier file may have had its number and its time.
    ///
    /// # Errors
    /// [`Step::Prepare`] with the system's reason.
    pub fn make_earlier(&mut self) -> Result<(), Error> {
        let made = &mut self.draft.made;
        let earlier = made.modified.checked_sub(Duration::from_secs(1));
        let set = made.file.set_modified(earlier.unwrap_or(SystemTime::UNIX_EPOCH));
        let seen =
            set.map_err(|error| sys::errno(&error)).and_then(|()| sys::stat_open(&made.file));
        made.modified = seen.map_err(|errno| Error::new(Step::Prepare, ".", errno))?.modified;
        Ok(())
    }

    /// Gives it a name. An existing name is never replaced: `false` if the name is taken.
    ///
    /// # Errors
    /// As [`Directory::publish`]; there may be no hard links.
    pub fn publish(&self, name: &Name) -> Result<bool, Error> {
        self.draft.link(name).map_err(Error::at(Step::Publish, name))
    }

    /// Gives it the last of its names. Where possible, the private name is renamed to it, and no further name can be
    /// given then. Where there are no hard links, the name may lead to another file that says the same. As
    /// [`Linked::publish`] otherwise.
    ///
    /// # Errors
    /// As [`Directory::publish`].
    pub fn publish_last(&mut self, name: &Name) -> Result<bool, Error> {
        let given = self.draft.name_last(name, &self.claim);
        Ok(given.map_err(Error::at(Step::Publish, name))?.is_some())
    }

    /// Breaks a stale lock: what has the name and one more link change places. As [`Directory::replace`] otherwise.
    ///
    /// # Errors
    /// As [`Directory::replace`]; [`Step::Prepare`] where there are no hard links.
    pub fn replace(&self, name: &Name, opened: &mut OpenFile) -> Result<Attempt, Error> {
        let Self { directory, claim, .. } = self;
        // The `flock(2)` stays with the draft's descriptor.
        let link = || self.one_more().map_err(Error::at(Step::Prepare, name)).map(Some);
        Ok(directory.exchange_held(name, opened, claim, link, Otherwise::Rename)?.map(|_| ()))
    }

    /// The same where there are no hard links: it changes places itself, so this is its only name. Where files cannot change
    /// places either, it takes the place of the lock, so that the name is never vacant.
    ///
    /// # Errors
    /// As [`Directory::replace`]. Whatever the outcome, it can get no further name then.
    pub fn replace_alone(&mut self, name: &Name, opened: &mut OpenFile) -> Result<Attempt, Error> {
        let Self { directory, claim, draft } = self;
        let alone = || {
            let made = draft.made.again().map_err(Error::at(Step::Prepare, name))?;
            Ok(Some(Draft { private: draft.private.take(), made }))
        };
        Ok(directory.exchange_held(name, opened, claim, alone, Otherwise::Supplant)?.map(|_| ()))
    }

    /// Lets a name of another lock and one more link to this file change places in one step. What had the name keeps the
    /// private name of that link, [`Name::further_temporary`] of this number, until the caller discards it
    /// ([`Directory::discard`]): with it, [`Directory::exchange_again`] undoes this.
    ///
    /// # Errors
    /// As [`Directory::replace`]; also where files cannot change places.
    pub fn exchange(
        &self,
        name: &Name,
        opened: &mut OpenFile,
        number: usize,
    ) -> Result<Attempt, Error> {
        let Self { directory, claim, draft } = self;
        let link = || {
            let further = draft.private.name().further_temporary(number).ok_or(Errno::INVAL)?;
            let private = PrivateName::new(directory, further.as_os_str().to_owned())?;
            let made = draft.made.again()?;
            sys::link(*directory, draft.private.as_os_str(), private.as_os_str())?;
            Ok(Some(Draft { private, made }))
        };
        let link = || link().map_err(Error::at(Step::Prepare, name));
        Ok(directory.exchange_held(name, opened, claim, link, Otherwise::Fail)?.map(|_| ()))
    }

    /// The file as read by its private name, with the `flock(2)` on it, for a caller in the gate.
    ///
    /// # Errors
    /// As [`Directory::read`]; [`Step::Inspect`] if the private name is gone.
    pub fn held(&self, passage: Option<&Passage>) -> Result<OpenFile, Error> {
        let Self { directory, draft, .. } = self;
        let name = draft.private.name();
        let gone = Error::new(Step::Inspect, name, Errno::NOENT);
        let Found::File(mut opened) = directory.read(name, CONTENT_BYTES)? else {
            return Err(gone);
        };
        opened.hold_by(draft.made.again().map_err(Error::at(Step::Prepare, name))?);
        passage.into_iter().for_each(|passage| opened.enter_by(passage.clone()));
        Ok(opened)
    }

    /// Leaves everything as it is, as if the process were killed now.
    pub fn leave(mut self) {
        self.draft.private.forget();
    }

    /// The file with the names that it was given. The private name goes.
    #[must_use]
    pub fn finish(self) -> Published {
        let Draft { private, made } = self.draft;
        drop(private);
        made
    }

    /// The same file by a second private name.
    fn one_more(&self) -> Result<Draft<'_>, Errno> {
        let Self { directory, claim, draft } = self;
        let mut private = PrivateName::fresh(directory, claim.prefix)?;
        let made = draft.made.again()?;
        // Before: an answer can get lost.
        private.keep_clean();
        sys::link(*directory, draft.private.as_os_str(), private.as_os_str())?;
        Ok(Draft { private, made })
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const WORDS: &str = "        77\n";

    /// A free name, a taken one and a stale lock: afterwards, all but the taken name lead to one file.
    #[test]
    fn names_of_a_lock_are_links_to_one_file() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let [free, taken, stale] = ["LCK..a", "LCK..b", "LCK..c"].map(|it| Name::new(it).unwrap());
        std::fs::write(path("LCK..b"), "held").unwrap();
        std::fs::write(path("LCK..c"), "stale").unwrap();
        let directory = Directory::open(scratch.path()).unwrap().guarding();
        let claim = NewFile::new(WORDS.as_bytes(), "t");
        let linked = directory.linked(&claim).unwrap();
        assert_eq!((linked.publish(&free), linked.publish(&taken)), (Ok(true), Ok(false)));
        let Ok(Found::File(mut opened)) = directory.read(&stale, 64) else { panic!("it is there") };
        assert!(matches!(linked.replace(&stale, &mut opened), Ok(Attempt::Done(()))));
        let published = linked.finish();
        let Status { links, modified, .. } = Status::of_open(&published.file).unwrap();
        assert_eq!((links, modified), (2, published.modified));
        for name in ["LCK..a", "LCK..c"] {
            assert_eq!(path(name).metadata().unwrap().ino(), published.identity.inode);
        }
        assert_eq!(std::fs::read_to_string(path("LCK..b")).unwrap(), "held");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 3);
        // It is held by `flock(2)` until it is let go, whichever link was made.
        let Ok(Found::File(opened)) = directory.read(&free, 64) else { panic!("it is there") };
        assert!(!opened.try_hold().unwrap());
        published.close();
        assert!(opened.try_hold().unwrap());
    }

    /// A name goes from one lock to another and back. What had it keeps a private name meanwhile; each name has its own.
    #[test]
    fn a_name_that_was_exchanged_is_exchanged_back() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &Name| scratch.path().join(name.as_str());
        let inode = |name: &Name| path(name).metadata().unwrap().ino();
        let names = ["LCK..a", "LCK..b"].map(|it| Name::new(it).unwrap());
        std::fs::write(path(&names[0]), "giver").unwrap();
        std::fs::hard_link(path(&names[0]), path(&names[1])).unwrap();
        let giver = inode(&names[0]);
        let directory = Directory::open(scratch.path()).unwrap().guarding();
        let claim = NewFile::new(WORDS.as_bytes(), "t");
        let linked = directory.linked(&claim).unwrap();
        let receiver = linked.identity().inode;
        let read = |name: &Name| match directory.read(name, 64) {
            Ok(Found::File(opened)) => opened,
            other => panic!("{other:?}"),
        };
        let mut opened = read(&names[0]);
        for (number, name) in names.iter().enumerate() {
            let exchanged = linked.exchange(name, &mut opened, number);
            assert!(matches!(exchanged, Ok(Attempt::Done(()))), "{exchanged:?}");
            let private = linked.private_name().further_temporary(number).unwrap();
            assert_eq!((inode(name), inode(&private)), (receiver, giver));
        }
        let private = |number| linked.private_name().further_temporary(number).unwrap();
        let mut held = linked.held(None).unwrap();
        let back = directory.exchange_again(&names[1], &private(1), &mut held);
        assert!(matches!(back, Ok(Attempt::Done(()))), "{back:?}");
        assert_eq!((inode(&names[1]), inode(&private(1))), (giver, receiver));
        // Once more, it leads to another file by now.
        let back = directory.exchange_again(&names[1], &private(1), &mut held);
        assert!(matches!(back, Ok(Attempt::Changed)), "{back:?}");
        assert_eq!((inode(&names[1]), inode(&private(1))), (giver, receiver));
        assert!(directory.discard(&names[0]).is_err());
        for number in 0..3 {
            directory.discard(&private(number)).unwrap();
        }
        drop(linked.finish());
        let mut left: Vec<_> =
            directory.names().unwrap().iter().map(|it| it.as_str().to_owned()).collect();
        left.sort();
        assert_eq!(left, ["LCK..a", "LCK..b"]);
    }
}
