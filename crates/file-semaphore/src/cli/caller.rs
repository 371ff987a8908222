//! Guesses whether the calling process will end before the script does; a lock in its name would then be
//! stale at once. The only consequence is a warning.

use pidlockfile::Pid;
use pidlockfile::process::{Stat, stat};

/// Shells, by the names their processes have. A process of theirs that began by fork(2) alone is a
/// subshell: `( )`, `$( )`, a part of a pipe.
const SHELLS: [&str; 12] =
    ["sh", "dash", "bash", "zsh", "ksh", "ksh93", "mksh", "yash", "ash", "busybox", "posh", "fish"];

/// Programs that start another one and end with it.
const WRAPPERS: [&str; 17] = [
    "timeout", "xargs", "sudo", "doas", "su", "runuser", "time", "find", "watch", "strace",
    "flock", "unshare", "chronic", "parallel", "script", "ionice", "setsid",
];

/// What the calling process is, if it is one that ends early: in words, with its number.
pub(super) fn short_lived(caller: Pid) -> Option<String> {
    let own = stat(caller)?;
    let parent = Pid::new(own.parent).and_then(stat);
    let what = kind(&own, parent.as_ref())?;
    Some(format!("{what} (process {caller})"))
}

fn kind(own: &Stat, parent: Option<&Stat>) -> Option<String> {
    if WRAPPERS.contains(&own.name.as_str()) {
        return Some(own.name.clone());
    }
    let forked = parent.is_some_and(|parent| own.image != (0, 0) && own.image == parent.image);
    (forked && SHELLS.contains(&own.name.as_str())).then(|| "a subshell".to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn process(name: &str, image: u64) -> Stat {
        let line = format!(
            "7 ({name}) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 18 4242 20 21 22 23 24 {image} 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 {image}"
        );
        Stat::parse(line.as_bytes()).unwrap()
    }

    #[rstest]
    #[case::subshell(process("bash", 5), Some(process("bash", 5)), Some("a subshell"))]
    #[case::script_of_a_script(process("sh", 5), Some(process("sh", 6)), None)]
    #[case::worker_of_a_program(process("python3", 5), Some(process("python3", 5)), None)]
    #[case::hidden_parent(process("sh", 0), Some(process("sh", 0)), None)]
    #[case::wrapper(process("timeout", 5), None, Some("timeout"))]
    #[case::first_process(process("sh", 5), None, None)]
    fn a_process_that_ends_early(
        #[case] own: Stat,
        #[case] parent: Option<Stat>,
        #[case] what: Option<&str>,
    ) {
        assert_eq!(kind(&own, parent.as_ref()).as_deref(), what);
    }
}
