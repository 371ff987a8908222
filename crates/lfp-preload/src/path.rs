//! What a path means for the lock directories, and which device numbers are serial ports, or surely none. Bytes and
//! numbers in, values out; allocates nothing, so that it can be called for every path that a program names.
//!
//! Pure.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ttylock::{BEGINNING, Dialect, SLASH_SIGNS, is_temporary};

/// The longest name of a lock directory, in bytes: `/var/spool/locks`.
pub const DIRECTORY_BYTES: usize = 16;

/// The longest name that is looked at, in bytes (`NAME_MAX`).
const NAME_BYTES: usize = 255;

/// The characters of a template that mkstemp(3) replaces.
pub(crate) const RANDOM_BYTES: usize = 6;

/// How many `_` or `:` of a lock name may stand for `/`: no system nests its devices deeper.
const DEPTH: usize = 4;

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind<'a> {
    /// Nothing of ours.
    Elsewhere,
    /// A lock directory itself.
    Directory,
    /// The lock file of a device; the name is the device's, as lock names have it.
    Lock(LockName<'a>),
    /// Another file directly in a lock directory: what a program makes on the way to a lock.
    Temporary(&'a [u8]),
}

/// The name of a lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockName<'a> {
    /// The file's name.
    pub file: &'a [u8],
    /// The device's, as lock names have it: `ttyS0`, `pts_3`, `pts:3`.
    pub device: &'a [u8],
}

/// Classifies an absolute path. Empty and `.` components do not count; a path with `..` in it is
/// never ours, because where it leads depends on links.
#[must_use]
pub fn classify(path: &[u8]) -> PathKind<'_> {
    // Nearly all paths end otherwise, and are looked at no further.
    let parts = path.rsplit(|byte| *byte == b'/').filter(|it| !matches!(*it, b"" | b"."));
    if !parts.take(2).any(|part| matches!(part, b"lock" | b"locks")) {
        return PathKind::Elsewhere;
    }
    let whole = Path::new(OsStr::from_bytes(path));
    if is_lock_directory(whole) {
        return PathKind::Directory;
    }
    // A slash at the end asks for a directory.
    let ends_in_slash = path.ends_with(b"/") || path.ends_with(b"/.");
    match (whole.parent(), whole.file_name()) {
        (Some(directory), Some(name)) if is_lock_directory(directory) && !ends_in_slash => {
            named(name.as_bytes())
        }
        _ => PathKind::Elsewhere,
    }
}

/// Whether programs keep the locks of serial ports there, and nothing else.
fn is_lock_directory(path: &Path) -> bool {
    Dialect::lock_directories().any(|directory| Path::new(directory) == path)
}

/// The same of a file name whose directory is known to be a lock directory.
fn named(name: &[u8]) -> PathKind<'_> {
    if name.len() > NAME_BYTES {
        return PathKind::Elsewhere;
    }
    match name.strip_prefix(BEGINNING.as_bytes()) {
        Some(device) if !device.is_empty() && !is_temporary(name) => {
            PathKind::Lock(LockName { file: name, device })
        }
        _ => PathKind::Temporary(name),
    }
}

/// Whether a lock's name ends as mkstemp(3) makes names end, or as Qt's helper file
/// (`LCK..ttyS0.rmlock`). A device may be called so as well: it is a temporary only where there is
/// no such device.
#[must_use]
pub fn may_be_temporary(device: &[u8]) -> bool {
    let Some(dot) = device.len().checked_sub(RANDOM_BYTES.saturating_add(1)) else { return false };
    match device.split_at_checked(dot) {
        Some((stem, [b'.', random @ ..])) => {
            !stem.is_empty() && random.iter().all(u8::is_ascii_alphanumeric)
        }
        _ => false,
    }
}

/// The devices, below `/dev`, that a lock name may stand for, most likely first: the name itself,
/// then with the first, the first two … of its `_` as `/` (minicom, pppd, gensio, Qt), then the
/// same with `:` (liblockdev). The caller takes the first that is a device.
pub fn devices(name: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let nested = move |mark: char| {
        let is_mark = move |byte: &u8| char::from(*byte) == mark;
        let marks = name.iter().filter(|byte| is_mark(byte)).count().min(DEPTH);
        (1..=marks).map(move |first| {
            let parts = name.splitn(first.saturating_add(1), is_mark);
            parts.collect::<Vec<_>>().join(&b'/')
        })
    };
    std::iter::once(name.to_vec()).chain(SLASH_SIGNS.into_iter().flat_map(nested))
}

/// What must hold for any bytes at all: for the fuzz target, and for the test that replays its
/// corpus. A violation panics.
#[cfg(any(test, fuzzing))]
pub fn check(path: &[u8]) {
    let has = |part: &[u8]| path.split(|byte| *byte == b'/').any(|it| it == part);
    match classify(path) {
        PathKind::Elsewhere => {}
        PathKind::Directory => assert!(has(b"lock") || has(b"locks")),
        PathKind::Temporary(name) => assert!(has(name) && name.len() <= NAME_BYTES),
        PathKind::Lock(lock) => {
            assert!(has(lock.file) && lock.file.ends_with(lock.device) && !lock.device.is_empty());
            let tried = devices(lock.device).inspect(|it| assert_eq!(it.len(), lock.device.len()));
            assert!(tried.count() <= 1 + 2 * DEPTH);
            let _ = may_be_temporary(lock.device);
        }
    }
}

