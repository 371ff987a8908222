//! `LFP_EXCLUSIVE=1`: a port that was locked by being opened can be opened by nobody else until its lock ends. On a
//! virtual console, whose driver forgets the mode at the last close, as those of serial ports do.

use rstest::rstest;
use testbed::{Console, LFP, LIMIT, Process, User, can_open, until};

use crate::ground::{Ground, PORT};

const CONSOLE: &str = Console::PATH;
const PORTS: &str = "1:/dev/ttyV0:/dev/ttyW0";

/// A machine with a service and the console, which no other test has meanwhile.
fn machine() -> (Console, Ground) {
    let (console, ground) = (Console::take(), Ground::served());
    console.put_into(&ground.sandbox);
    (console, ground)
}

/// A script of Alice's that says each step when it is done, and does the next at a line.
fn begin<'s>(ground: &'s Ground, exclusive: &str, steps: &[&str]) -> Process<'s> {
    let mut script = "import os, sys\n".to_owned();
    for (n, step) in steps.iter().enumerate() {
        script += &format!("{step}\nprint('{n}.', flush=True)\nsys.stdin.readline()\n");
    }
    let command = ground.python(&script, User::Alice).env("LFP_PORTS", PORTS);
    let mut process = command.env("LFP_EXCLUSIVE", exclusive).spawn();
    process.expect("0.");
    process
}

fn go_on(process: &mut Process<'_>, step: usize) {
    process.type_in("\n");
    process.expect(&format!("{step}."));
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
    let mut alice = begin(&ground, "1", &["pass", open, close, open]);
    assert!(can_open(&ground.sandbox, CONSOLE));
    go_on(&mut alice, 1);
    assert!(!can_open(&ground.sandbox, CONSOLE), "{}", alice.output());
    go_on(&mut alice, 2);
    assert!(can_open(&ground.sandbox, CONSOLE), "closed");
    go_on(&mut alice, 3);
    assert!(!can_open(&ground.sandbox, CONSOLE), "opened again");
    alice.kill();
    let free = until(LIMIT, || can_open(&ground.sandbox, CONSOLE).then_some(()));
    assert!(free.is_some(), "killed");
}

/// The lock ends with the process's close, though a child has the port open.
#[test]
#[ignore = "needs root: tests/run"]
fn a_child_that_has_it_open_keeps_nobody_out() {
    let (_console, ground) = machine();
    let fork = "port = os.open('/dev/ttyV0', os.O_RDWR | os.O_NOCTTY)\nos.set_inheritable(port, True)\n\
                os.fork() or os.execlp('sleep', 'sleep', '1000')";
    let mut alice = begin(&ground, "1", &[fork, "os.close(port)"]);
    assert!(!can_open(&ground.sandbox, CONSOLE));
    go_on(&mut alice, 1);
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
    let mut alice = begin(&ground, "1", &[open, call]);
    go_on(&mut alice, 1);
    assert!(!can_open(&ground.sandbox, CONSOLE), "{}", alice.output());
}

/// Off unless asked for; and nobody would end the mode of a pseudo-terminal if the program is killed.
#[rstest]
#[case::not_asked_for("0", CONSOLE)]
#[case::a_pseudo_terminal("1", PORT)]
#[ignore = "needs root: tests/run"]
fn unasked_ports_and_pseudo_terminals_are_not_exclusive(
    #[case] exclusive: &str,
    #[case] port: &str,
) {
    let (_console, ground) = machine();
    let open = format!("port = os.open('{port}', os.O_RDWR | os.O_NOCTTY)");
    let _alice = begin(&ground, exclusive, &[&open]);
    assert!(can_open(&ground.sandbox, port));
}

#[test]
#[ignore = "needs root: tests/run"]
fn lfp_shim_exclusive_makes_the_port_exclusive() {
    let (_console, ground) = machine();
    let open = format!("exec 3<>{CONSOLE}; echo 0.; read line");
    let words = ["shim", "--ports", "--exclusive", "--also", CONSOLE, "--", "sh", "-c", &open];
    let command = ground.sandbox.command(LFP).args(words).user(User::Alice);
    let mut alice = command.env("LFP_TIMEOUT", "30").spawn();
    alice.expect("0.");
    assert!(!can_open(&ground.sandbox, CONSOLE));
}
