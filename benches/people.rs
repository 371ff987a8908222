//! What people feel: one LOCK of a service that is at rest; `lfp run` beside `flock(1)`, and
//! `lfp who` beside `fuser(1)`, each as a process that is started and waited for, in turns.
//!
//! `cargo bench --bench people`. Needs root (a machine of its own) and `.ci/install`.

#![expect(clippy::indexing_slicing, reason = "a measurement that cannot be taken stops")]

use std::time::{Duration, Instant};

use testbed::{LFP, Sandbox, User};

/// Each is done so often; the middle one counts.
const ROUNDS: usize = 101;

const PORT: &str = "/dev/ttyW0";

fn main() {
    let sandbox = Sandbox::layout().port("ttyW0").installed().lock_dir("0755", "lfpd:lfpd").enter();
    let _service = sandbox.serve(User::Lfpd, &[]);
    let client = sandbox.command("python3").args(["-c", LONE_LOCKS, PORT]).no_input().run();
    assert_eq!(client.code(), 0, "{client}");
    println!("{}", client.output().trim());
    compare(
        &sandbox,
        ("lfp run", &format!("{LFP} run {PORT} -- true")),
        ("flock", "flock -n /tmp/lock true"),
    );
    compare(
        &sandbox,
        ("lfp who", &format!("{LFP} who {PORT} >/dev/null")),
        ("fuser", &format!("fuser {PORT} >/dev/null 2>&1 || true")),
    );
}

/// A client in the machine: the middle time of a LOCK, from the request to the reply, on an open
/// connection, and that of nine in ten. After a second of rest of the service, as between two uses of a port, and after
/// 20 ms.
const LONE_LOCKS: &str = r#"
import os, socket, sys, time
service = socket.socket(socket.AF_UNIX)
service.connect("/run/lfpd/lfpd.sock")
assert service.recv(999).startswith(b"220")
def ask(verb):
    began = time.perf_counter()
    service.sendall(f"{verb} {sys.argv[1]} {os.getpid()}\r\n".encode())
    reply = service.recv(999)
    assert reply.startswith(b"200"), reply
    return time.perf_counter() - began
for rest, times in (1, 31), (0.02, 101):
    spent = []
    for _ in range(times):
        time.sleep(rest)
        spent.append(ask("LOCK") * 1e6)
        ask("UNLOCK")
    spent.sort()
    middle, most = spent[times // 2], spent[times * 9 // 10]
    print(f"a lone LOCK after {rest} s of rest: {middle:.0f} µs; nine of ten within {most:.0f} µs")
"#;

/// Both in turns, by a shell that is there already: what a command line costs.
fn compare(sandbox: &Sandbox, ours: (&str, &str), theirs: (&str, &str)) {
    let script = "while read -r line; do eval \"$line\"; echo \"done $?\"; done";
    let mut shell = Shell::start(sandbox, script);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        a.push(shell.time(ours.1));
        b.push(shell.time(theirs.1));
    }
    let (a, b) = (micros(middle(a)), micros(middle(b)));
    println!("{}: {a:.0} µs, {}: {b:.0} µs, ratio {:.2}", ours.0, theirs.0, a / b);
}

struct Shell<'a> {
    process: testbed::Process<'a>,
    told: usize,
}

impl<'a> Shell<'a> {
    fn start(sandbox: &'a Sandbox, script: &str) -> Self {
        let process = sandbox.command("sh").args(["-c", script]).spawn();
        Self { process, told: 0 }
    }

    fn time(&mut self, line: &str) -> Duration {
        let began = Instant::now();
        self.process.type_in(&format!("{line}\n"));
        let told = loop {
            let output = self.process.output();
            if output[self.told..].ends_with('\n') {
                break output;
            }
            std::thread::yield_now();
        };
        let spent = began.elapsed();
        assert!(told[self.told..].starts_with("done 0"), "{line}: {told}");
        self.told = told.len();
        spent
    }
}

fn middle(mut spent: Vec<Duration>) -> Duration {
    spent.sort();
    spent[spent.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
