//! One client holds keys with leases of different lengths over one connection, through faults that come as they may:
//! a connection is reset, swallows or holds back answers, one of two ways to the server is gone, the server stands
//! still, or is killed. The client takes, releases, drops and leaves keys meanwhile. No long lease is lost with a
//! short one, a key that was released is free, and at the end nothing is held by nobody but what a dropped request may
//! have left.

use crate::library::seconds;
use crate::program::{Restarting, fault_runs};
use crate::proxy::{Proxy, Side};
use dflock::{Claim, Claims, Client, ClientError, Grant, Lease, Servers, Settings};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use testbed::Lots;
use testbed::dflockd::PATIENCE;
use tokio::time::{sleep, timeout};

/// In seconds. Faults may outlast the first, never the second.
const LENGTHS: [u64; 3] = [2, 30, 600];
const FAULTS: u32 = 8;
/// Held at once: more than go over one connection.
const MOST: usize = 20;
/// What any request of the client may take, however its connections fail.
const LIMIT: Duration = PATIENCE;

struct Scene {
    /// A server with its default settings gives back what a connection held when it ends. It sees no end of those that
    /// only lose data.
    keeps: bool,
    server: Restarting,
    ways: [Proxy; 2],
    client: Client,
    held: BTreeMap<String, (u64, Lease)>,
    /// What the client has left at the server.
    left: Vec<(Claim, Grant)>,
    /// Keys whose requests were dropped. If the connection ends before the answer comes, a server that keeps holds keeps
    /// such a one to the end of its lease. So does every server that does not see that end.
    cut_off: Vec<String>,
    /// A connection has lost data, its end too.
    has_swallowed: bool,
    taken: usize,
    chance: Lots,
    told: Vec<String>,
}

impl Scene {
    fn new(keeps: bool, number: u64) -> Self {
        let auto = format!("--auto-release-on-disconnect={}", !keeps);
        let server = Restarting::start(&["--read-timeout", "600", &auto]);
        let ways = [(); 2].map(|()| Proxy::to(server.daemon.address));
        let addresses = ways.iter().map(|way| way.address().parse().unwrap()).collect();
        let mut settings = Settings::new(Servers::AnyOf(addresses));
        // As long as that of the server.
        settings.read_timeout = seconds(600);
        settings.answer_limit = seconds(8);
        let client = Client::new(settings).unwrap();
        Self {
            keeps,
            server,
            ways,
            client,
            held: BTreeMap::new(),
            left: Vec::new(),
            cut_off: Vec::new(),
            has_swallowed: false,
            taken: 0,
            chance: Lots(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            told: Vec::new(),
        }
    }

    /// The client does something with its keys.
    async fn act(&mut self) {
        let key = format!("key-{:03}", self.taken);
        let length = LENGTHS[self.chance.index(LENGTHS.len())];
        let lock = self.client.lock(key.as_bytes()).unwrap().ttl(seconds(length)).unwrap();
        match self.chance.below(8) {
            0..=3 if self.held.len() < MOST => {
                self.taken += 1;
                let taken = timeout(LIMIT, lock.acquire(seconds(5))).await.expect("it ends");
                self.told.push(format!("took {key} for {length} s: {taken:?}"));
                if let Ok(Some(lease)) = taken {
                    self.held.insert(key, (length, lease));
                }
            }
            4 => {
                self.taken += 1;
                let wait = Duration::from_millis(self.chance.below(30));
                let given_up = timeout(wait, lock.acquire(seconds(5))).await;
                if given_up.is_err() {
                    self.cut_off.push(key.clone());
                }
                self.told.push(format!("took {key} for {wait:?}: {given_up:?}"));
            }
            5 => {
                self.taken += 1;
                let one = Claims::of([lock.clone()]).expect("a key");
                let left = one.acquire_detached(Some(seconds(5)), |_, _| {});
                let left = timeout(LIMIT, left).await.expect("it ends");
                let left = left.map(|grants| grants.and_then(|mut grants| grants.pop()));
                self.told.push(format!("took {key} for {length} s, and left it: {left:?}"));
                if let Ok(Some(grant)) = left {
                    self.left.push((lock, grant));
                }
            }
            6 => {
                if let Some((key, _)) = self.held.pop_first() {
                    self.told.push(format!("dropped {key}"));
                }
            }
            _ => {
                if let Some((key, (length, lease))) = self.held.pop_last() {
                    self.told.push(format!("releases {key}"));
                    self.release(&key, length, lease).await;
                }
            }
        }
    }

    async fn release(&self, key: &str, length: u64, lease: Lease) {
        let released = timeout(LIMIT, lease.release()).await.expect("it ends");
        match released {
            Ok(()) => {}
            Err(ClientError::Refused(_)) if length == LENGTHS[0] => {}
            Err(error) => panic!("{key} for {length} s: {error} after {:#?}", self.told),
        }
    }

    /// Only short leases may be lost.
    fn assert_long_ones_are_held(&self) {
        for (key, (length, lease)) in &self.held {
            let is_short = *length == LENGTHS[0];
            assert!(is_short || lease.loss().is_none(), "{key}, {length} s: {:#?}", self.told);
        }
    }

    async fn fault(&mut self) {
        let way = self.chance.index(2);
        let length = Duration::from_millis(100 + self.chance.below(3500));
        let kinds: &[u64] = if self.keeps { &[0, 1, 2, 3, 4, 5, 6, 7] } else { &[2, 3, 4, 6] };
        let kind = kinds[self.chance.index(kinds.len())];
        self.told.push(format!("fault {kind} at {way} for {length:?}"));
        match kind {
            0 => self.ways[way].reset(Side::Client),
            1 => self.ways[way].reset(Side::Server),
            2 => {
                self.has_swallowed = true;
                self.ways[way].swallow_what_is_open();
            }
            3 => self.ways[way].stall_answers(),
            4 => self.ways[way].delay(length / 8),
            5 => self.ways[way].kill(),
            6 => self.server.daemon.signal(Signal::SIGSTOP),
            _ => self.server.end(Signal::SIGKILL),
        }
        self.go_on_for(length).await;
        match kind {
            3 => self.ways[way].deliver_answers(),
            4 => self.ways[way].delay(Duration::ZERO),
            5 => self.ways[way].revive(),
            6 => self.server.daemon.signal(Signal::SIGCONT),
            7 => self.server.start_again(),
            _ => {}
        }
        self.go_on_for(length / 2).await;
    }

    /// A request may take longer than the fault is to last: it ends by itself, or when the next one begins.
    async fn go_on_for(&mut self, length: Duration) {
        let until = Instant::now() + length;
        while Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            let before = self.taken;
            if timeout(left.max(Duration::from_millis(1)), self.act()).await.is_err() {
                self.cut_off.extend((before..self.taken).map(|number| format!("key-{number:03}")));
            }
            sleep(Duration::from_millis(50)).await;
            self.assert_long_ones_are_held();
        }
    }

