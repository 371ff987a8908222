//! `lfpd --listen` against its limits, in one run:
//!
//! * sessions a second (greet, lock, unlock, quit) against the same sessions through a real inetd
//!   (goal: at least 5 times as many), interleaved in one sandbox;
//! * connections a second against a bare accept, greet and close loop on loopback (goal 0.5);
//! * memory for each idle connection at 1,000 and 5,000;
//! * LOCK and UNLOCK pairs a second in one session against a bare loopback echo of the same round
//!   trips (goal 0.5), and the same with 10,000 foreign files in the lock directory and with every
//!   known directory present (goal: within 1.2);
//! * how long an honest session takes beside 5,000 connections that say nothing, dribble, or send
//!   a line without end (goal: the 99th percentile within 100 ms);
//! * how long NOOP, and LOCK of a free port, take an honest client beside attackers who do everything
//!   that has ever held up others, at once (goal: the 99th percentiles within 20 and 60 ms);
//! * the same beside a stranger who has 20,000 locks in the kernel and takes and drops 5,000 more (goal:
//!   the 99th percentiles within 20 ms and a second);
//! * how soon a waiter has a device that became free.
//!
//! `cargo bench --bench listen`. Needs root (a machine of its own) and `.ci/install`.
//!
//! The bare loops run in processes of their own, as the daemon does.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement that cannot be taken stops"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{setsockopt, sockopt};
use testbed::{LIMIT, Sandbox, peer, until};

const GREETING: &[u8] = b"220 testbed Lock File Server (Version rxtx-1.5-9) ready\r\n";
const GOODBYE: &[u8] = b"221 Thank you for using the Lock File service on testbed\r\n";

fn main() {
    if let Ok(what) = std::env::var(BARE) {
        return serve_bare(&what);
    }
    let only = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
    let parts: [(&str, fn()); 8] = [
        ("sessions", sessions),
        ("connections", connections),
        ("pairs", pairs),
        ("memory", memory),
        ("flood", flood),
        ("attacks", attacks),
        ("locks", locks),
        ("wakes", wakes),
    ];
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("limits");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("descriptors");
    for (name, measure) in parts {
        if only.as_deref().is_none_or(|only| only == name) {
            measure();
        }
    }
}

/// A daemon on a port and a socket of its own.
struct Daemon {
    child: Child,
    root: tempfile::TempDir,
    port: u16,
    socket: PathBuf,
}

impl Daemon {
    /// `searched`: further directories; none means the built-in list.
    fn start(searched: &[PathBuf]) -> Self {
        let root = tempfile::Builder::new().tempdir_in(scratch()).expect("a directory");
        let door = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = door.local_addr().expect("its number").port();
        let socket = root.path().join("socket");
        for name in ["lock", "state"] {
            std::fs::create_dir(root.path().join(name)).expect("a directory");
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_lfpd"));
        command.arg("--lock-dir").arg(root.path().join("lock"));
        command.arg("--state-dir").arg(root.path().join("state"));
        for directory in searched {
            command.arg("--search-dir").arg(directory);
        }
        command.args(["--max-connections", "9000", "--max-per-user", "9000"]);
        command.arg("--listen").arg(format!("unix:{}", socket.display()));
        let door = std::os::fd::OwnedFd::from(door);
        let child = command.stdin(door).spawn().expect("lfpd");
        let daemon = Self { child, root, port, socket };
        let up = until(LIMIT, || UnixStream::connect(&daemon.socket).ok());
        up.expect("lfpd listens");
        daemon
    }

    fn kilobytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).expect("its size")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lock directories are in memory on every machine of today.
fn scratch() -> &'static Path {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory } else { Path::new("/tmp") }
}

fn expect(stream: &mut impl Read, code: &[u8; 4]) {
    let mut reply = [0; 512];
    let length = stream.read(&mut reply).expect("a reply");
    assert!(reply[..length].starts_with(code), "{:?}", String::from_utf8_lossy(&reply[..length]));
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    stream
}

