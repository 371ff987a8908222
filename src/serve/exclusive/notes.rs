//! The record of the ports that were made exclusive, for the next daemon if this one is killed: one symbolic link for
//! each device, in a directory of the state directory, with the record as its target. One system call makes it, one
//! reads it, and it is never half written.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, symlinkat, unlinkat};
use pidlockfile::Pid;
use pidlockfile::process::{ProcessIdentity, Start};
use ttylock::Numbers;

/// The directory in the state directory.
const DIRECTORY: &str = "exclusive";

/// At most so many records are read when a daemon starts.
const NOTES: usize = 4096;

/// One port that was made exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Note {
    pub(in crate::serve) device: Numbers,
    /// Its real name below `/dev`.
    pub(in crate::serve) port: String,
    /// The process that had the lock.
    pub(in crate::serve) pid: Pid,
    /// When that process started, and in which boot of the machine.
    start: u64,
    boot: String,
    /// The mark by which that use of the device is recognised.
    pub(in crate::serve) mark: Option<NonZeroU32>,
}

/// The directory.
#[derive(Debug)]
pub(in crate::serve) struct Notes(OwnedFd);

impl Note {
    /// None if the start of the process is unknown: it could not be identified later.
    pub(in crate::serve) fn new(
        device: Numbers,
        port: &str,
        who: &ProcessIdentity,
        mark: Option<NonZeroU32>,
    ) -> Option<Self> {
        let Start::At(start) = who.start else { return None };
        let (port, boot) = (port.to_owned(), who.here.boot.clone()?);
        Some(Self { device, port, pid: who.pid, start, boot, mark })
    }

    /// Whether the record is about that process.
    pub(in crate::serve) fn is_of(&self, who: &ProcessIdentity) -> bool {
        who.pid == self.pid
            && who.start == Start::At(self.start)
            && who.here.boot.as_ref() == Some(&self.boot)
    }

    fn to_text(&self) -> String {
        let Self { device: _, port, pid, start, boot, mark } = self;
        let mark = mark.map_or(0, NonZeroU32::get);
        format!("pid={pid} start={start} boot={boot} mark={mark} port={port}")
    }

    fn from_text(device: Numbers, text: &str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        let mut field = |key: &str| words.next()?.strip_prefix(key);
        let pid = Pid::parse(field("pid=")?.as_bytes()).ok()?;
        let start = field("start=")?.parse().ok()?;
        let boot = field("boot=")?.to_owned();
        let mark = NonZeroU32::new(field("mark=")?.parse().ok()?);
        let port = field("port=")?.to_owned();
        Some(Self { device, port, pid, start, boot, mark })
    }
}

fn name_of(device: Numbers) -> String {
    format!("{}:{}", device.major, device.minor)
}

fn device_of(name: &str) -> Option<Numbers> {
    let (major, minor) = name.split_once(':')?;
    Some(Numbers { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

impl Notes {
    /// Opens the directory, and creates it if the option needs it.
    ///
    /// # Errors
    /// The system's; `EPERM` if other users could write there, too.
    pub(in crate::serve) fn open(state_dir: &Path, is_new: bool) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let state = nix::fcntl::open(state_dir, flags, Mode::empty())?;
        if is_new {
            match mkdirat(&state, DIRECTORY, Mode::S_IRWXU) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let directory = openat(&state, DIRECTORY, flags, Mode::empty())?;
        let owner = fstat(&directory)?;
        // A directory that others can write proves nothing.
        let is_ours =
            owner.st_uid == geteuid().as_raw() || owner.st_uid == 0 || geteuid().is_root();
        if !is_ours || owner.st_mode & 0o022 != 0 {
            return Err(Errno::EPERM.into());
        }
        Ok(Self(directory))
    }

    /// Records a port, and replaces an earlier record of it.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::serve) fn write(&self, note: &Note) -> io::Result<()> {
        self.remove(note.device)?;
        Ok(symlinkat(note.to_text().as_str(), &self.0, name_of(note.device).as_str())?)
    }

    /// Removes a record: the exclusive mode is no longer ours.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::serve) fn remove(&self, device: Numbers) -> io::Result<()> {
        match unlinkat(&self.0, name_of(device).as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// All records.
    pub(in crate::serve) fn all(&self) -> Vec<Note> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let listing = nix::dir::Dir::openat(&self.0, ".", flags, Mode::empty());
        let Ok(mut listing) = listing else { return Vec::new() };
        let names = listing.iter().map_while(Result::ok).take(NOTES);
        let devices = names.filter_map(|it| device_of(it.file_name().to_str().ok()?));
        let read = |device| {
            let text = readlinkat(&self.0, name_of(device).as_str()).ok()?;
            Note::from_text(device, text.to_str()?)
        };
        devices.filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::Arc;

    use pidlockfile::process::Here;
    use rstest::rstest;

    use super::*;

    const DEVICE: Numbers = Numbers { major: 188, minor: 0 };

    fn who(start: Start) -> ProcessIdentity {
        let here = Here { boot: Some("b-1".to_owned()), ..Here::default() };
        ProcessIdentity { pid: Pid::new(12).unwrap(), start, here: Arc::new(here) }
    }

    fn note(mark: u32) -> Note {
        let mark = NonZeroU32::new(mark);
        Note::new(DEVICE, "usb/a b", &who(Start::At(9)), mark).unwrap()
    }

    #[test]
    fn written_notes_are_read_back() {
        let state = tempfile::tempdir().unwrap();
        assert!(Notes::open(state.path(), false).is_err(), "nothing was ever written");
        let notes = Notes::open(state.path(), true).unwrap();
        notes.write(&note(0)).unwrap();
        notes.write(&note(77)).unwrap();
        let other = Note { device: Numbers { major: 4, minor: 64 }, ..note(0) };
        notes.write(&other).unwrap();
        let again = Notes::open(state.path(), false).unwrap();
        let mut all = again.all();
        all.sort_by_key(|note| note.device.major);
        assert_eq!(all, [other, note(77)]);
        notes.remove(DEVICE).unwrap();
        notes.remove(DEVICE).unwrap();
        assert_eq!(again.all().len(), 1);
    }

    #[test]
    fn a_note_is_about_one_process() {
        assert!(note(1).is_of(&who(Start::At(9))));
        assert!(!note(1).is_of(&who(Start::At(10))));
        assert!(!note(1).is_of(&ProcessIdentity { here: Arc::default(), ..who(Start::At(9)) }));
        assert_eq!(Note::new(DEVICE, "ttyUSB0", &who(Start::Untold), None), None);
    }

    /// Invalid records are skipped, and records that others could have written are not believed.
    #[rstest]
    #[case::cut("pid=12 start=9 boot=b")]
    #[case::a_number_too_large("pid=12 start=9 boot=b mark=4294967296 port=ttyS0")]
    #[case::no_process("pid=0 start=9 boot=b mark=1 port=ttyS0")]
    #[case::anything("/etc/passwd")]
    fn invalid_or_forgeable_notes_are_not_believed(#[case] text: &str) {
        let state = tempfile::tempdir().unwrap();
        let notes = Notes::open(state.path(), true).unwrap();
        symlink(text, state.path().join("exclusive/4:64")).unwrap();
        symlink(note(1).to_text(), state.path().join("exclusive/other")).unwrap();
        fs::write(state.path().join("exclusive/4:65"), "").unwrap();
        assert_eq!(notes.all(), []);
        let everybodys = Permissions::from_mode(0o777);
        fs::set_permissions(state.path().join("exclusive"), everybodys).unwrap();
        assert!(Notes::open(state.path(), true).is_err());
    }
}
