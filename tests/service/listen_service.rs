//! Many clients of one `lfpd --listen`: limits, floods, signals, deaths and restarts.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lfpd::limits::{LOCKS_OF_A_USER, READ_BYTES};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use rstest::rstest;
use testbed::{
    CLOSING, Client, Daemon, Ground, Holder, LIMIT, Sandbox, User, comes, cpu_ticks, ended,
    flock_is_held, in_network, many_descriptors, network, own, pause, status_kib, uninterrupted,
    until,
};

use crate::machine::{daemon_by, with_syslog};
use crate::wire::{BUSY, DONE, Wire};

/// How a client connects: [`Daemon::on_tcp`] or [`Daemon::on_unix`].
type Way = fn(&Daemon) -> Client;

/// RXTX sends before it reads, and closes without reading: the unlock must happen.
#[rstest]
fn a_client_that_reads_no_reply_is_obeyed(#[values(Daemon::on_tcp, Daemon::on_unix)] way: Way) {
    let daemon = Daemon::start(&[]);
    for _ in 0..50 {
        assert_eq!(way(&daemon).greeted().lock("ttyS1", own()), 200);
        let mut client = way(&daemon);
        client.say(&format!("unlock ttyS1 {}", own()));
        client.say("quit");
        // Who closes a TCP connection before the service has looked at it is nobody, and the service
        // looks before it speaks.
        client.is_spoken_to();
        drop(client);
        assert!(comes(|| daemon.ground.locks().is_empty()), "unlocked");
    }
}

#[rstest]
fn the_idle_are_sent_away(#[values("", "loc")] begun: &str) {
    let daemon = Daemon::start(&["--idle-timeout", "4"]);
    let mut idle = daemon.on_tcp().greeted();
    idle.send(begun.as_bytes());
    let mut busy = daemon.on_tcp().greeted();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        assert_eq!(busy.ask("noop"), DONE);
        pause(Duration::from_millis(100));
    }
    assert_eq!(idle.line(), CLOSING);
    assert_eq!(idle.line(), "");
    assert_eq!(busy.ask("noop"), DONE);
}

/// A line without end does not prolong a session, however much of it is unread when the idle time is over.
#[test]
fn a_line_without_end_is_idling() {
    let daemon = Daemon::start(&["--idle-timeout", "3"]);
    let mut client = daemon.on_unix().greeted();
    daemon.signal(Signal::SIGSTOP);
    client.send(&[b'x'; 20 * READ_BYTES]);
    client.say(&format!("\r\nlock ttyS1 {}", own()));
    pause(Duration::from_millis(3500));
    daemon.signal(Signal::SIGCONT);
    client.rest();
    assert_eq!(daemon.ground.locks(), [""; 0]);
}

/// The daemon answers what was sent before it stood still, although the idle time is over.
#[test]
fn a_daemon_that_stood_still_answers_what_it_was_sent() {
    // The answers fit into the socket: nobody waits for the client to read them.
    const REQUESTS: usize = 200;
    let daemon = Daemon::start(&["--idle-timeout", "3"]);
    let mut client = daemon.on_unix().greeted();
    client.send(&b"noop\r\n".repeat(REQUESTS));
    assert_eq!(client.line(), DONE);
    daemon.signal(Signal::SIGSTOP);
    pause(Duration::from_millis(3500));
    daemon.signal(Signal::SIGCONT);
    assert!((1..REQUESTS).all(|_| client.line() == DONE));
}