/// The majors of serial ports that are the same on every Linux (its `devices.txt`): modems on
/// USB, USB converters, and the ports of small machines.
const MAJORS: [u32; 3] = [166, 188, 204];

/// The majors of what programs open most and what is never a serial port (the same source): memory and `/dev/null`, the
/// terminal of the process, input, sound, pseudo-terminals, graphics.
const OTHER_MAJORS: [u32; 6] = [1, 5, 13, 116, 136, 226];

/// The first minor of `/dev/ttyS0`; those of the same major below are consoles.
const TTY_MAJOR: u32 = 4;
const FIRST_PORT: u32 = 64;

/// Whether it is a serial port by its number alone.
pub(crate) fn is_port(major: u32, minor: u32) -> bool {
    MAJORS.contains(&major) || major == TTY_MAJOR && minor >= FIRST_PORT
}

/// Whether it is no serial port, by its number alone: the list of drivers takes longer than to open the device.
pub(crate) fn is_other(major: u32) -> bool {
    OTHER_MAJORS.contains(&major)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const LONGEST: [u8; 255] = [b'x'; 255];

    fn shown(path: &[u8]) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match classify(path) {
            PathKind::Elsewhere => "-".to_owned(),
            PathKind::Directory => "directory".to_owned(),
            PathKind::Lock(lock) => format!("lock {} {}", text(lock.file), text(lock.device)),
            PathKind::Temporary(name) => format!("temporary {}", text(name)),
        }
    }

    #[rstest]
    #[case::usual("/var/lock/LCK..ttyS0", "lock LCK..ttyS0 ttyS0")]
    #[case::run("/run/lock/LCK..ttyS0", "lock LCK..ttyS0 ttyS0")]
    #[case::var_run("/var/run/lock/LCK..x", "lock LCK..x x")]
    #[case::spool("/var/spool/lock/LCK..x", "lock LCK..x x")]
    #[case::spools("/var/spool/locks/LCK..x", "lock LCK..x x")]
    #[case::squeezed("//var/.//lock/./LCK..x", "lock LCK..x x")]
    #[case::underscore("/run/lock/LCK..pts_3", "lock LCK..pts_3 pts_3")]
    #[case::dotted("/run/lock/LCK..tty.S0", "lock LCK..tty.S0 tty.S0")]
    #[case::suffixed("/run/lock/LCK..ttyW0.abc123", "lock LCK..ttyW0.abc123 ttyW0.abc123")]
    #[case::directory("/var/lock", "directory")]
    #[case::directory_slash("/run//lock/", "directory")]
    #[case::kermit("/var/lock/LTMP.00123", "temporary LTMP.00123")]
    #[case::cu("/var/lock/TMP000000007b", "temporary TMP000000007b")]
    #[case::mgetty("/var/lock/LCK..TM.a1b2c3", "temporary LCK..TM.a1b2c3")]
    #[case::liblockdev("/var/lock/LCK...123", "temporary LCK...123")]
    #[case::dot_in_front("/var/lock/LCK...tty", "lock LCK...tty .tty")]
    #[case::qt("/var/lock/LCK..ttyS0.rmlock", "temporary LCK..ttyS0.rmlock")]
    #[case::no_device("/var/lock/LCK..", "temporary LCK..")]
    #[case::numbered("/var/lock/LK.000.004.064", "temporary LK.000.004.064")]
    #[case::other_case("/var/lock/lck..ttyS0", "temporary lck..ttyS0")]
    #[case::climbs("/var/lock/../lock/LCK..x", "-")]
    #[case::climbs_at_the_end("/var/lock/..", "-")]
    #[case::dots_are_a_name("/var/lock/...", "temporary ...")]
    #[case::deeper("/var/lock/lockdev/LCK..x", "-")]
    #[case::much_deeper("/run/lock/a/b/c/d/e", "-")]
    #[case::beside("/var/lockx/LCK..x", "-")]
    #[case::above("/var/LCK..x", "-")]
    #[case::relative("var/lock/LCK..x", "-")]
    #[case::bare("LCK..x", "-")]
    #[case::as_directory("/var/lock/LCK..x/", "-")]
    #[case::as_directory_dot("/var/lock/LCK..x/.", "-")]
    #[case::root("/", "-")]
    #[case::empty("", "-")]
    #[case::tmp("/tmp/LCK..x", "-")]
    fn paths_are_classified(#[case] path: &str, #[case] expected: &str) {
        assert_eq!(shown(path.as_bytes()), expected);
    }

    #[rstest]
    #[case::longest(255, false)]
    #[case::one_too_long(256, true)]
    fn names_are_bounded(#[case] length: usize, #[case] is_elsewhere: bool) {
        let path = [b"/run/lock/".as_slice(), &LONGEST, b"x"].concat();
        let path = &path[..b"/run/lock/".len() + length];
        assert_eq!(classify(path) == PathKind::Elsewhere, is_elsewhere);
    }

    #[rstest]
    #[case::socat("ttyW0.a1B2c3", true)]
    #[case::qt("ttyW0.rmlock", true)]
    #[case::shorter("ttyW0.a1B2c", false)]
    #[case::longer("ttyW0.a1B2c3d", false)]
    #[case::odd("ttyW0.a1_2c3", false)]
    #[case::only_random(".a1B2c3", false)]
    #[case::nothing("", false)]
    #[case::device("ttyUSB0", false)]
    fn temporaries_of_mkstemp(#[case] device: &str, #[case] expected: bool) {
        assert_eq!(may_be_temporary(device.as_bytes()), expected);
    }

    /// All that lock files are kept in on any system. What else is kept in some of them is none of ours.
    #[test]
    fn every_directory_of_the_table_is_known() {
        let known = Dialect::known_directories();
        assert!(known.len() > 15, "{known:?}");
        for directory in known {
            let path = directory.to_str().unwrap();
            let has_others = !path.ends_with("/lock") && !path.ends_with("/locks");
            let places = [path.to_owned(), format!("{path}/LCK..pts_3"), format!("{path}/x")];
            let said = places.map(|path| shown(path.as_bytes()));
            let expected = ["directory", "lock LCK..pts_3 pts_3", "temporary x"];
            let is_foreign = said[0] != "directory" && said[1..] == ["-", "-"];
            assert!(if has_others { is_foreign } else { said == expected }, "{path}: {said:?}");
        }
    }

    #[test]
    fn lock_directories_fit() {
        assert_eq!(Dialect::lock_directories().map(str::len).max(), Some(DIRECTORY_BYTES));
    }

    #[rstest]
    #[case("ttyS0", &["ttyS0"])]
    #[case("pts_3", &["pts_3", "pts/3"])]
    #[case("pts:3", &["pts:3", "pts/3"])]
    #[case("a_b:c", &["a_b:c", "a/b:c", "a_b/c"])]
    #[case(
        "serial_by-id_usb-X_Y",
        &["serial_by-id_usb-X_Y", "serial/by-id_usb-X_Y", "serial/by-id/usb-X_Y",
          "serial/by-id/usb-X/Y"]
    )]
    #[case("_______", &["_______", "/______", "//_____", "///____", "////___"])]
    fn devices_of_a_name(#[case] name: &str, #[case] expected: &[&str]) {
        let found: Vec<_> =
            devices(name.as_bytes()).map(|it| String::from_utf8(it).unwrap()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_fuzz_corpus_passes() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/path");
        let mut replayed = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            check(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 10, "{replayed} files");
    }

    fn part() -> impl Strategy<Value = &'static [u8]> {
        let parts: [&[u8]; 12] = [
            b"",
            b".",
            b"..",
            b"var",
            b"run",
            b"lock",
            b"spool",
            b"locks",
            b"LCK..ttyS0",
            b"LCK..TM.abc",
            b"LCK..",
            b"x\xff",
        ];
        proptest::sample::select(parts.to_vec())
    }

    proptest! {
        /// What std makes of the same path must be the directory that is claimed.
        #[test]
        fn agrees_with_the_standard_library(parts in proptest::collection::vec(part(), 0..8)) {
            let text = [b"/".to_vec(), parts.join(&b'/')].concat();
            let path = Path::new(OsStr::from_bytes(&text));
            let within = |it: Option<&Path>| {
                Dialect::lock_directories().any(|directory| it == Some(Path::new(directory)))
            };
            match classify(&text) {
                PathKind::Elsewhere => {
                    let climbs = parts.contains(&&b".."[..]);
                    let asks_for_directory = matches!(parts.last(), Some(&b"" | &b"."));
                    prop_assert!(climbs || !within(Some(path)) && (asks_for_directory || !within(path.parent())));
                }
                PathKind::Directory => prop_assert!(within(Some(path))),
                PathKind::Lock(lock) => {
                    prop_assert!(within(path.parent()));
                    prop_assert_eq!(path.file_name().map(OsStrExt::as_bytes), Some(lock.file));
                }
                PathKind::Temporary(name) => {
                    prop_assert!(within(path.parent()));
                    prop_assert_eq!(path.file_name().map(OsStrExt::as_bytes), Some(name));
                }
            }
        }
    }

    #[rstest]
    #[case::console(4, 1, false)]
    #[case::last_console(4, 63, false)]
    #[case::first_port(4, 64, true)]
    #[case::usb(188, 0, true)]
    #[case::modem(166, 3, true)]
    #[case::null(1, 3, false)]
    #[case::terminal(5, 0, false)]
    #[case::pseudo_terminal(136, 0, false)]
    #[case::unknown(240, 0, false)]
    fn ports_are_known_by_their_major_number(
        #[case] major: u32,
        #[case] minor: u32,
        #[case] expected: bool,
    ) {
        assert_eq!(is_port(major, minor), expected);
    }
}
