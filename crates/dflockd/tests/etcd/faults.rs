//! Members of etcd and servers die, stop and come back while clients work: no lock ever has two holders, fences
//! only grow, and a client that renews in time keeps its hold. That these tests find mistakes is shown by
//! `mutants`, beside this file.

use crate::clocks::Clock;
use crate::relay::{Answers, Relay};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testbed::Lots;
use testbed::dflockd::etcd::Cluster;
use testbed::dflockd::history::{Call, Entry, History, Mode};
use testbed::dflockd::{
    Daemon, PATIENCE, Store, Talker, fence, free_port, program_on, slot_of, token_of, until,
};

const WORKERS: u64 = 16;
const KEYS: [(&str, usize); 4] = [("a", 1), ("b", 1), ("pool", 2), (SHARED, 1)];
/// Some take both of these.
const PAIR: [usize; 2] = [1, 0];
/// Some take this lock alone, more share it.
const SHARED: &str = "shared";
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
    /// The value that watchers see beside its holds.
    value: String,
    patience: Duration,
    talker: Option<Talker>,
}

impl<'s> Client<'s> {
    fn new(servers: &'s [SocketAddr], at: usize, patience: Duration) -> Self {
        Self { servers, at, value: format!("client-{at}"), patience, talker: None }
    }

    /// The answer; nothing when there is none, and then the next server is asked from now on.
    fn ask(&mut self, command: &str, key: &str, arg: &str) -> Option<String> {
        let answer = self.try_ask(command, key, arg).filter(|answer| answer != "error_draining");
        if answer.is_none() {
            self.talker = None;
            self.at += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        answer
    }

    fn try_ask(&mut self, command: &str, key: &str, arg: &str) -> Option<String> {
        if self.talker.is_none() {
            let talker = Talker::try_connect(self.servers[self.at % self.servers.len()])?;
            talker.socket().get_ref().set_read_timeout(Some(self.patience)).unwrap();
            let said = self.talker.insert(talker).try_ask("value", "_", &self.value);
            said.filter(|answer| answer == "ok")?;
            let said = self.talker.as_mut()?.try_ask("ping", "hello", "slots");
            said.filter(|answer| answer == "ok fences lost slots")?;
        }
        self.talker.as_mut()?.try_ask(command, key, arg)
    }
}

fn tokens_of(reply: &str) -> Option<Vec<&str>> {
    Some(reply.strip_prefix("ok ")?.split(' ').filter(|word| word.len() == 32).collect())
}

/// What a request was for, and what it means for the history of its key if there is no grant.
#[derive(Clone, Copy)]
struct Asked {
    mode: Mode,
    unless: Option<Call>,
}

impl Asked {
    fn of(place: usize, lots: &mut Lots) -> Self {
        let shares = KEYS[place].0 == SHARED && lots.below(4) > 0;
        let mode = if shares { Mode::Shared } else { Mode::Alone };
        let only_tries = lots.below(4) == 0;
        Self { mode, unless: Some(if only_tries { Call::Failed(mode) } else { Call::GaveUp }) }
    }

    fn one(self, client: &mut Client<'_>, place: usize) -> Option<(Self, String)> {
        let (key, limit) = KEYS[place];
        let timeout = if self.unless == Some(Call::GaveUp) { 3 } else { 0 };
        let reply = match self.mode {
            Mode::Shared => client.ask("rl", key, &format!("{timeout} 30")),
            Mode::Alone => client.ask("sl", key, &format!("{timeout} {limit} 30")),
        };
        Some((self, reply?))
    }