#[test]
fn a_user_pushes_out_himself_the_silent_first() {
    let daemon = Daemon::start(&["--max-per-user", "3"]);
    let mut working = daemon.on_tcp().greeted();
    assert_eq!(working.ask("noop"), DONE);
    let mut silent = daemon.on_unix().greeted();
    let mut dribbling = daemon.on_tcp().greeted();
    dribbling.send(b"loc");
    let mut third = daemon.on_tcp().greeted();
    assert_eq!((silent.line().as_str(), silent.line().as_str()), (CLOSING, ""));
    let mut fourth = daemon.on_unix().greeted();
    assert_eq!((dribbling.line().as_str(), dribbling.line().as_str()), (CLOSING, ""));
    for client in [&mut third, &mut fourth, &mut working] {
        assert_eq!(client.ask("noop"), DONE);
    }
    // All work: there is no room, and nobody is pushed out.
    let mut late = daemon.on_tcp();
    assert!(late.line().starts_with("421 "));
    assert_eq!(late.line(), "");
    drop(third);
    let mut later = until(LIMIT, || {
        let mut client = daemon.on_tcp();
        client.line().starts_with("220 ").then_some(client)
    });
    assert_eq!(later.as_mut().unwrap().ask("noop"), DONE);
    assert_eq!(working.ask("noop"), DONE);
}

#[test]
#[ignore = "needs root: tests/run"]
fn each_user_has_a_limit_of_his_own() {
    let daemon = Daemon::start(&["--max-per-user", "4"]);
    let mut mine: Vec<Client> = (0..4).map(|_| daemon.on_tcp().greeted()).collect();
    // More than nobody may have: nobody's own earlier ones go, and none of mine.
    let mut others: Vec<Client> = (0..20).map(|_| daemon.on_tcp_by_another().greeted()).collect();
    let nobody = others.last_mut().unwrap();
    assert_eq!(nobody.ask("noop"), DONE);
    for client in &mut mine {
        assert_eq!(client.ask("noop"), DONE);
    }
    assert!(nobody.ask(&format!("lock ttyS1 {}", own())).starts_with("550 "));
}

#[test]
#[ignore = "needs root: tests/run"]
fn the_user_with_most_makes_room_for_others() {
    let daemon = Daemon::start(&["--max-connections", "8", "--max-per-user", "8"]);
    let mut others: Vec<Client> = (0..8).map(|_| daemon.on_tcp_by_another().greeted()).collect();
    let mut mine: Vec<Client> = (0..3).map(|_| daemon.on_tcp().greeted()).collect();
    for client in &mut mine {
        assert_eq!(client.ask("noop"), DONE);
    }
    assert_eq!(others[7].ask("noop"), DONE);
}

/// A connection on which no call blocks.
fn never_waiting(client: Client) -> UnixStream {
    let stream = UnixStream::from(OwnedFd::from(client.stream.into_inner()));
    stream.set_nonblocking(true).unwrap();
    stream
}

/// The flood of the contract: those who say nothing, a byte now and then, or a line without end.
#[test]
fn five_thousand_idlers_do_not_keep_anybody_from_work() {
    const EACH: usize = 1666;
    many_descriptors();
    let most = ["--max-connections", "6000", "--max-per-user", "6000"];
    // On a busy machine, all of this may take longer than a client may be silent by default.
    let daemon = Daemon::start(&[&most[..], &["--idle-timeout", "3600"]].concat());
    let before = status_kib(daemon.pid(), "VmRSS");
    let _silent: Vec<Client> = (0..EACH).map(|_| daemon.on_tcp().greeted()).collect();
    let mut dribbling: Vec<Client> = (0..EACH).map(|_| daemon.on_tcp().greeted()).collect();
    // Greeted as well: otherwise the first honest client on this socket would wait until all of these are accepted.
    let mut endless: Vec<UnixStream> =
        (0..EACH).map(|_| never_waiting(daemon.on_unix().greeted())).collect();
    for stream in &endless {
        setsockopt(stream, sockopt::SndBuf, &4096).unwrap();
    }
    let mut honest = 0;
    while honest < 20 {
        for stream in &mut endless {
            let _ = stream.write(&[b'x'; 4096]);
        }
        for client in dribbling.iter_mut().skip(honest % 10).step_by(10) {
            client.send(b"x");
        }
        let way = if honest % 2 == 0 { Daemon::on_tcp } else { Daemon::on_unix };
        let mut client = way(&daemon).greeted();
        assert_eq!(client.ask(&format!("lock ttyS1 {}", own())), DONE);
        assert_eq!(client.ask(&format!("unlock ttyS1 {}", own())), DONE);
        assert!(client.ask("quit").starts_with("221 "));
        honest += 1;
        // The service's own processor time, which programs beside it do not change.
        let used = Duration::from_millis(10 * cpu_ticks(daemon.pid()));
        assert!(used < LIMIT, "{honest} honest sessions only");
    }
    let each = (status_kib(daemon.pid(), "VmHWM") - before) * 1024 / 5000;
    assert!(each < 4096, "{each} bytes for each connection");
}

