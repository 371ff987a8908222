//! Locks in etcd by dflockd beside etcd's own, in one run on the same three members: cycles of
//! acquire and release a second, by workers with a key each and by workers that all want one.
//!
//! `cargo bench -p dflockd --bench etcd`. With the words `stalls COUNT`, it measures only how long nobody is served
//! after a fault; with `several`, only what several keys cost; with `standby`, all clients are those of a second
//! server.
//!
//! "v3lock" is etcd's lock service over gRPC. Each worker has one lease for the whole run, which is the least that it
//! can cost, and the calls go to the members in turn, as etcd's own client spreads them; in dflockd each token has a
//! lease of its own. Everything shares this machine, so only ratios mean something.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot be made ends"
)]

use nix::sys::signal::Signal;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testbed::dflockd::etcd::Cluster;
use testbed::dflockd::{Daemon, Store, Talker, free_port, http, until};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};

const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;
const STALLS: usize = 5;
const TAKES: usize = 100;
/// How long a quorum is lost, and how long is measured after a fault.
const LOST: Duration = Duration::from_secs(5);
const AFTER: Duration = Duration::from_secs(6);
/// For one answer of etcd without a leader.
const TRY: Duration = Duration::from_millis(200);

/// Requests and answers of etcd's lock service, and of its leases.
#[derive(Clone, PartialEq, prost::Message)]
struct LockRequest {
    #[prost(bytes, tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}
#[derive(Clone, PartialEq, prost::Message)]
struct LockResponse {
    #[prost(bytes, tag = "2")]
    key: Vec<u8>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct UnlockRequest {
    #[prost(bytes, tag = "1")]
    key: Vec<u8>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct UnlockResponse {}
#[derive(Clone, PartialEq, prost::Message)]
struct LeaseRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}
#[derive(Clone, PartialEq, prost::Message)]
struct LeaseResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes, tag = "1")]
    key: Vec<u8>,
    #[prost(bytes, tag = "2")]
    value: Vec<u8>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

async fn call<Q, A>(channel: &Channel, path: &'static str, request: Q) -> A
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    attempt(channel, path, request).await.expect("etcd answers")
}

async fn attempt<Q, A>(channel: &Channel, path: &'static str, request: Q) -> Option<A>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.ok()?;
    let codec = tonic_prost::ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    Some(grpc.unary(tonic::Request::new(request), path, codec).await.ok()?.into_inner())
}

/// The program, and the address of its metrics.
struct Server(Daemon, SocketAddr);

