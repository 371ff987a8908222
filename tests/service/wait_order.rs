//! WAIT: which client gets the device, in which order, and which events wake and end a wait.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use rstest::rstest;
use testbed::{CLOSING, Client, Daemon, Ground, Holder, Sandbox, User, comes, own, pause};

use crate::machine::{answer, daemon, waiter};
use crate::wire::{BUSY, DONE, Wire};

/// A client that has begun to wait: the service has read its line when it refuses another's LOCK,
/// or, where somebody waits already, when it has answered a later client on the same thread.
fn waiting(daemon: &Daemon, device: &str, pid: u32, seconds: u32) -> Client {
    let mut client = daemon.on_unix().greeted();
    client.say(&format!("wait {device} {pid} {seconds}"));
    // The answer to a command sent later shows that this one has been read: readiness is served
    // in the order in which it came.
    settle(daemon);
    client
}

/// A daemon, and a client that has locked a device for this process.
fn owned() -> (Daemon, Client) {
    let daemon = Daemon::start(&[]);
    let mut owner = daemon.on_tcp().greeted();
    assert_eq!(owner.lock("ttyS1", own()), 200);
    (daemon, owner)
}

fn settle(daemon: &Daemon) {
    for _ in 0..3 {
        assert_eq!(daemon.on_unix().greeted().ask("noop"), DONE);
    }
}

#[test]
fn a_free_device_is_had_at_once() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.on_tcp().greeted();
    assert_eq!(client.ask(&format!("WAIT /dev/ttyS1 {} 60", own())), DONE);
    assert_eq!(daemon.ground.locks(), ["LCK..ttyS1"]);
    assert_eq!(client.ask(&format!("wait ttyS1 {} 0", own())), BUSY);
}

#[test]
fn a_waiter_keeps_its_place_when_silent_clients_connect() {
    let daemon = Daemon::start(&["--max-per-user", "3"]);
    let mut owner = daemon.on_tcp().greeted();
    assert_eq!(owner.ask(&format!("lock ttyS1 {}", own())), DONE);
    let mut waiter = daemon.on_unix().greeted();
    waiter.say(&format!("wait ttyS1 {} 600", own()));
    for _ in 0..3 {
        assert_eq!(owner.ask("noop"), DONE);
    }
    let mut silent = daemon.on_unix().greeted();
    let _later = daemon.on_unix().greeted();
    assert_eq!(silent.line(), CLOSING);
    assert_eq!(owner.ask(&format!("unlock ttyS1 {}", own())), DONE);
    assert_eq!(waiter.line(), DONE);
}

#[test]
fn first_come_first_served() {
    let (daemon, mut owner) = owned();
    let mut line: Vec<Client> = (0..5).map(|_| waiting(&daemon, "ttyS1", own(), 600)).collect();
    for _ in 0..line.len() {
        assert_eq!(owner.ask(&format!("unlock ttyS1 {}", own())), DONE);
        assert_eq!(line.remove(0).line(), DONE);
        // Exactly one: the next one's answer is not there.
        assert_eq!(owner.ask(&format!("lock ttyS1 {}", own())), BUSY);
    }
}

#[test]
fn two_names_of_one_device_are_one_line() {
    let daemon = Daemon::start(&[]);
    let mut owner = daemon.on_tcp().greeted();
    assert_eq!(owner.ask(&format!("lock /dev/zero {}", own())), DONE);
    let mut first = waiting(&daemon, "/dev/zero", own(), 600);
    let _second = waiting(&daemon, "zero", own(), 600);
    assert_eq!(owner.ask(&format!("unlock zero {}", own())), DONE);
    assert_eq!(first.line(), DONE);
}

/// Nobody overtakes those who wait, and other devices are not concerned.
#[test]
fn a_lock_does_not_barge_in() {
    let daemon = Daemon::start(&[]);
    let holder = Holder::new();
    let file = daemon.ground.path("lock/LCK..ttyS1");
    std::fs::write(&file, format!("{:>10}\n", holder.pid())).unwrap();
    let mut first = waiting(&daemon, "ttyS1", own(), 600);
    let mut other = daemon.on_tcp().greeted();
    assert_eq!(other.ask(&format!("lock ttyS2 {}", own())), DONE);
    std::fs::remove_file(&file).unwrap();
    // Whether the service has heard of it or not.
    assert_eq!(other.ask(&format!("lock ttyS1 {}", own())), BUSY);
    assert_eq!(first.line(), DONE);
}