/// A turn answers one request: the second request of one client comes after the first one of another.
#[rstest]
fn a_turn_answers_one_request(#[values(Daemon::on_tcp, Daemon::on_unix)] way: Way) {
    let daemon = Daemon::start(&[]);
    let mut clients = [way(&daemon).greeted(), way(&daemon).greeted()];
    daemon.signal(Signal::SIGSTOP);
    clients[0].say(&format!("noop\r\nlock ttyS1 {}", own()));
    clients[1].say(&format!("lock ttyS1 {}", own()));
    daemon.signal(Signal::SIGCONT);
    assert_eq!(clients[1].line(), DONE);
    assert_eq!([clients[0].line(), clients[0].line()], [DONE, BUSY]);
}

/// A stale lock that somebody holds by `flock(2)`, for ever or while it is being broken.
fn contended(daemon: &Daemon, device: &str) -> Flock<File> {
    let path = daemon.ground.path("lock").join(format!("LCK..{device}"));
    std::fs::write(&path, "  99999999\n").unwrap();
    Flock::lock(File::open(path).unwrap(), FlockArg::LockExclusive).unwrap()
}

/// A client that asks for a contended lock waits alone: the answer to a client that came later is there
/// first. The best of several, since the machine may be busy for as long as the whole wait takes.
#[rstest]
fn a_contended_lock_keeps_nobody_waiting(#[values("lock", "unlock")] verb: &str) {
    let daemon = Daemon::start(&[]);
    let _held = contended(&daemon, "ttyS1");
    let mut honest = daemon.on_tcp().greeted();
    let is_first = (0..10).any(|_| {
        let mut asking = daemon.on_unix().greeted();
        // In one turn: when the first is answered, the service is at the second, or has been.
        asking.say(&format!("noop\r\n{verb} ttyS1 {}", own()));
        assert_eq!(asking.line(), DONE);
        assert_eq!(honest.ask("noop"), DONE);
        let stream = asking.stream.get_ref().as_raw_fd();
        let said = recv(stream, &mut [0; 1], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK);
        let is_silent = asking.stream.buffer().is_empty() && said == Err(nix::errno::Errno::EAGAIN);
        assert_eq!(asking.line(), BUSY);
        is_silent
    });
    assert!(is_first, "the contended lock was answered first, each time");
}

/// It is had when the other lets go within a moment.
#[rstest]
#[case::by_lock("lock", "")]
#[case::by_wait("wait", " 0")]
fn a_contended_lock_is_tried_again(#[case] verb: &str, #[case] seconds: &str) {
    let daemon = Daemon::start(&[]);
    let got = (0..20).any(|_| {
        let held = contended(&daemon, "ttyS1");
        let mut asking = daemon.on_unix().greeted();
        asking.say(&format!("{verb} ttyS1 {}{seconds}", own()));
        assert_eq!(daemon.on_unix().greeted().ask("noop"), DONE);
        drop(held);
        asking.line() == DONE
    });
    assert!(got);
}

/// A client that does not take its answers is not read from, and takes no memory.
#[test]
fn a_client_that_takes_no_answers_is_not_read_from() {
    let daemon = Daemon::start(&[]);
    // What the first client takes is no answer of the other's.
    assert_eq!(daemon.on_unix().greeted().ask("noop"), DONE);
    let mut deaf = never_waiting(daemon.on_unix());
    let before = status_kib(daemon.pid(), "VmRSS");
    let helps = "help\r\n".repeat(1000);
    assert!(comes(|| deaf.write(helps.as_bytes()).is_err()), "the service stops reading");
    assert!(status_kib(daemon.pid(), "VmRSS").saturating_sub(before) < 1024);
    let mut client = daemon.on_unix().greeted();
    assert_eq!(client.ask("noop"), DONE);
}