impl Server {
    fn start(store: &Store) -> Self {
        let port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_dflockd"));
        command.env_clear().envs(store.environment.clone());
        command.args(["--port", "0", "--http-port", &port.to_string()]);
        let daemon = Daemon::run(&mut command);
        until("it serves", || daemon.talk().ask("ping", "_", "_") == "ok");
        Self(daemon, SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Calls to etcd so far.
    fn calls(&self) -> u64 {
        let page = http(self.1, "GET /metrics HTTP/1.1");
        let value = page.lines().find_map(|line| line.strip_prefix("dflockd_etcd_calls_total "));
        value.unwrap().parse().unwrap()
    }
}

/// Cycles a second and the median and 99th percentile of acquiring, in milliseconds; how many cycles
/// there were.
#[derive(Clone, Copy)]
struct Figure(f64, f64, f64, f64);

fn figure(mut waits: Vec<Duration>, begun: Instant) -> Figure {
    waits.sort_unstable();
    let part = |share: usize| {
        waits.get(waits.len() * share / 100).map_or(0.0, |wait| wait.as_secs_f64() * 1000.0)
    };
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let count = waits.len() as f64;
    Figure(count / begun.elapsed().as_secs_f64(), part(50), part(99), count)
}

#[derive(Clone, Copy, PartialEq)]
enum Keys {
    Own,
    One,
}

fn key(keys: Keys, worker: usize) -> String {
    if keys == Keys::Own { format!("own-{worker}") } else { "one".to_owned() }
}

async fn ours(address: SocketAddr, workers: usize, keys: Keys) -> Figure {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for worker in 0..workers {
        let key = key(keys, worker);
        tasks.push(tokio::spawn(async move {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut stream, mut waits) = (BufReader::new(stream), Vec::new());
            while begun.elapsed() < ROUND {
                let asked = Instant::now();
                let mut line = String::new();
                stream.write_all(format!("l\n{key}\n60\n").as_bytes()).await.unwrap();
                stream.read_line(&mut line).await.unwrap();
                let token = line.strip_prefix("ok ").unwrap().split(' ').next().unwrap();
                waits.push(asked.elapsed());
                stream.write_all(format!("r\n{key}\n{token}\n").as_bytes()).await.unwrap();
                let mut line = String::new();
                stream.read_line(&mut line).await.unwrap();
                assert_eq!(line, "ok\n");
            }
            waits
        }));
    }
    collect(tasks, begun).await
}

async fn theirs(channels: &[Channel], workers: usize, keys: Keys) -> Figure {
    let mut leases = Vec::new();
    for _ in 0..workers {
        let request = LeaseRequest { ttl: 60 };
        let lease: LeaseResponse =
            call(&channels[0], "/etcdserverpb.Lease/LeaseGrant", request).await;
        leases.push(lease.id);
    }
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for (worker, lease) in leases.into_iter().enumerate() {
        let (key, channels) = (key(keys, worker), channels.to_vec());
        tasks.push(tokio::spawn(async move {
            let mut waits = Vec::new();
            let mut members = channels.iter().cycle().skip(worker % channels.len());
            while begun.elapsed() < ROUND {
                let asked = Instant::now();
                let name = format!("v3/{key}").into_bytes();
                let channel = members.next().unwrap();
                let held: LockResponse =
                    call(channel, "/v3lockpb.Lock/Lock", LockRequest { name, lease }).await;
                waits.push(asked.elapsed());
                let request = UnlockRequest { key: held.key };
                let _: UnlockResponse = call(channel, "/v3lockpb.Lock/Unlock", request).await;
            }
            waits
        }));
    }
    collect(tasks, begun).await
}

/// Bare writes a second, one after another, by the quickest member: no lock can pass on faster, as each
/// hand-over is one write, and a cycle on a key of one's own is two.
async fn writes(channels: &[Channel]) -> f64 {
    let mut best = 0.0_f64;
    for channel in channels {
        let (begun, mut count) = (Instant::now(), 0_u32);
        while begun.elapsed() < ROUND / 2 {
            let request = PutRequest { key: b"bare".to_vec(), value: vec![0x55; 64] };
            let _: PutResponse = call(channel, "/etcdserverpb.KV/Put", request).await;
            count += 1;
        }
        best = best.max(f64::from(count) / begun.elapsed().as_secs_f64());
    }
    best
}

async fn collect(tasks: Vec<tokio::task::JoinHandle<Vec<Duration>>>, begun: Instant) -> Figure {
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.unwrap());
    }
    figure(waits, begun)
}

fn median(mut figures: Vec<Figure>) -> Figure {
    figures.sort_by(|a, b| a.0.total_cmp(&b.0));
    figures[figures.len() / 2]
}

/// `etcdctl lock` around a command that does nothing, as scripts use it.
fn etcdctl(endpoints: &str) -> f64 {
    let program = testbed::peer("etcd-client", "usr/bin/etcdctl");
    let begun = Instant::now();
    const CALLS: u32 = 20;
    for _ in 0..CALLS {
        let mut command = Command::new(&program);
        command.env("ETCDCTL_API", "3").args(["--endpoints", endpoints, "lock", "x", "true"]);
        assert!(command.stdout(Stdio::null()).status().unwrap().success());
    }
    f64::from(CALLS) / begun.elapsed().as_secs_f64()
}

/// A client of dflockd that bears the end of its connection: it connects anew.
struct Customer {
    address: SocketAddr,
    talker: Option<Talker>,
    /// So many keys were used, one a connection: what a lost one held is held for a while.
    keys: u64,
}

impl Customer {
    /// Takes a lock and gives it back; whether that went well.
    fn is_served(&mut self) -> bool {
        let talker = self.talker.get_or_insert_with(|| {
            self.keys += 1;
            Talker::connect(self.address)
        });
        let key = format!("stall-{}", self.keys);
        let mut ask = |command: &str, arg: &str| {
            let is_sent = talker.try_say(format!("{command}\n{key}\n{arg}\n").as_bytes());
            if is_sent { talker.line() } else { String::new() }
        };
        let held = ask("l", "0");
        let token = held.strip_prefix("ok ").and_then(|grant| grant.split(' ').next());
        let served = token.is_some_and(|token| ask("r", token) == "ok");
        if !served {
            self.talker = None;
            std::thread::sleep(Duration::from_millis(5));
        }
        served
    }
}

