//! Names of temporary files, `PREFIX.PID.RANDOM.tmp`: recognisable, and no lock by any convention.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::process::Pid;

/// Sixteen hexadecimal digits that nobody else can foresee.
const RANDOM_DIGITS: usize = 16;

/// A fresh name. Two calls never give the same but by a chance of one in 2^64; the file is
/// created exclusively, so even that is noticed.
pub(crate) fn fresh(prefix: &str, maker: Pid) -> String {
    // The standard library keys each hasher from the system's random source.
    let random = RandomState::new().build_hasher().finish();
    format!("{prefix}.{maker}.{random:0width$x}.tmp", width = RANDOM_DIGITS)
}

/// Who made this temporary file, if it is one with that prefix.
pub(crate) fn maker(name: &str, prefix: &str) -> Option<Pid> {
    let rest = name.strip_prefix(prefix)?.strip_prefix('.')?.strip_suffix(".tmp")?;
    let (pid, random) = rest.split_once('.')?;
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let random = random.len() == RANDOM_DIGITS && random.bytes().all(hex);
    random.then(|| Pid::parse(pid.as_bytes()).ok())?
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
    fn only_our_own_form_counts(#[case] name: &str, #[case] pid: Option<i64>) {
        assert_eq!(maker(name, "p"), pid.and_then(Pid::new));
    }
}
