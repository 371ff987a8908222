//! Whether liblfp_preload.so can be loaded into the program of a command, and whether that program makes lock
//! files itself. Looks at the file only (execve(2), elf(5)), which may come from any user, and is believed only as far as
//! needed. If another process changes the file meanwhile, the worst result is wrong advice.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Seek};
use std::iter::successors;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use elf::abi;
use elf::endian::AnyEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::parse::ParsingTable;
use elf::segment::SegmentTable;
use nix::fcntl::OFlag;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access, getgid, getuid};
use ttylock::{BEGINNING, Dialect};

use crate::sys::{gains_nothing, has_capabilities};

/// The bytes of a file's beginning that are looked at: the kernel looks at no more of a script (`BINPRM_BUF_SIZE`),
/// and the header of ELF is shorter.
const HEAD_BYTES: usize = 256;

/// The length of a program header of 64 bits, which the kernel insists on.
const SEGMENT_BYTES: usize = 56;

/// The kernel starts no program with more bytes of program headers (`load_elf_phdrs`), so with none whose count stands in
/// a section header (`PN_XNUM`). The path of a loader is shorter.
const PART_BYTES: u64 = 65536;

/// The processors that the preloaded library is made for, and their numbers in `e_machine`.
const MACHINES: [(&str, u16); 3] =
    [("x86_64", abi::EM_X86_64), ("aarch64", abi::EM_AARCH64), ("riscv64", abi::EM_RISCV)];

/// How often the interpreter of a script may be a script again, as for the kernel (execve(2)).
const SCRIPTS: usize = 5;

/// Where execvp(3) looks without `PATH`.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// The most bytes of a program that are read and searched for the names of lock files.
const SEARCHED_BYTES: u64 = 16 << 20;

/// Why the library cannot be loaded into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unloadable {
    Static,
    OtherLibrary,
    OtherProcessor,
    MoreRights,
}

/// The users that are going to start a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Starter {
    Ourselves,
    /// Any user of this machine.
    Anybody,
}

impl fmt::Display for Unloadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "it is statically linked",
            Self::OtherLibrary => "it uses another C library",
            Self::OtherProcessor => "it is made for another processor",
            Self::MoreRights => "it runs with more rights than its user",
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
        let interpreter = |path: &PathBuf| start(&open(path)?).ok()?;
        Self { chain: successors(find(name), interpreter).take(SCRIPTS).collect() }
    }

    /// Why the library cannot be loaded into it; none that is known.
    pub(super) fn obstacle(&self, starter: Starter) -> Option<Unloadable> {
        let path = self.chain.last()?;
        if gains_rights(path, starter) {
            return Some(Unloadable::MoreRights);
        }
        start(&open(path)?).err()
    }

    /// Whether it seems to make lock files itself, by what is written in it. `lfp` knows whose lock it meets.
    pub(super) fn makes_lock_files(&self) -> bool {
        let files = self.chain.iter().filter_map(|path| open(path));
        files.filter(|file| !is_this_program(file)).any(|file| names_locks(&file))
    }
}

fn find(name: &OsStr) -> Option<PathBuf> {
    let is_path = name.as_bytes().contains(&b'/');
    if is_path { Some(PathBuf::from(name)) } else { in_path(name).next() }
}

/// The programs of this name in `PATH`, in their order. A directory is looked at when its turn comes.
pub(super) fn in_path(name: &OsStr) -> impl Iterator<Item = PathBuf> {
    let places = env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    let is_program = |path: &PathBuf| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    let paths: Vec<PathBuf> = env::split_paths(&places).map(|place| place.join(name)).collect();
    paths.into_iter().filter(is_program)
}

/// Nothing but a regular file, and without waiting for anybody.
fn open(path: &Path) -> Option<File> {
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(|it| it.is_file()).then_some(file)
}

/// The interpreter of a script, or what leaves the library out of a program, as far as is known.
fn start(file: &File) -> Result<Option<PathBuf>, Unloadable> {
    let mut head = [0; HEAD_BYTES];
    let length = file.read_at(&mut head, 0).unwrap_or_default();
    let head = head.get(..length).unwrap_or_default();
    if let Some(line) = head.strip_prefix(b"#!") {
        return Ok(interpreter(line).map(|path| OsStr::from_bytes(path).into()));
    }
    obstacle_in(file, head).map_or(Ok(None), Err)
}

/// The first word of the line, which must end within what the kernel looks at.
fn interpreter(line: &[u8]) -> Option<&[u8]> {
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii_start();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t' | 0));
    let word = line.get(..end.unwrap_or(line.len()))?;
    (!word.is_empty()).then_some(word)
}