    /// All is well: what is held is released, and nothing else is held.
    async fn end(mut self) {
        self.told.push("the end".to_owned());
        for (key, (length, lease)) in std::mem::take(&mut self.held) {
            self.release(&key, length, lease).await;
        }
        for (lock, grant) in std::mem::take(&mut self.left) {
            let released = timeout(LIMIT, lock.release(&grant.token)).await.expect("it ends");
            let is_over = matches!(released, Err(ClientError::Refused(_)));
            assert!(released.is_ok() || is_over, "{released:?} after {:#?}", self.told);
        }
        let may_stay = self.keeps || self.has_swallowed;
        let stays = |key: &String| may_stay && self.cut_off.contains(key);
        let began = Instant::now();
        loop {
            let stats = self.server.daemon.stats();
            if held_keys(&stats).is_some_and(|held| held.iter().all(stays)) {
                return;
            }
            assert!(began.elapsed() < LIMIT, "{stats} after {:#?}", self.told);
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Nothing if the server cannot answer just now, as one on etcd while no server leads.
fn held_keys(stats: &str) -> Option<Vec<String>> {
    let body: serde_json::Value = serde_json::from_str(stats.strip_prefix("ok ")?).unwrap();
    let locks = body["locks"].as_array().unwrap().iter();
    Some(locks.map(|lock| lock["key"].as_str().unwrap().to_owned()).collect())
}

async fn play(keeps: bool, number: u64) {
    let mut scene = Scene::new(keeps, number);
    for _ in 0..FAULTS {
        scene.fault().await;
    }
    scene.end().await;
}

#[rstest]
fn long_leases_outlive_faults_and_short_ones(#[values(true, false)] keeps: bool) {
    std::thread::scope(|scope| {
        for run in fault_runs(6) {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(play(keeps, run));
            });
        }
    });
}
