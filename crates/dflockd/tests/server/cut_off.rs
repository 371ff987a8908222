//! Histories of clients that are cut off in the middle of a request and killed while they hold a lock, half of them over
//! HTTP, on a server that keeps its locks in memory or in a directory, and there is killed itself: no two holders, no lock
//! lost within its lease, and in the end nothing is held.

use nix::sys::signal::Signal;
use rstest::rstest;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testbed::Lots;
use testbed::dflockd::history::{Call, Entry, History, Mode};
use testbed::dflockd::{
    Daemon, HttpTalker, Talker, fence, free_port, is_on_etcd, program, slot_of, token_of, until,
};

const WORKERS: u64 = 12;
const ROUNDS: u64 = 30;
const KEYS: [(&str, usize); 3] = [("a", 1), ("b", 1), ("pool", 2)];
/// In seconds. A server that was killed keeps a hold of which no client was told for so long.
const LEASE: u64 = 3;

/// Where the server is, and its HTTP port.
type Place = [SocketAddr; 2];

enum Client {
    Tcp(Talker),
    Http(HttpTalker),
}

impl Client {
    /// As soon as there is a server.
    fn connect([tcp, http]: Place, worker: u64) -> Self {
        let mut client = None;
        until("there is a server", || {
            client = if worker % 2 == 0 {
                let talker = Talker::try_connect(tcp);
                let said = |mut talker: Talker| {
                    talker.try_ask("ping", "hello", "slots")?;
                    Some(Self::Tcp(talker))
                };
                talker.and_then(said)
            } else {
                let talker = HttpTalker::connect(http);
                talker.is_connected().then_some(Self::Http(talker))
            };
            client.is_some()
        });
        client.unwrap()
    }

    fn ask(&mut self, command: &str, key: &str, arg: &str) -> Option<String> {
        match self {
            Self::Tcp(talker) => talker.try_ask(command, key, arg),
            Self::Http(talker) => talker.try_ask(command, key, arg),
        }
        .filter(|answer| answer != "error_draining")
    }

    /// A request whose connection ends before the answer.
    fn cut_off(self, command: &str, key: &str, arg: &str) -> Option<Self> {
        match self {
            Self::Tcp(mut talker) => {
                talker.try_say(format!("{command}\n{key}\n{arg}\n").as_bytes());
                None
            }
            Self::Http(talker) => {
                talker.cut_off(command, key, arg);
                Some(Self::Http(talker))
            }
        }
    }

    fn die(self) {
        match self {
            Self::Tcp(talker) => drop(talker),
            Self::Http(talker) => talker.fall_silent(),
        }
    }
}

struct Worker<'r> {
    place: Place,
    number: u64,
    client: Option<Client>,
    clock: &'r AtomicU64,
    lots: Lots,
}

impl Worker<'_> {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn client(&mut self) -> &mut Client {
        let (place, number) = (self.place, self.number);
        self.client.get_or_insert_with(|| Client::connect(place, number))
    }

    /// Without an answer the connection is over.
    fn ask(&mut self, command: &str, key: &str, arg: &str) -> Option<String> {
        let answer = self.client().ask(command, key, arg);
        if answer.is_none() {
            self.client = None;
        }
        answer
    }

    fn round(&mut self, history: &mut History, (key, limit): (&str, usize)) {
        let (from, timeout, fate) = (self.tick(), self.lots.below(3), self.lots.below(16));
        // The session of a client that was killed lasts longer than its lease.
        let lease = if fate == 2 { 1 } else { LEASE };
        let arg = format!("{timeout} {limit} {lease}");
        if fate < 2 {
            self.client();
            self.client = self.client.take().and_then(|it| it.cut_off("sl", key, &arg));
            return history.lost.push(from);
        }
        let asked = Instant::now();
        let Some(reply) = self.ask("sl", key, &arg) else { return history.lost.push(from) };
        let Some(token) = token_of(&reply) else {
            assert_eq!(reply, "timeout");
            let call = if timeout == 0 { Call::Failed(Mode::Alone) } else { Call::GaveUp };
            return history.entries.push(Entry { call, from, to: self.tick() });
        };
        let (to, fence) = (self.tick(), fence(token));
        // On a busy machine it may be over, and another's, before its answer is read.
        if asked.elapsed() >= Duration::from_secs(lease) {
            history.lost.push(from);
            return self.client.take().into_iter().for_each(Client::die);
        }
        history.entries.push(Entry { call: Call::Took(fence, Mode::Alone), from, to });
        history.slots.extend(slot_of(&reply).filter(|_| limit > 1).map(|slot| (fence, slot)));
        if fate == 2 {
            history.dropped.push((fence, to));
            return self.client.take().into_iter().for_each(Client::die);
        }
        // A worker that stood still for longer than the lease may have lost it.
        let is_late = |answer: &str| {
            assert!(asked.elapsed() >= Duration::from_secs(LEASE), "{key}: {answer}");
        };
        let (mut renewed, mut held_at) = (asked, to);
        if fate < 10 {
            let (from, sent) = (self.tick(), Instant::now());
            match self.ask("sn", key, &format!("{token} {LEASE}")) {
                Some(answer) if answer.starts_with("ok ") => {
                    let (call, to) = (Call::Renewed(fence), self.tick());
                    if sent.elapsed() < Duration::from_secs(LEASE) {
                        history.entries.push(Entry { call, from, to });
                        (renewed, held_at) = (sent, to);
                    } else {
                        history.dropped.push((fence, from));
                    }
                }
                Some(answer) => {
                    is_late(&answer);
                    return history.dropped.push((fence, to));
                }
                None => history.dropped.push((fence, last_held(asked, from, to))),
            }
        }
        let from = self.tick();
        let is_dropped = |history: &History| history.dropped.iter().any(|it| it.0 == fence);
        loop {
            match self.ask("sr", key, token).as_deref() {
                Some("ok") if is_dropped(history) => return,
                Some("ok") => {
                    let call = Call::Released(fence);
                    return history.entries.push(Entry { call, from, to: self.tick() });
                }
                Some(_) if is_dropped(history) => return,
                Some(answer) => {
                    assert!(renewed.elapsed() >= Duration::from_secs(LEASE), "{key}: {answer}");
                    return history.dropped.push((fence, held_at));
                }
                None => history.dropped.push((fence, last_held(renewed, from, held_at))),
            }
        }
    }
}

