//! Parses the beginning of an executable file, which says how the kernel starts it (execve(2), elf(5)). Bytes
//! in, values out. The bytes may come from any user, and are believed only as far as needed.
//!
//! Pure.

/// As much of a file's beginning is looked at: the kernel looks at no more of a script
/// (`BINPRM_BUF_SIZE`), and the header of ELF is shorter.
pub(super) const HEAD_BYTES: usize = 256;

/// More program headers than any linker makes; where there are more, nothing is said about them.
const HEADERS: u16 = 256;

/// One program header of a 64-bit file, in bytes.
const HEADER_BYTES: u16 = 56;

/// The longest path of a loader (`PATH_MAX`).
const PATH_BYTES: u64 = 4096;

/// Program headers: what is loaded (`PT_LOAD`), where the loader finds the rest (`PT_DYNAMIC`), and its path
/// (`PT_INTERP`).
const LOADED: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERPRETER: u32 = 3;

/// Entries for the loader: where the names of symbols and libraries are (`DT_STRTAB`), and their length
/// (`DT_STRSZ`).
const NAMES: u64 = 5;
const NAMES_BYTES: u64 = 10;

/// As much of the entries for the loader, and of the names, is looked at.
const DYNAMIC_MOST: u64 = 1 << 16;
const NAMES_MOST: u64 = 1 << 24;

/// This processor in `e_machine`: those that the preloaded library is made for.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else if cfg!(target_arch = "riscv64") {
    243
} else {
    0
};

/// A piece of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// A script; the path of its interpreter.
    Script(&'a [u8]),
    /// A program for this system's processor and word size; its program headers.
    Native(Piece),
    /// A program for another processor, or another word size of this one.
    Foreign,
    /// Something else, or nothing that the kernel would start.
    Unknown,
}

/// Judges a file by its first [`HEAD_BYTES`], or as many as it has.
pub(super) fn kind(head: &[u8]) -> Kind<'_> {
    if let Some(line) = head.strip_prefix(b"#!") {
        return interpreter(line).map_or(Kind::Unknown, Kind::Script);
    }
    if head.starts_with(b"\x7fELF") {
        program(head).unwrap_or(Kind::Unknown)
    } else {
        Kind::Unknown
    }
}

/// The first word of the line, which must end within what the kernel looks at.
fn interpreter(line: &[u8]) -> Option<&[u8]> {
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii_start();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t' | 0));
    let word = line.get(..end.unwrap_or(line.len()))?;
    (!word.is_empty()).then_some(word)
}

fn program(head: &[u8]) -> Option<Kind<'_>> {
    const CLASS_64: u8 = 2;
    const LITTLE_ENDIAN: u8 = 1;
    /// `ET_EXEC` and `ET_DYN`, which a program may be as well as a library.
    const TYPES: [u16; 2] = [2, 3];
    let [class, data] = *head.get(4..6)?.first_chunk()?;
    if class != CLASS_64 || data != LITTLE_ENDIAN || half(head, 18)? != MACHINE {
        return Some(Kind::Foreign);
    }
    let (size, headers) = (half(head, 54)?, half(head, 56)?);
    if !TYPES.contains(&half(head, 16)?) || size != HEADER_BYTES || headers > HEADERS {
        return Some(Kind::Unknown);
    }
    let bytes = usize::from(headers).checked_mul(HEADER_BYTES.into())?;
    Some(Kind::Native(Piece { offset: long(head, 32)?, bytes }))
}

/// What the program headers say of a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loader {
    /// There is none: the kernel starts the program itself.
    None,
    /// Its path is there.
    At(Piece),
    /// It cannot be told.
    Unknown,
}

/// Looks for a loader in all the program headers there are.
pub(super) fn loader(table: &[u8]) -> Loader {
    let headers = table.chunks_exact(HEADER_BYTES.into());
    for header in headers {
        if word(header, 0) != Some(INTERPRETER) {
            continue;
        }
        let bytes = long(header, 32).filter(|bytes| (1..=PATH_BYTES).contains(bytes));
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        return match (long(header, 8), bytes) {
            (Some(offset), Some(bytes)) => Loader::At(Piece { offset, bytes }),
            (None, _) | (_, None) => Loader::Unknown,
        };
    }
    Loader::None
}

/// Where the entries for the loader are.
pub(super) fn dynamic(table: &[u8]) -> Option<Piece> {
    let mut headers = table.chunks_exact(HEADER_BYTES.into());
    let header = headers.find(|header| word(header, 0) == Some(DYNAMIC))?;
    piece(long(header, 8)?, long(header, 32)?, DYNAMIC_MOST)
}

/// Where the names of symbols and libraries are, by the program headers and the entries for the loader.
pub(super) fn names(table: &[u8], dynamic: &[u8]) -> Option<Piece> {
    let entry = |wanted| {
        let mut entries = dynamic.chunks_exact(16);
        long(entries.find(|entry| long(entry, 0) == Some(wanted))?, 8)
    };
    let (address, bytes) = (entry(NAMES)?, entry(NAMES_BYTES)?);
    let mut loaded = table.chunks_exact(HEADER_BYTES.into());
    loaded.find_map(|header| {
        let within = address.checked_sub(long(header, 16)?)?;
        let is_there = word(header, 0) == Some(LOADED) && within < long(header, 32)?;
        let offset = long(header, 8).filter(|_| is_there)?.checked_add(within)?;
        piece(offset, bytes, NAMES_MOST)
    })
}

