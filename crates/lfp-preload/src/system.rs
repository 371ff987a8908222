//! Reads small system files directly, bypassing the C library and our own calls; and says with it whose locks are this
//! process's as well.

use pidlockfile::Pid;
use pidlockfile::process::{Stat, shares_locks_of};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, read};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 2048;

/// The whole file, or as much of it as is asked for.
pub(crate) fn read_file(path: &str, most: usize) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = openat(CWD, path, flags, Mode::empty()).ok()?;
    let mut all = Vec::new();
    let mut piece = [0; PIECE_BYTES];
    while all.len() < most {
        match read(&file, &mut piece) {
            Ok(0) => break,
            Ok(length) => all.extend_from_slice(piece.get(..length)?),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(all)
}

/// More than the longest `/proc/PID/stat`.
const STAT_BYTES: usize = 2048;

/// Whether a lock of `holder` is this process's as well, by the rule of `lfp run`.
pub(crate) fn shares_locks_of_holder(holder: Pid) -> bool {
    shares_locks_of(holder, parent)
}

/// Read past the C library: its calls are our own here.
fn parent(child: Pid) -> Option<Pid> {
    Pid::new(Stat::parse(&read_file(&format!("/proc/{child}/stat"), STAT_BYTES)?)?.parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_to_the_end_or_to_the_bound() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        std::fs::write(&path, "x".repeat(PIECE_BYTES * 2)).unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(read_file(path, usize::MAX).unwrap().len(), PIECE_BYTES * 2);
        assert_eq!(read_file(path, 1).unwrap().len(), PIECE_BYTES);
        assert_eq!(read_file("/nowhere", 1), None);
    }
}
