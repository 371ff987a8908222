//! The table of docs/what-happens-when.md: what clients saw while something failed, judged by the same history
//! checker as everywhere, and beside it `etcdctl lock` on the same members. See `just report`.

use crate::faults::{Fault, Run, Site, Tally, longest_stall, watch};
use nix::sys::signal::Signal;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use testbed::dflockd::etcd::Cluster;
use testbed::dflockd::free_port;
use testbed::dflockd::{Daemon, Store, program_on};

const GRACE: [&str; 2] = ["--disconnect-grace", "5"];
/// Requests and answers before and after each fault.
const ANSWERS: u64 = 4000;
/// Loops of `etcdctl lock`, and the length of their sessions.
const PEERS: usize = 4;
const PEER_TTL: &str = "10";

/// What loops of `etcdctl lock` saw.
#[derive(Default)]
struct Peers {
    grants: AtomicU64,
    /// Calls that ended with an error.
    failed: AtomicU64,
    stall: Mutex<Duration>,
}

impl Peers {
    /// Commands under one lock that notice each other.
    fn work(&self, endpoints: &str, place: &Path, run: &Run) {
        let script = "mkdir \"$0/in\" || echo two >>\"$0/overlaps\"; rmdir \"$0/in\"";
        let one = || {
            while !run.is_over() {
                let mut command = Command::new("timeout");
                command.arg("60").arg(testbed::peer("etcd-client", "usr/bin/etcdctl"));
                command.args(["--endpoints", endpoints, "lock", "--ttl", PEER_TTL, "beside"]);
                command.args(["--", "sh", "-c", script]).arg(place);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                let well = command.status().unwrap().success();
                let counter = if well { &self.grants } else { &self.failed };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..PEERS {
                scope.spawn(one);
            }
            *self.stall.lock().unwrap() = longest_stall(run, &self.grants);
        });
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

fn row(what: &str, setting: &str, it: &Tally, beside: &str) {
    let (stall, p50, p99) = (seconds(it.stall), millis(it.p50), millis(it.p99));
    let (calls, grants, overlaps) = (it.calls, it.grants, it.overlaps);
    let seen = format!("{calls} | {grants} | {overlaps} | {stall} | {p50} | {p99}");
    println!("| {what} | {setting} | {seen} | {beside} |");
}

fn on_etcd(cluster: &mut Cluster, what: &str, fault: Fault, pause_s: u64) {
    let endpoints = cluster.endpoints.clone();
    let mut site = Site::start(cluster, 2, &GRACE);
    let servers: Vec<SocketAddr> = site.fronts.iter().map(|front| front.address).collect();
    let (peers, place) = (Peers::default(), tempfile::tempdir().unwrap());
    let tally = watch(
        &servers,
        ANSWERS,
        &[fault],
        &mut |fault| site.suffer(fault, Duration::from_secs(pause_s)),
        &|run| peers.work(&endpoints, place.path(), run),
    );
    let overlaps = std::fs::read_to_string(place.path().join("overlaps")).unwrap_or_default();
    let beside = format!(
        "{} | {} | {} | {}",
        peers.grants.into_inner(),
        peers.failed.into_inner(),
        overlaps.lines().count(),
        seconds(peers.stall.into_inner().unwrap())
    );
    row(what, "etcd", &tally, &beside);
}

/// How the only server goes. It comes back where it was.
fn alone(what: &str, signal: Signal, pause_s: u64) -> Tally {
    let state = tempfile::tempdir().unwrap();
    let port = free_port().to_string();
    let start = || {
        let mut command = program_on(&Store::default());
        command.args(["--port", &port, "--shutdown-timeout", "1", "--state-dir"]).arg(state.path());
        Daemon::run(command.args(GRACE))
    };
    let mut daemon = start();
    let servers = [daemon.address];
    let tally = watch(
        &servers,
        ANSWERS,
        &[Fault::KillFront],
        &mut |_| {
            daemon.signal(signal);
            std::thread::sleep(Duration::from_secs(pause_s));
            if signal == Signal::SIGSTOP {
                daemon.signal(Signal::SIGCONT);
            } else {
                daemon.ended();
                daemon = start();
            }
        },
        &|_| {},
    );
    row(what, "`--state-dir`", &tally, " | | |");
    tally
}

#[test]
#[ignore = "takes minutes: just etcd-long"]
fn ten_thousand_holds_on_disk() {
    let (mut calls, mut grants, mut faults) = (0, 0, 0);
    while grants < 10_000 {
        for signal in [Signal::SIGKILL, Signal::SIGSTOP, Signal::SIGTERM] {
            let tally = alone(signal.as_str(), signal, 1);
            (calls, grants, faults) = (calls + tally.calls, grants + tally.grants, faults + 1);
        }
    }
    println!("{faults} histories on disk: {calls} calls, {grants} grants");
}

#[test]
#[ignore = "takes minutes: just report"]
fn what_happens_when() {
    println!(
        "| fault | locks are in | calls | grants | overlaps | longest stall | p50 | p99 | `etcdctl lock`: grants | \
         errors | overlaps | longest stall |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    alone("the server is killed and starts again after 2 s", Signal::SIGKILL, 2);
    alone("the server stands still for 3 s", Signal::SIGSTOP, 3);
    alone("the server is told to end and starts again after 2 s", Signal::SIGTERM, 2);
    let mut cluster = Cluster::start(&[]);
    let faults = [
        ("nothing", Fault::None, 5),
        ("etcd's leader is killed for 3 s", Fault::KillLeader, 3),
        ("etcd's leader stands still for 7 s", Fault::StopLeader, 7),
        ("a follower of etcd is killed for 3 s", Fault::KillFollower, 3),
        ("a follower of etcd stands still for 3 s", Fault::StopFollower, 3),
        ("two of three members stand still for 4 s", Fault::LoseQuorum, 4),
        ("one of two servers is killed", Fault::KillFront, 4),
        ("one of two servers stands still for 7 s", Fault::StopFront, 7),
    ];
    for (what, fault, pause_s) in faults {
        on_etcd(&mut cluster, what, fault, pause_s);
    }
}
