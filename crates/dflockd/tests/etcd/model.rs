//! A server in memory is the model of those on etcd: the same random calls, over connections to two
//! servers that share one etcd, get the same answers.

use rstest::rstest;
use std::fmt::Write as _;
use testbed::Lots;
use testbed::dflockd::etcd as cluster;
use testbed::dflockd::{Daemon, Talker, program};

const CONNECTIONS: usize = 6;
const STEPS: usize = 400;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// One connection to each.
struct Pair {
    model: Talker,
    etcd: Talker,
}

/// A hold, as each names it.
struct Hold {
    key: usize,
    model: String,
    etcd: String,
}

struct Play {
    model: Daemon,
    fronts: Vec<Daemon>,
    pairs: Vec<Pair>,
    holds: Vec<Hold>,
    lots: Lots,
    told: String,
}

impl Play {
    fn start(seed: u64) -> Self {
        let flags = ["--port", "0", "--max-waiters", "2"];
        let mut memory = program();
        memory.env_clear().args(flags);
        let store = cluster::shared();
        let fronts = || {
            let mut command = program();
            Daemon::run(command.args(flags).envs(store.environment.clone()))
        };
        let (model, fronts) = (Daemon::run(&mut memory), vec![fronts(), fronts()]);
        let pair = |place: usize| Pair { model: model.talk(), etcd: fronts[place % 2].talk() };
        let pairs = (0..CONNECTIONS).map(pair).collect();
        let lots = Lots(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { pairs, model, fronts, holds: Vec::new(), lots, told: String::new() }
    }

    fn dice(&mut self, sides: usize) -> usize {
        self.lots.index(sides)
    }

    /// Both are asked; the answers must be the same but for tokens.
    fn ask(&mut self, place: usize, command: &str, key: usize, args: [&str; 2]) {
        let pair = &mut self.pairs[place];
        let model = pair.model.ask(command, KEYS[key], args[0]);
        let etcd = pair.etcd.ask(command, KEYS[key], args[1]);
        writeln!(self.told, "{place} {command} {} {args:?}: {model} / {etcd}", KEYS[key]).unwrap();
        let words = |reply: &str| {
            let is_token = |word: &&str| word.len() == 32;
            let word = |word| if is_token(&word) { "TOKEN".to_owned() } else { word.to_owned() };
            reply.split(' ').map(word).collect::<Vec<String>>()
        };
        assert_eq!(words(&model), words(&etcd), "{}", self.told);
        let token = |reply: &str| reply.split(' ').find(|word| word.len() == 32).map(str::to_owned);
        if let (Some(model), Some(etcd)) = (token(&model), token(&etcd)) {
            // `w` tells again what `e` told.
            self.holds.retain(|hold| hold.model != model);
            self.holds.push(Hold { key, model, etcd });
        }
    }

    /// A request that may or may not wait for what the other server has just given: the model, which
    /// knows at once, says how patient to be.
    fn wait(&mut self, place: usize, key: usize) {
        let pair = &mut self.pairs[place];
        let model = pair.model.ask("w", KEYS[key], "0");
        let patience = if model == "timeout" { "0" } else { "10" };
        let etcd = pair.etcd.ask("w", KEYS[key], patience);
        writeln!(self.told, "{place} w {}: {model} / {etcd}", KEYS[key]).unwrap();
        let first = |reply: &str| reply.split(' ').next().unwrap().to_owned();
        assert_eq!(first(&model), first(&etcd), "{}", self.told);
        let token = |reply: &str| reply.split(' ').nth(1).map(str::to_owned);
        if let (Some(model), Some(etcd)) = (token(&model), token(&etcd)) {
            self.holds.retain(|hold| hold.model != model);
            self.holds.push(Hold { key, model, etcd });
        }
    }

    /// The connection ends and another comes in its place.
    fn reconnect(&mut self, place: usize) {
        writeln!(self.told, "{place} leaves").unwrap();
        let front = &self.fronts[place % 2];
        let next = Pair { model: self.model.talk(), etcd: front.talk() };
        drop(std::mem::replace(&mut self.pairs[place], next));
        // `stats` asks over one more.
        self.model.until_stats(&format!("\"connections\":{},", CONNECTIONS + 1));
        front.until_stats(&format!("\"connections\":{},", CONNECTIONS + 1));
    }

    fn step(&mut self) {
        let (place, key) = (self.dice(CONNECTIONS), self.dice(KEYS.len()));
        let limit = ["1", "1", "2", "3"][if self.dice(12) == 0 { self.dice(4) } else { key }];
        let shares = limit == "1" && self.dice(2) == 0;
        match self.dice(20) {
            0..=4 if shares => self.ask(place, "rl", key, ["0 60", "0 60"]),
            5..=8 if shares => self.ask(place, "re", key, ["60", "60"]),
            0..=4 => {
                let arg = format!("0 {limit} 60");
                self.ask(place, "sl", key, [&arg, &arg]);
            }
            5..=8 => {
                let arg = format!("{limit} 60");
                self.ask(place, "se", key, [&arg, &arg]);
            }
            9..=11 => self.wait(place, key),
            12..=16 if !self.holds.is_empty() => {
                let hold = self.dice(self.holds.len());
                let Hold { key, model, etcd } = self.holds.swap_remove(hold);
                self.ask(place, "sr", key, [&model, &etcd]);
            }
            17..=18 if !self.holds.is_empty() => {
                let hold = self.dice(self.holds.len());
                let Hold { key, model, etcd } = &self.holds[hold];
                let (key, args) = (*key, [format!("{model} 60"), format!("{etcd} 60")]);
                self.ask(place, "sn", key, [&args[0], &args[1]]);
            }
            19 => self.reconnect(place),
            _ => self.ask(place, "sr", key, ["no token", "no token"]),
        }
    }
}

#[rstest]
fn the_same_calls_get_the_same_answers(#[values(1, 2, 3)] seed: u64) {
    let mut play = Play::start(seed);
    for _ in 0..STEPS {
        play.step();
    }
    // A play in which nobody got anything would prove nothing.
    assert!(play.told.matches(": ok ").count() > 50, "{}", play.told);
    assert!(play.told.matches("queued").count() > 10, "{}", play.told);
}
