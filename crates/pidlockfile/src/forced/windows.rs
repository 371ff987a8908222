//! Windows: a process that has a lock file open without sharing it keeps even the owner from removing it;
//! nothing can be done about that.

use std::ffi::OsStr;

use crate::directory::Directory;
use crate::errno::Errno;
use crate::error::{Error, Step};
use crate::exchange::Attempt;
use crate::found::Judged;
use crate::name::Name;

/// Names the process in the way.
pub(crate) fn release(
    _directory: &Directory,
    name: &Name,
    _judged: &Judged,
    _prefix: &OsStr,
) -> Result<Attempt, Error> {
    Err(Error::new(Step::Exclude, name, Errno::EBUSY))
}
