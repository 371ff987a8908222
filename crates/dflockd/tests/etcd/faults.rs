//! Members of etcd and front-ends die, stop and come back while clients work: nobody ever holds what
//! another holds, fences only grow, and who renews in time keeps what he has.

use crate::check::{Call, Entry, History};
use crate::cluster::Cluster;
use crate::daemon::{Daemon, PATIENCE, program, until};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WORKERS: u64 = 16;
const KEYS: [(&str, usize); 3] = [("a", 1), ("b", 1), ("pool", 2)];
/// Requests and answers before and after each fault.
const TICKS: u64 = 300;
const SENTINELS: usize = 10;
/// Of a lock whose holder renews it, in seconds; and how often.
const SENTINEL_LEASE: u64 = 20;
const BEAT: Duration = Duration::from_secs(1);

/// A client that bears the end of its server: it asks the next one.
struct Client<'s> {
    servers: &'s [SocketAddr],
    at: usize,
    patience: Duration,
    stream: Option<BufReader<TcpStream>>,
}

impl<'s> Client<'s> {
    fn new(servers: &'s [SocketAddr], at: usize, patience: Duration) -> Self {
        Self { servers, at, patience, stream: None }
    }

    fn connect(&mut self) -> Option<&mut BufReader<TcpStream>> {
        if self.stream.is_none() {
            let server = self.servers[self.at % self.servers.len()];
            let stream = TcpStream::connect_timeout(&server, Duration::from_secs(1)).ok()?;
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(self.patience)).unwrap();
            self.stream = Some(BufReader::new(stream));
        }
        self.stream.as_mut()
    }

    /// The answer; nothing when there is none, and then the next server is asked from now on.
    fn ask(&mut self, command: &str, key: &str, arg: &str) -> Option<String> {
        let answer = self.try_ask(command, key, arg).filter(|answer| answer != "error_draining");
        if answer.is_none() {
            self.stream = None;
            self.at += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        answer
    }

    fn try_ask(&mut self, command: &str, key: &str, arg: &str) -> Option<String> {
        let stream = self.connect()?;
        stream.get_mut().write_all(format!("{command}\n{key}\n{arg}\n").as_bytes()).ok()?;
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        line.strip_suffix('\n').map(str::to_owned)
    }
}

fn token_of(reply: &str) -> Option<(String, u64)> {
    let token = reply.strip_prefix("ok ")?.split(' ').next()?.to_owned();
    let fence = u64::from_str_radix(&token[..16], 16).unwrap();
    Some((token, fence))
}

/// Takes and releases until it is told to stop.
fn work(servers: &[SocketAddr], worker: u64, clock: &AtomicU64, over: &AtomicBool) -> Vec<History> {
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    let mut histories = vec![History::default(); KEYS.len()];
    let mut client = Client::new(servers, usize::try_from(worker).unwrap(), PATIENCE);
    let mut random = worker * 7919 + 17;
    while !over.load(Ordering::Relaxed) {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = usize::try_from(random >> 33).unwrap() % KEYS.len();
        let ((key, limit), history) = (KEYS[place], &mut histories[place]);
        let timeout = if random >> 40 & 3 == 0 { 0 } else { 3 };
        let from = tick();
        let Some(reply) = client.ask("sl", key, &format!("{timeout} {limit} 30")) else {
            history.lost.push(from);
            continue;
        };
        let Some((token, fence)) = token_of(&reply) else {
            assert_eq!(reply, "timeout");
            let call = if timeout == 0 { Call::Failed } else { Call::GaveUp };
            history.entries.push(Entry { call, from, to: tick() });
            continue;
        };
        history.entries.push(Entry { call: Call::Took(fence), from, to: tick() });
        let from = tick();
        let call = loop {
            match client.ask("sr", key, &token).as_deref() {
                Some("ok") => break Some(Call::Released(fence)),
                Some("error") => break None,
                Some(other) => panic!("{other}"),
                None if history.dropped.contains(&(fence, from)) => {}
                // From here on an attempt whose answer was lost may do it, or the server that
                // notices the end of the connection.
                None => history.dropped.push((fence, from)),
            }
        };
        match call {
            Some(call) if !history.dropped.contains(&(fence, from)) => {
                history.entries.push(Entry { call, from, to: tick() });
                let from = tick();
                if random >> 50 & 3 == 0 {
                    if let Some(reply) = client.ask("sr", key, &token) {
                        assert_eq!(reply, "error");
                        let call = Call::Refused(fence);
                        history.entries.push(Entry { call, from, to: tick() });
                    }
                }
            }
            Some(_) => {}
            None => assert!(
                history.dropped.contains(&(fence, from)),
                "{key}: a hold was denied that nobody has given back"
            ),
        }
    }
    histories
}

