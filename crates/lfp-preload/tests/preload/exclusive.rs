//! `LFP_EXCLUSIVE=1`: a port that was locked by being opened can be opened by nobody else until its lock ends. On a
//! virtual console, whose driver forgets the mode at the last close, as those of serial ports do.

use rstest::rstest;
use testbed::{Console, Process, User, can_open, comes};

use crate::ground::Ground;

const CONSOLE: &str = Console::PATH;
const PORTS: &str = "1:/dev/ttyV0:/dev/ttyW0";

/// A machine with a service and the console, which no other test has meanwhile.
fn machine() -> (Console, Ground) {
    let (console, ground) = (Console::take(), Ground::served());
    console.put_into(&ground.sandbox);
    (console, ground)
}

/// A script of Alice's that says each step when it is done, and does the next at a line.
fn begin<'s>(ground: &'s Ground, steps: &[&str]) -> Process<'s> {
    let mut script = "import os, sys\n".to_owned();
    for (n, step) in steps.iter().enumerate() {
        script += &format!("{step}\nprint('{n}.', flush=True)\nsys.stdin.readline()\n");
    }
    let command = ground.python(&script, User::Alice).env("LFP_PORTS", PORTS);
    let mut process = command.env("LFP_EXCLUSIVE", "1").spawn();
    process.expect("0.");
    process
}

#[rstest]
#[case::open("port = os.open('/dev/ttyV0', os.O_RDWR | os.O_NOCTTY)", "os.close(port)")]
#[case::fopen(
    "import ctypes; c = ctypes.CDLL(None); c.fopen.restype = ctypes.c_void_p; \
     port = c.fopen(b'/dev/ttyV0', b'r+')",
    "c.fclose(ctypes.c_void_p(port))"
)]
#[case::the_last_of_two(
    "one = os.open('/dev/ttyV0', os.O_RDWR | os.O_NOCTTY); two = os.dup(one); os.close(one)",
    "os.close(two)"
)]
#[ignore = "needs root: tests/run"]
fn from_the_opening_to_the_close(#[case] open: &str, #[case] close: &str) {
    let (_console, ground) = machine();
    let mut alice = begin(&ground, &["pass", open, close, open]);
    assert!(can_open(&ground.sandbox, CONSOLE));
    alice.go_on(1);
    assert!(!can_open(&ground.sandbox, CONSOLE), "{}", alice.output());
    alice.go_on(2);
    assert!(can_open(&ground.sandbox, CONSOLE), "closed");
    alice.go_on(3);
    assert!(!can_open(&ground.sandbox, CONSOLE), "opened again");
    alice.kill();
    assert!(comes(|| can_open(&ground.sandbox, CONSOLE)), "killed");
}

/// The lock ends with the process's close, though a child has the port open.
#[test]
#[ignore = "needs root: tests/run"]
fn a_child_that_has_it_open_keeps_nobody_out() {
    let (_console, ground) = machine();
    let fork = "port = os.open('/dev/ttyV0', os.O_RDWR | os.O_NOCTTY)\nos.set_inheritable(port, True)\n\
                os.fork() or os.execlp('sleep', 'sleep', '1000')";
    let mut alice = begin(&ground, &[fork, "os.close(port)"]);
    assert!(!can_open(&ground.sandbox, CONSOLE));
    alice.go_on(1);
    assert!(can_open(&ground.sandbox, CONSOLE));
}

/// Calls that seem to close the port.
#[rstest]
#[case::dup2_of_itself("os.dup2(port, port)")]
#[case::dup2_of_nothing("import ctypes; assert ctypes.CDLL(None).dup2(999, port) < 0")]
#[case::dup3_of_itself("import ctypes; assert ctypes.CDLL(None).dup3(port, port, 0) < 0")]
#[case::close_range_at_exec(
    "import ctypes; assert ctypes.CDLL(None).close_range(port, port, 4) == 0"
)]
#[ignore = "needs root: tests/run"]
fn a_call_that_closes_nothing_leaves_the_port_exclusive(#[case] call: &str) {
    let (_console, ground) = machine();
    let open = "port = os.open('/dev/ttyV0', os.O_RDWR | os.O_NOCTTY)";
    let mut alice = begin(&ground, &[open, call]);
    alice.go_on(1);
    assert!(!can_open(&ground.sandbox, CONSOLE), "{}", alice.output());
}
