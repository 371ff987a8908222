//! What one request costs beside a thousand others, and what a client waits beside twenty that ask for long answers.
//!
//! First a table: the processor time of the server for one request of each kind, beside a thousand waiters, waiting readers,
//! readers, holders of other slots, watchers and keys, and beside nobody. Those of HTTP include a connection.
//! Then the waits of a bystander that takes and releases a lock of its own: beside twenty clients that ping, and beside
//! twenty that ask for the key with a thousand waiters, in turns. The goal is a ratio of two.
//!
//! Arguments: `rounds=N` (5), and `base=PROGRAM` for another build of the server.

#![expect(clippy::indexing_slicing, reason = "a measurement that cannot be made ends")]

use std::error::Error;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testbed::dflockd::{Daemon, Talker, free_port, http};

const CROWD: usize = 1000;
const ASKERS: usize = 20;
/// Requests of each kind.
const TIMES: u32 = 50;
/// The bystander's pairs in one round.
const PAIRS: usize = 2000;

const CROWDS: [&str; 7] =
    ["nobody", "waiters", "waiting readers", "readers", "slots", "watchers", "keys"];

struct Scene {
    daemon: Daemon,
    http: SocketAddr,
    holder: Talker,
    token: String,
    _crowd: Vec<Talker>,
    _secret: tempfile::NamedTempFile,
}