/// A client of the lock service of one member of etcd that only tries again, on a runtime of its own thread.
struct Direct {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    lease: i64,
    /// So many names were used: what a call without an answer has locked stays locked.
    names: u64,
}

impl Direct {
    fn new(member: &str) -> Self {
        let runtime = runtime();
        let endpoint = Endpoint::from_shared(format!("http://{member}")).unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        let request = LeaseRequest { ttl: 60 };
        let granted = call(&channel, "/etcdserverpb.Lease/LeaseGrant", request);
        let lease: LeaseResponse = runtime.block_on(granted);
        Self { runtime, channel, lease: lease.id, names: 0 }
    }

    /// Takes a lock and gives it back; whether that went well.
    fn is_served(&mut self) -> bool {
        let name = format!("stall-{}", self.names).into_bytes();
        let cycle = async {
            let request = LockRequest { name, lease: self.lease };
            let held: LockResponse = attempt(&self.channel, "/v3lockpb.Lock/Lock", request).await?;
            let request = UnlockRequest { key: held.key };
            attempt::<_, UnlockResponse>(&self.channel, "/v3lockpb.Lock/Unlock", request).await
        };
        let limited = async { tokio::time::timeout(TRY, cycle).await };
        let served = matches!(self.runtime.block_on(limited), Ok(Some(_)));
        self.names += u64::from(!served);
        served
    }
}