/// Why a program leaves the library out, as far as is known. Reads the program headers and what they name, as the kernel
/// and the loader do: sections need not be there.
fn obstacle_in(file: &File, head: &[u8]) -> Option<Unloadable> {
    let ident = parse_ident::<AnyEndian>(head.get(..abi::EI_NIDENT)?).ok()?;
    let header = FileHeader::parse_tail(ident, head.get(abi::EI_NIDENT..)?).ok()?;
    let is_native = header.class == Class::ELF64 && header.endianness == AnyEndian::Little;
    if !is_native || !MACHINES.contains(&(env::consts::ARCH, header.e_machine)) {
        return Some(Unloadable::OtherProcessor);
    }
    if ![abi::ET_EXEC, abi::ET_DYN].contains(&header.e_type) {
        return None;
    }
    let size = u64::from(header.e_phnum).checked_mul(header.e_phentsize.into())?;
    if header.e_phnum != 0 && usize::from(header.e_phentsize) != SEGMENT_BYTES {
        return None;
    }
    let headers = read(file, header.e_phoff, size)?;
    let segments: SegmentTable<'_, _> =
        ParsingTable::new(header.endianness, header.class, &headers);
    let loader = segments.iter().find(|it| it.p_type == abi::PT_INTERP);
    let Some(loader) = loader else { return Some(Unloadable::Static) };
    let path = read(file, loader.p_offset, loader.p_filesz).filter(|it| !it.is_empty())?;
    (!is_ours(&path)).then_some(Unloadable::OtherLibrary)
}

/// The bytes of a part of a file that is there as a whole and is not too long.
fn read(file: &File, offset: u64, size: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).ok().filter(|_| size <= PART_BYTES)?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// Whether the loader of this path is the one of the C library that the preloaded library is for:
/// the one that this program was made for itself, as they come together.
fn is_ours(path: &[u8]) -> bool {
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let names: &[&[u8]] =
        if cfg!(target_env = "musl") { &[b"ld-musl-"] } else { &[b"ld-linux-", b"ld-lsb-"] };
    names.iter().any(|start| name.starts_with(start))
}

/// Whether the loader takes the program for one with more rights than its user (ld.so(8), "secure
/// execution mode"): it changes its user or group, or brings capabilities.
fn gains_rights(path: &Path, starter: Starter) -> bool {
    const SETUID: u32 = 0o4000;
    /// Without the second bit it means something else.
    const SETGID: u32 = 0o2010;
    let Ok(found) = path.metadata() else { return false };
    let gains = |has: bool, is_had: bool| has && !(is_had && starter == Starter::Ourselves);
    let user = gains(found.mode() & SETUID != 0, found.uid() == getuid().as_raw());
    let group = gains(found.mode() & SETGID == SETGID, found.gid() == getgid().as_raw());
    let is_capable = || gains(has_capabilities(path), getuid().is_root());
    // Where none of these means anything (execve(2)).
    let is_ignored = || statvfs(path).is_ok_and(|it| it.flags().contains(FsFlags::ST_NOSUID));
    (user || group || is_capable()) && !is_ignored() && !gains_nothing()
}

fn is_this_program(file: &File) -> bool {
    let of = |file: &Metadata| (file.dev(), file.ino());
    let this = env::current_exe().and_then(std::fs::metadata);
    matches!((file.metadata(), this), (Ok(file), Ok(this)) if of(&file) == of(&this))
}

