//! One client holds keys with leases of different lengths over one connection, through faults that come as they may:
//! a connection is reset, swallows or holds back answers, one of two ways to the server is gone, the server stands
//! still, or is killed. With locks in etcd each way leads to a server of its own. The client takes, releases, drops and
//! leaves keys meanwhile. No long lease is lost with a short one, and at the end nothing is held by nobody.
//!
//! `FAULT_RUNS` says how many runs (6), `FAULT_SEED` where they begin (0): each is made by its number.

use crate::library::seconds;
use crate::proxy::{Proxy, Side};
use dflock::{Claim, Client, ClientError, Grant, Lease, Loss, Servers, Settings};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use testbed::Lots;
use testbed::dflockd::{Daemon, Store, free_port, is_on_etcd, program_on};
use tokio::time::{sleep, timeout};

/// In seconds. A fault may outlast these leases, and no others.
const SHORT: u64 = 2;
/// The longest of a grant that nobody may ever hear of.
const LONG: u64 = 15;
const FAULTS: u32 = 8;
/// Held at once: more than go over one connection.
const MOST: usize = 20;
/// What any request of the client may take, however its connections fail.
const LIMIT: Duration = Duration::from_secs(40);

/// What happened, in its order.
type Story = RefCell<Vec<String>>;

/// The servers, and what is between them and the client.
struct Wire<'a> {
    /// A server with its default settings gives back what a connection held when it ends. It sees no end of those that
    /// only lose data.
    keeps: bool,
    place: tempfile::TempDir,
    store: Store,
    /// One, or with locks in etcd one for each way.
    daemons: Vec<Daemon>,
    ways: [Proxy; 2],
    chance: Lots,
    story: &'a Story,
}

fn serve(keeps: bool, place: &Path, store: &Store, port: &str) -> Daemon {
    let mut command = program_on(store);
    command.args(["--port", port, "--read-timeout", "600"]);
    command.arg(format!("--auto-release-on-disconnect={}", !keeps));
    if !is_on_etcd() {
        command.arg("--state-dir").arg(place.join("state"));
    }
    Daemon::run(&mut command)
}

impl<'a> Wire<'a> {
    fn new(keeps: bool, chance: Lots, story: &'a Story) -> Self {
        let (place, store) = (tempfile::tempdir().unwrap(), testbed::dflockd::store());
        let count = if is_on_etcd() { 2 } else { 1 };
        // They start again there, and clients look for them meanwhile: a port that no connection of theirs is given.
        let serve = || serve(keeps, place.path(), &store, &free_port().to_string());
        let daemons: Vec<_> = (0..count).map(|_| serve()).collect();
        let ways = [0, 1].map(|way| Proxy::to(daemons[way % count].address));
        Self { keeps, place, store, daemons, ways, chance, story }
    }

    async fn fail(&mut self, kinds: &[u64]) {
        let (way, kind) = (self.chance.index(2), kinds[self.chance.index(kinds.len())]);
        let length = Duration::from_millis(100 + self.chance.below(3500));
        let server = way % self.daemons.len();
        self.story.borrow_mut().push(format!("fault {kind} at {way} for {length:?}"));
        match kind {
            0 => self.ways[way].reset(Side::Client),
            1 => self.ways[way].reset(Side::Server),
            2 => self.ways[way].swallow_what_is_open(),
            3 => self.ways[way].stall_answers(),
            4 => self.ways[way].delay(length / 8),
            5 => self.ways[way].kill(),
            6 => self.daemons[server].signal(Signal::SIGSTOP),
            _ => {
                self.daemons[server].signal(Signal::SIGKILL);
                self.daemons[server].ended();
            }
        }
        sleep(length).await;
        match kind {
            3 => self.ways[way].deliver_answers(),
            4 => self.ways[way].delay(Duration::ZERO),
            5 => self.ways[way].revive(),
            6 => self.daemons[server].signal(Signal::SIGCONT),
            7 => {
                let port = self.daemons[server].address.port().to_string();
                self.daemons[server] = serve(self.keeps, self.place.path(), &self.store, &port);
            }
            _ => {}
        }
        self.story.borrow_mut().push("it is over".to_owned());
        sleep(length / 2).await;
    }
}

/// The client, and what it does with its keys.
struct Holder<'a> {
    client: Client,
    lengths: &'a [u64],
    held: BTreeMap<String, (u64, Lease)>,
    /// What it has left at the server.
    left: Vec<(Claim, Grant)>,
    taken: usize,
    chance: Lots,
    story: &'a Story,
}

impl<'a> Holder<'a> {
    fn new(wire: &Wire<'_>, lengths: &'a [u64], chance: Lots, story: &'a Story) -> Self {
        let ways = wire.ways.iter().map(|way| way.address().parse().unwrap()).collect();
        let client = Client::new(Settings {
            servers: Servers::AnyOf(ways),
            // As long as that of the server.
            read_timeout: seconds(600),
            answer_limit: seconds(8),
            ..Settings::default()
        });
        let (held, left) = (BTreeMap::new(), Vec::new());
        Self { client: client.unwrap(), lengths, held, left, taken: 0, chance, story }
    }