/// When a hold was certainly there that was asked for, or renewed, at that moment: at `from`, or at `held_at`, which is
/// earlier, if the worker stood still for as long as the lease.
fn last_held(asked: Instant, from: u64, held_at: u64) -> u64 {
    if asked.elapsed() < Duration::from_secs(LEASE) { from } else { held_at }
}

/// The directory, and how often the server is killed.
#[rstest]
#[case::in_memory(false, 0)]
#[case::in_a_directory(true, 0)]
#[case::the_server_is_killed(true, 2)]
fn clients_of_both_kinds_that_are_cut_off_and_killed(#[case] is_kept: bool, #[case] kills: u64) {
    // What etcd keeps has tests of its own in which servers are killed.
    let kills = if is_on_etcd() { 0 } else { kills };
    let dir = tempfile::tempdir().unwrap();
    let ports = [(); 2].map(|()| free_port().to_string());
    let start = || {
        let mut command = program();
        command.args(["--port", &ports[0], "--http-port", &ports[1]]);
        if is_kept {
            command.arg("--state-dir").arg(dir.path());
        }
        Daemon::run(&mut command)
    };
    let mut daemon = start();
    let (place, clock) = ([daemon.address, daemon.http_address()], &AtomicU64::new(0));
    let mut guards = ["guard-0", "guard-1"].map(|key| {
        let mut client = Client::connect(place, u64::from(key == "guard-1"));
        let reply = client.ask("l", key, "0 600").unwrap();
        (key, token_of(&reply).unwrap().to_owned(), client)
    });
    let mut histories = vec![History::default(); KEYS.len()];
    std::thread::scope(|scope| {
        let work = |number| {
            let lots = Lots(number);
            let mut worker = Worker { place, number, client: None, clock, lots };
            let mut histories = vec![History::default(); KEYS.len()];
            for _ in 0..ROUNDS {
                let at = worker.lots.index(KEYS.len());
                worker.round(&mut histories[at], KEYS[at]);
            }
            histories
        };
        let workers: Vec<_> =
            (0..WORKERS).map(|number| scope.spawn(move || work(number))).collect();
        for kill in 1..=kills {
            let wanted = kill * WORKERS * ROUNDS / (kills + 1);
            until("they have worked", || clock.load(Ordering::SeqCst) >= wanted);
            daemon.signal(Signal::SIGKILL);
            daemon.ended();
            daemon = start();
        }
        for worker in workers {
            histories.iter_mut().zip(worker.join().unwrap()).for_each(|(all, it)| all.join(it));
        }
    });
    for (history, (key, limit)) in histories.iter().zip(KEYS) {
        let most = history.most_at_once();
        assert!(most <= limit, "{key}: {most} at once");
        assert!(history.is_linearizable(limit), "{key}");
        assert!(history.fences_grow(limit), "{key}: fences went back");
        assert!(history.slots_are_apart(limit), "{key}: two had one slot");
    }
    let count = |of: fn(&History) -> usize| histories.iter().map(of).sum::<usize>();
    let (grants, ends) = (count(History::grants), count(|it| it.dropped.len() + it.lost.len()));
    assert!(grants > 100 && ends > 20, "{grants} grants, {ends} unseen ends");
    for (key, token, client) in &mut guards {
        assert_eq!(daemon.talk().ask("l", key, "0"), "timeout", "{key}");
        if kills > 0 {
            // Its connection, or its session, has ended with the server.
            *client = Client::connect(place, u64::from(*key == "guard-1"));
        }
        assert_eq!(
            client.ask("n", key, &format!("{token} 600")).as_deref(),
            Some("ok 600"),
            "{key}"
        );
        assert_eq!(client.ask("r", key, token).as_deref(), Some("ok"), "{key}");
    }
    daemon.until_stats("\"locks\":[],\"semaphores\":[]");
}