    /// All or none; which of them was in the way is not said.
    fn both(self, client: &mut Client<'_>) -> Option<(Self, String)> {
        let keys = PAIR.map(|place| KEYS[place].0).join(" ");
        Some((self, client.ask("al", &keys, "30")?))
    }
}

/// Renews a hold, and looks at its key if nobody else can hold it.
fn look(
    client: &mut Client<'_>,
    history: &mut History,
    (key, token): (&str, &str),
    is_alone: bool,
    tick: &dyn Fn() -> u64,
) {
    let (from, fence) = (tick(), fence(token));
    let Some(reply) = client.ask("sn", key, &format!("{token} 30")) else {
        return history.dropped.push((fence, from));
    };
    assert_eq!(reply, "ok 30", "{key}: a renewal was denied on the connection of the grant");
    history.entries.push(Entry { call: Call::Renewed(fence), from, to: tick() });
    let from = tick();
    match client.ask("watch", key, "0") {
        Some(sight) if is_alone => {
            let words: Vec<&str> = sight.split(' ').collect();
            let shown = (words[0], words[2].parse(), words[6]);
            assert_eq!(shown, ("held", Ok(fence), &*client.value), "{key}: {sight}");
        }
        Some(_) => {}
        None => history.dropped.push((fence, from)),
    }
}

/// Releases a hold, whatever becomes of the answers; and once more if it shall see that it is over.
fn give_back(
    client: &mut Client<'_>,
    history: &mut History,
    (key, token): (&str, &str),
    again: bool,
    tick: &dyn Fn() -> u64,
) {
    let (from, fence) = (tick(), fence(token));
    let is_dropped = |history: &History| history.dropped.iter().any(|(it, _)| *it == fence);
    let call = loop {
        match client.ask("sr", key, token).as_deref() {
            Some("ok") => break Some(Call::Released(fence)),
            Some("error") => break None,
            Some(other) => panic!("{other}"),
            None if is_dropped(history) => {}
            // From here on an attempt whose answer was lost may do it, or the server that
            // notices the end of the connection.
            None => history.dropped.push((fence, from)),
        }
    };
    match call {
        Some(call) if !is_dropped(history) => {
            history.entries.push(Entry { call, from, to: tick() });
            let from = tick();
            if again {
                if let Some(reply) = client.ask("sr", key, token) {
                    assert_eq!(reply, "error");
                    let call = Call::Refused(fence);
                    history.entries.push(Entry { call, from, to: tick() });
                }
            }
        }
        Some(_) => {}
        None => assert!(is_dropped(history), "{key}: a hold was denied that nobody has given back"),
    }
}

/// What all clients of a run share.
#[derive(Default)]
pub(crate) struct Run {
    /// Ticks with every request and every answer.
    clock: AtomicU64,
    grants: AtomicU64,
    /// Guards that have their locks.
    ready: AtomicU64,
    over: AtomicBool,
}

impl Run {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Takes and releases until it is told to stop; what it saw, and how long each grant took.
fn work(servers: &[SocketAddr], worker: u64, run: &Run) -> (Vec<History>, Vec<Duration>) {
    let tick = || run.clock.fetch_add(1, Ordering::SeqCst) + 1;
    let (mut histories, mut waits) = (vec![History::default(); KEYS.len()], Vec::new());
    let mut client = Client::new(servers, usize::try_from(worker).unwrap(), PATIENCE);
    let mut lots = Lots(worker);
    while !run.is_over() {
        let place = lots.index(KEYS.len());
        let (from, asked) = (tick(), Instant::now());
        // Every other request for one of the two plain locks is for both.
        let both = place < PAIR.len() && lots.below(2) == 0;
        let (places, answer) = if both {
            (PAIR.to_vec(), Asked { mode: Mode::Alone, unless: None }.both(&mut client))
        } else {
            (vec![place], Asked::of(place, &mut lots).one(&mut client, place))
        };
        let Some((asked_for, reply)) = answer else {
            places.iter().for_each(|place| histories[*place].lost.push(from));
            continue;
        };
        let Some(tokens) = tokens_of(&reply) else {
            assert_eq!(reply, "timeout");
            if let Some(call) = asked_for.unless {
                histories[place].entries.push(Entry { call, from, to: tick() });
            }
            continue;
        };
        assert_eq!(tokens.len(), places.len(), "{reply}");
        let to = tick();
        for (place, token) in places.iter().zip(&tokens) {
            let call = Call::Took(fence(token), asked_for.mode);
            histories[*place].entries.push(Entry { call, from, to });
            histories[*place].slots.extend(slot_of(&reply).map(|slot| (fence(token), slot)));
        }
        run.grants.fetch_add(1, Ordering::Relaxed);
        waits.push(asked.elapsed());
        for (place, token) in places.iter().zip(tokens) {
            let (history, (key, limit)) = (&mut histories[*place], KEYS[*place]);
            if lots.below(4) == 0 {
                let is_alone = limit == 1 && asked_for.mode == Mode::Alone;
                look(&mut client, history, (key, token), is_alone, &tick);
            }
            give_back(&mut client, history, (key, token), lots.below(4) == 0, &tick);
        }
    }
    (histories, waits)
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
    let seconds = match guard {
        Guard::Stays => SENTINEL_LEASE,
        Guard::Moves => MOVER_LEASE,
    };
    let (key, lease) = (format!("sentinel-{number}"), seconds.to_string());
    let mut renewed = Instant::now();
    let reply = first.ask("l", &key, &format!("5 {lease}")).unwrap();
    let arg = format!("{} {lease}", token_of(&reply).unwrap());
    run.ready.fetch_add(1, Ordering::Relaxed);
    let mut second = Client::new(servers, 1, Duration::from_secs(3));
    let client = if guard == Guard::Moves { &mut second } else { &mut first };
    let mut stay = true;
    while stay {
        // Once more after the end, which tells whether it is still ours.
        stay = !run.is_over();
        let begun = Instant::now();
        let (sent, answer) = loop {
            let sent = Instant::now();
            if let Some(answer) = client.ask("n", &key, &arg) {
                break (sent, answer);
            }
            assert!(begun.elapsed() < PATIENCE, "nobody answers");
        };
        if answer != format!("ok {lease}") {
            // No fault if nobody could renew it in time.
            return renewed.elapsed() > Duration::from_secs(seconds);
        }
        renewed = sent;
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
    KillAll,
    /// The first server, which leads.
    KillFront,
    StopFront,
    EndFront,
    /// Answers of etcd to the first server come late.
    CutFront,
    /// What the first server sends to the other one comes late.
    CutLink,
    /// The last one, which passes its clients on.
    KillStandby,
    StopStandby,
    /// The wall clocks of all servers step by two minutes, three times: at the end the slow ones are the fast ones.
    StepClocks,
}

const FAULTS: [Fault; 14] = [
    Fault::KillLeader,
    Fault::StopLeader,
    Fault::KillFollower,
    Fault::StopFollower,
    Fault::LoseQuorum,
    Fault::KillAll,
    Fault::KillFront,
    Fault::StopFront,
    Fault::EndFront,
    Fault::CutFront,
    Fault::CutLink,
    Fault::KillStandby,
    Fault::StopStandby,
    Fault::StepClocks,
];

/// Three members, and some servers whose clocks are a minute fast and slow by turns.
pub(crate) struct Site<'c> {
    cluster: &'c mut Cluster,
    pub(crate) fronts: Vec<Daemon>,
    clocks: Vec<Clock>,
    /// The way from the first server to etcd, and the way from the other servers to the first.
    ways: Option<[Relay; 2]>,
}

fn front(store: &Store, port: &str, flags: &[&str], clock: &Clock) -> Daemon {
    let mut command = program_on(store);
    let http = free_port().to_string();
    // A client that is silent here has a reason.
    command.args(["--port", port, "--http-port", &http, "--http-session-idle-timeout", "300"]);
    command.args(flags).envs(clock.environment());
    Daemon::run(&mut command)
}

impl<'c> Site<'c> {
    pub(crate) fn start(cluster: &'c mut Cluster, fronts: usize, flags: &[&str]) -> Self {
        let (store, clocks) = (cluster.store(), Clock::apart(fronts));
        let fronts = clocks.iter().map(|clock| front(&store, "0", flags, clock)).collect();
        Self::new(cluster, fronts, clocks, None)
    }

