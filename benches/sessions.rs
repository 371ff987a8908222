//! Two rates under a real super-server (openbsd-inetd), as RXTX uses the service. A *session* is
//! one connection: greet, lock, unlock, quit. *Pairs* are locks with their unlocks in one session.
//!
//! The contenders run under the same inetd and are measured in turns: `greeter.c`, the smallest static
//! C program that only greets and answers; lfpd; where `LFPD_OTHER` names its program, another build of
//! lfpd, such as one for musl; and, where `LFPD_ORIGINAL` names its program, the server that comes with
//! RXTX (`lockdaemon.c`, compiled with `cc -O2`; docs/figures.md says how). In the same turns, but without
//! inetd, lfpd is measured with `--listen`. The goals are ratios: sessions 0.8 of the greeter's and 1.0 of the
//! original's, pairs 0.8 of the original's; with `--listen`, 5 times the sessions of lfpd under inetd.
//!
//! `cargo bench --bench sessions`. Needs root (a machine of its own), gcc, and `.ci/install`.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot be taken stops"
)]

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use testbed::{Client, LIMIT, Sandbox, User, in_network, network, peer, until};

const ROUNDS: usize = 20;
const SESSIONS: usize = 100;
const PAIRS: usize = 500;
/// Sessions at the start of a round that do not count, so that both contenders are met at work.
/// (After a pause the kernel takes up to some milliseconds to tell who holds a flock: reading
/// `/proc/locks` waits for every processor once, and not again while reads go on.)
const WARMING: usize = 5;
/// The pid of the sandbox's first process: alive, and root's as the client is.
const PID: u32 = 1;

struct Contender {
    name: &'static str,
    port: u16,
    sessions: Vec<Duration>,
    pairs: Vec<Duration>,
}

fn main() {
    let scratch = tempfile::tempdir().expect("a directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/greeter.c");
    let greeter = scratch.path().join("greeter");
    let mut compiler = Command::new("cc");
    compiler.args(["-Os", "-static", "-D_GNU_SOURCE", "-o"]).arg(&greeter).arg(source);
    assert!(compiler.status().expect("cc (package gcc)").success(), "greeter.c");
    let named = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (original, other) = (named("LFPD_ORIGINAL"), named("LFPD_OTHER"));

    let mut layout = Sandbox::layout()
        .port("ttyW0")
        .bring("lfpd", env!("CARGO_BIN_EXE_lfpd"))
        .bring("greeter", greeter)
        .bring("inetd", peer("openbsd-inetd", "usr/sbin/inetd"));
    if let Some(program) = &original {
        layout = layout.bring("original", program);
    }
    if let Some(program) = &other {
        layout = layout.bring("other", program);
    }
    let sandbox = layout.enter();
    // As tmpfiles.d makes it where lfpd is installed.
    let made = sandbox.command("install").args(["-d", "-o", "uucp", "/run/lfpd"]).run();
    assert_eq!(made.code(), 0, "{made}");
    let mut contenders = Vec::new();
    let mut lines = String::new();
    let mut enters = |name, user| {
        let port = 50001 + u16::try_from(contenders.len()).expect("a few");
        contenders.push(Contender { name, port, sessions: Vec::new(), pairs: Vec::new() });
        let service = format!("stream tcp nowait.1000000 {user} /run/test/{name} {name}");
        // The daemon listens itself.
        if name != "--listen" {
            lines += &format!("127.0.0.1:{port} {service}\n");
        }
        format!("127.0.0.1:{port}")
    };
    enters("greeter", "uucp");
    enters("lfpd", "uucp");
    if other.is_some() {
        enters("other", "uucp");
    }
    if original.is_some() {
        // Any other user must have the lock directory's group.
        enters("original", "root");
    }
    let address = enters("--listen", "uucp");
    sandbox.write("/tmp/inetd.conf", lines, 0o644);
    let daemon = sandbox.command("/run/test/lfpd").args(["--listen", &address]);
    let _daemon = daemon.user(User::Uucp).spawn();
    let mut inetd =
        sandbox.command("/run/test/inetd").args(["-i", "-R", "1000000", "/tmp/inetd.conf"]).spawn();

    let contenders = in_network(network(&sandbox, 1), 0, || {
        measure(&mut contenders);
        contenders
    });
    assert!(inetd.runs(), "inetd ended: {}", inetd.output());
    report(&contenders);
}

fn measure(contenders: &mut [Contender]) {
    for contender in &*contenders {
        let up = until(LIMIT, || TcpStream::connect(("127.0.0.1", contender.port)).ok());
        up.expect("inetd listens");
    }
    for _ in 0..ROUNDS {
        for contender in &mut *contenders {
            for _ in 0..WARMING {
                session(contender.port, 1);
            }
            let begin = Instant::now();
            for _ in 0..SESSIONS {
                session(contender.port, 1);
            }
            contender.sessions.push(begin.elapsed());
            contender.pairs.push(session(contender.port, PAIRS));
        }
    }
}

/// A row for each contender, with its ratio to each of the others.
fn report(contenders: &[Contender]) {
    for contender in contenders {
        let sessions = rate(&contender.sessions, SESSIONS);
        let pairs = rate(&contender.pairs, PAIRS);
        print!("{:<8} {sessions:>8.0} sessions/s {pairs:>8.0} pairs/s", contender.name);
        for other in contenders.iter().filter(|other| other.port != contender.port) {
            let of_sessions = sessions / rate(&other.sessions, SESSIONS);
            let of_pairs = pairs / rate(&other.pairs, PAIRS);
            print!("   of {}: {of_sessions:.2}, {of_pairs:.2}", other.name);
        }
        println!();
    }
}

/// The median round, so that a disturbed one does not count.
fn rate(spent: &[Duration], times: usize) -> f64 {
    let mut spent = spent.to_vec();
    spent.sort();
    times as f64 / spent[ROUNDS / 2].as_secs_f64()
}

/// One session with so many pairs; how long the pairs took.
fn session(port: u16, pairs: usize) -> Duration {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let mut client = Client::new(stream).greeted();
    let begin = Instant::now();
    for _ in 0..pairs {
        for verb in ["lock", "unlock"] {
            assert_eq!(client.code(&format!("{verb} /dev/ttyW0 {PID}")), "200", "{verb}");
        }
    }
    let spent = begin.elapsed();
    assert_eq!(client.code("quit"), "221");
    spent
}
