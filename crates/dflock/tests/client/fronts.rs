//! Three servers on one etcd as clients with `--any-of` see them: one service, and any part of it may die.

use crate::program::{End, Running, bare, patient, run, start};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rstest::rstest;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use testbed::TcpSocket;
use testbed::dflockd::{Daemon, free_port, program_on, until};

/// How a server goes, and comes back where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Stop,
    /// As Kubernetes replaces it: told to end, it serves its holders on for a while, and the next one comes when
    /// it is gone.
    Drain,
}

/// Servers of one service. Holds stay while their clients look for another one.
struct Fronts {
    store: testbed::dflockd::Store,
    daemons: Vec<Daemon>,
}

const OPTIONS: [&str; 4] = ["--disconnect-grace", "60", "--shutdown-timeout", "2"];

impl Fronts {
    fn start() -> Self {
        let store = testbed::dflockd::etcd::shared();
        let daemons = [(); 3].map(|()| {
            let port = free_port().to_string();
            Daemon::run(program_on(&store).args(["--port", &port]).args(OPTIONS))
        });
        Self { daemons: daemons.into(), store }
    }

    fn list(&self) -> String {
        let list: Vec<String> = self.daemons.iter().map(|it| it.address.to_string()).collect();
        list.join(",")
    }

    fn fail(&mut self, index: usize, fault: Fault) {
        match fault {
            Fault::Stop => self.daemons[index].signal(Signal::SIGSTOP),
            Fault::Kill => {
                self.daemons[index].signal(Signal::SIGKILL);
                self.daemons[index].ended();
            }
            Fault::Drain => self.daemons[index].signal(Signal::SIGTERM),
        }
    }

    fn heal(&mut self, index: usize, fault: Fault) {
        match fault {
            Fault::Stop => self.daemons[index].signal(Signal::SIGCONT),
            Fault::Kill | Fault::Drain => {
                self.daemons[index].ended();
                let port = self.daemons[index].address.port().to_string();
                let mut command = program_on(&self.store);
                self.daemons[index] = Daemon::run(command.args(["--port", &port]).args(OPTIONS));
            }
        }
    }

    /// Which of them, of all but one, this process is connected to.
    fn of(&self, pid: Pid, but: Option<usize>) -> Option<usize> {
        let sockets = TcpSocket::of_process(pid.as_raw().unsigned_abs());
        let open = sockets.iter().filter(|it| it.state == TcpSocket::ESTABLISHED);
        let peers: Vec<u16> = open.map(|it| it.peer_port).collect();
        let is_one = |index: &usize| peers.contains(&self.daemons[*index].address.port());
        (0..self.daemons.len()).filter(|index| Some(*index) != but).find(is_one)
    }
}

/// Raised when the test is over, however.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Commands under one lock, one after another, until told to stop; how those ended that went wrong.
fn work(list: &str, place: &str, stop: &AtomicBool) -> (usize, Vec<End>) {
    let script = format!("mkdir {place}/in || exit 9; sleep 0.3; rmdir {place}/in");
    let mut done = 0;
    let mut wrong = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let mut command = bare(&["run", "hot", "--ttl", "30", "--any-of", list]);
        // On a busy machine the next leader may need more than the usual ten seconds.
        let end = run(command.args(["--patience", "60", "--", "sh", "-c", &script]));
        done += 1;
        if end.code != 0 {
            wrong.push(end);
        }
    }
    (done, wrong)
}

/// Each server goes and comes back, while clients hold locks and wait for them. A command that runs all the time does not
/// notice, and the clients that take turns go on taking turns.
#[rstest]
#[case::killed(Fault::Kill)]
#[case::stopped(Fault::Stop)]
#[case::drained(Fault::Drain)]
#[ignore = "needs programs: tests/run"]
fn the_servers_go_in_turn_and_the_service_stays(#[case] fault: Fault) {
    let mut fronts = Fronts::start();
    let list = fronts.list();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let words = ["run", "k", "--ttl", "30", "--any-of", &list];
    let mut command = bare(&words);
    command.args(["--", "sh", "-c", "echo in; read x; exit 6"]);
    let mut holding = start(command.stdin(Stdio::piped()));
    holding.lines(1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(|| work(&list, place, &stop))).collect();
        let ended = Stop(&stop);
        for _ in 0..3 {
            let mut at = None;
            until("it is somewhere", || {
                at = fronts.of(holding.pid(), None);
                at.is_some()
            });
            fronts.fail(at.unwrap(), fault);
            until("it is elsewhere", || fronts.of(holding.pid(), at).is_some());
            fronts.heal(at.unwrap(), fault);
        }
        drop(ended);
        for worker in workers {
            let (done, wrong) = worker.join().unwrap();
            assert!(done > 0 && wrong.is_empty(), "{done} done: {wrong:#?}");
        }
    });
    holding.end_input();
    let end = patient(holding.end());
    assert_eq!((end.code, &*end.out, &*end.err), (6, "in\n", ""), "{end:?}");
    let free = run(&mut bare(&["run", "k", "--timeout", "0", "--any-of", &list, "--", "true"]));
    assert_eq!(free.code, 0, "{free:?}");
}

