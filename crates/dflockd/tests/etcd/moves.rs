//! Clients that take, renew and give back over any of three servers, with short leases, while members of etcd stop
//! and die, half of the clients over HTTP: no client is told "not held" about a lock that it surely holds, and no lock has two holders.

use crate::faults::{Fault, Site};
use crate::tenure::{Ending, Line, Tenure, Time, conflict};
use rstest::rstest;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testbed::Lots;
use testbed::dflockd::etcd::Cluster;
use testbed::dflockd::{Daemon, HttpTalker, PATIENCE, Talker, fence, token_of};

const FRONTS: usize = 3;
const WORKERS: u64 = 24;
const KEYS: usize = 60;
const SECOND: Time = 1_000_000;

/// What all clients of a run share.
struct Run {
    begun: Instant,
    grace: Time,
    holds: AtomicU64,
    denials: AtomicU64,
    lines: AtomicU64,
    over: AtomicBool,
}

impl Run {
    fn now(&self) -> Time {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap()
    }
}

/// What a run showed.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    holds: u64,
    renewals: u64,
    releases: u64,
    /// `error` for what was not surely held.
    denials: u64,
    /// `error_draining`, or nothing.
    unavailable: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.holds += other.holds;
        self.renewals += other.renewals;
        self.releases += other.releases;
        self.denials += other.denials;
        self.unavailable += other.unavailable;
    }
}

/// A connection, or a session.
enum Client {
    Tcp(Talker),
    Http(HttpTalker),
}

impl Client {
    fn try_ask(&mut self, command: &str, key: &str, arg: &str) -> Option<String> {
        match self {
            Self::Tcp(talker) => talker.try_ask(command, key, arg),
            Self::Http(talker) => talker.try_ask(command, key, arg),
        }
    }
}

struct Worker<'r> {
    run: &'r Run,
    /// Where each server is, and its HTTP port.
    servers: &'r [[SocketAddr; 2]],
    has_sessions: bool,
    lines: [Option<(Line, Client)>; FRONTS],
    lots: Lots,
    tally: Tally,
    tenures: HashMap<usize, Vec<Tenure>>,
}

impl<'r> Worker<'r> {
    fn new(run: &'r Run, servers: &'r [[SocketAddr; 2]], number: u64) -> Self {
        let has_sessions = number % 2 == 1;
        let lots = Lots(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ run.grace);
        let (lines, tally) = ([const { None }; FRONTS], Tally::default());
        Self { run, servers, has_sessions, lines, lots, tally, tenures: HashMap::new() }
    }

    fn dice(&mut self, sides: u64) -> u64 {
        self.lots.below(sides)
    }

    fn front(&mut self) -> usize {
        usize::try_from(self.dice(3)).unwrap()
    }

    /// In seconds, mostly few.
    fn lease(&mut self) -> u64 {
        match self.dice(10) {
            0..=6 => 1 + self.dice(3),
            7..=8 => 4 + self.dice(6),
            _ => 10 + self.dice(51),
        }
    }

    fn sleep(&mut self) {
        let millis = match self.dice(10) {
            0..=6 => self.dice(100),
            7..=8 => self.dice(700),
            _ => self.dice(2500),
        };
        std::thread::sleep(Duration::from_millis(millis));
    }

    fn line(&mut self, front: usize) -> Line {
        if self.lines[front].is_none() {
            let line = self.run.lines.fetch_add(1, Ordering::Relaxed);
            let [tcp, http] = self.servers[front];
            let client = if self.has_sessions {
                Client::Http(HttpTalker::connect(http))
            } else {
                Client::Tcp(Talker::connect(tcp))
            };
            self.lines[front] = Some((line, client));
        }
        self.lines[front].as_ref().map_or(0, |(line, _)| *line)
    }

