//! Two `dflock run` on one key, or on two keys in opposite orders, each behind a proxy of its own, through faults that come as they may:
//! one side of a connection reset, a connection that swallows, a slow network, a proxy that is
//! killed, a server that stands still, ends and is killed. With the settings that the guide calls
//! safe their commands never run at the same time; and when all is well again, both get their turn.

use crate::program::{Restarting, Running, bare, fault_runs, start};
use crate::proxy::{Proxy, Side};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use testbed::Lots;

/// Of the lease, and what the command has to end. Together they leave a busy machine a second to
/// get round to it.
const TTL_S: &str = "6";
const GRACE_S: &str = "1";
const FAULTS: u32 = 5;
/// A whole lease, and what a busy machine needs.
const TURN_LIMIT: Duration = Duration::from_secs(60);

/// The command: alone with the file, or it says that there were two. It is one process, so nothing
/// of it outlives what kills it.
const COMMAND: &str = "exec 9>>$PLACE/alone; flock --nonblock 9 || echo $WHO >>$PLACE/two
    echo $WHO >>$PLACE/turns; exec sleep $LONG";

/// A server, two clients and what is between them.
struct Scene {
    place: tempfile::TempDir,
    server: Restarting,
    proxies: [Proxy; 2],
    holders: [Option<Running>; 2],
    /// As each of them names them.
    keys: [&'static [&'static str]; 2],
    chance: Lots,
    told: Vec<String>,
    is_well: bool,
}

impl Scene {
    fn new(options: &[&str], number: u64) -> Self {
        let place = tempfile::tempdir().unwrap();
        let server = Restarting::start(&[options, &["--shutdown-timeout", "1"]].concat());
        let proxies = [(); 2].map(|()| Proxy::to(server.daemon.address));
        let keys: [&[&str]; 2] = match number / 3 % 2 {
            0 => [&["k"], &["k"]],
            _ => [&["-k", "a", "-k", "b"], &["-k", "b", "-k", "a"]],
        };
        let chance = Lots(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            place,
            server,
            proxies,
            holders: [None, None],
            keys,
            chance,
            told: Vec::new(),
            is_well: false,
        }
    }

    fn path(&self) -> &Path {
        self.place.path()
    }

    /// How often who had his turn.
    fn turns(&self, who: usize) -> usize {
        let turns = fs::read_to_string(self.path().join("turns")).unwrap_or_default();
        turns.lines().filter(|line| *line == who.to_string()).count()
    }

    /// A command that has ended is started again, however it ended.
    fn keep_trying(&mut self) {
        for who in 0..2 {
            if self.holders[who].as_mut().is_some_and(|it| !it.has_ended()) {
                continue;
            }
            // Short ones give turns, long ones need their lease renewed.
            let long = match self.chance.below(2) {
                1 if !self.is_well => self.chance.below(9).to_string(),
                _ => format!("0.{}", self.chance.below(9)),
            };
            let words = ["run", "--ttl", TTL_S, "--grace", GRACE_S, "--patience", "2"];
            let mut command = bare(&[&words, self.keys[who]].concat());
            command.args(["--", "sh", "-c", COMMAND]).env("PLACE", self.path());
            command.env("WHO", who.to_string()).env("LONG", long);
            command.env("DFLOCK_SERVERS", self.proxies[who].address());
            self.holders[who] = Some(start(&mut command));
        }
    }

    /// Until some turns have been taken, or for as long as a fault is to last.
    fn go_on_for(&mut self, limit: Duration) {
        let begun = Instant::now();
        let before = [self.turns(0), self.turns(1)];
        while begun.elapsed() < limit && self.turns(0) + self.turns(1) < before[0] + before[1] + 3 {
            self.keep_trying();
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn fault(&mut self) {
        let who = self.chance.index(2);
        let length = Duration::from_millis(100 + self.chance.below(1400));
        let kind = self.chance.below(9);
        self.told.push(format!("{kind} at {who} for {length:?}"));
        match kind {
            0 => self.proxies[who].reset(Side::Client),
            1 => self.proxies[who].reset(Side::Server),
            2 => self.proxies[who].swallow_what_is_open(),
            3 => {
                self.proxies[who].delay(length / 5);
                self.go_on_for(length);
                self.proxies[who].delay(Duration::ZERO);
            }
            4 => {
                self.proxies[who].kill();
                self.go_on_for(length);
                self.proxies[who].revive();
            }
            5 | 6 => {
                self.server.daemon.signal(Signal::SIGSTOP);
                // Sometimes for longer than a lease.
                let is_long = self.chance.below(2) == 1;
                self.go_on_for(if is_long { length * 4 } else { length });
                self.server.daemon.signal(Signal::SIGCONT);
            }
            _ => {
                self.server.end(if kind == 7 { Signal::SIGTERM } else { Signal::SIGKILL });
                self.go_on_for(length);
                self.server.start_again();
            }
        }
        self.go_on_for(length);
    }

    /// All is well: both get their turn. Who waits on a connection that swallows would wait for the
    /// kernel to find out, which this proxy does not let it.
    fn both_get_their_turn(&mut self) {
        self.is_well = true;
        for holder in &self.holders {
            holder.as_ref().unwrap().signal(Signal::SIGTERM);
        }
        let before = [self.turns(0), self.turns(1)];
        let deadline = Instant::now() + TURN_LIMIT;
        while (0..2).any(|who| self.turns(who) == before[who]) {
            self.keep_trying();
            let ends = self.holders.iter().map(|it| it.as_ref().unwrap().complained());
            assert!(
                Instant::now() < deadline,
                "no turn after {:?}: {:?} {}",
                self.told,
                ends.collect::<Vec<_>>(),
                self.server.daemon.stats()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn play(options: &[&str], run: u64) {
    let mut scene = Scene::new(options, run);
    scene.keep_trying();
    for _ in 0..FAULTS {
        scene.fault();
    }
    scene.both_get_their_turn();
    let two = fs::read_to_string(scene.path().join("two")).unwrap_or_default();
    assert!(two.is_empty(), "run {run}: two at once after {:?}", scene.told);
}

/// Runs at the same time: they wait more than they work.
const SIDE_BY_SIDE: usize = 5;

#[rstest]
#[case::auto_release_off(&["--auto-release-on-disconnect=false"], 0)]
#[case::a_grace(&["--disconnect-grace", "4"], 1)]
#[case::a_grace_and_soon_hung_up(&["--disconnect-grace", "4", "--read-timeout", "2"], 2)]
fn two_commands_never_run_at_once(#[case] options: &[&str], #[case] third: u64) {
    let mine: Vec<u64> = fault_runs(15).filter(|run| run % 3 == third).collect();
    for some in mine.chunks(SIDE_BY_SIDE) {
        std::thread::scope(|scope| {
            for &run in some {
                scope.spawn(move || play(options, run));
            }
        });
    }
}