impl Scene {
    fn new(program: &str, crowd: &str) -> Result<Self, Box<dyn Error>> {
        let secret = tempfile::NamedTempFile::new()?;
        std::fs::write(secret.path(), "sesame\n")?;
        let port = free_port();
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null()).args(["--port", "0", "--max-locks", "5000"]);
        command.args(["--read-timeout", "3600", "--http-port", &port.to_string()]);
        let daemon = Daemon::run(command.arg("--admin-token-file").arg(secret.path()));
        daemon.logged("HTTP listening");
        let mut holder = daemon.talk();
        let token = match crowd {
            "readers" => holder.token("rl", "k", "0 3600"),
            "slots" => holder.token("sl", "k", "0 2000 3600"),
            _ => holder.token("l", "k", "0 3600"),
        };
        let mut others = Vec::new();
        for number in 0..if crowd == "nobody" { 0 } else { CROWD } {
            let mut other = daemon.talk();
            match crowd {
                "waiters" => other.say(b"l\nk\n3000 3600\n"),
                "waiting readers" => other.say(b"rl\nk\n3000 3600\n"),
                "readers" => drop(other.token("rl", "k", "0 3600")),
                "slots" => drop(other.token("sl", "k", "0 2000 3600")),
                "keys" => drop(other.take(&format!("key-{number}"), "0 3600")),
                _ => {
                    let seen = other.ask("watch", "k", "0");
                    let version = seen.split(' ').nth(1).ok_or("a version")?;
                    other.say(format!("watch\nk\n3000 {version}\n").as_bytes());
                }
            }
            others.push(other);
        }
        if crowd.starts_with("waiti") || crowd == "waiters" {
            daemon.until_stats(&format!("\"waiters\":{CROWD}"));
        }
        let http = SocketAddr::from(([127, 0, 0, 1], port));
        Ok(Self { daemon, http, holder, token, _crowd: others, _secret: secret })
    }

    /// The processor time of the server so far, in microseconds, when it has become idle.
    fn spent(&self) -> Result<f64, Box<dyn Error>> {
        let read = || -> Result<f64, Box<dyn Error>> {
            let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.daemon.pid()))?;
            Ok(text.split(' ').next().ok_or("a number")?.parse::<f64>()? / 1000.0)
        };
        let mut last = read()?;
        loop {
            thread::sleep(Duration::from_millis(20));
            let now = read()?;
            if now - last < 100.0 {
                return Ok(now);
            }
            last = now;
        }
    }

    fn cost(
        &mut self,
        times: u32,
        mut request: impl FnMut(&mut Self, &mut Talker),
    ) -> Result<f64, Box<dyn Error>> {
        let mut asker = self.daemon.talk();
        asker.ask("ping", "_", "_");
        let before = self.spent()?;
        (0..times).for_each(|_| request(self, &mut asker));
        Ok((self.spent()? - before) / f64::from(times))
    }

    fn row(&mut self) -> Result<Vec<f64>, Box<dyn Error>> {
        let mut row = Vec::new();
        for (command, key, arg) in [
            ("ping", "_", "_"),
            ("l", "k", "0"),
            ("rl", "other", "0"),
            ("watch", "k", "0"),
            ("stats", "_", "_"),
            ("stats", "key", "k"),
        ] {
            row.push(self.cost(TIMES, |_, asker| drop(asker.ask(command, key, arg)))?);
        }
        row.push(self.cost(TIMES, |it, _| {
            drop(it.holder.ask("n", "k", &format!("{} 3600", it.token)));
        })?);
        for line in ["GET /v1/holders HTTP/1.1", "GET /metrics HTTP/1.1"] {
            row.push(self.cost(TIMES, |it, _| drop(http(it.http, line)))?);
        }
        let token = self.token.clone();
        row.push(self.cost(1, |it, _| drop(it.holder.ask("r", "k", &token)))?);
        let line = "POST /v1/admin/release?key=k HTTP/1.1\r\nAuthorization: Bearer sesame";
        row.push(self.cost(1, |it, _| drop(http(it.http, line)))?);
        Ok(row)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let word =
        |name: &str| std::env::args().find_map(|word| Some(word.strip_prefix(name)?.to_owned()));
    let program = word("base=").unwrap_or_else(|| env!("CARGO_BIN_EXE_dflockd").to_owned());
    let rounds: usize = word("rounds=").map_or(Ok(5), |text| text.parse())?;
    println!("microseconds of the server's processor for one request");
    let columns =
        ["ping", "l", "rl", "watch", "stats", "stats k", "n", "holders", "metrics", "r", "force"];
    print!("{:>16}", "");
    columns.iter().for_each(|name| print!(" {name:>8}"));
    println!();
    for crowd in CROWDS {
        let row = Scene::new(&program, crowd)?.row()?;
        print!("{crowd:>16}");
        row.iter().for_each(|figure| print!(" {figure:>8.0}"));
        println!();
    }
    let scene = Scene::new(&program, "waiters")?;
    let mut figures = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (figures, request) in
            figures.iter_mut().zip([["ping", "_", "_"], ["stats", "key", "k"]])
        {
            figures.push(bystander(&scene.daemon, request));
        }
    }
    println!(
        "\nmicroseconds of a bystander's pair beside {ASKERS} clients; median of {rounds} rounds"
    );
    for (place, name) in ["p50", "p99"].into_iter().enumerate() {
        let [pings, stats] = figures.each_ref().map(|rounds| {
            let mut figures: Vec<f64> = rounds.iter().map(|two| two[place]).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        });
        let ratio = stats / pings;
        println!(
            "{name}: {pings:.0} beside pings, {stats:.0} beside stats k, ratio {ratio:.2} [<= 2]"
        );
    }
    Ok(())
}

/// The median and the 99th of 100 waits for a pair.
fn bystander(daemon: &Daemon, [command, key, arg]: [&str; 3]) -> [f64; 2] {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..ASKERS {
            scope.spawn(|| {
                let mut asker = daemon.talk();
                while !is_over.load(Ordering::Relaxed) {
                    asker.ask(command, key, arg);
                }
            });
        }
        let mut client = daemon.talk();
        let mut waits: Vec<f64> = (0..PAIRS)
            .map(|_| {
                let begun = Instant::now();
                let token = client.take("own", "0 30");
                client.ask("r", "own", &token);
                begun.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        waits.sort_by(f64::total_cmp);
        [waits[PAIRS / 2], waits[PAIRS * 99 / 100]]
    })
}
