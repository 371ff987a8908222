//! The state directory apart from the records: the gate, and notes about locks that are being passed.

use pidlockfile::{Directory, Gate, Name};

use super::{Claimant, HolderRecords, Written, record_for};
use crate::lock::directories::may_be_in;
use crate::lock::holder_record::HolderRecord;

impl HolderRecords {
    /// The gate for breaking and removing locks: other users cannot lock a file in the state directory.
    #[must_use]
    pub(crate) fn gate(&self) -> Option<Gate> {
        self.directory()?.into_gate()
    }

    /// The state directory, for files that are more than records: their makers hold them by `flock(2)`.
    #[must_use]
    pub(crate) fn directory(&self) -> Option<Directory> {
        let handle = self.handle.as_ref()?.try_clone().ok()?;
        Some(Directory::from_handle(handle).ok()?.guarding())
    }

    /// Whether a file of that name may be there.
    #[must_use]
    pub(crate) fn may_have(&self, name: &Name) -> bool {
        self.handle.as_ref().is_some_and(|handle| may_be_in(handle, name))
    }

    /// The record for a lock with these files.
    pub(crate) fn record_for(
        &mut self,
        claimant: &Claimant,
        files: &[Written],
    ) -> Option<HolderRecord> {
        let names = files.iter().map(|file| file.name.clone()).collect();
        let record = record_for(claimant, files.first()?, names);
        record.to_text().is_some().then_some(record)
    }

    /// The first name of the lock that is recorded under this name.
    #[must_use]
    pub(crate) fn first_name(&self, name: &Name) -> Option<Name> {
        self.read(name)?.names.into_iter().next()
    }
}
