//! Which holders this process cannot see, wherever it searches. The one answer for all who tell people that nobody holds
//! a device.

use pidlockfile::process::is_in_first_namespace;

use super::holder::OutOfSight;
use crate::sys;

/// What this process cannot see now.
#[must_use]
pub fn out_of_sight() -> OutOfSight {
    // Only Linux has pid namespaces.
    let outside = cfg!(target_os = "linux") && !is_in_first_namespace();
    OutOfSight { outside, of_other_users: !sys::examines_all(outside) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Each case runs this test again, in such a place. A process without the capability is root all the same.
    #[rstest]
    #[case::a_container("unshare --pid --fork --mount-proc", "outside")]
    #[case::an_ordinary_user("setpriv --reuid=65534 --regid=65534 --clear-groups", "users")]
    #[case::a_user_in_a_container(
        "unshare --pid --fork --mount-proc setpriv --reuid=65534 --regid=65534 --clear-groups",
        "outside,users"
    )]
    #[case::root_without_the_capability(
        "setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace",
        "users"
    )]
    #[case::root_of_users("unshare --user --map-root-user", "users")]
    #[case::root_of_users_in_a_container(
        "unshare --user --map-root-user --pid --fork --mount-proc",
        "outside"
    )]
    #[ignore = "needs root: tests/run"]
    fn each_place_hides_what_it_hides(#[case] place: &str, #[case] hidden: &str) {
        const INSIDE: &str = "LFPD_TEST_OUT_OF_SIGHT";
        if std::env::var_os(INSIDE).is_some() {
            println!("[{}]", out_of_sight().word().unwrap_or("nothing"));
            return;
        }
        // An ordinary user cannot run a program below root's directories, but one that is open.
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let again = format!(
            "exec 9<\"$0\"; exec {place} /proc/self/fd/9 --include-ignored --nocapture --exact {test}"
        );
        let mut sh = std::process::Command::new("sh");
        sh.args(["-c", &again]).arg(std::env::current_exe().unwrap()).env(INSIDE, "");
        let told = sh.output().unwrap();
        let said = String::from_utf8_lossy(&told.stdout);
        // Around it is what is hidden from root here, which is nothing on a machine of its own.
        let here = out_of_sight();
        let expected = OutOfSight::from_word(hidden);
        let both = OutOfSight {
            outside: here.outside || expected.outside,
            of_other_users: here.of_other_users || expected.of_other_users,
        };
        assert!(said.contains(&format!("[{}]", both.word().unwrap_or("nothing"))), "{told:?}");
    }
}
