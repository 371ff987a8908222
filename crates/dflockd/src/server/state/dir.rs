//! The state directory's files: opened, locked against a second server, read once, written.

use super::codec::BootId;
use super::ledger::Disk;
use super::load::{Clocks, Loaded, load};
use nix::fcntl::{Flock, FlockArg};
use nix::time::{ClockId, clock_gettime};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The two files that take turns.
const NAMES: [&str; 2] = ["holds.0", "holds.1"];
/// Who has the directory, for people.
const OWNER: &str = "owner";
/// More than this is no state of ours.
const MOST_BYTES: u64 = 4 << 30;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The clock that runs from the start of the machine, also while it sleeps.
#[cfg(not(target_vendor = "apple"))]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(target_vendor = "apple")]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// A state directory that is ours alone, as it was found.
#[derive(Debug)]
pub struct StateDir {
    /// Held for as long as the process lives.
    _lock: Flock<File>,
    files: Files,
    boot: BootId,
    synced: bool,
    found: Mutex<Option<Loaded>>,
}

/// The two files; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Files([Arc<File>; 2]);

impl StateDir {
    /// Makes the directory if it is not there, and reads what it has. With `synced` everything is
    /// to be on the disk before anybody is told.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::ResourceBusy`] when another server has it.
    pub fn open(path: &Path, synced: Synced) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(err) if err.kind() == ErrorKind::AlreadyExists => {}
            result => result?,
        }
        let directory = File::open(path)?;
        let lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| taken(path, errno))?;
        let owner = format!("{}\n", std::process::id());
        let mut note = OpenOptions::new();
        note.write(true).create(true).truncate(true).mode(0o644);
        io::Write::write_all(&mut note.open(path.join(OWNER))?, owner.as_bytes())?;
        let mut contents = [Vec::new(), Vec::new()];
        let mut files = Vec::new();
        for (name, content) in NAMES.iter().zip(&mut contents) {
            files.push(Arc::new(open(&path.join(name), content)?));
        }
        // The names must outlive the power, too.
        lock.sync_all()?;
        let files = files.try_into().map_err(|_| io::Error::other("two files"))?;
        let boot = boot_id();
        let [first, second] = &contents;
        let found = load([first, second], &boot, clocks());
        let synced = synced == Synced::Yes;
        Ok(Self { _lock: lock, files: Files(files), boot, synced, found: Mutex::new(Some(found)) })
    }

    pub(super) const fn boot(&self) -> BootId {
        self.boot
    }

    pub(super) const fn synced(&self) -> bool {
        self.synced
    }

    pub(super) fn files(&self) -> Files {
        self.files.clone()
    }

    /// What was found, once.
    pub(super) fn take(&self) -> Option<Loaded> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// No fence up to here may be given out again.
    pub(in crate::server) fn fence(&self) -> u64 {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.as_ref().map_or(0, |found| found.fence)
    }
}

/// Whether answers wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    /// They do, so that a power cut forgets nothing.
    Yes,
    /// The kernel has it, which outlives this process.
    No,
}

fn taken(path: &Path, errno: nix::errno::Errno) -> io::Error {
    let err = io::Error::from(errno);
    if err.kind() != ErrorKind::WouldBlock {
        return err;
    }
    let mut owner = String::new();
    let note = File::open(path.join(OWNER));
    let _ = note.and_then(|note| note.take(32).read_to_string(&mut owner));
    let owner = owner.trim();
    let known = owner.parse::<u32>().is_ok();
    let who = if known { format!("process {owner}") } else { "another process".to_owned() };
    io::Error::new(ErrorKind::ResourceBusy, format!("{who} has this state directory"))
}

fn open(path: &PathBuf, content: &mut Vec<u8>) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MOST_BYTES {
        let message = format!("{}: not a state file", path.display());
        return Err(io::Error::new(ErrorKind::InvalidData, message));
    }
    file.read_to_end(content)?;
    Ok(file)
}

/// Another one each time the machine starts. Where there is none, every start counts as another.
fn boot_id() -> BootId {
    let text = std::fs::read_to_string(BOOT_ID).unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let parsed = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    parsed.map_or_else(random_id, u128::to_be_bytes)
}

fn random_id() -> BootId {
    let mut id = [0; 16];
    // Zeros, if even that fails, are no machine's id either.
    let _ = getrandom::fill(&mut id);
    id
}

/// Both clocks now.
pub(super) fn clocks() -> Clocks {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let boot = clock_gettime(BOOT_CLOCK).map(std::time::Duration::from);
    let micros = |span: std::time::Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    Clocks { boot_micros: micros(boot.unwrap_or_default()), wall_micros: micros(wall) }
}

impl Files {
    pub(super) fn file(&self, slot: usize) -> Arc<File> {
        let [first, second] = &self.0;
        Arc::clone(if slot == 0 { first } else { second })
    }
}

impl Disk for Files {
    fn write(&mut self, slot: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(slot).write_all_at(bytes, at)
    }

    fn reserve(&mut self, slot: usize, bytes: u64) -> io::Result<()> {
        reserve(&self.file(slot), bytes)
    }
}

/// Has the system promise room for so many bytes.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let length = bytes.try_into().map_err(io::Error::other)?;
    match nix::fcntl::posix_fallocate(file, 0, length) {
        // A file system that cannot promise: a write may fail later.
        Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::EINVAL) => Ok(()),
        result => Ok(result?),
    }
}

/// Other systems promise nothing: a write may fail later.
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
fn reserve(_file: &File, _bytes: u64) -> io::Result<()> {
    Ok(())
}