/// Whether a program's file holds what programs that make lock files hold: how those are called
/// (FHS 3.0, 5.9), or where they are.
fn names_locks(mut file: &File) -> bool {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.take(SEARCHED_BYTES).read_to_end(&mut bytes));
    let directory = Dialect::native().lock_dir().as_os_str();
    let signs = [BEGINNING.as_bytes(), directory.as_bytes()];
    read.is_ok() && signs.iter().any(|sign| bytes.windows(sign.len()).any(|it| it == *sign))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::small(0, 100, true)]
    #[case::in_the_middle((1 << 16) - 3, 2 << 16, true)]
    #[case::at_the_end((2 << 16) - 5, 2 << 16, true)]
    #[case::nowhere(usize::MAX, 2 << 16, false)]
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

    /// The header of a program, with two program headers behind it: of what is loaded, and of the loader's path.
    fn program() -> Vec<u8> {
        let path = b"/lib64/ld-linux-x86-64.so.2\0/lib/ld-musl-x86_64.so.1\0\0\0\0";
        let mut bytes = vec![0; 64 + 2 * 56];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16] = 3;
        let machine = MACHINES.iter().find(|(name, _)| *name == env::consts::ARCH).unwrap().1;
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        (bytes[20], bytes[32], bytes[54], bytes[56]) = (1, 64, 56, 2);
        (bytes[64], bytes[120], bytes[128], bytes[152]) = (1, 3, 176, 28);
        bytes.extend_from_slice(path);
        bytes
    }

    #[cfg(target_env = "gnu")]
    #[rstest]
    #[case::usual(|_: &mut Vec<u8>| (), None)]
    #[case::fixed_address(|it: &mut Vec<u8>| it[16] = 2, None)]
    #[case::no_headers(|it: &mut Vec<u8>| it[56] = 0, Some(Unloadable::Static))]
    #[case::no_loader(|it: &mut Vec<u8>| it[120] = 1, Some(Unloadable::Static))]
    #[case::another_c_library(|it: &mut Vec<u8>| it[128] += 28, Some(Unloadable::OtherLibrary))]
    #[case::empty_path(|it: &mut Vec<u8>| it[152] = 0, None)]
    #[case::long_path(|it: &mut Vec<u8>| it[154] = 1, None)]
    #[case::far_away(|it: &mut Vec<u8>| it[135] = 0xff, None)]
    #[case::object(|it: &mut Vec<u8>| it[16] = 1, None)]
    #[case::narrow(|it: &mut Vec<u8>| it[4] = 1, Some(Unloadable::OtherProcessor))]
    #[case::big_endian(|it: &mut Vec<u8>| it[5] = 2, Some(Unloadable::OtherProcessor))]
    #[case::other_processor(|it: &mut Vec<u8>| it[18] = 40, Some(Unloadable::OtherProcessor))]
    #[case::odd_size(|it: &mut Vec<u8>| it[54] = 55, None)]
    #[case::many(|it: &mut Vec<u8>| it[57] = 1, None)]
    #[case::cut(|it: &mut Vec<u8>| it.truncate(57), None)]
    #[case::only_magic(|it: &mut Vec<u8>| it.truncate(4), None)]
    fn a_program_is_judged_by_its_headers(
        #[case] change: fn(&mut Vec<u8>),
        #[case] expected: Option<Unloadable>,
    ) {
        let mut bytes = program();
        change(&mut bytes);
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("program");
        std::fs::write(&path, bytes).unwrap();
        let executable = Executable::find(path.as_os_str());
        assert_eq!(executable.obstacle(Starter::Ourselves), expected);
    }

    fn obstacle_of(bytes: &[u8], length: u64) -> Option<Unloadable> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("program");
        std::fs::write(&path, bytes).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        Executable::find(path.as_os_str()).obstacle(Starter::Ourselves)
    }

    /// A sparse file of eight terabytes that says that its sections, headers or names take all of it.
    #[cfg(target_env = "gnu")]
    #[rstest]
    #[case::sections(|it: &mut Vec<u8>| {
        // The number of sections is in the first section's header, at 512.
        it[41] = 2;
        it[58] = 64;
        it.resize(512 + 64, 0);
        it[512 + 32 + 4] = 0x10;
    }, None)]
    #[case::headers(|it: &mut Vec<u8>| it[56..58].fill(0xff), None)]
    #[case::loader(|it: &mut Vec<u8>| it[152 + 4] = 0x10, None)]
    fn a_sparse_file_costs_no_memory(
        #[case] change: fn(&mut Vec<u8>),
        #[case] expected: Option<Unloadable>,
    ) {
        let mut bytes = program();
        change(&mut bytes);
        assert_eq!(obstacle_of(&bytes, 1 << 43), expected);
    }

    proptest! {
        /// Of a file that is no program, and of a program with a few wrong bytes.
        #[test]
        fn any_bytes_are_judged(
            text in proptest::collection::vec(any::<u8>(), 0..300),
            changes in proptest::collection::vec((0..232_usize, any::<u8>()), 0..8),
            is_program: bool,
        ) {
            let mut bytes = if is_program { program() } else { text };
            for (at, byte) in changes {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let _ = start(&file);
        }
    }

    #[rstest]
    #[case::usual("/bin/sh\n", Some("/bin/sh"))]
    #[case::with_argument(" \t/usr/bin/env python3\n", Some("/usr/bin/env"))]
    #[case::last_line("/bin/sh", Some("/bin/sh"))]
    #[case::nothing("\n/bin/sh", None)]
    #[case::blank("  \n", None)]
    #[case::ends("/bin/sh\0/x", Some("/bin/sh"))]
    fn scripts(#[case] line: &str, #[case] expected: Option<&str>) {
        assert_eq!(interpreter(line.as_bytes()), expected.map(str::as_bytes));
    }

    #[cfg(target_env = "gnu")]
    #[rstest]
    #[case::usual("/lib64/ld-linux-x86-64.so.2\0", true)]
    #[case::arm("/lib/ld-linux-aarch64.so.1\0", true)]
    #[case::nix("/nix/store/x-glibc-2.40/lib/ld-linux-x86-64.so.2\0", true)]
    #[case::standard_base("/lib64/ld-lsb-x86-64.so.3\0", true)]
    #[case::musl("/lib/ld-musl-x86_64.so.1\0", false)]
    #[case::android("/system/bin/linker64\0", false)]
    #[case::uclibc("/lib/ld64-uClibc.so.1\0", false)]
    #[case::empty("\0", false)]
    #[case::behind_the_end("/x\0/lib64/ld-linux-x86-64.so.2", false)]
    fn loaders_of_c_libraries(#[case] path: &str, #[case] expected: bool) {
        assert_eq!(is_ours(path.as_bytes()), expected);
    }
}
