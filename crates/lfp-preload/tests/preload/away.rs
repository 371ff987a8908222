//! Ports mode while the service is away or hangs: what was closed is released when it is back, and what is opened
//! is locked again. Without a service a port is opened with a message, or not at all; while a service hangs, it is not
//! opened.

use rstest::rstest;
use testbed::{User, comes};

use crate::ground::{Ground, LOCK, TOLD, say};

const HUNG: &str = "lfp: no lock for /dev/ttyW0: the service has not answered in time";

#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_port_closed_while_the_service_hangs_is_released_when_it_is_back() {
    let ground = Ground::new();
    let service = ground.serve();
    let command = ground.python(TOLD, User::Alice).env("LFP_PORTS", "1:/dev/ttyW0");
    let mut alice = command.env("LFP_TIMEOUT", "3").spawn();
    alice.type_in("open\n");
    alice.expect("did open");
    assert!(ground.sandbox.read(LOCK).is_some());
    service.signal("STOP");
    alice.type_in("close\nopen\n");
    alice.expect("did close");
    alice.expect(HUNG);
    alice.expect("EBUSY open");
    alice.type_in("open\n");
    let twice = || alice.output().matches(HUNG).count() == 2;
    assert!(comes(twice), "each says so: {}", alice.output());
    assert!(ground.sandbox.read(LOCK).is_some(), "nobody can release it yet");
    service.signal("CONT");
    // Whatever is closed next pays, when the pause is over.
    let is_paid = || {
        alice.type_in("other\n");
        ground.sandbox.read(LOCK).is_none()
    };
    assert!(comes(is_paid), "{}", alice.output());
    assert!(alice.runs(), "it has not ended for that");
    alice.type_in("open\n");
    assert!(
        comes(|| ground.sandbox.read(LOCK).is_some()),
        "the next is locked again: {}",
        alice.output()
    );
}

/// A lock file that is removed while the service hangs is gone for the program, and for everybody when the
/// service is back, unless the program makes it again.
#[rstest]
#[case::it_is_told_later(&[], &[])]
#[case::it_is_made_again_meanwhile(&["take", "look"], &["give"])]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_file_that_is_removed_while_the_service_hangs_is_not_kept(
    #[case] meanwhile: &[&str],
    #[case] afterwards: &[&str],
) {
    let ground = Ground::new();
    let service = ground.serve();
    let mut alice = ground.python(TOLD, User::Alice).env("LFP_TIMEOUT", "3").spawn();
    assert_eq!(say(&mut alice, "take"), "did take");
    assert_eq!(say(&mut alice, "look"), "did look");
    service.signal("STOP");
    assert_eq!(say(&mut alice, "give"), "did give");
    assert_eq!(say(&mut alice, "look"), "ENOENT look");
    meanwhile.iter().for_each(|word| assert_eq!(say(&mut alice, word), format!("did {word}")));
    service.signal("CONT");
    assert!(ground.sandbox.read(LOCK).is_some(), "nobody has released it yet");
    afterwards.iter().for_each(|word| assert_eq!(say(&mut alice, word), format!("did {word}")));
    let is_paid = || say(&mut alice, "other") == "did other" && ground.sandbox.read(LOCK).is_none();
    assert!(comes(is_paid), "{}", alice.output());
    assert_eq!(say(&mut alice, "take"), "did take");
    assert!(ground.sandbox.read(LOCK).is_some());
}

/// `LFP_PORTS=must`: no port without a lock.
#[rstest]
#[case::open("os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY)")]
#[case::stream("open('/dev/ttyW0', 'rb+', buffering=0)")]
#[ignore = "needs namespaces: tests/run"]
fn without_a_service_no_port_is_opened_that_must_be_locked(#[case] call: &str) {
    let ground = Ground::new();
    let script = format!(
        "import os, errno\ntry: {call}; print('opened')\n\
         except OSError as error: print(errno.errorcode[error.errno])"
    );
    let ask = || ground.python(&script, User::Alice).env("LFP_PORTS", "must:/dev/ttyW0").run();
    let expected = "lfp: no lock for /dev/ttyW0: the service does not answer\nENOLCK\n";
    let end = ask();
    assert_eq!(end.output(), expected, "{end}");
    let _daemon = ground.serve();
    let end = ask();
    assert_eq!(end.output(), "opened\n", "{end}");
}

/// The service is killed before it has come to the request: there is nothing to release, and the next service is asked
/// like the first.
#[rstest]
#[case::a_port("open", "EBUSY open")]
#[case::a_lock_file("take", "EACCES take")]
#[ignore = "needs namespaces: tests/run"]
fn what_a_killed_service_has_never_locked_is_locked_by_the_next(
    #[case] word: &str,
    #[case] refused: &str,
) {
    let ground = Ground::new();
    let service = ground.serve();
    let command = ground.python(TOLD, User::Alice).env("LFP_PORTS", "1:/dev/ttyW0");
    let mut alice = command.env("LFP_TIMEOUT", "2").spawn();
    assert_eq!(say(&mut alice, "other"), "did other");
    service.signal("STOP");
    assert_eq!(say(&mut alice, word), refused);
    service.kill();
    ground.sandbox.command("rm").arg(testbed::SOCKET).run().expect(0);
    let _next = ground.serve();
    assert!(comes(|| say(&mut alice, word) == format!("did {word}")), "{}", alice.output());
    assert_eq!(ground.holder(), Some(alice.pid()));
}