/// The first waiter is kept out by the flock of a process, and the next user asks for that process.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_waiter_kept_out_by_the_process_of_the_next_heads_no_line() {
    let sandbox = Sandbox::with_lfpd().port("ttyW0").enter();
    let _service = daemon(&sandbox, &[]);
    let alices = sandbox.sleeper(User::Alice);
    // With -F the flock is the sleeper's own.
    let line = "exec flock -F /dev/ttyW0 sh -c 'echo ready; exec sleep 1000'";
    let bobs = sandbox.ready(User::Bob, line);
    let _first = waiter(&sandbox, User::Alice, "ttyW0", alices.pid());
    let ask = |verb: &str, rest: &str| {
        answer(&sandbox, User::Bob, &format!("{verb} ttyW0 {}{rest}", bobs.pid()))
    };
    assert_eq!(ask("wait", " 60"), "200");
    assert_eq!(ask("unlock", ""), "200");
    assert_eq!(ask("lock", ""), "200", "nor is he kept from LOCK");
}

/// As long as somebody waits, it can be seen who.
#[test]
fn waiters_are_shown() {
    let (daemon, mut owner) = owned();
    let _waiter = waiting(&daemon, "ttyS1", own(), 600);
    let line = format!("device=\"ttyS1\" scheme=waiting standing=alive pid={}", own());
    for question in ["stat ttyS1", "stat"] {
        let lines = owner.lines(question);
        assert!(lines[0].contains(" waiting=1"), "{lines:?}");
        assert!(lines.iter().any(|shown| shown.starts_with(&format!(" {line}"))), "{lines:?}");
    }
}

#[rstest]
#[case::own_directory("lock")]
#[case::searched_directory("other")]
fn a_foreign_lock_that_goes_wakes(#[case] directory: &str) {
    let daemon = Daemon::start(&[]);
    let holder = Holder::new();
    let file = daemon.ground.path(directory).join("LCK..ttyS1");
    let lock = |_: &mut Client| std::fs::write(&file, format!("{:>10}\n", holder.pid())).unwrap();
    wakes(&daemon, lock, |()| std::fs::remove_file(&file).unwrap());
}

#[test]
fn the_end_of_the_holder_wakes() {
    let daemon = Daemon::start(&[]);
    let lock = |control: &mut Client| {
        let holder = Holder::new();
        assert_eq!(control.ask(&format!("lock ttyS1 {}", holder.pid())), DONE);
        holder
    };
    wakes(&daemon, lock, drop);
}

/// A waiter has ttyS1 soon after the end of the lock that `lock` makes: well below the second after which the device is
/// looked at anyway. The best of several times counts, since the machine may be busy.
fn wakes<L>(daemon: &Daemon, mut lock: impl FnMut(&mut Client) -> L, mut end: impl FnMut(L)) {
    let mut control = daemon.on_tcp().greeted();
    let times = (0..5).map(|_| {
        let held = lock(&mut control);
        let mut client = waiting(daemon, "ttyS1", own(), 600);
        let began = Instant::now();
        end(held);
        assert_eq!(client.line(), DONE);
        let time = began.elapsed();
        assert_eq!(control.ask(&format!("unlock ttyS1 {}", own())), DONE);
        time
    });
    assert!(times.min().unwrap() < Duration::from_millis(500));
}

/// The kernel tells nobody of the end of a flock: the look once a second sees it.
#[test]
fn the_end_of_a_flock_is_seen() {
    let daemon = Daemon::start(&[]);
    // A node that no other program locks, and that a lock does not disturb.
    let flock = Holder::flocking(Path::new("/dev/full"), geteuid().as_raw());
    let mut client = daemon.on_tcp().greeted();
    assert_eq!(client.ask(&format!("lock full {}", own())), BUSY);
    let mut client = waiting(&daemon, "full", own(), 600);
    drop(flock);
    assert_eq!(client.line(), DONE);
}

/// How often a daemon has read from the kernel's list of locks, which it does for each look. On a busy machine it may ask
/// many times whether the thread that reads has come to an end, and these are no looks.
fn list_reads(tasks: &Path) -> u64 {
    let mut tasks = std::fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path());
    let content = |task: &Path, file: &str| std::fs::read_to_string(task.join(file));
    let reader = tasks.find(|it| content(it, "comm").is_ok_and(|name| name == "lfpd-locks\n"));
    let counters = reader.map_or_else(String::new, |reader| content(&reader, "io").unwrap());
    let reads = counters.lines().find_map(|line| line.strip_prefix("syscr: "));
    reads.map_or(0, |number| number.parse().unwrap())
}

/// Somebody waits, and the daemon with these threads looks once a second, and not all the time.
fn looks_once_a_second(tasks: &Path) {
    assert!(comes(|| list_reads(tasks) > 0), "a look");
    let (before, began) = (list_reads(tasks), Instant::now());
    pause(Duration::from_secs(3));
    let reads = list_reads(tasks) - before;
    // A look reads twice, or more often if there are many locks.
    let seconds = began.elapsed().as_secs() + 1;
    assert!(reads < 40 * seconds, "{reads} reads of the list in {seconds} seconds");
}

