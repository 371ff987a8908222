//! picocom (twice) and pyserial hold ports by `flock(2)` while five hundred locks of somebody else come
//! and go. No LOCK gets such a port: from a daemon, from one long session, from a process for each
//! LOCK under a real super-server. The kernel's list, in which these three are found, is never the
//! same for long meanwhile; how often a port that nobody has is refused is told.
//!
//! Another test has a bare `flock(2)` on a port found beside the locks of a stranger: tens of thousands that stand, and
//! thousands that change all the time.
//!
//! It runs for seconds. 100,000 LOCKs take some minutes, and 2,000 beside so many others; after ten minutes, each test
//! ends with those it has:
//!
//!     LFPD_TORTURE_LOCKS=100000 cargo test --release --test torture_ports -- --include-ignored --nocapture

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rstest::rstest;
use testbed::{Client, LFPD, LIMIT, Process, Sandbox, Session, User, in_network, network, until};

/// The ports, and the programs that hold them.
const HELD: [(&str, &[&str]); 3] = [
    ("ttyW0", &["picocom", "-b", "9600", "/dev/ttyW0"]),
    ("ttyW1", &["picocom", "-b", "115200", "/dev/ttyW1"]),
    ("ttyW2", &["/usr/bin/python3", "/run/test/programs/hold_pyserial.py", "/dev/ttyW2"]),
];

/// One port for each door that nobody else asks for.
const FREE: [&str; 3] = ["ttyF0", "ttyF1", "ttyF2"];

/// How many of a hundred LOCKs go through each door: a process costs more than a line.
const SHARES: [u64; 3] = [70, 15, 15];

/// After that no more are asked for.
const TIME: Duration = Duration::from_secs(600);

/// Among so many LOCKs is one of a free port.
const FREE_EVERY: u64 = 10;

const OTHERS: &str = "500";
const DAEMON: &str = "127.0.0.1:50001";
const SUPER_SERVER: &str = "127.0.0.1:50002";

/// Reply codes, and how often they came.
type Codes = BTreeMap<u32, u64>;

/// A way to the service.
enum Door {
    /// One connection for all commands, which is open.
    Connection(Client),
    /// A connection for each LOCK, at this address.
    EachTime(&'static str),
}

/// Asks for ports that are held, and for one that is free.
struct Asker {
    door: Door,
    pid: u32,
    free: &'static str,
    locks: u64,
}

/// What was answered.
#[derive(Debug, Default)]
struct Answers {
    held: Codes,
    free: Codes,
}

impl Asker {
    fn play(mut self) -> Answers {
        let mut answers = Answers::default();
        let end = Instant::now() + TIME;
        for (turn, (port, _)) in (0..self.locks).zip(HELD.iter().cycle()) {
            if Instant::now() > end {
                break;
            }
            let (lock, _) = self.lock_and_unlock(port);
            *answers.held.entry(lock).or_default() += 1;
            if turn % FREE_EVERY == 0 {
                let (lock, unlock) = self.lock_and_unlock(self.free);
                *answers.free.entry(lock).or_default() += 1;
                assert!(lock != 200 || unlock == Some(200), "UNLOCK: {unlock:?}");
            }
        }
        answers
    }

    /// LOCK, and UNLOCK if that was granted.
    fn lock_and_unlock(&mut self, port: &str) -> (u32, Option<u32>) {
        let pid = self.pid;
        let conversation = |client: &mut Client| {
            let lock = client.lock(port, pid);
            (lock, (lock == 200).then(|| client.unlock(port, pid)))
        };
        match &mut self.door {
            Door::Connection(client) => conversation(client),
            Door::EachTime(address) => conversation(&mut greeted(address)),
        }
    }
}

fn greeted(address: &str) -> Client {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).unwrap();
    Client::new(stream).greeted()
}

fn make_directory(sandbox: &Sandbox, owner: &str, path: &str) {
    let made = sandbox.command("install").args(["-d", "-o", owner, path]).run();
    assert_eq!(made.code(), 0, "{made}");
}

