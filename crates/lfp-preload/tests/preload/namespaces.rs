//! In user namespaces, where root and the service have no number of their own: bubblewrap, which Flatpak uses,
//! and unshare(1). The service at the usual socket is believed all the same, where nobody else can be there.

use rstest::rstest;
use testbed::{End, LFP, User};

use crate::ground::{Ground, LIBRARY, PORT};

/// Takes the lock by the library and by `lfp`, and says what came of it.
const TAKE: &str = "
import os
fd = os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY)
print('LCK..ttyW0' in os.listdir('/run/lock'))
os.close(fd)
fd = os.open('/run/lock/LCK..ttyW0', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
os.unlink('/run/lock/LCK..ttyW0')
";

const PYTHON: [&str; 3] = ["/usr/bin/python3", "-c", TAKE];

fn inside(ground: &Ground, namespace: &str, words: &[&str]) -> End {
    let library = format!("LD_PRELOAD={LIBRARY}");
    let command = ground.sandbox.command("env").args(namespace.split(' '));
    let command = command.args(["env", &library, "LFP_PORTS=must:/dev/ttyW0"]).args(words);
    command.user(User::Alice).env("LFP_TIMEOUT", "30").run()
}

const UNSHARE: &str = "unshare --user --map-current-user";

const BUBBLEWRAP: &str = "bwrap --bind / / --dev-bind /dev /dev";

/// As Flatpak has it: a /run of its own, in which the service's directory is.
const OWN_RUN: &str = "bwrap --bind / / --dev-bind /dev /dev --tmpfs /run --bind /run/lfpd /run/lfpd \
    --ro-bind /run/test /run/test --ro-bind /run/lock /run/lock";

const OWN_PROCESSES: &str = "bwrap --bind / / --dev-bind /dev /dev --unshare-pid --proc /proc";

#[rstest]
#[case::unshare(UNSHARE)]
#[case::unshare_as_root("unshare --user --map-root-user")]
#[case::bubblewrap(BUBBLEWRAP)]
#[case::bubblewrap_with_its_own_run(OWN_RUN)]
#[ignore = "needs namespaces: tests/run"]
fn the_service_is_believed(#[case] namespace: &str) {
    let ground = Ground::served();
    let end = inside(&ground, namespace, &PYTHON);
    assert_eq!((end.code(), end.output()), (0, "True\n"), "{end}");
    let end = inside(&ground, namespace, &[LFP, "run", PORT, "--", "echo", "ran"]);
    assert_eq!((end.code(), end.output()), (0, "ran\n"), "{end}");
}

/// The lock file has the number that the process has outside; the library knows its own lock all the same.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn its_own_lock_is_released_in_a_pid_namespace() {
    let ground = Ground::served();
    let end = inside(&ground, OWN_PROCESSES, &PYTHON);
    assert_eq!((end.code(), end.output()), (0, "True\n"), "{end}");
    assert_eq!(ground.sandbox.locks(), [""; 0]);
}

/// Where others may write the directory, anybody from outside may listen there.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_listener_of_unknown_user_is_not_believed_and_that_is_said() {
    let ground = Ground::served();
    let opened = ground.sandbox.command("chmod").args(["1777", "/run/lfpd"]).run();
    assert_eq!(opened.code(), 0);
    let end = inside(&ground, UNSHARE, &PYTHON);
    assert!(end.said("the service does not answer") && end.said("No locks available"), "{end}");
    let end = inside(&ground, UNSHARE, &[LFP, "run", PORT, "--", "echo", "ran"]);
    assert!(end.code() != 0 && end.said("any user outside this user namespace"), "{end}");
}
