//! The state directory: the holds on the disk, so that a restart forgets nothing. [`DiskJournal`] is the journal of one
//! server.
//!
//! `codec`, `load` and `promises` are pure. `ledger` decides what is written. This file has the journal, and the files of
//! the directory: opened, locked against a second server, read once, written.

mod codec;
#[cfg(any(test, fuzzing))]
pub(super) mod corpus_tests;
mod ledger;
mod load;
mod promises;

pub(super) use codec::Doubt;
use codec::{BootId, DirId};
use leases::journal::{Failed, Journal, Record, Recovered};
use leases::{Moment, Seconds};
use ledger::{Disk, Health, Ledger, RETRY};
use load::{Damage, FileBytes, Loaded, load};
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::time::{ClockId, clock_gettime};
pub(crate) use promises::Synced;
use promises::{Origin, Times};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// The journal of one server, in its state directory.
pub(in crate::server) struct DiskJournal {
    ledger: Ledger<Files>,
    /// Held for as long as the journal is used.
    dir: Arc<StateDir>,
}

impl DiskJournal {
    /// `None` if the content of the directory was already taken.
    pub(in crate::server) fn new(dir: &Arc<StateDir>, default_lease: Seconds) -> Option<Self> {
        let found = dir.take()?;
        log_found(&found, default_lease);
        let ledger = Ledger::resume(dir.files(), dir.origin(), found, default_lease, times());
        let mut journal = Self { ledger, dir: Arc::clone(dir) };
        journal.log_failure();
        Some(journal)
    }

    fn log_failure(&mut self) {
        if let Some(err) = self.ledger.take_failure() {
            let health = self.ledger.health();
            tracing::error!(%err, ?health, "state cannot be written");
        }
    }

    /// Waits until everything written is on the disk.
    async fn sync(&self) -> io::Result<()> {
        let file = self.ledger.disk().file(self.ledger.slot());
        spawn_blocking(move || file.sync_data()).await.map_err(io::Error::other)?
    }
}

impl Journal for DiskJournal {
    const MAX_RECORDS: usize = usize::MAX;
    const IS_SHARED: bool = false;

    /// After a failure, writes everything anew: this process knows all that was committed, whatever the files say.
    async fn load(&mut self) -> Recovered {
        while self.ledger.health() == Health::Broken {
            tokio::time::sleep(RETRY).await;
            self.ledger.rewrite(times());
            self.log_failure();
        }
        self.ledger.recovered(times())
    }

    async fn commit(&mut self, records: &[Record]) -> Result<(), Failed> {
        let times = times();
        for record in records {
            self.ledger.note(record, times);
        }
        let mut outcome = self.ledger.flush(times);
        if outcome.is_ok() && self.dir.origin().synced == Synced::Yes {
            if let Err(err) = self.sync().await {
                self.ledger.fail(err, times.now);
                outcome = Err(Failed);
            }
        }
        self.log_failure();
        if outcome.is_err() {
            self.ledger.take_back(records);
        }
        outcome
    }

    fn room(&mut self, wanted: usize) -> usize {
        let room = self.ledger.room(times().now, wanted);
        self.log_failure();
        room
    }

    async fn end(mut self) {
        if let Err(err) = self.ledger.close(times()) {
            tracing::error!(%err, "state cannot be written");
        }
    }
}

/// Logs what was found.
fn log_found(found: &Loaded, default_lease: Seconds) {
    tracing::info!(holds = found.holds.len(), "state read");
    let Some((doubt, micros)) = found.wait(default_lease) else { return };
    let seconds = micros.div_ceil(1_000_000);
    match (doubt, found.damage) {
        (Doubt::Damaged, Some(damage)) => {
            let what = damage.words();
            tracing::error!(what, seconds, "state damaged; no grants until leases are over");
        }
        (Doubt::Damaged, None) => {
            tracing::warn!(seconds, "state was damaged; no grants until leases are over");
        }
        (Doubt::OtherBoot, damage) => {
            let what = damage.map(Damage::words);
            tracing::warn!(what, seconds, "machine restarted; no grants until leases are over");
        }
    }
}

fn times() -> Times {
    let boot_micros = boot_micros();
    Times { now: Moment::from_micros(boot_micros), boot_micros }
}

/// The two files that take turns.
const NAMES: [&str; 2] = ["holds.0", "holds.1"];
/// The file that says what these must be.
const INDEX: &str = "index";
/// The file that names the process which uses the directory, for people.
const OWNER: &str = "owner";
/// A larger file is not one of ours.
const MOST_BYTES: u64 = 4 << 30;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How far the clocks of this time namespace are from the machine's, see `time_namespaces(7)`.
const OFFSETS: &str = "/proc/self/timens_offsets";