    /// The answer; without one the connection is over.
    fn ask(
        &mut self,
        front: usize,
        command: &str,
        key: usize,
        arg: &str,
    ) -> Result<String, Ending> {
        let _it_is_there_now = self.line(front);
        let Some((_, talker)) = &mut self.lines[front] else { return Err(Ending::Closed) };
        let answer = match talker.try_ask(command, &format!("move-{key}"), arg) {
            Some(reply) if reply == "error_draining" => Err(Ending::Unavailable),
            Some(reply) => Ok(reply),
            None => Err(Ending::Closed),
        };
        if answer.is_err() {
            self.lines[front] = None;
            self.tally.unavailable += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        answer
    }

    /// One lock from its beginning to its end.
    fn hold(&mut self) {
        let (front, key) = (self.front(), usize::try_from(self.dice(KEYS as u64)).unwrap());
        let (lease, patience) = (self.lease(), self.dice(3));
        let (line, sent) = (self.line(front), self.run.now());
        let Ok(reply) = self.ask(front, "l", key, &format!("{patience} {lease}")) else {
            return;
        };
        let now = self.run.now();
        let Some(token) = token_of(&reply) else {
            return assert_eq!(reply, "timeout");
        };
        // A wait that was granted late begins its lease late, too.
        let mut it = Tenure::new(fence(token), line, sent, now, lease * SECOND, self.run.grace);
        self.tally.holds += 1;
        self.run.holds.fetch_add(1, Ordering::Relaxed);
        let mut goes_on = true;
        for _ in 0..self.dice(6) {
            self.sleep();
            goes_on = match self.dice(8) {
                0..=1 => {
                    let front = self.front();
                    self.close(&mut it, front);
                    true
                }
                _ => self.renew(&mut it, key, token),
            };
            if !goes_on {
                break;
            }
        }
        if goes_on && self.dice(5) > 0 {
            self.release(&mut it, key, token);
        } else {
            // Its connections are not its own any longer.
            (0..FRONTS).for_each(|front| self.close(&mut it, front));
        }
        it.finish();
        self.tenures.entry(key).or_default().push(it);
    }

    fn denied(&mut self) {
        self.tally.denials += 1;
        self.run.denials.fetch_add(1, Ordering::Relaxed);
    }

    fn close(&mut self, it: &mut Tenure, front: usize) {
        if let Some((line, _)) = &self.lines[front] {
            it.ends(self.run.now(), *line, Ending::Closed);
        }
        self.lines[front] = None;
    }

    /// False when the lock is lost.
    fn renew(&mut self, it: &mut Tenure, key: usize, token: &str) -> bool {
        let (front, lease) = (self.front(), self.lease());
        let (line, sent) = (self.line(front), self.run.now());
        it.pass(sent);
        match self.ask(front, "n", key, &format!("{token} {lease}")).as_deref() {
            Ok("error") => {
                let now = self.run.now();
                assert!(!it.stands(now), "renewal denied at {now}, sent at {sent}: {it:?}");
                self.denied();
                false
            }
            Ok(reply) => {
                assert_eq!(reply, format!("ok {lease}"));
                self.tally.renewals += 1;
                it.renewed(line, sent, lease * SECOND);
                true
            }
            Err(ending) => {
                it.not_renewed(line, sent, lease * SECOND);
                it.ends(sent, line, *ending);
                true
            }
        }
    }

    fn release(&mut self, it: &mut Tenure, key: usize, token: &str) {
        loop {
            let front = self.front();
            let (line, sent) = (self.line(front), self.run.now());
            let before = it.clone();
            it.gives_back(sent);
            match self.ask(front, "r", key, token).as_deref() {
                Ok("ok") => return self.tally.releases += 1,
                Ok(reply) => {
                    assert_eq!(reply, "error");
                    let now = self.run.now();
                    assert!(!before.stands(now), "release denied at {now}: {before:?}");
                    return self.denied();
                }
                // Done or not; a renewal would tell.
                Err(ending) => {
                    it.ends(sent, line, *ending);
                    if self.dice(2) == 0 && !self.renew(it, key, token) {
                        return;
                    }
                }
            }
            if self.run.over.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Clients work while `faults` happen, until there were so many holds.
fn run(cluster: &mut Cluster, grace: u64, faults: &[(Fault, u64)], holds: u64) -> Tally {
    let text = grace.to_string();
    let flags = ["--disconnect-grace", &text];
    let mut site = Site::start(cluster, FRONTS, &flags);
    let addresses = |front: &Daemon| [front.address, front.http_address()];
    let servers: Vec<[SocketAddr; 2]> = site.fronts.iter().map(addresses).collect();
    let (begun, over) = (Instant::now(), AtomicBool::new(false));
    let (grace, lines) = (grace * SECOND, AtomicU64::new(1));
    let (holds_of_all, denials) = (AtomicU64::new(0), AtomicU64::new(0));
    let run = &Run { begun, grace, holds: holds_of_all, denials, lines, over };
    let (mut tally, mut tenures) = (Tally::default(), HashMap::<usize, Vec<Tenure>>::new());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let mut worker = Worker::new(run, &servers, number);
                scope.spawn(move || {
                    while !worker.run.over.load(Ordering::Relaxed) {
                        worker.hold();
                    }
                    (worker.tally, worker.tenures)
                })
            })
            .collect();
        let held = || run.holds.load(Ordering::Relaxed);
        let is_well = || workers.iter().all(|worker| !worker.is_finished());
        let until_held = |wanted: u64| {
            let deadline = Instant::now() + 6 * PATIENCE;
            while held() < wanted && is_well() {
                assert!(Instant::now() < deadline, "nobody is served");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        while held() < holds && is_well() {
            for (fault, seconds) in faults {
                until_held(held() + 50);
                site.suffer(*fault, Duration::from_secs(*seconds));
            }
        }
        until_held(held() + 50);
        // Where nobody was denied, nothing was tried. Some workers sleep for longer than their leases.
        while run.denials.load(Ordering::Relaxed) <= 5 && is_well() {
            until_held(held() + 10);
        }
        run.over.store(true, Ordering::Relaxed);
        for worker in workers {
            let (its, all) = worker.join().expect("a worker saw something wrong");
            tally.add(its);
            for (key, its) in all {
                tenures.entry(key).or_default().extend(its);
            }
        }
    });
    for (key, tenures) in &mut tenures {
        assert_eq!(conflict(tenures).map(|two| format!("{key}: {two:?}")), None);
    }
    println!("grace {grace} µs, {faults:?}: {tally:?} in {:?}", run.begun.elapsed());
    assert!(tally.renewals > 50 && tally.releases > 50, "{tally:?}");
    tally
}

#[rstest]
#[case::at_once(0, &[(Fault::StopLeader, 3), (Fault::LoseQuorum, 4)])]
#[case::after_a_grace(2, &[(Fault::LoseQuorum, 4), (Fault::KillLeader, 2)])]
#[ignore = "needs programs: tests/run"]
fn no_holder_is_denied_its_own_lock(#[case] grace: u64, #[case] faults: &[(Fault, u64)]) {
    run(&mut Cluster::start(&[]), grace, faults, 100);
}

/// The whole: see `just etcd-long`.
#[test]
#[ignore = "takes minutes: just etcd-long"]
fn ten_thousand_moving_holds() {
    let faults = [
        (Fault::StopLeader, 2),
        (Fault::LoseQuorum, 3),
        (Fault::KillLeader, 2),
        (Fault::StopLeader, 7),
        (Fault::LoseQuorum, 8),
        (Fault::StopFollower, 3),
        (Fault::StopFront, 4),
        (Fault::KillAll, 2),
    ];
    let mut all = Tally::default();
    for grace in [0, 1, 3, 20] {
        all.add(run(&mut Cluster::start(&[]), grace, &faults, 2500));
    }
    println!("{all:?}");
    assert!(all.holds >= 10_000, "{all:?}");
}
