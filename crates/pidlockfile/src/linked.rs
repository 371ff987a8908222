//! One lock file with several names: hard links to one file, which was written once.

use crate::directory::Directory;
use crate::draft::{Draft, NewFile, PrivateName, Published};
use crate::errno::Errno;
use crate::error::{Error, Step};
use crate::exchange::{Attempt, Exchange};
use crate::found::Judged;
use crate::name::Name;
use crate::sys;

/// A complete lock file that has a private name, and is given the names of a lock: [`Directory::linked`].
///
/// If a process is killed meanwhile, the file has some of its names. The private name is swept.
#[derive(Debug)]
pub struct Linked<'d> {
    directory: &'d Directory,
    claim: NewFile<'d>,
    draft: Draft<'d>,
}

/// What has the name now.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "the caller acts on each")]
pub enum Given {
    /// The file, by one more link.
    Link,
    /// A file of its own that says the same: the file can have no further link here.
    File(Published),
}

impl Directory {
    /// Writes a lock file that is to have several names. Only for a file system that shows one file under all of them, and
    /// counts them: some in user space do neither.
    ///
    /// # Errors
    /// [`Step::Prepare`] with the system's reason; nothing is left behind.
    pub fn linked<'d>(&'d self, claim: &NewFile<'d>) -> Result<Linked<'d>, Error> {
        let draft = Draft::new(self, claim);
        let draft = draft.map_err(|errno| Error::new(Step::Prepare, ".", errno))?;
        Ok(Linked { directory: self, claim: *claim, draft })
    }
}

impl Linked<'_> {
    /// Gives it a name. An existing name is never replaced: `None` if the name is taken.
    ///
    /// # Errors
    /// As [`Directory::publish`].
    pub fn publish(&self, name: &Name) -> Result<Option<Given>, Error> {
        let Self { directory, claim, draft } = self;
        match sys::link(*directory, draft.private.as_os_str(), name.as_os_str()) {
            Ok(()) => Ok(Some(Given::Link)),
            Err(errno) if has_no_room(errno) => {
                Ok(directory.publish(name, claim)?.map(Given::File))
            }
            // The answer got lost, the deed was done.
            Err(_) if draft.has(name) => Ok(Some(Given::Link)),
            Err(Errno::EEXIST) => Ok(None),
            Err(errno) => Err(Error::new(Step::Publish, name, errno)),
        }
    }

    /// Breaks a stale lock: what has the name and one more link change places. As [`Directory::replace`] otherwise.
    ///
    /// # Errors
    /// As [`Directory::replace`].
    pub fn replace(&self, name: &Name, mut judged: Judged) -> Result<Attempt<Given>, Error> {
        let Self { directory, claim, draft } = self;
        match directory.hold(name, &mut judged)? {
            Attempt::Done(()) => {}
            // What comes out is looked at in any case.
            Attempt::Contended if judged.ignores_flock() => {}
            Attempt::Contended => return Ok(Attempt::Contended),
            Attempt::Changed => return Ok(Attempt::Changed),
        }
        let link = match self.one_more() {
            Err(errno) if has_no_room(errno) => Draft::new(directory, claim),
            link => link,
        };
        let link = link.map_err(Error::at(Step::Prepare, name))?;
        let exchange = Exchange { directory, name, judged: &judged, claim };
        Ok(match exchange.run(link)? {
            // The `flock(2)` stays with the draft's descriptor.
            Attempt::Done(there) if there.identity == draft.made.identity => {
                Attempt::Done(Given::Link)
            }
            Attempt::Done(there) => Attempt::Done(Given::File(there)),
            Attempt::Changed => Attempt::Changed,
            Attempt::Contended => Attempt::Contended,
        })
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
        let file = draft.made.file.try_clone().map_err(|error| sys::errno(&error))?;
        // Before: an answer can get lost.
        private.keep_clean();
        sys::link(*directory, draft.private.as_os_str(), private.as_os_str())?;
        Ok(Draft { private, made: Published { file, ..draft.made } })
    }
}

/// There are no hard links, or there is none of this file, or no further one.
fn has_no_room(errno: Errno) -> bool {
    matches!(errno, Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EMLINK)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::{Found, Status};

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
        assert!(matches!(linked.publish(&free), Ok(Some(Given::Link))));
        assert!(matches!(linked.publish(&taken), Ok(None)));
        let Ok(Found::File(judged)) = directory.read(&stale, 64) else { panic!("it is there") };
        assert!(matches!(linked.replace(&stale, judged), Ok(Attempt::Done(Given::Link))));
        let published = linked.finish();
        let Status { links, modified, .. } = Status::of_open(&published.file).unwrap();
        assert_eq!((links, modified), (2, published.modified));
        for name in ["LCK..a", "LCK..c"] {
            assert_eq!(path(name).metadata().unwrap().ino(), published.identity.inode);
        }
        assert_eq!(std::fs::read_to_string(path("LCK..b")).unwrap(), "held");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 3);
        // It is held by `flock(2)` until it is let go, whichever link was made.
        let Ok(Found::File(judged)) = directory.read(&free, 64) else { panic!("it is there") };
        assert!(!judged.try_hold().unwrap());
        published.close();
        assert!(judged.try_hold().unwrap());
    }
}