/// The clock since the start of the machine, which also counts while it sleeps.
#[cfg(not(target_vendor = "apple"))]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(target_vendor = "apple")]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// A state directory that this process alone uses, with the content that was found.
#[derive(Debug)]
pub(crate) struct StateDir {
    /// Held for as long as the process lives.
    _lock: Flock<File>,
    files: Files,
    origin: Origin,
    doubt: Option<Doubt>,
    found: Mutex<Option<Loaded>>,
}

/// The files; cheap to clone.
#[derive(Clone, Debug)]
struct Files {
    index: Arc<File>,
    holds: [Arc<File>; 2],
}

impl StateDir {
    /// Creates the directory if it does not exist, and reads its content. With `synced`, everything must be on the
    /// disk before a client knows of it.
    ///
    /// # Errors
    /// An error of the system; [`ErrorKind::ResourceBusy`] if another server uses the directory.
    pub(crate) fn open(path: &Path, synced: Synced) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(err) if err.kind() == ErrorKind::AlreadyExists => {}
            result => result?,
        }
        let mut directory = OpenOptions::new();
        let directory = directory.read(true).custom_flags(nix::libc::O_DIRECTORY).open(path)?;
        let lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock)
            .map_err(|(directory, errno)| taken(&directory, errno))?;
        let mut note = open(&lock, OWNER, 0o644)?;
        note.set_len(0)?;
        note.write_all(format!("{}\n", std::process::id()).as_bytes())?;
        let [first, second] = NAMES;
        let (index, in_index) = read(&lock, INDEX)?;
        let (first, in_first) = read(&lock, first)?;
        let (second, in_second) = read(&lock, second)?;
        // The names must survive a power cut, too.
        lock.sync_all()?;
        let origin = Origin { boot: boot_id(), dir: random_id(), synced };
        let contents = FileBytes { index: &in_index, holds: [&in_first, &in_second] };
        let found = load(contents, &origin.boot, boot_micros());
        let doubt = found.doubt.or(found.closing.map(|(doubt, _)| doubt));
        let holds = [Arc::new(first), Arc::new(second)];
        let files = Files { index: Arc::new(index), holds };
        Ok(Self { _lock: lock, files, origin, doubt, found: Mutex::new(Some(found)) })
    }

    const fn origin(&self) -> Origin {
        self.origin
    }

    fn files(&self) -> Files {
        self.files.clone()
    }

    /// Returns the content that was found, once.
    fn take(&self) -> Option<Loaded> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether holds may be missing, and why.
    pub(in crate::server) fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }
}

fn taken(directory: &File, errno: nix::errno::Errno) -> io::Error {
    let err = io::Error::from(errno);
    if err.kind() != ErrorKind::WouldBlock {
        return err;
    }
    let mut owner = String::new();
    let note = open(directory, OWNER, 0o644);
    let _ = note.and_then(|note| note.take(32).read_to_string(&mut owner));
    let owner = owner.trim();
    let known = owner.parse::<u32>().is_ok();
    let who = if known { format!("process {owner}") } else { "another process".to_owned() };
    io::Error::new(ErrorKind::ResourceBusy, format!("{who} uses this state directory"))
}

/// Opens a file in this directory for reading and writing, or creates it. Anything may be in its place: only a regular
/// file is opened, nothing blocks, and nothing is written before the open file was checked.
///
/// # Errors
/// An error of the system; [`ErrorKind::InvalidData`] if it is not a regular file.
fn open(directory: &File, name: &str, mode: nix::libc::mode_t) -> io::Result<File> {
    // Opening a device may already have an effect.
    if let Ok(found) = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        check(name, &found)?;
    }
    let flags =
        OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let file = openat(directory, name, flags, Mode::from_bits_truncate(mode))?;
    check(name, &fstat(&file)?)?;
    Ok(file.into())
}

fn check(name: &str, found: &FileStat) -> io::Result<()> {
    let what = match SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => return Ok(()),
        SFlag::S_IFDIR => "a directory",
        SFlag::S_IFLNK => "a symbolic link",
        SFlag::S_IFIFO => "a FIFO",
        SFlag::S_IFSOCK => "a socket",
        SFlag::S_IFCHR | SFlag::S_IFBLK => "a device",
        _ => "something else",
    };
    let message = format!("{name} is {what}, not a regular file");
    Err(io::Error::new(ErrorKind::InvalidData, message))
}