/// With no descriptor left it neither spins nor dies, and it goes on when there are some again.
#[test]
fn without_descriptors_it_waits_for_better_times() {
    let daemon = Daemon::start(&[]);
    let mut working: Vec<Client> = (0..20).map(|_| daemon.on_tcp().greeted()).collect();
    for client in &mut working {
        assert_eq!(client.ask("noop"), DONE);
    }
    daemon.limit("--nofile=16:");
    let mut waiting = daemon.on_tcp();
    let mut also_waiting = daemon.on_unix();
    let (before, moment) = (cpu_ticks(daemon.pid()), Duration::from_secs(1));
    pause(moment);
    // A hundred ticks are a second: it may use a quarter of one, and a spinning one uses it all.
    assert!(cpu_ticks(daemon.pid()) - before < 25);
    for client in &mut working {
        assert_eq!(client.ask("noop"), DONE);
    }
    daemon.limit("--nofile=1024:");
    assert!(waiting.line().starts_with("220 "));
    assert!(also_waiting.line().starts_with("220 "));
}

/// Of few descriptors, none is set aside that it never wants, and a long list of kernel locks takes no more than there are.
/// In a sandbox, nobody else has the ports open: then a list that cannot be read in time keeps nobody from them.
#[rstest]
#[case::alone("0")]
#[case::beside_many_locks("4000")]
#[ignore = "needs root: tests/run"]
fn with_few_descriptors_there_is_room_for_several(#[case] locks: &str) {
    const ADDRESS: &str = "127.0.0.1:1600";
    let ports = ["ttyW0", "ttyW1", "ttyW2", "ttyW3", "ttyW4", "ttyW5"];
    let sandbox = ports.iter().fold(Sandbox::with_lfpd(), |layout, port| layout.port(port)).enter();
    let script = ["/run/test/programs/many_locks.py", "/tmp", locks, "0"];
    let mut others = sandbox.command("/usr/bin/python3").args(script).spawn();
    others.expect("ALL THERE");
    let _daemon = daemon_by(&sandbox, &["prlimit", "--nofile=64"], &["--listen", ADDRESS]);
    // It listens at the socket first.
    let connect = || until(LIMIT, || TcpStream::connect(ADDRESS).ok()).expect("a connection");
    let root = || in_network(network(&sandbox, 1), 0, connect);
    let mut clients = ports.map(|_| Client::new(root()).greeted());
    let holders = ports.map(|_| sandbox.sleeper(User::Root));
    for verb in ["lock", "unlock", "lock"] {
        for (client, (port, holder)) in clients.iter_mut().zip(ports.iter().zip(&holders)) {
            assert_eq!(client.ask(&format!("{verb} {port} {}", holder.pid())), DONE);
        }
    }
}

#[test]
fn sigterm_ends_in_order() {
    let mut daemon = Daemon::start(&[]);
    let mut idle = daemon.on_tcp().greeted();
    let mut locking = daemon.on_unix().greeted();
    assert_eq!(locking.ask(&format!("lock ttyS1 {}", own())), DONE);
    // While it is stopped: a command arrives, and somebody knocks.
    daemon.signal(Signal::SIGSTOP);
    locking.say(&format!("lock ttyS2 {}", own()));
    let mut late = daemon.on_unix();
    daemon.signal(Signal::SIGTERM);
    daemon.signal(Signal::SIGCONT);
    assert_eq!(daemon.end().code(), Some(0));
    assert_eq!(idle.line(), CLOSING);
    assert_eq!(locking.line(), DONE);
    assert_eq!(locking.line(), CLOSING);
    let last = late.rest();
    assert!(last.ends_with(&format!("{CLOSING}\r\n")), "{last:?}");
    assert!(!daemon.socket.exists());
    assert_eq!(daemon.ground.locks(), ["LCK..ttyS1", "LCK..ttyS2"]);
    // Who knocked at a door that was handed over is served by the next one.
    let mut patient = daemon.on_tcp();
    daemon.begin();
    assert!(patient.line().starts_with("220 "));
    assert_eq!(patient.ask(&format!("unlock ttyS1 {}", own())), DONE);
}