fn session(port: u16, device: &str, pid: u32) {
    let mut stream = connect(port);
    expect(&mut stream, b"220 ");
    for (line, code) in [
        (format!("lock {device} {pid}\n"), b"200 "),
        (format!("unlock {device} {pid}\n"), b"200 "),
        ("quit\n".to_owned(), b"221 "),
    ] {
        stream.write_all(line.as_bytes()).expect("a server that reads");
        expect(&mut stream, code);
    }
}

fn median(mut spent: Vec<Duration>) -> f64 {
    spent.sort();
    spent[spent.len() / 2].as_secs_f64()
}

/// Under a real inetd, and by one daemon, in turns, in one sandbox.
fn sessions() {
    const ROUNDS: usize = 20;
    const EACH: usize = 50;
    let sandbox = Sandbox::layout()
        .port("ttyW0")
        .bring("lfpd", env!("CARGO_BIN_EXE_lfpd"))
        .bring("inetd", peer("openbsd-inetd", "usr/sbin/inetd"))
        .enter();
    let line = "127.0.0.1:50001 stream tcp nowait.1000000 uucp /run/test/lfpd lfpd\n";
    sandbox.write("/tmp/inetd.conf", line, 0o644);
    let words = ["-i", "-R", "1000000", "/tmp/inetd.conf"];
    let _inetd = sandbox.command("/run/test/inetd").args(words).spawn();
    let words = ["--listen", "127.0.0.1:50002"];
    let _daemon = sandbox.command("/run/test/lfpd").args(words).user(testbed::User::Uucp).spawn();
    let network = sandbox.path("/proc/1/ns/net");
    let measured = std::thread::spawn(move || {
        let network = std::fs::File::open(network).expect("the sandbox's network");
        nix::sched::setns(network, nix::sched::CloneFlags::CLONE_NEWNET).expect("entering it");
        let ports = [50001, 50002];
        for port in ports {
            until(LIMIT, || TcpStream::connect(("127.0.0.1", port)).ok()).expect("a listener");
        }
        let mut spent = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (port, spent) in ports.iter().zip(&mut spent) {
                let begin = Instant::now();
                for _ in 0..EACH {
                    // The sandbox's first process: alive, and root's as the client is.
                    session(*port, "/dev/ttyW0", 1);
                }
                spent.push(begin.elapsed());
            }
        }
        spent
    });
    let [inetd, listen] = measured.join().expect("the client").map(|s| EACH as f64 / median(s));
    println!(
        "sessions/s: inetd {inetd:.0}, --listen {listen:.0}: ratio {:.1} (goal 5)",
        listen / inetd
    );
}

/// A process that accepts connections on a port, one after the other.
struct Bare {
    child: Child,
    port: u16,
}

