//! A program that is refused a port is told the holder, or waits in line for it.

use rstest::rstest;
use testbed::{LFP, LIMIT, Process, User, comes, until};

use crate::ground::{Ground, PORT};

/// Opens the port, says what came of it, and has it until a line of input.
const OPEN: &str = "
import os, sys, errno
try: os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY); print('opened', flush=True)
except OSError as error: sys.exit('refused ' + errno.errorcode[error.errno])
sys.stdin.readline()
";

const PORTS: &str = "1:/dev/ttyW0";

fn alice_has_it(ground: &Ground) -> Process<'_> {
    let mut alice = ground.python(OPEN, User::Alice).env("LFP_PORTS", PORTS).spawn();
    alice.expect("opened");
    alice
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_user_is_told_the_holder_and_since_when() {
    let ground = Ground::served();
    let _alice = alice_has_it(&ground);
    let bob = ground.python(OPEN, User::Bob).env("LFP_PORTS", PORTS);
    let end = bob.env("LFP_TELL", "1").run();
    let (told, refusal) = end.output().split_once('\n').unwrap();
    let time = told.strip_prefix("lfp: /dev/ttyW0: held by alice, python3, ").unwrap_or_default();
    assert!(time.starts_with(|first: char| first.is_ascii_digit()) && time.ends_with('s'), "{end}");
    assert_eq!(refusal, "refused EBUSY\n", "{end}");
}

/// A program reads nothing that it did not ask for; a person does.
#[rstest]
#[case::a_program(false)]
#[case::a_person(true)]
#[ignore = "needs namespaces: tests/run"]
fn only_people_are_told(#[case] is_person: bool) {
    let ground = Ground::served();
    let _alice = alice_has_it(&ground);
    let bob = ground.python(OPEN, User::Bob).env("LFP_PORTS", PORTS);
    let end = if is_person { bob.on_terminal().run() } else { bob.run() };
    assert_eq!(end.said("held by alice"), is_person, "{end}");
    assert!(end.said("refused EBUSY"), "{end}");
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_program_waits_in_line() {
    let ground = Ground::served();
    let mut alice = alice_has_it(&ground);
    let words = ["shim", "--ports", "--also", PORT, "--wait", "60", "--", "/usr/bin/python3"];
    let bob = ground.sandbox.command(LFP).args(words).args(["-c", OPEN]).user(User::Bob);
    let mut bob = bob.env("LFP_TIMEOUT", "30").env("LFP_TELL", "1").spawn();
    bob.expect("lfp: /dev/ttyW0: held by alice, python3");
    bob.expect("; waiting, 1m00s at most");
    assert!(!bob.output().contains("opened"));
    alice.type_in("\n");
    bob.expect("opened");
    assert!(comes(|| ground.holder() == Some(bob.pid())));
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_wait_ends_when_its_time_is_up() {
    let ground = Ground::served();
    let _alice = alice_has_it(&ground);
    let words = ["shim", "--ports", "--also", PORT, "--wait", "1", "--", "/usr/bin/python3"];
    let bob = ground.sandbox.command(LFP).args(words).args(["-c", OPEN]).user(User::Bob);
    let end = bob.env("LFP_TIMEOUT", "30").run();
    assert_eq!(end.output(), "refused EBUSY\n", "{end}");
}

/// There is nothing to release then, and the program can open the port again.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_port_whose_lock_was_released_by_force_is_opened_again() {
    let ground = Ground::served();
    // On a busy machine, the service may not see in time that there is no lock.
    let again = "while True:
    try: os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY); break
    except OSError: time.sleep(0.01)
print('once more', flush=True)
sys.stdin.readline()";
    let script = format!("import time{OPEN}os.close(3)\n{again}");
    let mut alice = ground.python(&script, User::Alice).env("LFP_PORTS", PORTS).spawn();
    alice.expect("opened");
    ground.sandbox.command(LFP).args(["unlock", "--force", PORT]).run().expect(0);
    alice.type_in("\n");
    alice.expect("once more");
    assert_eq!(ground.holder(), Some(alice.pid()));
    alice.type_in("\n");
    assert_eq!(alice.wait(LIMIT).code(), 0);
    assert!(comes(|| ground.holder().is_none()));
}

/// A signal that the program catches is not kept from it.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_signal_ends_the_wait() {
    let ground = Ground::served();
    let _alice = alice_has_it(&ground);
    let script = format!(
        "import signal\ndef stop(*_): raise SystemExit('stopped')\nsignal.signal(signal.SIGTERM, stop)\n{OPEN}"
    );
    let bob = ground.python(&script, User::Bob).env("LFP_PORTS", PORTS).env("LFP_TELL", "1");
    let mut bob = bob.env("LFP_WAIT", "1000").spawn();
    bob.expect("; waiting, 16m40s at most");
    let ended = until(LIMIT, || {
        // It may come before the wait has begun, and be forgotten then; or after the end.
        let _ = ground.sandbox.command("kill").arg(bob.pid().to_string()).run();
        bob.ended()
    });
    assert!(ended.is_some_and(|end| end.said("stopped")));
}