/// More than one turn answers, and more bytes than it reads: every one of these requests has arrived before the signal. Its
/// client is gone; or it takes no reply, and these fill the socket before the service comes to its last request.
#[rstest]
#[case::replies_on_tcp(Daemon::on_tcp, "noop\n", true)]
#[case::replies(Daemon::on_unix, "noop\n", true)]
#[case::questions(Daemon::on_unix, "stat ttyS1\n", true)]
#[case::a_wait(Daemon::on_unix, "wait ttyS1 1 100\nnoop\n", true)]
#[case::of_a_client_that_takes_no_reply(Daemon::on_unix, "help\n", false)]
fn sigterm_loses_no_unlock(#[case] way: Way, #[case] before: &str, #[case] leaves: bool) {
    let mut daemon = Daemon::start(&[]);
    let mut other = way(&daemon).greeted();
    let mut staying = way(&daemon).greeted();
    let ports = |first: u8| (first..first + 4).map(|number| format!("ttyS{number} {}", own()));
    for port in ports(1).chain(ports(5)) {
        assert_eq!(staying.ask(&format!("lock {port}")), DONE);
    }
    daemon.signal(Signal::SIGSTOP);
    let unlocks = |first| ports(first).map(|port| format!("unlock {port}\n")).collect::<String>();
    other.say(&(before.repeat(1000) + &unlocks(1)));
    if leaves {
        other.leave();
    } else {
        std::mem::forget(other);
    }
    staying.say(&unlocks(5));
    daemon.signal(Signal::SIGTERM);
    daemon.signal(Signal::SIGCONT);
    assert_eq!(daemon.end().code(), Some(0));
    assert_eq!(daemon.ground.locks(), [""; 0]);
    let answers = [DONE; 4].map(str::to_owned);
    assert_eq!([(); 4].map(|()| staying.line()), answers);
}

#[rstest]
#[case::hang_up(Signal::SIGHUP)]
#[case::broken_pipe(Signal::SIGPIPE)]
fn signals_that_do_no_harm(#[case] signal: Signal) {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.on_tcp().greeted();
    assert_eq!(client.ask(&format!("lock ttyS1 {}", own())), DONE);
    for _ in 0..3 {
        daemon.signal(signal);
        assert_eq!(client.ask("noop"), DONE);
    }
    assert_eq!(client.ask(&format!("lock ttyS1 {}", own())), BUSY);
    assert_eq!(client.ask(&format!("unlock ttyS1 {}", own())), DONE);
}

/// The daemon is killed at any time, under load. Every lock that it has promised is there, every lock that is there has
/// a holder, and when the holders are gone, every port can be locked again. No machine has these ports: one that exists
/// is busy while the kernel's list of locks, to which all programs add, cannot be read whole.
#[test]
#[ignore = "needs root: tests/run"]
fn killed_at_any_time_it_loses_no_lock() {
    let mut daemon = Daemon::start(&[]);
    for round in 0..25_u64 {
        let holder = Holder::new();
        let mut promised: Vec<usize> = Vec::new();
        let mut clients: Vec<Client> = (0..4).map(|_| daemon.on_unix().greeted()).collect();
        for number in 0..24 {
            clients[number % 4].say(&format!("lock ttyNone{number} {}", holder.pid()));
        }
        // From before the first to after the last, in steps of a fraction of one request.
        let delay = Duration::from_micros(150 * round);
        let began = Instant::now();
        while began.elapsed() < delay {
            std::hint::spin_loop();
        }
        daemon.kill();
        for (first, client) in clients.iter_mut().enumerate() {
            let said = client.rest();
            let answers = said.lines().enumerate();
            promised.extend(answers.map(|(nth, line)| {
                assert_eq!(line, DONE);
                first + 4 * nth
            }));
        }
        let locks: Vec<String> = daemon.ground.locks();
        for number in &promised {
            assert!(locks.contains(&format!("LCK..ttyNone{number}")), "{number} of {locks:?}");
        }
        for name in locks.iter().filter(|name| name.starts_with("LCK")) {
            let content = std::fs::read_to_string(daemon.ground.path("lock").join(name));
            assert_eq!(content.unwrap(), format!("{:>10}\n", holder.pid()), "{name}");
        }
        daemon.begin();
        let mut client = daemon.on_unix().greeted();
        for number in &promised {
            assert_eq!(client.ask(&format!("lock ttyNone{number} {}", own())), BUSY);
        }
        drop(holder);
        for number in 0..24 {
            assert_eq!(client.ask(&format!("lock ttyNone{number} {}", own())), DONE);
            assert_eq!(client.ask(&format!("unlock ttyNone{number} {}", own())), DONE);
        }
        let left: Vec<String> = daemon.ground.locks();
        assert!(left.iter().all(|name| !name.starts_with("LCK")), "{left:?}");
    }
}

