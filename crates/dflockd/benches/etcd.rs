//! Locks in etcd by dflockd beside etcd's own, in one run on the same three members: cycles of
//! acquire and release a second, by workers with a key each and by workers that all want one.
//!
//! `cargo bench -p dflockd --bench etcd`. With the word `several`, it measures only what several keys cost; with `standby`,
//! all clients are those of a second server.
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

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testbed::dflockd::etcd::Cluster;
use testbed::dflockd::{Daemon, Store, free_port, http, until};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};

const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;
const TAKES: usize = 100;

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
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.expect("a connection");
    let codec = tonic_prost::ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    grpc.unary(tonic::Request::new(request), path, codec).await.expect("an answer").into_inner()
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

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
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
}