/// Starts the programs, each on its port, and waits until they have them.
fn start_holders<'a>(sandbox: &'a Sandbox, ports: &[(&str, &[&str])]) -> Vec<Process<'a>> {
    let start = |(_, words): &(&str, &[&str])| {
        // picocom wants a terminal, and the other takes one as well.
        let (program, arguments) = words.split_first().unwrap();
        sandbox.command(program).args(arguments).on_terminal().spawn()
    };
    let holders: Vec<_> = ports.iter().map(start).collect();
    let all_hold = || holders.iter().all(|holder| has_flock(sandbox, holder)).then_some(());
    let all = until(LIMIT, all_hold);
    assert!(all.is_some(), "{:?}", holders.iter().map(Process::output).collect::<Vec<_>>());
    holders
}

/// By the kernel's list, which is short and at rest.
fn has_flock(sandbox: &Sandbox, holder: &Process<'_>) -> bool {
    let list = String::from_utf8(sandbox.read("/proc/locks").unwrap()).unwrap();
    list.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&"FLOCK") && words.get(4) == Some(&holder.pid().to_string().as_str())
    })
}

/// A service at an address, when it listens there.
fn start_service<'a>(sandbox: &'a Sandbox, address: &'static str, words: &[&str]) -> Process<'a> {
    let (program, arguments) = words.split_first().unwrap();
    let service = sandbox.command(program).args(arguments).user(User::UucpWithFowner).spawn();
    let is_up = move || TcpStream::connect(address).ok();
    let up = in_network(network(sandbox, 1), 0, move || until(LIMIT, is_up).is_some());
    assert!(up, "{} does not listen: {}", words.join(" "), service.output());
    service
}

#[test]
#[ignore = "needs root: tests/run"]
fn no_lock_of_a_port_that_a_program_holds() {
    let locks = tries().unwrap_or(300);
    let ports = HELD.map(|(port, _)| port).into_iter().chain(FREE);
    let sandbox = ports.fold(Sandbox::with_lfpd(), |layout, port| layout.port(port)).enter();
    make_directory(&sandbox, "uucp", "/run/lfpd");
    let pid_of = sandbox.command("sleep").arg("100000").spawn();
    let mut holders = start_holders(&sandbox, &HELD);

    let _daemon = start_service(&sandbox, DAEMON, &[LFPD, "--listen", DAEMON]);
    let each = ["tcpserver", "-RH", "-l", "localhost", "127.0.0.1", "50002", LFPD];
    let _super_server = start_service(&sandbox, SUPER_SERVER, &each);
    let own = network(&sandbox, 1);
    let Session { client, process: session } =
        Session::start(&sandbox, User::UucpWithFowner, &[], User::Root);

    let script = "/run/test/programs/come_and_go.py";
    let mut others =
        sandbox.command("/usr/bin/python3").args([script, "/run/lock", OTHERS]).spawn();
    others.expect("ALL THERE");
    let begin = Instant::now();
    let doors = [
        Door::Connection(in_network(own.clone(), 0, || greeted(DAEMON))),
        Door::Connection(client),
        Door::EachTime(SUPER_SERVER),
    ];
    let askers = doors.into_iter().zip(FREE).zip(SHARES).map(|((door, free), share)| {
        let locks = (locks * share).div_ceil(100);
        let asker = Asker { door, pid: pid_of.pid(), free, locks };
        let own = own.clone();
        std::thread::spawn(move || in_network(own, 0, move || asker.play()))
    });
    let askers: Vec<_> = askers.collect();
    let answers: Vec<Answers> = askers.into_iter().map(|it| it.join().unwrap()).collect();
    let spent = begin.elapsed();
    others.end_input();
    others.expect("CAME");

    assert!(holders.iter_mut().all(Process::runs), "a program let go of its port");
    report(&answers, &others.output(), spent);
    for answers in &answers {
        // Not 200, and nothing else either.
        assert!(answers.held.keys().eq([&450]), "{answers:?}");
        assert!(answers.free.keys().all(|code| [200, 450].contains(code)), "{answers:?}");
    }
    drop(session);

    // What was refused was not lost.
    let (door, pid) = (Door::EachTime(DAEMON), pid_of.pid());
    let mut asker = Asker { door, pid, free: "", locks: 0 };
    let is_had = move || (asker.lock_and_unlock("ttyF0").0 == 200).then_some(());
    assert!(
        in_network(own, 0, move || until(LIMIT, is_had)).is_some(),
        "a free port cannot be had"
    );
}