/// The process that took the flock has ended, and another one has inherited the descriptor: no event tells of its end.
#[test]
fn an_inherited_flock_is_looked_at_once_a_second() {
    let daemon = Daemon::start(&[]);
    let heir = "exec 3<>/dev/urandom; flock 3; echo held; exec sleep 1000";
    let heir = Holder::speaking(Command::new("sh").args(["-c", heir]));
    let mut client = waiting(&daemon, "urandom", own(), 600);
    looks_once_a_second(Path::new(&format!("/proc/{}/task", daemon.pid())));
    drop(heir);
    assert_eq!(client.line(), DONE);
}

/// Each attempt takes the first name and gives it back: that wakes nobody.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_device_whose_second_name_is_locked_is_looked_at_once_a_second() {
    let sandbox = Sandbox::with_lfpd().port("ttyW0").link("modemW", "ttyW0").enter();
    let service = daemon(&sandbox, &[]);
    let (holder, waiting) = (sandbox.sleeper(User::Root), sandbox.sleeper(User::Root));
    sandbox.write("/run/lock/LCK..modemW", format!("{:>10}\n", holder.pid()), 0o644);
    let mut client = waiter(&sandbox, User::Root, "ttyW0", waiting.pid());
    looks_once_a_second(&sandbox.path(&format!("/proc/{}/task", service.pid())));
    holder.kill();
    client.expect("200 ");
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let (daemon, mut owner) = owned();
    let mut long = waiting(&daemon, "ttyS1", own(), 600);
    let mut short = daemon.on_unix().greeted();
    let began = Instant::now();
    assert_eq!(short.ask(&format!("wait ttyS1 {} 1", own())), BUSY);
    assert!(began.elapsed() >= Duration::from_secs(1));
    // The session goes on, and the other one still waits.
    assert_eq!(short.ask("noop"), DONE);
    assert_eq!(owner.ask(&format!("unlock ttyS1 {}", own())), DONE);
    assert_eq!(long.line(), DONE);
}

fn half_close(mut client: Client) {
    client.end_input();
    assert_eq!(client.line(), BUSY);
    assert_eq!(client.line(), "");
}

#[rstest]
#[case::closes(Client::leave)]
#[case::half_closes(half_close)]
fn a_waiter_that_leaves_does_not_get_it(#[case] leave: fn(Client)) {
    let (daemon, mut owner) = owned();
    let ghost = Holder::new();
    let first = waiting(&daemon, "ttyS1", ghost.pid(), 600);
    let mut second = waiting(&daemon, "ttyS1", own(), 600);
    leave(first);
    settle(&daemon);
    assert_eq!(owner.ask(&format!("unlock ttyS1 {}", own())), DONE);
    assert_eq!(second.line(), DONE);
    let content = std::fs::read_to_string(daemon.ground.path("lock/LCK..ttyS1")).unwrap();
    assert_eq!(content.trim(), own().to_string());
}

/// It asked and left while the service did nothing: nobody would know of its lock.
#[rstest]
#[case::on_unix(Daemon::on_unix)]
#[case::on_tcp(Daemon::on_tcp)]
fn a_waiter_that_left_before_it_was_heard_does_not_get_it(#[case] on: fn(&Daemon) -> Client) {
    let daemon = Daemon::start(&[]);
    let mut gone = on(&daemon).greeted();
    daemon.signal(Signal::SIGSTOP);
    gone.say(&format!("wait ttyS1 {} 0", own()));
    gone.leave();
    daemon.until_tcp_clients_left();
    daemon.signal(Signal::SIGCONT);
    settle(&daemon);
    assert_eq!(daemon.ground.locks(), [""; 0]);
}

/// What is said while waiting is obeyed afterwards, in order.
#[test]
fn commands_sent_during_a_wait_are_obeyed_after_it() {
    let (daemon, mut owner) = owned();
    let mut client = daemon.on_tcp().greeted();
    client.say(&format!("wait ttyS1 {} 600\r\nunlock ttyS1 {}\r\nquit", own(), own()));
    settle(&daemon);
    client.say("lost?");
    settle(&daemon);
    assert_eq!(owner.ask(&format!("unlock ttyS1 {}", own())), DONE);
    let said = client.rest();
    assert!(said.starts_with("200 Command okay.\r\n200 Command okay.\r\n221 "), "{said}");
    assert_eq!(daemon.ground.locks(), [""; 0]);
}

#[test]
fn waiters_are_told_when_the_service_ends() {
    let (mut daemon, _owner) = owned();
    let mut client = waiting(&daemon, "ttyS1", own(), 600);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(client.line(), CLOSING);
    assert_eq!(client.line(), "");
    assert_eq!(daemon.end().code(), Some(0));
    assert_eq!(daemon.ground.locks(), ["LCK..ttyS1"]);
}

/// A process with one client cannot keep order among several, so it does not offer to.
#[test]
fn a_single_session_does_not_wait() {
    let wire = Wire::greeted(&Ground::new());
    for line in ["wait ttyS1 5 1", "wait", "WAIT x"] {
        assert_eq!(wire.ask(line), "202 Command not implemented");
    }
    assert!(!wire.ask("help").contains("WAIT"));
    assert_eq!(wire.finish().1, Some(0));
}