fn piece(offset: u64, bytes: u64, most: u64) -> Option<Piece> {
    Some(Piece { offset, bytes: usize::try_from(bytes.min(most)).ok()? })
}

/// Whether the loader of this path is the one of the C library that the preloaded library is for:
/// the one that this program was made for itself, as they come together.
pub(super) fn is_ours(path: &[u8]) -> bool {
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let names: &[&[u8]] =
        if cfg!(target_env = "musl") { &[b"ld-musl-"] } else { &[b"ld-linux-", b"ld-lsb-"] };
    names.iter().any(|start| name.starts_with(start))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// The header of a program with two program headers behind it.
    fn head() -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        head[16] = 3;
        head[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        head[32] = 64;
        head[54] = 56;
        head[56] = 2;
        head
    }

    fn header(kind: u8, offset: u64, bytes: u64) -> Vec<u8> {
        let mut header = vec![0; 56];
        header[0] = kind;
        header[8..16].copy_from_slice(&offset.to_le_bytes());
        header[32..40].copy_from_slice(&bytes.to_le_bytes());
        header
    }

    #[rstest]
    #[case::usual(|_: &mut Vec<u8>| (), Kind::Native(Piece { offset: 64, bytes: 112 }))]
    #[case::fixed_address(|it: &mut Vec<u8>| it[16] = 2, Kind::Native(Piece { offset: 64, bytes: 112 }))]
    #[case::no_headers(|it: &mut Vec<u8>| it[56] = 0, Kind::Native(Piece { offset: 64, bytes: 0 }))]
    #[case::object(|it: &mut Vec<u8>| it[16] = 1, Kind::Unknown)]
    #[case::narrow(|it: &mut Vec<u8>| it[4] = 1, Kind::Foreign)]
    #[case::big_endian(|it: &mut Vec<u8>| it[5] = 2, Kind::Foreign)]
    #[case::other_processor(|it: &mut Vec<u8>| it[18] = 40, Kind::Foreign)]
    #[case::odd_size(|it: &mut Vec<u8>| it[54] = 55, Kind::Unknown)]
    #[case::many(|it: &mut Vec<u8>| it[57] = 1, Kind::Native(Piece { offset: 64, bytes: 258 * 56 }))]
    #[case::cut(|it: &mut Vec<u8>| it.truncate(57), Kind::Unknown)]
    #[case::only_magic(|it: &mut Vec<u8>| it.truncate(4), Kind::Unknown)]
    fn programs(#[case] change: fn(&mut Vec<u8>), #[case] expected: Kind<'_>) {
        let mut head = head();
        change(&mut head);
        // One more than are looked at.
        let expected = if head.get(57) == Some(&1) { Kind::Unknown } else { expected };
        assert_eq!(kind(&head), expected);
    }

    #[rstest]
    #[case::usual("#!/bin/sh\n", Some("/bin/sh"))]
    #[case::with_argument("#! \t/usr/bin/env python3\n", Some("/usr/bin/env"))]
    #[case::last_line("#!/bin/sh", Some("/bin/sh"))]
    #[case::nothing("#!\n/bin/sh", None)]
    #[case::blank("#!  \n", None)]
    #[case::ends("#!/bin/sh\0/x", Some("/bin/sh"))]
    fn scripts(#[case] text: &str, #[case] expected: Option<&str>) {
        let expected = expected.map_or(Kind::Unknown, |it| Kind::Script(it.as_bytes()));
        assert_eq!(kind(text.as_bytes()), expected);
    }

    #[rstest]
    #[case::dynamic(&[(6, 64, 112), (3, 400, 28)], Loader::At(Piece { offset: 400, bytes: 28 }))]
    #[case::fixed(&[(1, 0, 4096)], Loader::None)]
    #[case::none(&[], Loader::None)]
    #[case::empty_path(&[(3, 400, 0)], Loader::Unknown)]
    #[case::long_path(&[(3, 400, 4097)], Loader::Unknown)]
    #[case::far_away(&[(3, u64::MAX, 9)], Loader::At(Piece { offset: u64::MAX, bytes: 9 }))]
    fn the_loader_of_a_program_is_found(
        #[case] headers: &[(u8, u64, u64)],
        #[case] expected: Loader,
    ) {
        let table: Vec<u8> = headers.iter().flat_map(|it| header(it.0, it.1, it.2)).collect();
        assert_eq!(loader(&table), expected);
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

    /// The program of this very test has the loader of its own C library.
    #[cfg(not(target_feature = "crt-static"))]
    #[test]
    fn the_loader_of_this_program_exists() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let Kind::Native(table) = kind(&file[..HEAD_BYTES]) else { panic!("not native") };
        let piece = |it: Piece| {
            let start = usize::try_from(it.offset).unwrap();
            &file[start..start + it.bytes]
        };
        let Loader::At(path) = loader(piece(table)) else { panic!("no loader") };
        assert!(is_ours(piece(path)));
        let entries = dynamic(piece(table)).map(piece).unwrap();
        let names = piece(names(piece(table), entries).unwrap());
        assert!(names.windows(11).any(|it| it == b"\0libc.so.6\0" || it.starts_with(b"\0libc.")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(mut head in proptest::collection::vec(any::<u8>(), 0..300), elf: bool) {
            if elf && head.len() > 7 {
                head[..6].copy_from_slice(b"\x7fELF\x02\x01");
            }
            let _ = kind(&head);
            let _ = loader(&head);
            let _ = dynamic(&head);
            let _ = names(&head, &head);
            let _ = is_ours(&head);
        }
    }
}