/// A file of the directory, and its content.
fn read(directory: &File, name: &str) -> io::Result<(File, Vec<u8>)> {
    let mut file = open(directory, name, 0o600)?;
    if file.metadata()?.len() > MOST_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("{name} is too long")));
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok((file, content))
}

/// An id that differs each time the machine starts, and where its clock shows another time. If the system has none,
/// every start of the server counts as one of the machine.
fn boot_id() -> BootId {
    let text = std::fs::read_to_string(BOOT_ID).unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let parsed = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    let offset = clock_offset(&std::fs::read_to_string(OFFSETS).unwrap_or_default());
    parsed.map_or_else(random_id, |id| (id ^ offset).to_be_bytes())
}

/// A number for the offset of the clock since the start of the machine; 0 for none.
fn clock_offset(offsets: &str) -> u128 {
    let clock = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = clock.unwrap_or_default().split_whitespace();
    let mut next = || numbers.next().and_then(|word| word.parse::<i64>().ok()).unwrap_or(0);
    let nanos = i128::from(next()) * 1_000_000_000 + i128::from(next());
    u128::from_be_bytes(nanos.to_be_bytes())
}

fn random_id() -> DirId {
    let mut id = [0; 16];
    // If even that fails, the id is zero, which no machine has.
    let _ = getrandom::fill(&mut id);
    id
}

/// The clock since the start of the machine, now.
fn boot_micros() -> u64 {
    let boot = clock_gettime(BOOT_CLOCK).map(Duration::from).unwrap_or_default();
    u64::try_from(boot.as_micros()).unwrap_or(u64::MAX)
}

impl Files {
    fn file(&self, slot: usize) -> Arc<File> {
        let [first, second] = &self.holds;
        Arc::clone(if slot == 0 { first } else { second })
    }
}

impl Disk for Files {
    fn write(&mut self, slot: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(slot).write_all_at(bytes, at)
    }

    fn sync(&mut self, slot: usize) -> io::Result<()> {
        self.file(slot).sync_data()
    }

    fn write_index(&mut self, at: usize, bytes: &[u8], synced: Synced) -> io::Result<()> {
        self.index.write_all_at(bytes, at as u64)?;
        match synced {
            Synced::Yes => self.index.sync_data(),
            Synced::No => Ok(()),
        }
    }

    fn reserve(&mut self, slot: usize, bytes: u64) -> io::Result<()> {
        reserve(&self.file(slot), bytes)
    }
}

/// Has the system reserve room for this many bytes.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let length = bytes.try_into().map_err(io::Error::other)?;
    match nix::fcntl::posix_fallocate(file, 0, length) {
        // The file system cannot reserve room: a write may fail later.
        Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::EINVAL) => Ok(()),
        result => Ok(result?),
    }
}

/// Other systems cannot reserve room: a write may fail later.
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
fn reserve(_file: &File, _bytes: u64) -> io::Result<()> {
    Ok(())
}

/// A record that continues what was found, and an engine that continues with it.
#[cfg(test)]
fn resumed<D: Disk>(
    disk: D,
    origin: Origin,
    found: Loaded,
    engine: &mut leases::Engine,
    usual: Seconds,
    times: Times,
) -> Ledger<D> {
    let ledger = Ledger::resume(disk, origin, found, usual, times);
    engine.record(leases::LeaseStart::Grant);
    ledger.recovered(times).restore(times.now, engine);
    ledger
}

/// Notes what has changed in an engine.
#[cfg(test)]
fn note_changes<D: Disk>(engine: &mut leases::Engine, ledger: &mut Ledger<D>, times: Times) {
    let mut records = Vec::new();
    engine.take_changes(times.now, &mut records);
    for record in &records {
        ledger.note(record, times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Only where the clock since the boot shows another time it is another number.
    #[rstest]
    #[case::no_namespaces("", 0)]
    #[case::the_machines("monotonic           0         0\nboottime            0         0\n", 0)]
    #[case::another_clock("monotonic           5         0\nboottime            0         0\n", 0)]
    #[case::later(
        "monotonic           0         0\nboottime       100000         7\n",
        100_000_000_000_007
    )]
    #[case::earlier("boottime  -1  0\n", u128::MAX - 999_999_999)]
    fn a_time_namespace_is_known_by_its_clock(#[case] offsets: &str, #[case] number: u128) {
        assert_eq!(clock_offset(offsets), number);
    }
}

#[cfg(test)]
mod damage_tests;

#[cfg(test)]
mod memory_tests;
