//! Under `lfp run`: the command, and what it starts, find the lock that was taken for them theirs,
//! and the port is nobody else's until the command has ended.

use rstest::rstest;
use testbed::{LFP, LIMIT, Process, User, comes};

use crate::ground::{Ground, LOCK, PORT};

/// Takes the lock as most programs do, and lets go of it at a line of input.
const PROGRAM: &str = "
import os, sys, errno
LOCK = '/var/lock/LCK..ttyW0'
print('FOUND' if os.path.exists(LOCK) else 'FREE', flush=True)
try: lock = os.open(LOCK, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
except OSError as error: sys.exit('REFUSED ' + errno.errorcode[error.errno])
os.write(lock, b'%10d\\n' % os.getpid())
os.close(lock)
print('OWN' if int(open(LOCK).read()) == os.getpid() else 'WRONG', flush=True)
sys.stdin.readline()
os.unlink(LOCK)
print('GONE' if not os.path.exists(LOCK) else 'STAYS', flush=True)
";

fn run<'a>(ground: &'a Ground, words: &[&str], program: &str) -> Process<'a> {
    let command = ground.sandbox.command(LFP).args(["run", "--shim"]).args(words).arg(PORT);
    command
        .args(["--", "sh", "-c", program])
        .user(User::Alice)
        .env("PROGRAM", PROGRAM)
        .env("LFP_TIMEOUT", "30")
        .spawn()
}

fn busy_for_bob(ground: &Ground) -> bool {
    let bob = ground.sandbox.command(LFP).args(["run", PORT, "true"]).user(User::Bob);
    bob.run().code() == 1
}

/// The command itself, and a program that a script starts, twice.
#[rstest]
#[case::the_command("exec /usr/bin/python3 -c \"$PROGRAM\"", 1)]
#[case::of_a_script(
    "/usr/bin/python3 -c \"$PROGRAM\"; /usr/bin/python3 -c \"$PROGRAM\"; read last",
    2
)]
#[ignore = "needs namespaces: tests/run"]
fn a_program_finds_the_port_its_own(#[case] script: &str, #[case] times: usize) {
    let ground = Ground::served();
    let mut alice = run(&ground, &[], script);
    let said = |process: &Process<'_>, text: &str| process.output().matches(text).count();
    for time in 1..=times {
        assert!(comes(|| said(&alice, "OWN\n") == time), "{}", alice.output());
        assert!(busy_for_bob(&ground), "{}", alice.output());
        alice.type_in("\n");
        assert!(comes(|| said(&alice, "GONE\n") == time), "{}", alice.output());
        assert!(times == 1 || ground.holder().is_some(), "the port stays the script's");
    }
    if times > 1 {
        alice.type_in("\n");
    }
    let end = alice.wait(LIMIT).expect(0);
    assert_eq!(end.output(), "FREE\nOWN\nGONE\n".repeat(times));
    assert_eq!(ground.holder(), None);
    assert!(!busy_for_bob(&ground));
}

/// `lfp` itself sees the lock as it is: its holder, and its file. A command below the holder may run under it.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn lfp_below_it_sees_the_holder() {
    let ground = Ground::new();
    let script = format!(
        "echo I am $$; {LFP} --json who {PORT}; {LFP} run --shim {PORT} true; echo code $?"
    );
    let command = ground.sandbox.command(LFP).args(["run", "--shim", PORT, "--", "sh", "-c"]);
    let end = command.arg(&script).spawn().wait(LIMIT);
    let said = end.output();
    let own = said.lines().find_map(|line| line.strip_prefix("I am ")).unwrap();
    assert!(said.contains(&format!("\"pid\":{own}")), "{said}");
    assert!(said.contains(LOCK.rsplit('/').next().unwrap()), "{said}");
    assert!(said.ends_with("code 0\n"), "{said}");
}

/// Two programs of one script: the second finds the first's lock.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn two_programs_of_one_script_keep_each_other_out() {
    let ground = Ground::served();
    // The first has an input that does not end.
    let script = "sleep 1000 | /usr/bin/python3 -c \"$PROGRAM\" & read first; \
                  /usr/bin/python3 -c \"$PROGRAM\" </dev/null; echo ended $?; read last";
    let mut alice = run(&ground, &[], script);
    alice.expect("OWN");
    alice.type_in("\n");
    alice.expect("ended ");
    assert!(alice.output().contains("FOUND\nREFUSED EEXIST\nended 1\n"), "{}", alice.output());
}

/// With ports, what makes no lock files is behind the same lock.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_ports_of_the_command_are_its_own() {
    let ground = Ground::served();
    let script = "exec 3<>/dev/ttyW0; (exec 4<>/dev/ttyW0; echo child); echo open; read last";
    let mut alice = run(&ground, &["--ports"], script);
    alice.expect("child\nopen\n");
    let bob = ground.sandbox.command(LFP).args(["shim", "--ports", "--also", PORT, "--"]);
    let end = bob.args(["sh", "-c", "exec 3<>/dev/ttyW0"]).user(User::Bob).run();
    assert!(end.code() != 0 && end.said("busy"), "{end}");
    alice.type_in("\n");
    assert_eq!(alice.wait(LIMIT).code(), 0);
    assert_eq!(ground.holder(), None);
}

/// A process that inherited the open port from its holder is not in its own way: the holder is an ancestor.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_process_that_inherited_the_port_is_not_in_its_own_way() {
    let ground = Ground::served();
    let script = format!("exec 3<>{PORT}; {LFP} run {PORT} -- true; echo code $?");
    let words = ["shim", "--ports", "--also", PORT, "--", "sh", "-c", &script];
    let alice = ground.sandbox.command(LFP).args(words).user(User::Alice);
    let end = alice.env("LFP_TIMEOUT", "30").run();
    assert_eq!(end.output(), "code 0\n", "{end}");
}
