//! The file that keeps fences growing: eight bytes, big-endian, a number that is not smaller than any granted
//! fence. It is written in advance, once in a million grants.

use super::regular::{self, Links};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The greatest number that may be read: above it, too few fences are left.
const MOST: u64 = u64::MAX - (1 << 40);

/// An open fence state file.
#[derive(Debug)]
pub struct FenceFile {
    file: File,
    stored: u64,
}

impl FenceFile {
    /// Opens the file, or creates it with access for its owner only.
    ///
    /// # Errors
    /// An error of the system; [`ErrorKind::InvalidData`] if the file is neither empty nor eight bytes long.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = regular::open(nix::fcntl::AT_FDCWD, path, 0o600, Links::Follow)?;
        let length = file.metadata()?.len();
        let mut bytes = [0; 8];
        match length {
            0 => {}
            8 => file.read_exact_at(&mut bytes, 0)?,
            _ => return Err(io::Error::new(ErrorKind::InvalidData, "not a fence state file")),
        }
        let stored = u64::from_be_bytes(bytes);
        if stored > MOST {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the number is too great for a fence",
            ));
        }
        if length == 0 {
            // Written now rather than at the first grant: now an administrator is there to correct an error.
            file.write_all_at(&bytes, 0)?;
            file.sync_all()?;
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
        }
        Ok(Self { file, stored })
    }

    /// No fence up to this number may be given out again.
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// Records on the disk that fences up to `fence` may be given out.
    ///
    /// # Errors
    /// An error of the system.
    pub fn reserve(&self, fence: u64) -> io::Result<()> {
        self.file.write_all_at(&fence.to_be_bytes(), 0)?;
        self.file.sync_data()
    }
}