/// Holds a lock and renews it in time, wherever that is possible; says whether it was kept.
fn stand_guard(
    servers: &[SocketAddr],
    number: usize,
    over: &AtomicBool,
    ready: &AtomicU64,
) -> bool {
    let mut client = Client::new(servers, 0, Duration::from_secs(3));
    let (key, lease) = (format!("sentinel-{number}"), SENTINEL_LEASE.to_string());
    let reply = client.ask("l", &key, &format!("5 {lease}")).unwrap();
    let arg = format!("{} {lease}", token_of(&reply).unwrap().0);
    ready.fetch_add(1, Ordering::Relaxed);
    let mut stay = true;
    while stay {
        // Once more after the end, which tells whether it is still ours.
        stay = !over.load(Ordering::Relaxed);
        let begun = Instant::now();
        let answer = loop {
            if let Some(answer) = client.ask("n", &key, &arg) {
                break answer;
            }
            assert!(begun.elapsed() < PATIENCE, "nobody answers");
        };
        if answer != format!("ok {lease}") {
            return false;
        }
        std::thread::sleep(BEAT.saturating_sub(begun.elapsed()));
    }
    true
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    KillLeader,
    StopLeader,
    KillFollower,
    StopFollower,
    LoseQuorum,
    KillFront,
    StopFront,
}

const FAULTS: [Fault; 7] = [
    Fault::KillLeader,
    Fault::StopLeader,
    Fault::KillFollower,
    Fault::StopFollower,
    Fault::LoseQuorum,
    Fault::KillFront,
    Fault::StopFront,
];

/// Three members and two front-ends.
struct Site {
    cluster: Cluster,
    fronts: Vec<Daemon>,
}

impl Site {
    fn start() -> Self {
        let cluster = Cluster::start(&[]);
        let store = cluster.store();
        let front = || {
            let mut command = program();
            command.args(["--port", "0", "--disconnect-grace", "5"]);
            Daemon::run(command.envs(store.environment.clone()))
        };
        Self { fronts: vec![front(), front()], cluster }
    }

    /// Something breaks, and comes back after `pause` where it can.
    fn suffer(&mut self, fault: Fault, pause: Duration) {
        let wait = || std::thread::sleep(pause);
        match fault {
            Fault::None => wait(),
            Fault::KillLeader | Fault::KillFollower => {
                let leader = self.cluster.leader();
                let member = if fault == Fault::KillLeader { leader } else { leader % 3 + 1 };
                self.cluster.kill(member);
                wait();
                self.cluster.restart(member);
            }
            Fault::StopLeader | Fault::StopFollower => {
                let leader = self.cluster.leader();
                let member = if fault == Fault::StopLeader { leader } else { leader % 3 + 1 };
                self.cluster.stop(member);
                wait();
                self.cluster.go_on(member);
            }
            Fault::LoseQuorum => {
                self.cluster.stop(1);
                self.cluster.stop(2);
                wait();
                self.cluster.go_on(1);
                self.cluster.go_on(2);
            }
            Fault::KillFront => {
                self.fronts[0].signal(Signal::SIGKILL);
                wait();
            }
            Fault::StopFront => {
                self.fronts[0].signal(Signal::SIGSTOP);
                wait();
                self.fronts[0].signal(Signal::SIGCONT);
            }
        }
    }
}

