//! Sessions per second under a real super-server (openbsd-inetd): greet, lock, unlock, quit, one
//! connection each, as RXTX does it. Measured under the same inetd, in turns, against `greeter.c`,
//! the smallest static C program that only greets and answers (the goal is a ratio of 0.8).
//!
//! `cargo bench --bench sessions`. Needs root (a machine of its own), gcc, and `.ci/install`.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot be taken stops"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testbed::{LIMIT, Sandbox, peer, until};

const ROUNDS: usize = 20;
const SESSIONS: usize = 100;
/// Sessions at the start of a round that do not count, so that both contenders are met at work.
/// (After a pause the kernel takes up to some milliseconds to tell who holds a flock: reading
/// `/proc/locks` waits for every processor once, and not again while reads go on.)
const WARMING: usize = 5;
/// The pid of the sandbox's first process: alive, and root's as the client is.
const PID: u32 = 1;

struct Contender {
    name: &'static str,
    port: u16,
    spent: Vec<Duration>,
}

fn main() {
    let scratch = tempfile::tempdir().expect("a directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/greeter.c");
    let greeter = scratch.path().join("greeter");
    let mut compiler = Command::new("cc");
    compiler.args(["-Os", "-static", "-D_GNU_SOURCE", "-o"]).arg(&greeter).arg(source);
    assert!(compiler.status().expect("cc (package gcc)").success(), "greeter.c");

    let sandbox = Sandbox::layout()
        .port("ttyW0")
        .bring("lfpd", env!("CARGO_BIN_EXE_lfpd"))
        .bring("greeter", greeter)
        .bring("inetd", peer("openbsd-inetd", "usr/sbin/inetd"))
        .enter();
    // As tmpfiles.d makes it where lfpd is installed.
    let made = sandbox.command("install").args(["-d", "-o", "uucp", "/run/lfpd"]).run();
    assert_eq!(made.code(), 0, "{made}");
    let service = |port: u16, program: &str| {
        format!("127.0.0.1:{port} stream tcp nowait.1000000 uucp /run/test/{program} {program}\n")
    };
    let lines = service(50001, "greeter") + &service(50002, "lfpd");
    sandbox.write("/tmp/inetd.conf", lines, 0o644);
    let mut inetd =
        sandbox.command("/run/test/inetd").args(["-i", "-R", "1000000", "/tmp/inetd.conf"]).spawn();

    let mut contenders = [
        Contender { name: "greeter", port: 50001, spent: Vec::new() },
        Contender { name: "lfpd", port: 50002, spent: Vec::new() },
    ];
    let network = sandbox.path("/proc/1/ns/net");
    let measured = std::thread::spawn(move || {
        let network = std::fs::File::open(network).expect("the sandbox's network");
        nix::sched::setns(network, nix::sched::CloneFlags::CLONE_NEWNET).expect("entering it");
        for contender in &contenders {
            let up = until(LIMIT, || TcpStream::connect(("127.0.0.1", contender.port)).ok());
            up.expect("inetd listens");
        }
        for _ in 0..ROUNDS {
            for contender in &mut contenders {
                for _ in 0..WARMING {
                    session(contender.port);
                }
                let begin = Instant::now();
                for _ in 0..SESSIONS {
                    session(contender.port);
                }
                contender.spent.push(begin.elapsed());
            }
        }
        contenders
    });
    let [greeter, lfpd] = measured.join().expect("the client");
    assert!(inetd.runs(), "inetd ended: {}", inetd.output());
    let (floor, own) = (rate(&greeter), rate(&lfpd));
    println!("{:<8} {floor:>8.0} sessions/s", greeter.name);
    let ratio = own / floor;
    println!("{:<8} {own:>8.0} sessions/s   ratio {ratio:.2} (goal 0.80)", lfpd.name);
}

/// The median round, so that a disturbed one does not count.
fn rate(contender: &Contender) -> f64 {
    let mut spent = contender.spent.clone();
    spent.sort();
    SESSIONS as f64 / spent[ROUNDS / 2].as_secs_f64()
}

fn session(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    expect(&mut stream, b"220 ");
    for (line, code) in [
        (format!("lock /dev/ttyW0 {PID}\n"), b"200 "),
        (format!("unlock /dev/ttyW0 {PID}\n"), b"200 "),
        ("quit\n".to_owned(), b"221 "),
    ] {
        stream.write_all(line.as_bytes()).expect("a server that reads");
        expect(&mut stream, code);
    }
}

fn expect(stream: &mut TcpStream, code: &[u8; 4]) {
    let mut reply = [0; 512];
    let length = stream.read(&mut reply).expect("a reply");
    assert!(reply[..length].starts_with(code), "{:?}", String::from_utf8_lossy(&reply[..length]));
}
