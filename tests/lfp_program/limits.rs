//! The timeout of the user holds even if the service is stopped in the middle of its work.

use rstest::rstest;
use testbed::User;

use crate::bench::{Bench, PORT};

/// An unlimited request was made before, and waits still.
#[rstest]
#[case::wait(&["wait", "--timeout", "1", PORT], 75)]
#[case::wait_for_no_time(&["wait", "--timeout", "0", PORT], 75)]
#[case::wait_a_little(&["wait", "--timeout", "0.3", PORT], 75)]
#[case::run(&["run", "--timeout", "1", PORT, "--", "true"], 75)]
#[case::who(&["who", PORT], 0)]
#[case::list(&["list"], 0)]
#[ignore = "needs namespaces: tests/run"]
fn a_service_that_hangs_takes_no_more_than_the_time(#[case] words: &[&str], #[case] code: i32) {
    let bench = Bench::closed();
    let service = bench.listen(User::Lfpd);
    service.signal("STOP");
    let mut unlimited = bench.called(User::Bob, &["lock", PORT]).spawn();
    let end = bench.called(User::Alice, words).run().expect(code);
    assert!(unlimited.runs(), "{end}");
    let reason = if code == 75 { "no reply in time" } else { "the service does not answer" };
    assert!(end.said(reason), "{end}");
    service.signal("CONT");
}

/// The complaint names the address, says that a service is there, and what to do; it does not say how to start one.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_service_that_hangs_is_not_said_to_be_absent() {
    let bench = Bench::closed();
    let service = bench.listen(User::Lfpd);
    service.signal("STOP");
    let socket = "/run/lfpd/lfpd.sock";
    let end = bench.called(User::Alice, &["--server", socket, "who", PORT]).run().expect(69);
    assert!(end.said("lfp: the lock file service does not answer\n"), "{end}");
    assert!(end.said("/run/lfpd/lfpd.sock: the service gave no reply in time\n"), "{end}");
    assert!(end.said("if this goes on, restart") && !end.said("to start the service"), "{end}");
    service.signal("CONT");
}

/// A client that gave up in the middle of a second has no lock a second later.
#[rstest]
#[case::wait(&["wait", "--timeout", "0.2", PORT])]
#[case::run(&["run", "--timeout", "0.2", PORT, "--", "true"])]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_is_not_taken_after_the_timeout(#[case] words: &[&str]) {
    let bench = Bench::listening();
    let holder = bench.holder(User::Bob);
    let line = format!("/run/test/lfp {}; echo code $?; cat", words.join(" "));
    let mut shell = bench.command("sh").args(["-c", &line]).user(User::Alice).spawn();
    shell.expect("code 75");
    holder.kill();
    bench.lfp(User::Bob, &["run", "--timeout", "9", PORT, "--", "true"]).run().expect(0);
    bench.assert_free();
    shell.end_input();
}

/// In a container with another lock directory, only the service knows an earlier lock of the shell, by a number of its own.
/// This service answers no WAIT.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn an_earlier_lock_outlives_a_wait_that_is_not_answered() {
    let bench = Bench::closed();
    let script = "
import os, socket, threading
def serve(client):
    client.sendall(b'220 ready\\r\\n')
    for line in client.makefile():
        with open('/tmp/asked', 'a') as asked: print(line.split()[0], file=asked)
        if line.startswith('STAT'):
            holder = ' device=ttyW0 scheme=uucp standing=alive pid=1 file=LCK..ttyW0'
            client.sendall(b'213-holders=1 shown=1\\r\\n%s\\r\\n213 End of status.\\r\\n' % holder.encode())
listener = socket.socket(socket.AF_UNIX)
listener.bind('/tmp/service')
listener.listen()
open('/tmp/ready', 'w')
while True: threading.Thread(target=serve, args=[listener.accept()[0]]).start()
";
    let line = format!(
        "python3 -c \"$1\" & until [ -e /tmp/ready ]; do sleep 0.05; done
         /run/test/lfp --server /tmp/service wait --timeout 0.2 {PORT}; echo code $?
         # On a busy machine the time is over when it would wait, and it asks once.
         until grep -q STAT /tmp/asked && grep -qE 'WAIT|LOCK' /tmp/asked; do sleep 0.05; done
         kill -9 $!; cat /tmp/asked"
    );
    let end = bench.command("sh").args(["-c", &line, "sh", script]).run();
    assert!(end.said("code 75") && !end.said("UNLOCK"), "{end}");
}

/// `ulimit -f 0`, without a service: a refusal, no end by SIGXFSZ, and nothing half-written. A command
/// that is run has the signal's default again.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_limit_on_the_size_of_files_is_a_refusal() {
    let bench = Bench::open();
    let refused =
        bench.shell(User::Alice, &format!("ulimit -f 0; /run/test/lfp run {PORT} -- true"));
    assert!((64..=78).contains(&refused.code()), "{refused}");
    bench.assert_free();
    let line = "cd /tmp; ulimit -f 0; echo x >xfsz";
    bench.called(User::Alice, &["run", PORT, "--", "sh", "-c", line]).run().expect(128 + 25);
}