/// Several keys, each of which may be asked for at another server first, over one connection.
#[test]
#[ignore = "needs programs: tests/run"]
fn several_keys_are_held_elsewhere() {
    let mut fronts = Fronts::start();
    let list = fronts.list();
    let words = ["run", "-k", "a", "-k", "b", "-k", "c", "--ttl", "30", "--any-of", &list];
    let mut command = bare(&words);
    command.args(["--", "sh", "-c", "echo in; read x; exit 6"]);
    let mut holding = start(command.stdin(Stdio::piped()));
    holding.lines(1);
    for index in 0..3 {
        fronts.fail(index, Fault::Kill);
        until("they are elsewhere", || fronts.of(holding.pid(), Some(index)).is_some());
        fronts.heal(index, Fault::Kill);
    }
    let tried =
        |key| run(&mut bare(&["run", key, "-t", "0", "--any-of", &list, "--", "true"])).code;
    assert_eq!(["a", "b", "c"].map(tried), [1; 3]);
    holding.end_input();
    let end = patient(holding.end());
    assert_eq!((end.code, &*end.err), (6, ""), "{end:?}");
    assert_eq!(["a", "b", "c"].map(tried), [0; 3]);
}

/// Two commands keep their slots while each server goes once, whichever of them leads. Others get the lowest slot that is
/// free.
#[test]
#[ignore = "needs programs: tests/run"]
fn slots_are_kept_elsewhere() {
    let mut fronts = Fronts::start();
    let list = fronts.list();
    let begin = |slot: &str| {
        let words = ["run", "pool", "--limit", "3", "--ttl", "30", "--any-of", &list];
        let mut command = bare(&words);
        command.args(["--", "sh", "-c", "echo $DFLOCK_SLOT; read x; exit 6"]);
        let holding = start(command.stdin(Stdio::piped()));
        assert_eq!(holding.lines(1), [slot]);
        holding
    };
    let end = |mut holding: Running| {
        holding.end_input();
        let end = patient(holding.end());
        assert_eq!((end.code, &*end.err), (6, ""), "{end:?}");
    };
    let (first, second) = (begin("0"), begin("1"));
    for index in 0..3 {
        fronts.fail(index, Fault::Kill);
        until("they are elsewhere", || {
            [&first, &second].iter().all(|it| fronts.of(it.pid(), Some(index)).is_some())
        });
        fronts.heal(index, Fault::Kill);
    }
    let third = begin("2");
    end(first);
    let fourth = begin("0");
    [second, third, fourth].into_iter().for_each(end);
}

/// Whichever server goes, a watcher sees each leader once, wherever the leader is connected.
#[rstest]
#[case::killed(Fault::Kill)]
#[case::drained(Fault::Drain)]
#[ignore = "needs programs: tests/run"]
fn a_watcher_goes_on_elsewhere(#[case] fault: Fault) {
    let mut fronts = Fronts::start();
    let list = fronts.list();
    let watcher = start(&mut bare(&["watch", "k", "--any-of", &list]));
    watcher.lines(1);
    for count in [2, 4, 6] {
        let mut at = None;
        until("it is somewhere", || {
            at = fronts.of(watcher.pid(), None);
            at.is_some()
        });
        fronts.fail(at.unwrap(), fault);
        until("it is elsewhere", || fronts.of(watcher.pid(), at).is_some());
        let value = format!("leader-{count}");
        let words = ["run", "k", "--value", &value, "--any-of", &list, "--", "sleep", "1"];
        let end = run(&mut bare(&words));
        assert_eq!(end.code, 0, "{end:?}");
        let lines = watcher.lines(count + 1);
        assert_eq!(lines.len(), count + 1, "{lines:#?}");
        assert!(
            lines[count - 1].contains(&value) && lines[count].contains("\"holders\":0,"),
            "{lines:#?}"
        );
        fronts.heal(at.unwrap(), fault);
    }
}