/// Qt run as root removes a lock unless somebody holds flock on it.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn its_locks_are_held_open_as_long_as_they_are_good() {
    let mut daemon = Daemon::start(&[]);
    let mut client = daemon.on_unix().greeted();
    let holder = Holder::new();
    assert_eq!(client.ask(&format!("lock ttyS1 {}", own())), DONE);
    assert_eq!(client.ask(&format!("lock ttyS2 {}", holder.pid())), DONE);
    assert!(flock_is_held(&daemon, "LCK..ttyS1") && flock_is_held(&daemon, "LCK..ttyS2"));
    // A dead holder's lock goes.
    drop(holder);
    assert!(comes(|| daemon.ground.locks() == ["LCK..ttyS1"]), "let go");
    let other = Wire::greeted(&daemon.ground);
    assert_eq!(other.ask(&format!("lock ttyS2 {}", own())), DONE);
    // Another daemon holds what the first one held.
    daemon.kill();
    assert!(!flock_is_held(&daemon, "LCK..ttyS1"));
    daemon.begin();
    // It is done before anybody is greeted.
    let mut client = daemon.on_unix().greeted();
    assert!(flock_is_held(&daemon, "LCK..ttyS1"));
    assert_eq!(client.ask(&format!("unlock ttyS1 {}", own())), DONE);
    assert_eq!(daemon.ground.locks(), ["LCK..ttyS2"]);
    // A session of its own, under inetd, is not kept from releasing what the daemon holds.
    assert_eq!(client.ask(&format!("lock ttyS1 {}", own())), DONE);
    assert_eq!(other.ask(&format!("unlock ttyS1 {}", own())), DONE);
}

/// What one user's processes hold is bounded, and what is let go counts no longer.
#[rstest]
#[case::one_file_each("ttyS")]
#[case::three_files_each("serial/by-id/usb")]
#[ignore = "needs root: tests/run"]
fn a_user_has_so_many_locks(#[case] name: &str) {
    let daemon = Daemon::start(&[]);
    let pid = "$$";
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/$1; read -r -u 3 line; \
         ask() {{ printf '%s\\n' \"$*\" >&3; read -r -u 3 line; echo \"${{line:0:3}}\"; }}; \
         for i in $(seq {LOCKS_OF_A_USER}); do ask lock {name}$i {pid}; done | sort | uniq -c; \
         ask lock ttyX {pid}; ask unlock {name}1 {pid}; ask lock ttyX {pid}; ask lock ttyY {pid}"
    );
    let output = Command::new("setpriv")
        .args(["--reuid=1000", "--regid=1000", "--clear-groups", "bash", "-c", &script, "sh"])
        .arg(daemon.port.port().to_string())
        .output()
        .expect("setpriv (package util-linux)");
    let said = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    let locks = LOCKS_OF_A_USER.to_string();
    assert_eq!(words, [locks.as_str(), "200", "550", "200", "200", "550"], "{output:?}");
    let mut roots = daemon.on_unix().greeted();
    for number in 0..=LOCKS_OF_A_USER {
        assert_eq!(roots.ask(&format!("lock ttyR{number} {}", own())), DONE);
    }
}

/// systemd is told that it listens, and that it is alive.
#[test]
fn systemd_hears_of_it() {
    let ground = Ground::new();
    let path = ground.path("notify");
    let systemd = UnixDatagram::bind(&path).expect("a socket");
    systemd.set_read_timeout(Some(LIMIT)).expect("a limit");
    let mut command = ground.listening("socket");
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let mut child = command.spawn().expect("lfpd");
    for expected in ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"] {
        let mut line = [0; 64];
        let length = uninterrupted(|| systemd.recv(&mut line)).expect("a line in time");
        assert_eq!(line.get(..length), Some(expected.as_bytes()));
    }
    child.kill().expect("its end");
    child.wait().expect("its end");
}