impl Bare {
    /// This program again, told what to do with each connection.
    fn start(what: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.env(BARE, what).stdin(std::os::fd::OwnedFd::from(listener));
        Self { child: command.spawn().expect("this program again"), port }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const BARE: &str = "LFPD_BENCH_BARE";

fn serve_bare(what: &str) {
    let input = std::io::stdin().as_fd().try_clone_to_owned().expect("the listener");
    let listener = TcpListener::from(input);
    while let Ok((stream, _)) = listener.accept() {
        let _ = stream.set_nodelay(true);
        if what == "greet" { greet(stream) } else { echo(stream) }
    }
}

fn greet(mut stream: TcpStream) {
    let _ = stream.write_all(GREETING);
}

fn echo(mut stream: TcpStream) {
    let _ = stream.write_all(GREETING);
    let mut line = [0; 512];
    while let Ok(1..) = stream.read(&mut line) {
        let reply: &[u8] = if line[0] == b'q' { GOODBYE } else { b"200 Command okay.\r\n" };
        if stream.write_all(reply).is_err() {
            return;
        }
    }
}

fn connections() {
    const ROUNDS: usize = 20;
    const EACH: usize = 500;
    let daemon = Daemon::start(&[]);
    let bare = Bare::start("greet");
    let ports = [bare.port, daemon.port];
    let mut spent = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (port, spent) in ports.iter().zip(&mut spent) {
            let begin = Instant::now();
            for _ in 0..EACH {
                let mut stream = connect(*port);
                expect(&mut stream, b"220 ");
            }
            spent.push(begin.elapsed());
        }
    }
    let [bare, listen] = spent.map(|spent| EACH as f64 / median(spent));
    println!(
        "greetings/s: bare loop {bare:.0}, --listen {listen:.0}: ratio {:.2} (goal 0.5)",
        listen / bare
    );
}

fn pairs() {
    const ROUNDS: usize = 20;
    const EACH: usize = 500;
    let none = scratch().join("lfpd-bench-no-such-directory");
    let plain = Daemon::start(std::slice::from_ref(&none));
    let full = Daemon::start(std::slice::from_ref(&none));
    for number in 0..10_000 {
        let path = full.root.path().join("lock").join(format!("foreign-{number}"));
        std::fs::write(path, "").expect("a foreign file");
    }
    let places = tempfile::Builder::new().tempdir_in(scratch()).expect("a directory");
    let known: Vec<PathBuf> = (0..18).map(|n| places.path().join(n.to_string())).collect();
    known.iter().for_each(|path| std::fs::create_dir(path).expect("a directory"));
    let everywhere = Daemon::start(&known);
    let built_in = Daemon::start(&[]);
    let bare = Bare::start("echo");
    let mut streams: Vec<TcpStream> =
        [bare.port, plain.port, full.port, everywhere.port, built_in.port].map(connect).into();
    streams.iter_mut().for_each(|stream| expect(stream, b"220 "));
    let pid = std::process::id();
    let (lock, unlock) = (format!("lock zero {pid}\n"), format!("unlock zero {pid}\n"));
    let mut spent = vec![Vec::new(); streams.len()];
    for _ in 0..ROUNDS {
        for (stream, spent) in streams.iter_mut().zip(&mut spent) {
            let begin = Instant::now();
            for _ in 0..EACH {
                for line in [&lock, &unlock] {
                    stream.write_all(line.as_bytes()).expect("a server that reads");
                    expect(stream, b"200 ");
                }
            }
            spent.push(begin.elapsed());
        }
    }
    let rates: Vec<f64> = spent.into_iter().map(|spent| EACH as f64 / median(spent)).collect();
    println!(
        "pairs/s: bare echo {:.0}, lock and unlock {:.0}: ratio {:.2} (goal 0.5)",
        rates[0],
        rates[1],
        rates[1] / rates[0]
    );
    let files = median((0..ROUNDS).map(|_| bare_steps(plain.root.path(), EACH)).collect());
    let floor = 1.0 / (1.0 / rates[0] + files / EACH as f64);
    println!("pairs/s: bare echo with the least steps {floor:.0}: ratio {:.2}", rates[1] / floor);
    for (name, rate) in
        ["10,000 foreign files", "18 directories", "the machine's own"].iter().zip(&rates[2..])
    {
        println!("pairs/s with {name}: {rate:.0}: factor {:.2} (goal 1.2)", rates[1] / rate);
    }
}

/// What a pair must ask of the system at the least: whether the process lives, which device it is
/// and who holds a flock on it; then a complete file under its name, which is gone again.
fn bare_steps(root: &Path, pairs: usize) -> Duration {
    let path = |name: &str| root.join("state").join(name);
    let (draft, lock) = (path("draft"), path("lock"));
    let device = Path::new("/dev/zero");
    let mut locks = vec![0; 16 * 1024];
    let begin = Instant::now();
    for _ in 0..pairs {
        for _ in 0..2 {
            nix::sys::signal::kill(nix::unistd::Pid::this(), None).expect("a process");
            std::fs::symlink_metadata(device).expect("a device");
        }
        let mut list = std::fs::File::open("/proc/locks").expect("the kernel's list");
        let length = list.read(&mut locks).expect("its first lines");
        assert!(length < locks.len(), "a machine of its own");
        let mut file = std::fs::File::create_new(&draft).expect("a file");
        file.write_all(b"      1230\n").expect("its content");
        std::fs::rename(&draft, &lock).expect("its name");
        std::fs::remove_file(&lock).expect("the file");
    }
    begin.elapsed()
}

fn memory() {
    let daemon = Daemon::start(&[]);
    let before = daemon.kilobytes();
    let mut idle = Vec::new();
    for count in [1000, 5000] {
        while idle.len() < count {
            let mut stream = connect(daemon.port);
            expect(&mut stream, b"220 ");
            idle.push(stream);
        }
        let bytes = (daemon.kilobytes() - before) * 1024 / count as u64;
        println!("memory: {bytes} bytes for each of {count} idle connections");
    }
}

fn flood() {
    const EACH: usize = 1667;
    const SESSIONS: usize = 1000;
    let daemon = Daemon::start(&[]);
    let honest = |sessions: usize| -> Vec<Duration> {
        let pid = std::process::id();
        (0..sessions)
            .map(|_| {
                let begin = Instant::now();
                session(daemon.port, "ttyS1", pid);
                begin.elapsed()
            })
            .collect()
    };
    report("alone", honest(SESSIONS));
    let silent: Vec<TcpStream> = (0..EACH).map(|_| connect(daemon.port)).collect();
    let mut dribbling: Vec<TcpStream> = (0..EACH).map(|_| connect(daemon.port)).collect();
    let mut endless: Vec<UnixStream> = (0..EACH)
        .map(|_| {
            let stream = UnixStream::connect(&daemon.socket).expect("a connection");
            setsockopt(&stream, sockopt::SndBuf, &4096).expect("a small buffer");
            stream.set_nonblocking(true).expect("no waiting");
            stream
        })
        .collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // One byte a second each, and as much of the endless lines as is taken.
            let begin = Instant::now();
            let mut dribbled = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for stream in &mut endless {
                    let _ = stream.write(&[b'x'; 4096]);
                }
                let due = (begin.elapsed().as_secs_f64() * EACH as f64) as usize;
                while dribbled < due {
                    let _ = dribbling[dribbled % EACH].write(b"x");
                    dribbled += 1;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let times = honest(SESSIONS);
        report("beside 5,000 (goal: p99 100 ms)", times);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(silent.iter().all(|stream| stream.as_raw_fd() > 0));
    println!("memory beside 5,000: {} kB", daemon.kilobytes());
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e3;
    let worst = times[times.len() - 1].as_secs_f64() * 1e3;
    println!(
        "honest session {name}: p50 {:.2} ms, p99 {:.2} ms, worst {worst:.2} ms",
        at(50),
        at(99)
    );
}

/// Everything at once: `flock(2)` held on stale locks that many ask for and wait for; deep links;
/// 100,000 kernel locks; a waiter with a name of his own; invented names; claims in a directory
/// that is open to all; STAT without end; web pages. The attackers are of another user. A file
/// system in user space that never answers is not among them: nothing that this bench installs
/// makes one, and directories of others are not searched at all.
fn attacks() {
    const ROUNDS: usize = 500;
    let claims = tempfile::Builder::new().tempdir_in("/tmp").expect("a directory");
    let everybodys = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(claims.path(), everybodys).expect("its mode");
    let daemon = Daemon::start(&[claims.path().to_owned()]);
    let pid = std::process::id();
    let mut honest = connect(daemon.port);
    expect(&mut honest, b"220 ");
    measure_honest("alone", &mut honest, ("ttyHonest", pid), ROUNDS);
    let links = tempfile::Builder::new().tempdir_in("/dev/shm").expect("/dev/shm");
    let deep = deep_links(links.path());
    let held: Vec<_> = (0..20).map(|number| contended(&daemon, claims.path(), number)).collect();
    let kernel_locks = many_kernel_locks(links.path());
    let script = "exec 2>/dev/null; \
        talk() { exec 3<>/dev/tcp/127.0.0.1/$PORT || exit; cat <&3 >/dev/null & \
            while :; do printf \"$1\" >&3 || exit; done; }; \
        for i in 1 2 3 4; do talk \"$STALE\" & done; for i in 1 2; do talk \"$LINKS\" & done; \
        for i in 1 2; do talk \"$INVENTED\" & done; for i in 1 2 3; do talk 'stat\\n' & done; \
        for i in $(seq 50); do (exec 3<>/dev/tcp/127.0.0.1/$PORT; \
            printf \"wait ttyS$((i % 20)) $$ 600\\n\" >&3; exec cat <&3 >/dev/null) & done; \
        (exec 3<>/dev/tcp/127.0.0.1/$PORT; printf \"wait $LINK $$ 600\\n\" >&3; cat <&3 >/dev/null) & \
        while :; do (exec 3<>/dev/tcp/127.0.0.1/$PORT; printf 'GET / HTTP/1.1\\r\\n' >&3; \
            cat <&3 >/dev/null); done";
    let stale: String = (0..20).map(|number| format!("lock ttyS{number} {pid}\\n")).collect();
    let own: String = deep.iter().map(|link| format!("lock {link} 99999999\\n")).collect();
    let invented: String = (0..50).map(|number| format!("lock x{number} 99999999\\n")).collect();
    let attackers = Command::new("setpriv")
        .args(["--reuid=1000", "--regid=1000", "--clear-groups", "setsid", "bash", "-c", script])
        .env("PORT", daemon.port.to_string())
        .env("STALE", stale)
        .env("LINKS", own)
        .env("INVENTED", invented)
        .env("LINK", &deep[0])
        .spawn()
        .expect("setpriv (package util-linux)");
    let attackers = Group(attackers);
    std::thread::sleep(Duration::from_secs(2));
    let when = "attacked (goals: p99 20 and 60 ms)";
    measure_honest(when, &mut honest, ("ttyHonest", pid), ROUNDS);
    drop(attackers);
    drop(kernel_locks);
    drop(held);
}

/// A process and all that it has started, which end with the measurement.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let group = i32::try_from(self.0.id()).expect("a pid");
        let group = nix::unistd::Pid::from_raw(group);
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// A stranger's locks, and a port that exists: whether it is locked must be told from the kernel's list.
fn locks() {
    const ROUNDS: usize = 20;
    const PORT: &str = "full";
    let daemon = Daemon::start(&[]);
    let pid = std::process::id();
    let below = tempfile::Builder::new().tempdir_in("/dev/shm").expect("/dev/shm");
    std::os::unix::fs::chown(below.path(), Some(1000), Some(1000)).expect("root");
    let mut honest = connect(daemon.port);
    expect(&mut honest, b"220 ");
    measure_honest("without many locks", &mut honest, (PORT, pid), ROUNDS);
    let begin = Instant::now();
    let crowds = [
        ("20000", "5000", "beside 25,000 locks (goals: p99 20 ms and 2 s)"),
        ("100000", "100", "beside 100,000 locks (goals: p99 20 ms and 5 s)"),
    ];
    for (standing, coming, when) in crowds {
        let stranger = stranger_with_locks(below.path(), standing, coming);
        println!("{standing} and {coming} locks after {:.1} s", begin.elapsed().as_secs_f64());
        let (enough, is_enough) = std::sync::mpsc::channel::<()>();
        let other = connect(daemon.port);
        let noops = std::thread::spawn(move || noops_until(other, &is_enough));
        measure_locks(when, &mut honest, (PORT, pid), ROUNDS);
        drop(enough);
        report(&format!("NOOP {when}"), noops.join().expect("its times"));
        drop(stranger);
    }
}

/// Another user who holds so many locks, and takes and drops some more all the time.
fn stranger_with_locks(below: &Path, standing: &str, coming: &str) -> Group {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/many_locks.py");
    let mut stranger = Command::new("setpriv");
    stranger.args(["--reuid=1000", "--regid=1000", "--clear-groups", "setsid", "python3", script]);
    stranger.arg(below).args([standing, coming]);
    stranger.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut stranger = stranger.spawn().expect("setpriv (package util-linux)");
    let mut said = [0; 9];
    // It is kept open: a program that writes to nobody ends.
    let output = stranger.stdout.as_mut().expect("its output");
    output.read_exact(&mut said).expect("all of them");
    assert_eq!(&said, b"ALL THERE");
    Group(stranger)
}

fn noops_until(mut stream: TcpStream, end: &std::sync::mpsc::Receiver<()>) -> Vec<Duration> {
    expect(&mut stream, b"220 ");
    let mut times = Vec::new();
    while end.recv_timeout(Duration::from_millis(2))
        == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
    {
        times.push(ask(&mut stream, "noop\n", b"200 "));
    }
    times
}

fn ask(stream: &mut TcpStream, line: &str, code: &[u8; 4]) -> Duration {
    let begin = Instant::now();
    stream.write_all(line.as_bytes()).expect("a server that reads");
    expect(stream, code);
    begin.elapsed()
}

fn measure_honest(when: &str, stream: &mut TcpStream, port: (&str, u32), rounds: usize) {
    let noops = (0..rounds).map(|_| {
        std::thread::sleep(Duration::from_millis(2));
        ask(stream, "noop\n", b"200 ")
    });
    report(&format!("NOOP {when}"), noops.collect());
    measure_locks(when, stream, port, rounds);
}

fn measure_locks(when: &str, stream: &mut TcpStream, (port, pid): (&str, u32), rounds: usize) {
    let locks = (0..rounds).map(|_| {
        std::thread::sleep(Duration::from_millis(2));
        let time = ask(stream, &format!("lock {port} {pid}\n"), b"200 ");
        std::thread::sleep(Duration::from_millis(2));
        ask(stream, &format!("unlock {port} {pid}\n"), b"200 ");
        time
    });
    report(&format!("LOCK {when}"), locks.collect());
}

/// Links of links of links to a device, and the names under which they can be asked for.
fn deep_links(below: &Path) -> Vec<String> {
    let mut target = "/dev/null".to_owned();
    let mut names = Vec::new();
    for number in 0..40 {
        let link = below.join(format!("link{number}"));
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        target =
            format!("{}/./././.", below.display()) + &"/.".repeat(900) + &format!("/link{number}");
        names.push(link.strip_prefix("/dev").expect("below /dev").display().to_string());
    }
    names
}

/// A stale lock, and a claim to it, with `flock(2)` held on both.
fn contended(daemon: &Daemon, claims: &Path, number: usize) -> Vec<std::fs::File> {
    let name = format!("LCK..ttyS{number}");
    let paths = [daemon.root.path().join("lock").join(&name), claims.join(&name)];
    let held = paths.map(|path| {
        std::fs::write(&path, "  99999999\n").expect("a stale lock");
        let file = std::fs::File::open(&path).expect("it");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("flock");
        file
    });
    held.into()
}

/// A process with 100,000 locks in the kernel's list.
fn many_kernel_locks(below: &Path) -> Group {
    // The kernel goes through all locks of a file for each new one, so they are on many files.
    let script = "import fcntl, sys, time\n\
        files = [open(sys.argv[1] + str(i), 'w') for i in range(100)]\n\
        for f in files:\n \
            for i in range(1000): fcntl.lockf(f, fcntl.LOCK_EX, 1, 2 * i)\n\
        print('held', flush=True); time.sleep(1000)";
    let mut child = Command::new("setsid")
        .args(["python3", "-c", script])
        .arg(below.join("ranges"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3");
    let mut said = [0; 5];
    child.stdout.take().expect("its output").read_exact(&mut said).expect("all of them");
    Group(child)
}

fn wakes() {
    let daemon = Daemon::start(&[]);
    let pid = std::process::id();
    let file = daemon.root.path().join("lock/LCK..ttyS1");
    let (mut control, mut waiter) = (connect(daemon.port), connect(daemon.port));
    expect(&mut control, b"220 ");
    expect(&mut waiter, b"220 ");
    let times = (0..50).map(|_| {
        std::fs::write(&file, format!("{pid:>10}\n")).expect("a foreign lock");
        writeln!(waiter, "wait ttyS1 {pid} 60").expect("a server that reads");
        // Until it waits, and has looked for the last time.
        std::thread::sleep(Duration::from_millis(30));
        let begin = Instant::now();
        std::fs::remove_file(&file).expect("the foreign lock");
        expect(&mut waiter, b"200 ");
        let time = begin.elapsed();
        writeln!(control, "unlock ttyS1 {pid}").expect("a server that reads");
        expect(&mut control, b"200 ");
        time
    });
    println!(
        "a foreign lock goes, the waiter has it: {:.2} ms (median)",
        median(times.collect()) * 1e3
    );
}
