//! `lfpd --listen` against its limits, in one run:
//!
//! * how long NOOP, and LOCK of a free port, take an honest client beside attackers who do everything
//!   that has ever held up others, at once (goal: the 99th percentiles within 20 and 60 ms);
//! * the same beside a stranger who has 20,000 locks in the kernel and takes and drops 5,000 more, and beside one
//!   who has 100,000 and takes and drops 100 (goals: NOOP within 20 ms, LOCK within 2 and 5 seconds).
//!
//! `TMPDIR=/dev/shm cargo bench --bench listen`: the lock directories are in memory, as `/run/lock` is. Needs root.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot be taken stops"
)]

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use testbed::{Client, Daemon, Holder, own};

fn main() {
    let only = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
    let parts: [(&str, fn()); 2] = [("attacks", attacks), ("locks", locks)];
    for (name, measure) in parts {
        if only.as_deref().is_none_or(|only| only == name) {
            measure();
        }
    }
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
    let daemon = daemon();
    let everybodys = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(daemon.ground.path("other"), everybodys).expect("its mode");
    let pid = own();
    let mut honest = daemon.on_tcp().greeted();
    measure_honest("alone", &mut honest, ("ttyHonest", pid), ROUNDS);
    let links = others_directory();
    let deep = deep_links(links.path());
    let held: Vec<_> = (0..20).map(|number| contended(&daemon, number)).collect();
    let kernel_locks = stranger_with_locks(links.path(), "100000", "0");
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
    let deep_locks: String = deep.iter().map(|link| format!("lock {link} 99999999\\n")).collect();
    let invented: String = (0..50).map(|number| format!("lock x{number} 99999999\\n")).collect();
    let attackers = Command::new("setpriv")
        .args(["--reuid=1000", "--regid=1000", "--clear-groups", "setsid", "bash", "-c", script])
        .env("PORT", daemon.port.port().to_string())
        .env("STALE", stale)
        .env("LINKS", deep_locks)
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
    let daemon = daemon();
    let pid = own();
    let below = others_directory();
    let mut honest = daemon.on_tcp().greeted();
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
        let other = daemon.on_tcp().greeted();
        let noops = std::thread::spawn(move || noops_until(other, &is_enough));
        measure_locks(when, &mut honest, (PORT, pid), ROUNDS);
        drop(enough);
        report(&format!("NOOP {when}"), noops.join().expect("its times"));
        drop(stranger);
    }
}

/// A daemon with room for all clients of this bench.
fn daemon() -> Daemon {
    Daemon::start(&["--max-connections", "9000", "--max-per-user", "9000"])
}

/// A directory in memory that belongs to another user.
fn others_directory() -> tempfile::TempDir {
    let below = tempfile::Builder::new().tempdir_in("/dev/shm").expect("/dev/shm");
    std::os::unix::fs::chown(below.path(), Some(1000), Some(1000)).expect("root");
    below
}

/// Another user who holds so many locks, and takes and drops some more all the time.
fn stranger_with_locks(below: &Path, standing: &str, coming: &str) -> Holder {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/many_locks.py");
    let mut stranger = Command::new("setpriv");
    stranger.args(["--reuid=1000", "--regid=1000", "--clear-groups", "/usr/bin/python3", script]);
    Holder::speaking(stranger.arg(below).args([standing, coming]))
}

fn noops_until(mut client: Client, end: &std::sync::mpsc::Receiver<()>) -> Vec<Duration> {
    let mut times = Vec::new();
    while end.recv_timeout(Duration::from_millis(2))
        == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
    {
        times.push(ask(&mut client, "noop"));
    }
    times
}

fn ask(client: &mut Client, line: &str) -> Duration {
    let begin = Instant::now();
    assert_eq!(client.code(line), "200", "{line}");
    begin.elapsed()
}

fn measure_honest(when: &str, client: &mut Client, port: (&str, u32), rounds: usize) {
    let noops = (0..rounds).map(|_| {
        std::thread::sleep(Duration::from_millis(2));
        ask(client, "noop")
    });
    report(&format!("NOOP {when}"), noops.collect());
    measure_locks(when, client, port, rounds);
}

fn measure_locks(when: &str, client: &mut Client, (port, pid): (&str, u32), rounds: usize) {
    let locks = (0..rounds).map(|_| {
        std::thread::sleep(Duration::from_millis(2));
        let time = ask(client, &format!("lock {port} {pid}"));
        std::thread::sleep(Duration::from_millis(2));
        ask(client, &format!("unlock {port} {pid}"));
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
fn contended(daemon: &Daemon, number: usize) -> Vec<std::fs::File> {
    let paths =
        ["lock", "other"].map(|it| daemon.ground.path(it).join(format!("LCK..ttyS{number}")));
    let held = paths.map(|path| {
        std::fs::write(&path, "  99999999\n").expect("a stale lock");
        let file = std::fs::File::open(&path).expect("it");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("flock");
        file
    });
    held.into()
}