/// The system's own lock directory may come later than the daemon. Until then, systemd and the log are told.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_missing_lock_directory_is_reported_and_its_coming_too() {
    let (sandbox, syslog) = with_syslog();
    sandbox.shell(User::Root, "umount /run/lock; rmdir /run/lock; test ! -e /run/lock").expect(0);
    let systemd = UnixDatagram::bind(sandbox.path("/run/notify")).expect("a socket");
    systemd.set_read_timeout(Some(LIMIT)).expect("a limit");
    let hear = || {
        let mut line = [0; 200];
        let length = uninterrupted(|| systemd.recv(&mut line)).expect("a line in time");
        String::from_utf8_lossy(&line[..length]).into_owned()
    };
    let words = ["--listen", "unix:/run/lfpd.sock"];
    let daemon = sandbox.command(testbed::LFPD).args(words).env("NOTIFY_SOCKET", "/run/notify");
    let daemon = daemon.spawn();
    let text = "nothing can be locked: the lock directory /var/lock does not exist";
    assert_eq!([hear(), hear()], [format!("STATUS={text}"), "READY=1".to_owned()]);
    assert!(syslog.line().contains(text));
    sandbox.shell(User::Root, "mkdir -m 1777 /run/lock").expect(0);
    daemon.signal("HUP");
    assert_eq!(hear(), "STATUS=");
    assert!(syslog.line().contains("SIGHUP"));
    assert!(syslog.line().contains("the lock directory /var/lock exists now"));
}

/// The lock of a process goes when that ends, for there are programs that never break one; also where
/// its parent never takes note.
#[test]
fn dead_locks_go_by_themselves() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.on_tcp().greeted();
    let holder = Holder::new();
    assert_eq!(client.ask(&format!("lock serial/by-id/none {}", holder.pid())), DONE);
    assert!(daemon.ground.locks().len() > 1);
    drop(holder);
    assert!(comes(|| daemon.ground.locks().is_empty()), "removed");
    let mut zombie = Command::new("sleep").arg("1000").spawn().expect("sleep");
    assert_eq!(client.ask(&format!("lock ttyS1 {}", zombie.id())), DONE);
    assert_eq!(client.ask(&format!("lock ttyS1 {}", own())), BUSY);
    zombie.kill().expect("its end");
    assert!(comes(|| daemon.ground.locks().is_empty()), "removed");
    assert_eq!(client.ask(&format!("lock ttyS1 {}", own())), DONE);
    zombie.wait().expect("its end");
}

/// Also of a file that another process held by `flock(2)` when its holder ended: it is tried again.
#[test]
fn a_dead_lock_that_was_held_goes_by_itself() {
    let mut daemon = Daemon::start(&[]);
    daemon.kill();
    let holder = Holder::new();
    let path = daemon.ground.path("lock/LCK..ttyS1");
    std::fs::write(&path, format!("{:>10}\n", holder.pid())).unwrap();
    let file = File::open(path).unwrap();
    let held = Flock::lock(file, FlockArg::LockExclusiveNonblock).expect("flock");
    daemon.begin();
    let mut client = daemon.on_unix().greeted();
    drop(holder);
    // The daemon meets the end of the holder before the second of these.
    assert_eq!([client.ask("noop"), client.ask("noop")], [DONE, DONE]);
    assert_eq!(daemon.ground.locks(), ["LCK..ttyS1"]);
    drop(held);
    assert!(comes(|| daemon.ground.locks().is_empty()), "removed");
}

