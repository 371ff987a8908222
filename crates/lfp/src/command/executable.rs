//! Whether liblfp_preload.so can be loaded into the program of a command, and whether that program makes lock
//! files itself. Looks at the file only. If another process changes the file meanwhile, the worst result is
//! wrong advice.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access, getgid, getuid};

use super::elf::{self, HEAD_BYTES, Kind, Loader, Piece};
use crate::sys::{gains_nothing, has_capabilities};

/// A script's interpreter may be a script: as often as the kernel follows (execve(2)).
const SCRIPTS: usize = 5;

/// Where execvp(3) looks without `PATH`.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// As much of a program is searched for the names of lock files; so much at once, and so much
/// further each time, so that what lies across two pieces is seen as well.
const SEARCHED_BYTES: u64 = 16 << 20;
const PIECE_BYTES: usize = 1 << 16;
const STEP_BYTES: u64 = (1 << 16) - 16;

/// Why the library cannot be loaded into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    Static,
    OtherLibrary,
    OtherProcessor,
    MoreRights,
    Sanitizer,
}

/// The users that are going to start a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Starter {
    Ourselves,
    /// Any user of this machine.
    Anybody,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "it is statically linked",
            Self::OtherLibrary => "it uses another C library",
            Self::OtherProcessor => "it is made for another processor",
            Self::MoreRights => "it runs with more rights than its user",
            Self::Sanitizer => "it is made with AddressSanitizer, which must be loaded first",
        })
    }
}

/// The program that a command names.
#[derive(Debug)]
pub(super) struct Executable {
    /// The file, and the interpreters that run it if it is a script; the last is what the kernel
    /// loads. None where there is none, or none that may be looked at.
    chain: Vec<PathBuf>,
}

impl Executable {
    /// What execvp(3) would find by this name.
    pub(super) fn find(name: &OsStr) -> Self {
        let mut chain = Vec::new();
        let mut next = find(name);
        while let Some(path) = next.take().filter(|_| chain.len() < SCRIPTS) {
            if let Some(Start::By(interpreter)) = open(&path).as_ref().map(start) {
                next = Some(interpreter);
            }
            chain.push(path);
        }
        Self { chain }
    }

    /// Why the library cannot be loaded into it; none that is known.
    pub(super) fn obstacle(&self, starter: Starter) -> Option<Obstacle> {
        let path = self.chain.last()?;
        if gains_rights(path, starter) {
            return Some(Obstacle::MoreRights);
        }
        match start(&open(path)?) {
            Start::Hindered(obstacle) => Some(obstacle),
            Start::By(_) | Start::Unknown => None,
        }
    }

    /// Whether it seems to make lock files itself, by what is written in it.
    pub(super) fn makes_lock_files(&self) -> bool {
        self.chain.iter().filter_map(|path| open(path)).any(|file| names_locks(&file))
    }
}

fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let places = env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    let mut paths = env::split_paths(&places).map(|place| place.join(name));
    paths.find(|path| path.is_file() && access(path, AccessFlags::X_OK).is_ok())
}

/// Nothing but a regular file, and without waiting for anybody.
fn open(path: &Path) -> Option<File> {
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(|it| it.is_file()).then_some(file)
}

/// How a program is started.
enum Start {
    /// As a script, by this.
    By(PathBuf),
    /// In a way that leaves the library out.
    Hindered(Obstacle),
    /// With the library, as far as is known.
    Unknown,
}

fn start(file: &File) -> Start {
    let Some(head) = read(file, Piece { offset: 0, bytes: HEAD_BYTES }) else {
        return Start::Unknown;
    };
    let table = match elf::kind(&head) {
        Kind::Script(path) => return Start::By(OsString::from_vec(path.to_vec()).into()),
        Kind::Foreign => return Start::Hindered(Obstacle::OtherProcessor),
        Kind::Unknown => return Start::Unknown,
        Kind::Native(table) => table,
    };
    let Some(headers) = read(file, table).filter(|it| it.len() == table.bytes) else {
        return Start::Unknown;
    };
    match elf::loader(&headers) {
        Loader::None => Start::Hindered(Obstacle::Static),
        Loader::Unknown => Start::Unknown,
        Loader::At(place) => match read(file, place) {
            Some(path) if !elf::is_ours(&path) => Start::Hindered(Obstacle::OtherLibrary),
            Some(_) if is_sanitized(file, &headers) => Start::Hindered(Obstacle::Sanitizer),
            Some(_) | None => Start::Unknown,
        },
    }
}

