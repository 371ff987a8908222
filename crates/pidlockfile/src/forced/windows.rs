//! Windows: a process that has a lock file open without sharing it keeps even the owner from removing it;
//! nothing can be done about that.

use std::ffi::OsStr;

use crate::breaking::Removal;
use crate::directory::Directory;
use crate::errno::Errno;
use crate::error::{Error, Step};
use crate::found::Judged;
use crate::name::Name;

impl Directory {
    /// Names the process in the way.
    #[expect(clippy::unused_self, reason = "on other systems there is more to do")]
    pub(crate) fn release_past(
        &self,
        name: &Name,
        _judged: &Judged,
        _prefix: &OsStr,
    ) -> Result<Removal, Error> {
        Err(Error::new(Step::Exclude, name, Errno::EBUSY))
    }
}