/// Those of other programs too, when they end after the start of the service or have ended before.
#[test]
fn dead_locks_are_found_at_the_start() {
    let mut daemon = Daemon::start(&[]);
    daemon.kill();
    let holder = Holder::new();
    let lock = |device: &str, content: String| {
        let path = daemon.ground.path("lock").join(format!("LCK..{device}"));
        std::fs::write(path, content).expect("a lock");
    };
    lock("living", format!("{:>10} minicom alice\n", holder.pid()));
    lock("dead", "  99999999\n".to_owned());
    lock("unfinished", String::new());
    daemon.begin();
    // It is done before anybody is greeted.
    let _client = daemon.on_unix().greeted();
    assert_eq!(daemon.ground.locks(), ["LCK..living", "LCK..unfinished"]);
    drop(holder);
    assert!(comes(|| daemon.ground.locks() == ["LCK..unfinished"]), "removed");
}

#[test]
fn a_second_daemon_leaves_the_first_ones_socket_alone() {
    let daemon = Daemon::start(&[]);
    let output = daemon.ground.listening("socket").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot listen on"));
    assert_eq!(daemon.on_unix().greeted().ask("noop"), DONE);
}

/// What inetd does with `wait`: the daemon serves, and ends when nobody has come for a while. It stays for the sake of a
/// lock, and sleeps meanwhile.
#[test]
fn a_daemon_that_inetd_waits_for_ends_when_it_is_idle_and_has_no_lock() {
    let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = door.local_addr().unwrap();
    let ground = Ground::new();
    let fd = |door: &std::net::TcpListener| Stdio::from(OwnedFd::from(door.try_clone().unwrap()));
    let mut command = ground.command();
    command.args(["--idle-timeout", "4"]);
    command.stdin(fd(&door)).stdout(fd(&door)).stderr(fd(&door));
    let child = command.spawn().unwrap();
    let holder = Holder::new();
    let mut client = Client::new(TcpStream::connect(port).unwrap()).greeted();
    assert_eq!(client.ask(&format!("lock ttyS1 {}", holder.pid())), DONE);
    assert!(client.ask("quit").starts_with("221 "));
    // Its idle time is over.
    pause(Duration::from_secs(5));
    let stat = format!("/proc/{}/stat", child.id());
    let sleeps = |_: &usize| {
        pause(Duration::from_millis(20));
        std::fs::read_to_string(&stat).unwrap().contains(") S ")
    };
    // One that spins never does.
    assert!((0..20).filter(sleeps).count() > 10);
    drop(holder);
    assert_eq!(ended(child).code(), Some(0));
}

#[test]
fn systemd_hands_over_listening_sockets() {
    let ground = Ground::new();
    let socket = ground.path("systemd");
    let lfpd = ground.command();
    let words: Vec<_> = lfpd.get_args().map(std::ffi::OsStr::to_owned).collect();
    let mut command = Command::new("systemd-socket-activate");
    command.arg(format!("--listen={}", socket.display())).arg(lfpd.get_program()).args(words);
    let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("systemd-socket-activate (package systemd)");
    let connect = || Some(Client::new(UnixStream::connect(&socket).ok()?));
    let mut one = until(LIMIT, connect).expect("a connection").greeted();
    let mut other = connect().unwrap().greeted();
    assert_eq!(one.ask(&format!("lock ttyS1 {}", own())), DONE);
    assert_eq!(other.ask(&format!("unlock ttyS1 {}", own())), DONE);
    assert!(other.lines("help").iter().any(|line| line.starts_with(" WAIT")));
    child.kill().unwrap();
    child.wait().unwrap();
    // The socket is systemd's, and stays.
    assert!(socket.exists());
}