/// The longest time without success until it is over.
fn longest(over: &AtomicBool, mut is_served: impl FnMut() -> bool) -> Duration {
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while !over.load(Ordering::Relaxed) {
        if is_served() {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    longest.max(last.elapsed())
}

/// What fails: something of etcd, or one of two servers.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    KillMember,
    LoseQuorum,
    Leader(Signal),
    KillStandby,
}

const FAULTS: [(&str, Fault); 6] = [
    ("SIGKILL of etcd's leader", Fault::KillMember),
    ("two members stand still for 5 s", Fault::LoseQuorum),
    ("SIGTERM of the server that leads", Fault::Leader(Signal::SIGTERM)),
    ("SIGKILL of it", Fault::Leader(Signal::SIGKILL)),
    ("SIGSTOP of it", Fault::Leader(Signal::SIGSTOP)),
    ("SIGKILL of the other server", Fault::KillStandby),
];

/// The longest time without a served request: of a client of a server that stays, and of a client of a member that
/// stays.
fn stall(fault: Fault) -> [Duration; 2] {
    let mut members = Cluster::start(&[]);
    let store = members.store();
    let servers = [(); 2].map(|()| Server::start(&store).0);
    let leader = members.leader();
    let survivor = members.endpoints.split(',').nth(usize::from(leader) % 3).unwrap().to_owned();
    let address = servers[usize::from(matches!(fault, Fault::Leader(_)))].address;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let dflockd = scope.spawn(|| {
            let mut customer = Customer { address, talker: None, keys: 0 };
            longest(&over, || customer.is_served())
        });
        let etcd = scope.spawn(|| {
            let mut direct = Direct::new(&survivor);
            longest(&over, || direct.is_served())
        });
        std::thread::sleep(Duration::from_secs(1));
        match fault {
            Fault::KillMember => members.kill(leader),
            Fault::LoseQuorum => {
                let both = [leader, (leader + 1) % 3 + 1];
                both.into_iter().for_each(|member| members.stop(member));
                std::thread::sleep(LOST);
                both.into_iter().for_each(|member| members.go_on(member));
            }
            Fault::Leader(signal) => servers[0].signal(signal),
            Fault::KillStandby => servers[1].signal(Signal::SIGKILL),
        }
        std::thread::sleep(AFTER);
        over.store(true, Ordering::Relaxed);
        [dflockd.join().unwrap(), etcd.join().unwrap()]
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The median of so many stalls, each with members of its own: which one leads next, and when, is chance.
fn stalls(count: usize) {
    println!(
        "nobody is served for so many seconds: median (longest of {count})    dflockd    v3lock"
    );
    for (what, fault) in FAULTS {
        let mut both = [Vec::new(), Vec::new()];
        for _ in 0..count {
            let found = stall(fault);
            both.iter_mut().zip(found).for_each(|(all, one)| all.push(one.as_secs_f64()));
        }
        let [dflockd, etcd] = both.map(|mut all| {
            all.sort_by(f64::total_cmp);
            format!("{:.2} ({:.2})", all[all.len() / 2], all[all.len() - 1])
        });
        println!("{what:<34}    {dflockd}    {etcd}");
    }
}

/// How long it takes to get several free keys: one after another on one connection, and by one request. Medians.
fn several() {
    let members = Cluster::start(&[]);
    let server = Server::start(&members.store());
    let mut customer = server.0.talk();
    println!("keys    one after another ms    together ms    ratio");
    for many in [2, 4, 8, 16] {
        let keys: Vec<String> = (0..many).map(|number| format!("several-{number}")).collect();
        let all = [keys.join(" ")];
        let mut took = [Vec::new(), Vec::new()];
        for round in 0..2 * TAKES {
            let (command, requests, argument) = if round % 2 == 0 {
                ("l", keys.as_slice(), "0")
            } else {
                ("al", all.as_slice(), "")
            };
            let asked = Instant::now();
            let answers: Vec<String> =
                requests.iter().map(|keys| customer.ask(command, keys, argument)).collect();
            took[round % 2].push(asked.elapsed());
            let tokens = answers.iter().flat_map(|it| it.split(' ').skip(1).step_by(2));
            for (key, token) in keys.iter().zip(tokens) {
                assert_eq!(customer.ask("r", key, token), "ok");
            }
        }
        let begun = Instant::now();
        let [one_by_one, together] = took.map(|took| figure(took, begun).1);
        let ratio = one_by_one / together;
        println!("{many:>4}    {one_by_one:>20.2}    {together:>11.2}    {ratio:.1}");
    }
}

fn main() {
    let mut rest = std::env::args().skip_while(|argument| argument != "stalls");
    if rest.next().is_some() {
        return stalls(rest.next().and_then(|count| count.parse().ok()).unwrap_or(STALLS));
    }
    if std::env::args().any(|argument| argument == "several") {
        return several();
    }
    let runtime = runtime();
    let members = Cluster::start(&[]);
    let store = members.store();
    let server = Server::start(&store);
    // With `standby`, all clients are those of a second server.
    let has_standby = std::env::args().any(|argument| argument == "standby");
    let standby = has_standby.then(|| Server::start(&store));
    let address = standby.as_ref().unwrap_or(&server).0.address;
    let channel = |member: &str| {
        let endpoint = Endpoint::from_shared(format!("http://{member}")).unwrap();
        runtime.block_on(endpoint.connect()).unwrap()
    };
    let channels: Vec<Channel> = members.endpoints.split(',').map(channel).collect();
    println!(
        "workers, keys    dflockd: cycles/s (p50/p99 ms)    v3lock                   ratio    \
         calls a cycle, bare writes/s"
    );
    for (workers, keys) in
        [(1, Keys::Own), (10, Keys::Own), (100, Keys::Own), (10, Keys::One), (100, Keys::One)]
    {
        let (mut us, mut them, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        let before = server.calls();
        for _ in 0..ROUNDS {
            us.push(runtime.block_on(ours(address, workers, keys)));
            them.push(runtime.block_on(theirs(&channels, workers, keys)));
            bare.push(runtime.block_on(writes(&channels)));
        }
        let cycles: f64 = us.iter().map(|figure| figure.3).sum();
        let after = server.calls();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let calls = (after - before) as f64 / cycles;
        let (us, them) = (median(us), median(them));
        bare.sort_by(f64::total_cmp);
        let name = if keys == Keys::Own { "own" } else { "one" };
        println!(
            "{workers:>7}, {name}    {:>8.0} ({:.1}/{:.1})    {:>8.0} ({:.1}/{:.1})    {:.2}    \
             {calls:.2}    {:.0}",
            us.0,
            us.1,
            us.2,
            them.0,
            them.1,
            them.2,
            us.0 / them.0,
            bare[bare.len() / 2]
        );
    }
    println!("etcdctl lock x true, one after another: {:.0} a second", etcdctl(&members.endpoints));
    drop((standby, server, members));
    stalls(STALLS);
}