    fn new(
        cluster: &'c mut Cluster,
        fronts: Vec<Daemon>,
        clocks: Vec<Clock>,
        ways: Option<[Relay; 2]>,
    ) -> Self {
        // The times at their starts: without their clocks, the first server has the earlier one.
        let [first, second] = [0, 1].map(|place| fronts[place].logged("msg=listening"));
        assert!(first > second, "clocks that agree: {first} {second}");
        Self { cluster, fronts, clocks, ways }
    }

    /// Two servers, of which the first can be cut off.
    fn with_ways(cluster: &'c mut Cluster, flags: &[&str]) -> Self {
        let (store, port) = (cluster.store(), free_port().to_string());
        let ways = [Relay::to(&cluster.endpoints), Relay::to(&format!("127.0.0.1:{port}"))];
        let mut far = Store { environment: store.environment.clone() };
        far.environment[1].1.clone_from(&ways[0].address);
        let flags_of_first = [flags, &["--advertise", &ways[1].address]].concat();
        let clocks = Clock::apart(2);
        let fronts = vec![
            front(&far, &port, &flags_of_first, &clocks[0]),
            front(&store, "0", flags, &clocks[1]),
        ];
        Self::new(cluster, fronts, clocks, Some(ways))
    }

    fn front(&self, fault: Fault) -> &Daemon {
        let is_last = matches!(fault, Fault::KillStandby | Fault::StopStandby);
        if is_last { self.fronts.last().unwrap() } else { &self.fronts[0] }
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
            Fault::KillAll => {
                (1..=3).for_each(|member| self.cluster.kill(member));
                wait();
                (1..=3).for_each(|member| self.cluster.restart(member));
            }
            Fault::KillFront | Fault::KillStandby | Fault::EndFront => {
                let ends = fault == Fault::EndFront;
                self.front(fault).signal(if ends { Signal::SIGTERM } else { Signal::SIGKILL });
                wait();
            }
            Fault::CutFront | Fault::CutLink => {
                let way = &self.ways.as_ref().unwrap()[usize::from(fault == Fault::CutLink)];
                way.set(Answers::Kept);
                wait();
                way.set(Answers::Passed);
            }
            Fault::StopFront | Fault::StopStandby => {
                self.front(fault).signal(Signal::SIGSTOP);
                wait();
                self.front(fault).signal(Signal::SIGCONT);
            }
            Fault::StepClocks => {
                for _ in 0..3 {
                    self.clocks.iter().for_each(Clock::step);
                    wait();
                }
            }
        }
    }
}

/// Waits until the workers have had so many answers, which may take as long as their patience.
fn progress(run: &Run, wanted: u64) {
    let count = || (run.clock.load(Ordering::Relaxed), run.grants.load(Ordering::Relaxed));
    let (ticks, grants) = count();
    let deadline = Instant::now() + 3 * PATIENCE;
    while count().0 < ticks + wanted || count().1 < grants + GRANTS {
        assert!(Instant::now() < deadline, "nobody is served");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The longest time in which nobody was granted anything, by their number.
pub(crate) fn longest_stall(run: &Run, granted: &AtomicU64) -> Duration {
    let (mut grants, mut last, mut longest) = (0, Instant::now(), Duration::ZERO);
    while !run.is_over() {
        let now = granted.load(Ordering::Relaxed);
        if now > grants {
            longest = longest.max(last.elapsed());
            (grants, last) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    longest.max(last.elapsed())
}

/// What a run showed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) calls: usize,
    pub(crate) grants: usize,
    /// More at once than may be.
    pub(crate) overlaps: usize,
    pub(crate) stall: Duration,
    /// How long grants took: half of them, and ninety-nine of a hundred.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// Two servers on etcd, whose parts fail.
fn run(cluster: &mut Cluster, wanted: u64, faults: &[Fault], pause: Duration) -> Tally {
    let flags = ["--disconnect-grace", "5"];
    let is_cut = faults.iter().any(|fault| matches!(fault, Fault::CutFront | Fault::CutLink));
    let mut site =
        if is_cut { Site::with_ways(cluster, &flags) } else { Site::start(cluster, 2, &flags) };
    let servers: Vec<SocketAddr> = site.fronts.iter().map(|front| front.address).collect();
    watch(&servers, wanted, faults, &mut |fault| site.suffer(fault, pause), &|_| {})
}

/// Clients work while `faults` happen, with so many answers `wanted` before and after each, and what they saw is
/// judged. Somebody else may work `beside` them.
pub(crate) fn watch(
    servers: &[SocketAddr],
    wanted: u64,
    faults: &[Fault],
    suffer: &mut dyn FnMut(Fault),
    beside: &(dyn Fn(&Run) + Sync),
) -> Tally {
    let run = &Run::default();
    let mut waits = Vec::new();
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
        let watcher = scope.spawn(|| longest_stall(run, &run.grants));
        scope.spawn(|| beside(run));
        progress(run, wanted);
        for fault in faults {
            suffer(*fault);
            progress(run, wanted);
        }
        run.over.store(true, Ordering::Relaxed);
        for worker in workers {
            let (parts, its_waits) = worker.join().unwrap();
            histories.iter_mut().zip(parts).for_each(|(all, part)| all.join(part));
            waits.extend(its_waits);
        }
        kept = guards.into_iter().map(|guard| guard.join().unwrap()).filter(|kept| *kept).count();
        tally.stall = watcher.join().unwrap();
    });
    for (history, (key, limit)) in histories.iter().zip(KEYS) {
        assert!(history.fences_grow(limit), "{key}: fences went back");
        let most = history.most_at_once();
        tally.overlaps += most.saturating_sub(limit);
        assert_eq!(tally.overlaps, 0, "{key}: {most} at once");
        assert!(history.slots_are_apart(limit), "{key}: two had one slot");
        assert!(history.is_linearizable(limit), "{key}: no order of the calls explains them");
        tally.calls += history.entries.len();
        tally.grants += history.grants();
    }
    waits.sort_unstable();
    let at = |part: usize| waits.get(waits.len() * part / 100).copied().unwrap_or_default();
    (tally.p50, tally.p99) = (at(50), at(99));
    println!("{faults:?}: {tally:?}");
    assert_eq!(kept, guards, "locks renewed in time were lost");
    // A run in which nobody got anything would prove nothing.
    assert!(tally.grants > 30, "{tally:?}");
    tally
}

#[rstest]
#[case(&[Fault::KillLeader], 3)]
#[case(&[Fault::StopLeader], 7)]
#[case(&[Fault::StopFollower, Fault::KillFollower], 2)]
#[case(&[Fault::LoseQuorum], 4)]
#[case(&[Fault::KillFront], 4)]
#[case(&[Fault::StopFront], 7)]
#[case(&[Fault::StopFront], 20)]
#[case(&[Fault::KillStandby], 4)]
#[case(&[Fault::StopStandby], 13)]
#[case(&[Fault::CutFront, Fault::CutLink], 7)]
#[case(&[Fault::KillAll, Fault::EndFront], 2)]
#[case::clocks_step(&[Fault::StepClocks, Fault::KillFront], 3)]
#[ignore = "needs programs: tests/run"]
fn two_clients_never_hold_one_lock(#[case] faults: &[Fault], #[case] pause_s: u64) {
    run(&mut Cluster::start(&[]), TICKS, faults, Duration::from_secs(pause_s));
}

/// The wall clocks of the members are apart, too; and that of the second server goes forward while it leads.
#[test]
#[ignore = "needs programs: tests/run"]
fn nobody_trusts_a_clock() {
    let faults = [Fault::KillFront, Fault::StepClocks, Fault::KillLeader];
    run(&mut Cluster::start(&["--clocks"]), TICKS, &faults, Duration::from_secs(3));
}

/// The whole: see `just etcd-long`.
#[test]
#[ignore = "takes minutes: just etcd-long"]
fn ten_thousand_holds_among_faults() {
    let mut cluster = Cluster::start(&[]);
    let mut all = Tally::default();
    let mut rounds = 0;
    while rounds < 2 * FAULTS.len() || all.grants < 10_000 {
        let fault = FAULTS[rounds % FAULTS.len()];
        // Short ones, and one in which an old leader wakes up to leases that are over.
        let pause = Duration::from_secs(if rounds < FAULTS.len() { 7 } else { 3 });
        let tally = run(&mut cluster, 5 * TICKS, &[fault], pause);
        all.calls += tally.calls;
        all.grants += tally.grants;
        rounds += 1;
    }
    println!("{rounds} histories: {} calls, {} grants", all.calls, all.grants);
}
