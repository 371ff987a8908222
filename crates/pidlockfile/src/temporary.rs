//! Names of temporary files, `PREFIX.PID.RANDOM.tmp`, which are not lock files in any convention.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::process::Pid;

/// Sixteen hexadecimal digits that nobody else can foresee.
const RANDOM_DIGITS: usize = 16;

/// More than most names have.
const USUAL_BYTES: usize = 64;

/// A fresh name. Two calls never give the same but by a chance of one in 2^64; the file is
/// created exclusively, so even that is noticed.
pub(crate) fn fresh(prefix: impl AsRef<OsStr>, maker: Pid) -> OsString {
    named(prefix, maker, random())
}

/// The same, in the name of a release of this lock past a `flock(2)`: half of what is random shows
/// which lock it is.
#[cfg(any(unix, test))]
pub(crate) fn for_release(
    prefix: impl AsRef<OsStr>,
    maker: Pid,
    lock: impl AsRef<OsStr>,
) -> OsString {
    named(prefix, maker, u64::from(mark(lock)) << 32 | random() >> 32)
}

fn named(prefix: impl AsRef<OsStr>, maker: Pid, random: u64) -> OsString {
    let mut name = OsString::with_capacity(USUAL_BYTES);
    name.push(prefix);
    // It takes any text.
    let _ = write!(name, ".{maker}.{random:0width$x}.tmp", width = RANDOM_DIGITS);
    name
}

fn random() -> u64 {
    // The standard library keys each hasher from the system's random source.
    RandomState::new().build_hasher().finish()
}

/// The name of a further link to a temporary file; each number has its own. `None` if it is no such name.
#[cfg(unix)]
pub(crate) fn further(name: &str, number: usize) -> Option<String> {
    let (_, maker, digits) = parts(OsStr::new(name))?;
    let digits = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    let further = digits.wrapping_add(u64::try_from(number).ok()?).wrapping_add(1);
    let prefix =
        name.strip_suffix(&format!(".{maker}.{digits:0width$x}.tmp", width = RANDOM_DIGITS))?;
    Some(format!("{prefix}.{maker}.{further:0width$x}.tmp", width = RANDOM_DIGITS))
}

/// The maker of this temporary file, if it is one with that prefix.
pub(crate) fn maker(name: impl AsRef<OsStr>, prefix: impl AsRef<OsStr>) -> Option<Pid> {
    let (its_prefix, maker, _) = parts(name.as_ref())?;
    (its_prefix == prefix.as_ref().as_encoded_bytes()).then_some(maker)
}

/// The maker of this temporary file, if it may be one for a release of this lock. Two locks in some
/// billions have the same mark.
#[cfg(any(unix, test))]
pub(crate) fn releaser(name: impl AsRef<OsStr>, lock: impl AsRef<OsStr>) -> Option<Pid> {
    let (_, maker, random) = parts(name.as_ref())?;
    random.starts_with(format!("{:08x}", mark(lock)).as_bytes()).then_some(maker)
}

/// Prefix, maker and random digits of a temporary file, from behind: the prefix need not be text.
fn parts(name: &OsStr) -> Option<(&[u8], Pid, &[u8])> {
    let mut parts = name.as_encoded_bytes().rsplitn(4, |byte| *byte == b'.');
    parts.next().filter(|end| *end == b"tmp")?;
    let is_hex = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    let is_random = |part: &&[u8]| part.len() == RANDOM_DIGITS && part.iter().all(is_hex);
    let random = parts.next().filter(is_random)?;
    let maker = Pid::parse(parts.next()?).ok()?;
    Some((parts.next()?, maker, random))
}

/// The same in every process, unlike the hashes of the standard library: FNV-1a.
#[cfg(any(unix, test))]
fn mark(lock: impl AsRef<OsStr>) -> u32 {
    let bytes = lock.as_ref().as_encoded_bytes();
    let add = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, add)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_fresh_name_tells_its_maker() {
        let name = fresh("x.lock", Pid::this());
        assert_eq!(maker(&name, "x.lock"), Some(Pid::this()));
        assert_ne!(name, fresh("x.lock", Pid::this()));
    }

    #[test]
    fn releases_of_one_lock_know_each_other() {
        let name = for_release("x.lock", Pid::this(), "LCK..ttyS0");
        assert_eq!(maker(&name, "x.lock"), Some(Pid::this()));
        assert_eq!(releaser(&name, "LCK..ttyS0"), Some(Pid::this()));
        assert_eq!(releaser(&name, "LCK..ttyS1"), None);
        assert_eq!(mark("a"), 0xe40c_292c, "FNV-1a, by its authors' test vectors");
    }

    #[rstest]
    #[case::good("p.12.0123456789abcdef.tmp", Some(12))]
    #[case::other_prefix("q.12.0123456789abcdef.tmp", None)]
    #[case::longer_prefix("pp.12.0123456789abcdef.tmp", None)]
    #[case::pid_zero("p.0.0123456789abcdef.tmp", None)]
    #[case::pid_words("p.x.0123456789abcdef.tmp", None)]
    #[case::short_random("p.12.0123456789abcde.tmp", None)]
    #[case::upper_case("p.12.0123456789ABCDEF.tmp", None)]
    #[case::no_suffix("p.12.0123456789abcdef", None)]
    #[case::a_lock("LCK..ttyS0", None)]
    fn only_our_own_temporary_names_have_a_maker(#[case] name: &str, #[case] pid: Option<i64>) {
        assert_eq!(maker(name, "p"), pid.and_then(Pid::new));
    }
}
