//! Creates a lock in an open directory, complete or not at all.

use crate::directory::Directory;
use crate::draft::{self, Claim, Draft, Given, Published};
use crate::errno::Errno;
use crate::error::{Error, Step};
use crate::name::Name;

/// The answer to [`Directory::publish`].
#[derive(Debug)]
pub enum Publication {
    /// The lock is ours, and visible.
    Published(Published),
    /// The name is taken; nothing was changed.
    AlreadyThere,
}

impl Publication {
    /// A name that no longer leads to the new file was taken by somebody else.
    fn of(published: Option<Published>) -> Self {
        published.map_or(Self::AlreadyThere, Self::Published)
    }
}

impl Directory {
    /// Creates a lock, complete or not at all. An existing name is never replaced.
    ///
    /// The finished temporary file is renamed to the name without replacing; where that is
    /// unknown, it is linked to it; where there are no hard links either, the lock is created
    /// exclusively and filled in place, as the old programs do.
    ///
    /// # Errors
    /// [`Step::Prepare`] or [`Step::Publish`] with the system's reason; nothing is left behind.
    pub fn publish(&self, name: &Name, claim: &Claim<'_>) -> Result<Publication, Error> {
        let draft = Draft::new(self, claim).map_err(Error::at(Step::Prepare, name))?;
        self.publish_draft(name, claim, draft)
            .map_err(|errno| Error::new(Step::Publish, name, errno))
    }

    pub(crate) fn publish_draft(
        &self,
        name: &Name,
        claim: &Claim<'_>,
        mut draft: Draft<'_>,
    ) -> Result<Publication, Errno> {
        Ok(Publication::of(match draft.give_name(name)? {
            given @ (Given::Renamed | Given::Linked) => draft.published(name, given),
            Given::Taken => None,
            Given::Unsupported => draft::create_in_place(self, name, claim)?,
        }))
    }
}