/// Whether AddressSanitizer is in it, or is to be loaded for it: then it ends at once where another library
/// comes first.
fn is_sanitized(file: &File, headers: &[u8]) -> bool {
    let dynamic = elf::dynamic(headers).and_then(|place| read(file, place));
    let names = dynamic.and_then(|dynamic| read(file, elf::names(headers, &dynamic)?));
    names.is_some_and(|names| holds(&names, b"\0__asan_init"))
}

/// A piece of a file, or as much of it as there is.
fn read(file: &File, piece: Piece) -> Option<Vec<u8>> {
    let mut bytes = vec![0; piece.bytes];
    let length = file.read_at(&mut bytes, piece.offset).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

/// Whether the loader takes the program for one with more rights than its user (ld.so(8), "secure
/// execution mode"): it changes its user or group, or brings capabilities.
fn gains_rights(path: &Path, starter: Starter) -> bool {
    const SETUID: u32 = 0o4000;
    /// Without the second bit it means something else.
    const SETGID: u32 = 0o2010;
    let Ok(found) = path.metadata() else { return false };
    let (is_own_user, is_own_group, is_root) = match starter {
        Starter::Anybody => (false, false, false),
        Starter::Ourselves => {
            let root = getuid().is_root();
            (found.uid() == getuid().as_raw(), found.gid() == getgid().as_raw(), root)
        }
    };
    let user = found.mode() & SETUID != 0 && !is_own_user;
    let group = found.mode() & SETGID == SETGID && !is_own_group;
    (user || group || (!is_root && has_capabilities(path))) && counts(path)
}

/// Whether these bits mean anything here (execve(2)).
fn counts(path: &Path) -> bool {
    let ignored = statvfs(path).is_ok_and(|it| it.flags().contains(FsFlags::ST_NOSUID));
    !ignored && !gains_nothing()
}

/// Whether a program's file holds what programs that make lock files hold: how those are called
/// (FHS 3.0, 5.9), or where they are.
fn names_locks(file: &File) -> bool {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < SEARCHED_BYTES {
        let Ok(length) = file.read_at(&mut buffer, offset) else { return false };
        let piece = buffer.get(..length).unwrap_or_default();
        if holds(piece, b"LCK..") || holds(piece, b"/var/lock") {
            return true;
        }
        if length < PIECE_BYTES {
            return false;
        }
        offset = offset.saturating_add(STEP_BYTES);
    }
    false
}

fn holds<const N: usize>(piece: &[u8], sign: &[u8; N]) -> bool {
    piece.windows(N).any(|it| it == sign)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::small(0, 100, true)]
    #[case::across_two_pieces(PIECE_BYTES - 3, PIECE_BYTES * 2, true)]
    #[case::at_the_end(PIECE_BYTES * 2 - 5, PIECE_BYTES * 2, true)]
    #[case::nowhere(usize::MAX, PIECE_BYTES * 2, false)]
    fn names_of_lock_files_are_found(
        #[case] at: usize,
        #[case] length: usize,
        #[case] expected: bool,
    ) {
        let mut text = vec![b'L'; length];
        if let Some(place) = text.get_mut(at..).and_then(|it| it.get_mut(..5)) {
            place.copy_from_slice(b"LCK..");
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&text).unwrap();
        assert_eq!(names_locks(&file), expected);
    }

    /// Whatever stands where a program should, nobody waits for it, and nothing is said of it.
    #[test]
    fn a_file_that_is_no_program_is_not_judged() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(path("empty"), "").unwrap();
        std::fs::write(path("text"), "LCK..").unwrap();
        std::fs::write(path("circle"), format!("#!{}\n", path("circle").display())).unwrap();
        std::fs::write(path("lost"), "#!/nowhere\n").unwrap();
        std::os::unix::fs::symlink("loop", path("loop")).unwrap();
        for name in ["fifo", "empty", "text", "circle", "lost", "loop", "none", "."] {
            let executable = Executable::find(path(name).as_os_str());
            assert_eq!(executable.obstacle(Starter::Ourselves), None, "{name}");
            assert_eq!(executable.makes_lock_files(), name == "text", "{name}");
        }
        assert!(Executable::find(OsStr::new("")).chain.len() <= 1);
    }

    #[test]
    fn a_script_is_its_interpreter() {
        let place = tempfile::tempdir().unwrap();
        let (script, other) = (place.path().join("script"), place.path().join("other"));
        std::fs::write(&script, format!("#!{}\n", other.display())).unwrap();
        // The header of a program for a processor of 32 bits.
        std::fs::write(&other, b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0").unwrap();
        let executable = Executable::find(script.as_os_str());
        assert_eq!(executable.obstacle(Starter::Ourselves), Some(Obstacle::OtherProcessor));
    }

    #[test]
    fn an_ordinary_program_has_nothing_against_it() {
        assert_eq!(Executable::find(OsStr::new("sh")).obstacle(Starter::Ourselves), None);
    }
}