/// A stranger without a right to any port has thousands of locks, and takes and drops hundreds or thousands more: the
/// kernel's list is long, and never the same. The daemon sees nobody's descriptors. The held port is busy because its
/// `flock(2)` was found, and not because the list could not be read: the port that nobody has is never busy.
#[rstest]
#[case::thousands("3000", "400", 80)]
#[case::tens_of_thousands("20000", "5000", 32)]
#[ignore = "needs root: tests/run"]
fn the_locks_of_a_stranger_deny_nobody_a_port(
    #[case] standing: &str,
    #[case] coming: &str,
    #[case] usual: u64,
) {
    let (port, _) = HELD[0];
    let sandbox = Sandbox::with_lfpd().port(port).port("ttyF0").enter();
    make_directory(&sandbox, "uucp", "/run/lfpd");
    make_directory(&sandbox, "bob", "/run/strange");
    let pid_of = sandbox.command("sleep").arg("100000").spawn();
    let _holder = start_holders(&sandbox, &[HELD[0]]);
    let _daemon = start_service(&sandbox, DAEMON, &[LFPD, "--listen", DAEMON]);
    let script = ["/run/test/programs/many_locks.py", "/run/strange", standing, coming];
    let mut stranger = sandbox.command("/usr/bin/python3").args(script).user(User::Bob).spawn();
    stranger.expect("ALL THERE");

    let own = network(&sandbox, 1);
    let begin = Instant::now();
    // One reading of the list answers all that ask at a time.
    let ask = |port: &'static str, tries: u64| {
        let (own, pid) = (own.clone(), pid_of.pid());
        std::thread::spawn(move || {
            in_network(own, 0, move || {
                let mut asker =
                    Asker { door: Door::Connection(greeted(DAEMON)), pid, free: port, locks: 0 };
                let in_time = (0..tries).take_while(|_| begin.elapsed() < TIME);
                let timed = |_| {
                    let asked = Instant::now();
                    (asker.lock_and_unlock(port), asked.elapsed())
                };
                in_time.map(timed).collect::<Vec<_>>()
            })
        })
    };
    let tries = tries().unwrap_or(usual).div_ceil(ASKERS);
    let asking: Vec<_> = (0..ASKERS).map(|_| ask(port, tries)).collect();
    let free = ask("ttyF0", tries).join().unwrap();
    let held: Vec<_> = asking.into_iter().flat_map(|it| it.join().unwrap()).collect();
    stranger.end_input();
    let slowest = free.iter().chain(&held).map(|(_, time)| *time).max().unwrap_or_default();
    let codes = |answers: &[((u32, Option<u32>), Duration)]| {
        let mut counts: BTreeMap<(u32, Option<u32>), usize> = BTreeMap::new();
        answers.iter().for_each(|(codes, _)| *counts.entry(*codes).or_default() += 1);
        counts
    };
    let (held, free) = (codes(&held), codes(&free));
    println!(
        "beside {standing} standing locks and {coming} that change: codes of LOCK, and of UNLOCK after a 200: of the held \
         port {held:?}, of a free one {free:?}, the slowest after {slowest:?}; {} s",
        begin.elapsed().as_secs()
    );
    assert!(held.keys().eq([&(450, None)]), "the flock(2) of the holder was missed: {held:?}");
    assert!(free.keys().eq([&(200, Some(200))]), "a free port was refused: {free:?}");
}

/// The clients that ask for the held port at once.
const ASKERS: u64 = 8;

/// How many LOCKs there are to be.
fn tries() -> Option<u64> {
    std::env::var("LFPD_TORTURE_LOCKS").ok().and_then(|text| text.parse().ok())
}

fn report(answers: &[Answers], others: &str, spent: Duration) {
    let count = |codes: &Codes, code: u32| codes.get(&code).copied().unwrap_or_default();
    let held: u64 = answers.iter().flat_map(|it| it.held.values()).sum();
    let had: u64 = answers.iter().map(|it| count(&it.held, 200)).sum();
    let free: u64 = answers.iter().flat_map(|it| it.free.values()).sum();
    let refused: u64 = answers.iter().map(|it| count(&it.free, 450)).sum();
    let came = others.lines().last().unwrap_or_default();
    println!(
        "{held} LOCKs of ports that picocom and pyserial hold: {had} of them 200; {free} LOCKs \
         of free ports: {refused} of them 450; by door (daemon, session, process each) {answers:?}; \
         of {OTHERS} other locks at a time {came}; {} s",
        spent.as_secs()
    );
}