    fn tell(&self, what: String) {
        self.story.borrow_mut().push(what);
    }

    fn claim(&mut self, length: u64) -> (String, Claim) {
        self.taken += 1;
        let key = format!("key-{:03}", self.taken);
        let lock = self.client.lock(key.as_bytes()).unwrap();
        (key, lock.ttl(seconds(length)).unwrap())
    }

    async fn act(&mut self) {
        let length = self.lengths[self.chance.index(self.lengths.len())];
        match self.chance.below(8) {
            0..=3 if self.held.len() < MOST => {
                let (key, lock) = self.claim(length);
                let taken = timeout(LIMIT, lock.acquire(seconds(5))).await.expect("it ends");
                self.tell(format!("took {key} for {length} s: {taken:?}"));
                self.held.extend(taken.ok().flatten().map(|lease| (key, (length, lease))));
            }
            4 => {
                let (key, lock) = self.claim(length.min(LONG));
                let wait = Duration::from_millis(self.chance.below(30));
                let given_up = timeout(wait, lock.acquire(seconds(5))).await;
                self.tell(format!("took {key} for {wait:?}: {given_up:?}"));
            }
            5 => {
                let (key, lock) = self.claim(length);
                let left = lock.acquire_detached(Some(seconds(5)), |_| {});
                let left = timeout(LIMIT, left).await.expect("it ends");
                self.tell(format!("took {key} for {length} s, and left it: {left:?}"));
                self.left.extend(left.ok().flatten().map(|grant| (lock, grant)));
            }
            6 => {
                let dropped = self.held.pop_first().map(|(key, _)| key);
                self.tell(format!("dropped {dropped:?}"));
            }
            _ => {
                if let Some((key, (length, lease))) = self.held.pop_last() {
                    self.release(&key, length, lease).await;
                }
            }
        }
        for (key, (length, lease)) in &self.held {
            let is_expected = lease.loss().is_none_or(|loss| loss == Loss::Unreachable);
            assert!(is_expected && (*length == SHORT || lease.loss().is_none()), "{key} is lost");
        }
    }

    async fn release(&self, key: &str, length: u64, lease: Lease) {
        let released = timeout(LIMIT, lease.release()).await.expect("it ends");
        self.tell(format!("released {key} for {length} s: {released:?}"));
        let is_over = matches!(released, Err(ClientError::Refused(_))) && length == SHORT;
        assert!(released.is_ok() || is_over, "{key}: {released:?}");
    }

    async fn release_all(&mut self) {
        for (key, (length, lease)) in std::mem::take(&mut self.held) {
            self.release(&key, length, lease).await;
        }
        for (lock, grant) in std::mem::take(&mut self.left) {
            let released = timeout(LIMIT, lock.release(&grant.token)).await.expect("it ends");
            let is_over = matches!(released, Err(ClientError::Refused(_)));
            assert!(released.is_ok() || is_over, "{}: {released:?}", lock.key());
        }
    }
}

async fn play(keeps: bool, kinds: &[u64], lengths: &[u64], number: u64, story: &Story) {
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut wire = Wire::new(keeps, Lots(seed), story);
    let mut holder = Holder::new(&wire, lengths, Lots(!seed), story);
    let is_well = Cell::new(false);
    let faults = async {
        for _ in 0..FAULTS {
            wire.fail(kinds).await;
        }
        is_well.set(true);
    };
    let acts = async {
        while !is_well.get() {
            holder.act().await;
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::join!(faults, acts);
    holder.release_all().await;
    let began = Instant::now();
    loop {
        let stats = wire.daemons[0].stats();
        if stats.contains("\"locks\":[],\"semaphores\":[]") {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{stats}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// What happened before a failure.
struct ToldIfFailed(u64, Story);

impl Drop for ToldIfFailed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("run {}: {:#?}", self.0, self.1.borrow());
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[rstest]
#[case::at_a_server_that_keeps_holds(true, &[0, 1, 2, 3, 4, 5, 6, 7], &[SHORT, LONG])]
#[case::at_a_server_that_gives_them_back(false, &[2, 3, 4, 6], &[SHORT, LONG])]
#[case::that_lose_no_answer(true, &[3, 4, 6], &[SHORT, LONG, 600])]
fn long_leases_outlive_faults_and_short_ones(
    #[case] keeps: bool,
    #[case] kinds: &[u64],
    #[case] lengths: &[u64],
) {
    let (first, runs) = (number("FAULT_SEED", 0), number("FAULT_RUNS", 6));
    std::thread::scope(|scope| {
        for run in first..first + runs {
            scope.spawn(move || {
                let told = ToldIfFailed(run, Story::default());
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(play(keeps, kinds, lengths, run, &told.1));
            });
        }
    });
}
