//! Two rates under a real super-server (openbsd-inetd), as RXTX uses the service. A *session* is
//! one connection: greet, lock, unlock, quit. *Pairs* are locks with their unlocks in one session.
//!
//! The contenders run under the same inetd and are measured in turns: `greeter.c`, the smallest static
//! C program that only greets and answers; lfpd; and those that `LFPD_BESIDE` names, such as other builds of lfpd
//! and the server that comes with RXTX (docs/figures.md says how to make them): `NAME=PROGRAM`, with colons between
//! them. All run as the user uucp, and the lock directory has its group, without which RXTX's server locks nothing. In
//! the same turns, but without inetd, lfpd is measured with `--listen`. The goals are ratios: sessions 0.9 of the
//! original's, for lfpd built for musl 1.25, pairs 0.75 of the original's; with `--listen`, 5 times the sessions of
//! lfpd under inetd.
//!
//! Five rounds take 15 seconds for each contender. Each ratio is the median of those of the rounds; all are printed.
//! `benches/beside` builds lfpd in three ways and runs this.
//!
//! `cargo bench --bench sessions`. Needs root (a machine of its own), gcc, and `.ci/install`.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot be taken stops"
)]

use std::io::BufRead;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testbed::{Client, LIMIT, Sandbox, User, in_network, network, peer, until};

const ROUNDS: usize = 5;
/// Of a round, for each contender.
const TURNS: usize = 8;
/// Of a turn.
const SESSIONS: usize = 100;
const PAIRS: usize = 500;
/// Sessions at the start of a turn that do not count, so that every contender is met at work.
/// (After a pause the kernel takes up to some milliseconds to tell who holds a flock: reading
/// `/proc/locks` waits for every processor once, and not again while reads go on.)
const WARMING: usize = 5;
/// The pid of the sandbox's first process: alive, and root's as the client is.
const PID: u32 = 1;

struct Contender {
    name: String,
    port: u16,
    /// How long the turns of the round took.
    sessions: Vec<Duration>,
    pairs: Vec<Duration>,
    /// Of each round, a second.
    rates: Vec<[f64; 2]>,
}

fn main() {
    let scratch = tempfile::tempdir().expect("a directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/greeter.c");
    let greeter = scratch.path().join("greeter");
    let mut compiler = Command::new("cc");
    compiler.args(["-Os", "-static", "-D_GNU_SOURCE", "-o"]).arg(&greeter).arg(source);
    assert!(compiler.status().expect("cc (package gcc)").success(), "greeter.c");
    let beside = std::env::var("LFPD_BESIDE").unwrap_or_default();
    let beside: Vec<(&str, &str)> =
        beside.split(':').filter_map(|named| named.split_once('=')).collect();

    let mut layout = Sandbox::layout()
        .port("ttyW0")
        .lock_dir("1777", "root:uucp")
        .bring("lfpd", env!("CARGO_BIN_EXE_lfpd"))
        .bring("greeter", greeter)
        .bring("inetd", peer("openbsd-inetd", "usr/sbin/inetd"));
    for (name, program) in &beside {
        layout = layout.bring(name, Path::new(program));
    }
    let sandbox = layout.enter();
    // As tmpfiles.d makes it where lfpd is installed.
    let made = sandbox.command("install").args(["-d", "-o", "uucp", "/run/lfpd"]).run();
    assert_eq!(made.code(), 0, "{made}");
    let mut contenders = Vec::new();
    let mut lines = String::new();
    let mut enters = |name: &str| {
        let port = 50001 + u16::try_from(contenders.len()).expect("a few");
        let (sessions, pairs, rates) = (Vec::new(), Vec::new(), Vec::new());
        contenders.push(Contender { name: name.to_owned(), port, sessions, pairs, rates });
        let service = format!("stream tcp nowait.1000000 uucp /run/test/{name} {name}");
        // The daemon listens itself.
        if name != "--listen" {
            lines += &format!("127.0.0.1:{port} {service}\n");
        }
        format!("127.0.0.1:{port}")
    };
    enters("greeter");
    enters("lfpd");
    for (name, _) in beside {
        enters(name);
    }
    let address = enters("--listen");
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
        for _ in 0..TURNS {
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
        for Contender { sessions, pairs, rates, .. } in &mut *contenders {
            let each = [(sessions, SESSIONS), (pairs, PAIRS)];
            rates.push(each.map(|(spent, times)| {
                times as f64 / middle(spent.drain(..).map(|it| it.as_secs_f64()).collect())
            }));
        }
    }
}

/// A row for each contender, and one for its ratio to each of the others.
fn report(contenders: &[Contender]) {
    for contender in contenders {
        let rate = |which: usize| middle(contender.rates.iter().map(|it| it[which]).collect());
        println!("{}: {:.0} sessions/s, {:.0} pairs/s", contender.name, rate(0), rate(1));
        for other in contenders.iter().filter(|other| other.port != contender.port) {
            let ratios = |which: usize| {
                let rounds = contender.rates.iter().zip(&other.rates);
                let ratios: Vec<f64> = rounds.map(|(a, b)| a[which] / b[which]).collect();
                let each: Vec<String> = ratios.iter().map(|it| format!("{it:.2}")).collect();
                format!("{:.2} ({})", middle(ratios), each.join(" "))
            };
            println!("  of {:<14} sessions {}, pairs {}", other.name, ratios(0), ratios(1));
        }
    }
}

/// The median, so that a disturbed turn or round does not count.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One session with so many pairs; how long the pairs took.
fn session(port: u16, pairs: usize) -> Duration {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let mut client = Client::new(stream);
    assert_eq!(code(&mut client), "220");
    let begin = Instant::now();
    for _ in 0..pairs {
        for verb in ["lock", "unlock"] {
            client.say(&format!("{verb} /dev/ttyW0 {PID}"));
            assert_eq!(code(&mut client), "200", "{verb}");
        }
    }
    let spent = begin.elapsed();
    client.say("quit");
    assert_eq!(code(&mut client), "221");
    spent
}

/// The code of the next line. The original's lines end with LF alone.
fn code(client: &mut Client) -> String {
    let mut line = String::new();
    client.stream.read_line(&mut line).expect("an answer");
    line.chars().take(3).collect()
}
