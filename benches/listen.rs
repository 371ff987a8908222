//! `lfpd --listen` against its limits, in one run:
//!
//! * sessions a second (greet, lock, unlock, quit) against the same sessions through a real inetd
//!   (goal: at least 5 times as many), interleaved in one sandbox;
//! * how long NOOP, and LOCK of a free port, take an honest client beside attackers who do everything
//!   that has ever held up others, at once (goal: the 99th percentiles within 20 and 60 ms);
//! * the same beside a stranger who has 20,000 locks in the kernel and takes and drops 5,000 more, and beside one
//!   who has 100,000 and takes and drops 100 (goals: NOOP within 20 ms, LOCK within 2 and 5 seconds).
//!
//! `cargo bench --bench listen`. Needs root (a machine of its own) and `.ci/install`.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot be taken stops"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use testbed::{LIMIT, Sandbox, peer, until};

fn main() {
    let only = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
    let parts: [(&str, fn()); 3] = [("sessions", sessions), ("attacks", attacks), ("locks", locks)];
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
