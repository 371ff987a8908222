//! Members of etcd and front-ends die, stop and come back while clients work: nobody ever holds what
//! another holds, fences only grow, and who renews in time keeps what he has. That these tests find
//! mistakes is shown by `mutants`, beside this file.

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
/// And grants.
const GRANTS: u64 = 30;
const SENTINELS: usize = 10;
/// Of a lock whose holder renews it, in seconds; and how often.
const SENTINEL_LEASE: u64 = 20;
const BEAT: Duration = Duration::from_secs(1);
/// Locks whose holder goes to the other server, which the first one does not hear of; and their lease,
/// in seconds.
const MOVERS: usize = 3;
const MOVER_LEASE: u64 = 8;

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

/// What all clients of a run share.
#[derive(Default)]
struct Run {
    /// Ticks with every request and every answer.
    clock: AtomicU64,
    grants: AtomicU64,
    /// Guards that have their locks.
    ready: AtomicU64,
    over: AtomicBool,
}

impl Run {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Takes and releases until it is told to stop.
fn work(servers: &[SocketAddr], worker: u64, run: &Run) -> Vec<History> {
    let tick = || run.clock.fetch_add(1, Ordering::SeqCst) + 1;
    let mut histories = vec![History::default(); KEYS.len()];
    let mut client = Client::new(servers, usize::try_from(worker).unwrap(), PATIENCE);
    let mut random = worker * 7919 + 17;
    while !run.is_over() {
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
        run.grants.fetch_add(1, Ordering::Relaxed);
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

/// Whether a guard goes to the other server at once, or when it has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    Stays,
    Moves,
}

/// Holds a lock and renews it in time, wherever that is possible; says whether it was kept.
fn stand_guard(servers: &[SocketAddr], number: usize, guard: Guard, run: &Run) -> bool {
    let mut first = Client::new(servers, 0, Duration::from_secs(3));
    let lease = match guard {
        Guard::Stays => SENTINEL_LEASE,
        Guard::Moves => MOVER_LEASE,
    };
    let (key, lease) = (format!("sentinel-{number}"), lease.to_string());
    let reply = first.ask("l", &key, &format!("5 {lease}")).unwrap();
    let arg = format!("{} {lease}", token_of(&reply).unwrap().0);
    run.ready.fetch_add(1, Ordering::Relaxed);
    let mut second = Client::new(servers, 1, Duration::from_secs(3));
    let client = if guard == Guard::Moves { &mut second } else { &mut first };
    let mut stay = true;
    while stay {
        // Once more after the end, which tells whether it is still ours.
        stay = !run.is_over();
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
pub(crate) enum Fault {
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

/// Three members and some front-ends.
pub(crate) struct Site<'c> {
    cluster: &'c mut Cluster,
    pub(crate) fronts: Vec<Daemon>,
}

impl<'c> Site<'c> {
    pub(crate) fn start(cluster: &'c mut Cluster, fronts: usize, flags: &[&str]) -> Self {
        let store = cluster.store();
        let front = |_| {
            let mut command = program();
            command.args(["--port", "0"]).args(flags);
            Daemon::run(command.envs(store.environment.clone()))
        };
        Self { fronts: (0..fronts).map(front).collect(), cluster }
    }

    /// Something breaks, and comes back after `pause` where it can.
    pub(crate) fn suffer(&mut self, fault: Fault, pause: Duration) {
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
fn progress(run: &Run) {
    let count = || (run.clock.load(Ordering::Relaxed), run.grants.load(Ordering::Relaxed));
    let (ticks, grants) = count();
    let deadline = Instant::now() + 3 * PATIENCE;
    while count().0 < ticks + TICKS || count().1 < grants + GRANTS {
        assert!(Instant::now() < deadline, "nobody is served");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The longest time in which nobody was granted anything.
fn longest_stall(run: &Run) -> Duration {
    let (mut grants, mut last, mut longest) = (0, Instant::now(), Duration::ZERO);
    while !run.is_over() {
        let now = run.grants.load(Ordering::Relaxed);
        if now > grants {
            longest = longest.max(last.elapsed());
            (grants, last) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    longest
}

/// What a run showed.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    calls: usize,
    grants: usize,
    stall: Duration,
}

/// Clients work while `faults` happen, and what they saw is judged.
fn run(cluster: &mut Cluster, faults: &[Fault], pause: Duration) -> Tally {
    let mut site = Site::start(cluster, 2, &["--disconnect-grace", "5"]);
    let servers: Vec<SocketAddr> = site.fronts.iter().map(|front| front.address).collect();
    let (servers, run) = (servers.as_slice(), &Run::default());
    let mut histories = vec![History::default(); KEYS.len()];
    let mut tally = Tally::default();
    let movers = if faults == [Fault::None] { MOVERS } else { 0 };
    let guards = SENTINELS + movers;
    let mut kept = 0;
    std::thread::scope(|scope| {
        let guards: Vec<_> = (0..guards)
            .map(|number| {
                let guard = if number < SENTINELS { Guard::Stays } else { Guard::Moves };
                scope.spawn(move || stand_guard(servers, number, guard, run))
            })
            .collect();
        until("the guards stand", || {
            usize::try_from(run.ready.load(Ordering::Relaxed)) == Ok(guards.len())
        });
        let workers: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(servers, worker, run))).collect();
        let watcher = scope.spawn(|| longest_stall(run));
        progress(run);
        for fault in faults {
            site.suffer(*fault, pause);
            progress(run);
        }
        run.over.store(true, Ordering::Relaxed);
        for worker in workers {
            for (all, part) in histories.iter_mut().zip(worker.join().unwrap()) {
                all.join(part);
            }
        }
        kept = guards.into_iter().map(|guard| guard.join().unwrap()).filter(|kept| *kept).count();
        tally.stall = watcher.join().unwrap();
    });
    for (history, (key, limit)) in histories.iter().zip(KEYS) {
        assert!(history.fences_grow(limit), "{key}: fences went back");
        let most = history.most_at_once();
        assert!(most <= limit, "{key}: {most} at once");
        assert!(history.is_linearizable(limit), "{key}: no order of the calls explains them");
        tally.calls += history.entries.len();
        tally.grants += history.grants();
    }
    println!("{faults:?}: {tally:?}");
    assert_eq!(kept, guards, "locks renewed in time were lost");
    // A run in which nobody got anything would prove nothing.
    assert!(tally.grants > 30, "{tally:?}");
    tally
}

#[rstest]
#[case::nothing_fails(&[Fault::None], 10)]
#[case(&[Fault::KillLeader], 3)]
#[case(&[Fault::StopLeader], 7)]
#[case(&[Fault::StopFollower, Fault::KillFollower], 2)]
#[case(&[Fault::LoseQuorum], 4)]
#[case(&[Fault::KillFront], 4)]
#[case(&[Fault::StopFront], 7)]
fn nobody_holds_what_another_holds(#[case] faults: &[Fault], #[case] pause_s: u64) {
    run(&mut Cluster::start(&[]), faults, Duration::from_secs(pause_s));
}

/// The whole: see `just etcd-long`.
#[test]
#[ignore = "takes minutes: just etcd-long"]
fn thirty_histories() {
    let mut cluster = Cluster::start(&[]);
    let mut all = Tally::default();
    let mut leaders_death = Duration::ZERO;
    for number in 0..30 {
        let fault = FAULTS[number % FAULTS.len()];
        // Short ones, and one in which an old leader wakes up to leases that are over.
        let pause = Duration::from_secs(if number < FAULTS.len() { 7 } else { 3 });
        let tally = run(&mut cluster, &[fault], pause);
        all.calls += tally.calls;
        all.grants += tally.grants;
        if fault == Fault::KillLeader {
            leaders_death = leaders_death.max(tally.stall);
        }
    }
    println!("30 histories: {} calls, {} grants", all.calls, all.grants);
    println!("longest time without a grant around SIGKILL of a leader: {leaders_death:?}");
    assert!(all.calls >= 10_000 && all.grants >= 3_000, "{all:?}");
}
