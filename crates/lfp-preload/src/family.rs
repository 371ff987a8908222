//! The processes that one descends from.

use pidlockfile::Pid;

use crate::contents;

/// More than the longest `/proc/PID/stat`.
const STAT_BYTES: usize = 2048;

/// How far up is looked.
const GENERATIONS: usize = 64;

/// Whether `other` is this process, or one that it descends from.
pub(crate) fn includes(other: Pid) -> bool {
    let parent =
        |child: &Pid| parent_in(&contents::of(&format!("/proc/{child}/stat"), STAT_BYTES)?);
    let mut line = std::iter::successors(Some(Pid::this()), parent).take(GENERATIONS);
    line.any(|process| process == other)
}

/// Behind the name, which may hold anything: the state, then the parent (proc(5)).
fn parent_in(stat: &[u8]) -> Option<Pid> {
    let rest = stat.rsplit(|byte| *byte == b')').next()?;
    Pid::parse(rest.split(|byte| *byte == b' ').nth(2)?).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::usual(b"42 (cat) S 17 42 1 0 -1", Some(17))]
    #[case::hostile_name(b"42 (a) S 1 (b) R 17 42", Some(17))]
    #[case::first(b"1 (init) S 0 1 1", None)]
    #[case::cut(b"42 (cat) S", None)]
    #[case::empty(b"", None)]
    fn parents(#[case] stat: &[u8], #[case] parent: Option<i64>) {
        assert_eq!(parent_in(stat), parent.and_then(Pid::new));
    }

    #[test]
    fn this_process_and_its_parent_but_no_other() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let parent = Pid::new(std::os::unix::process::parent_id().into()).unwrap();
        assert!(includes(Pid::this()) && includes(parent));
        assert!(!includes(Pid::new(child.id().into()).unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