/// Waits until the workers have had some answers, which may take as long as their patience.
fn progress(clock: &AtomicU64) {
    let begun = clock.load(Ordering::Relaxed);
    let deadline = Instant::now() + 3 * PATIENCE;
    while clock.load(Ordering::Relaxed) < begun + TICKS {
        assert!(Instant::now() < deadline, "nobody is served");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a run showed.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    calls: usize,
    grants: usize,
}

/// Clients work while `faults` happen, and what they saw is judged.
fn run(faults: &[Fault], pause: Duration) -> Tally {
    let mut site = Site::start();
    let servers: Vec<SocketAddr> = site.fronts.iter().map(|front| front.address).collect();
    let (clock, over, ready) = (AtomicU64::new(1), AtomicBool::new(false), AtomicU64::new(0));
    let mut histories = vec![History::default(); KEYS.len()];
    let mut kept = 0;
    std::thread::scope(|scope| {
        let guards: Vec<_> = (0..SENTINELS)
            .map(|number| {
                let (servers, over, ready) = (&servers, &over, &ready);
                scope.spawn(move || stand_guard(servers, number, over, ready))
            })
            .collect();
        until("the guards stand", || ready.load(Ordering::Relaxed) == SENTINELS as u64);
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (servers, clock, over) = (&servers, &clock, &over);
                scope.spawn(move || work(servers, worker, clock, over))
            })
            .collect();
        progress(&clock);
        for fault in faults {
            site.suffer(*fault, pause);
            progress(&clock);
        }
        over.store(true, Ordering::Relaxed);
        for worker in workers {
            for (all, part) in histories.iter_mut().zip(worker.join().unwrap()) {
                all.join(part);
            }
        }
        kept = guards.into_iter().map(|guard| guard.join().unwrap()).filter(|kept| *kept).count();
    });
    let mut tally = Tally::default();
    for (history, (key, limit)) in histories.iter().zip(KEYS) {
        assert!(history.fences_grow(), "{key}: fences went back");
        let most = history.most_at_once();
        assert!(most <= limit, "{key}: {most} at once");
        assert!(history.is_linearizable(limit), "{key}: no order of the calls explains them");
        tally.calls += history.entries.len();
        tally.grants += history.grants();
    }
    println!("{faults:?}: {tally:?}");
    assert_eq!(kept, SENTINELS, "locks renewed in time were lost");
    // A run in which nobody got anything would prove nothing.
    assert!(tally.grants > 30, "{tally:?}");
    tally
}

#[rstest]
#[case(&[Fault::None], 1)]
#[case(&[Fault::KillLeader], 3)]
#[case(&[Fault::StopLeader], 7)]
#[case(&[Fault::StopFollower, Fault::KillFollower], 2)]
#[case(&[Fault::LoseQuorum], 4)]
#[case(&[Fault::KillFront], 4)]
#[case(&[Fault::StopFront], 7)]
fn nobody_holds_what_another_holds(#[case] faults: &[Fault], #[case] pause_s: u64) {
    run(faults, Duration::from_secs(pause_s));
}

/// The whole: see `just etcd-long`.
#[test]
#[ignore = "takes half an hour"]
fn thirty_histories() {
    let mut all = Tally::default();
    let mut random = 12_345_u64;
    for number in 0..30 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = |shift: u64| FAULTS[usize::try_from(random >> shift).unwrap() % FAULTS.len()];
        let first = FAULTS[number % FAULTS.len()];
        // A front-end that was killed cannot be stopped.
        let second = if first == Fault::KillFront { Fault::KillLeader } else { pick(33) };
        let tally = run(&[first, second], Duration::from_secs(2 + (random >> 40) % 6));
        all.calls += tally.calls;
        all.grants += tally.grants;
    }
    println!("{all:?}");
    assert!(all.calls >= 10_000 && all.grants >= 3_000, "{all:?}");
}
