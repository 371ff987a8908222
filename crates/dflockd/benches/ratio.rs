//! The lock server against the floor: pairs per second, CPU per pair and tail latency, as ratios.
//!
//! The last column is the processor time of the load generator for a pair: where it is as much as the server's, the
//! generator limits the pairs per second as well.
//!
//! Both servers run all the time and are loaded in turn, round by round, so that whatever else the
//! machine does hits both alike. The figure of a row is the median of its rounds. Arguments:
//! `rounds=N` (5), `seconds=S` of load per server and round (1); `peer=floor` measures the floor
//! against itself, which shows how much of a ratio is noise; `peer=tokio` measures the floor on tokio, which shows
//! what the library costs; `peer=state` and `peer=sync` measure
//! the server with `--state-dir`, without and with `--state-sync`, in the directory the build uses.
//! With `peer=sync` a last column has the rate over what the disk allows: each grant and each release
//! must be on it before its answer, and while one write is under way the other half of the connections
//! gather for the next: half of the writes with fdatasync per second times half of the connections, or the
//! floor's rate where that is less.
//! `peer=shared` loads the server with readers that hold one key together, `peer=one` with writers that
//! take turns with it; the floor has a key for each connection, as always.
//! `peer=two` compares two servers, as `dflockd@.service` starts them, with one. `base=PROGRAM` puts
//! another server in the place of the floor, under the same load as ours: an earlier build, or the Go server; with
//! `peer=floor` as well, the floor is measured against that server. `load=PROGRAM` is another build of
//! `dflock`, whose load generator is used.
#![expect(clippy::expect_used, reason = "a measurement that cannot be made ends")]

mod floor;

use nix::unistd::{SysconfVar, sysconf};
use serde_json::Value;
use std::error::Error;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};
use testbed::dflockd::{Daemon, roomy};

const CONNECTIONS: [u32; 5] = [1, 10, 100, 1000, 5000];
const WARM_UP: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(served) = floor::serve_if_asked() {
        return Ok(served?);
    }
    let rounds = argument("rounds", 5);
    let length = Duration::from_millis(argument("seconds", 1) * 1000);
    let peer = word_after("peer=");
    if peer.as_deref() == Some("two") {
        return two_against_one(rounds, length);
    }
    let base = word_after("base=");
    let floor = match &base {
        Some(program) => other(program)?,
        None => floor::start(),
    };
    let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let directory = state.path().to_str().ok_or("a path that is text")?;
    let kept = ("DFLOCKD_STATE_DIR", directory);
    let ours = match peer.as_deref() {
        Some("floor") => floor::start(),
        Some("tokio") => floor::start_on_tokio(),
        Some("state") => dflockd(&[kept]),
        Some("sync") => dflockd(&[kept, ("DFLOCKD_STATE_SYNC", "true")]),
        Some(_) | None => dflockd(&[]),
    };
    println!("median of {rounds} rounds of {length:?} each; goals in brackets");
    println!(
        "{:>6} {:>12} {:>12} {:>9} {:>10} {:>10} {:>9} {:>10} {:>10} {:>9} {:>8}",
        "conns",
        "floor/s",
        "dflockd/s",
        "rate",
        "floor us",
        "dflockd us",
        "cpu",
        "floor p999",
        "dfl. p999",
        "p999",
        "load us"
    );
    println!("{:>42} {:>31} {:>31}", "[>= 0.9]", "[<= 1.3]", "[<= 2 at 100]");
    for connections in CONNECTIONS {
        let mut row = Row::default();
        for _ in 0..rounds {
            let options: &[&str] = match peer.as_deref() {
                Some("shared") => &["--shared", "--keys", "1"],
                Some("one") => &["--keys", "1"],
                _ => &[],
            };
            // The floor grants everything, also what somebody holds.
            let options_of_the_floor = if base.is_some() { options } else { &[] };
            let bare = load(&floor, connections, length, options_of_the_floor)?;
            let figures = load(&ours, connections, length, options)?;
            row.add(&bare, &figures);
        }
        row.print(connections);
        if peer.as_deref() == Some("sync") {
            let share = f64::from(connections.div_ceil(2));
            let allowed = syncs_per_second(state.path())? * share / 2.0;
            row.print_of(allowed);
        }
        println!();
    }
    Ok(())
}

fn dflockd(settings: &[(&str, &str)]) -> Daemon {
    roomy(env!("CARGO_BIN_EXE_dflockd"), settings)
}

/// Another server. Some do not say which port the system has chosen, so they are told one.
fn other(program: &str) -> io::Result<Daemon> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port().to_string();
    let mut command = Command::new(program);
    command.args(["--host", "127.0.0.1", "--port", &port, "--max-locks", "4000000"]);
    Ok(Daemon::run(command.env_clear().stdin(Stdio::null())))
}

/// How many small appends, each followed by fdatasync, this directory takes.
fn syncs_per_second(directory: &Path) -> io::Result<f64> {
    let mut file = tempfile::tempfile_in(directory)?;
    file.set_len(1 << 20)?;
    file.sync_all()?;
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < Duration::from_millis(500) {
        file.write_all(&[0x55; 64])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

struct Measured {
    rate: f64,
    cpu_us: f64,
    p999_us: f64,
    load_us: f64,
}

/// One server loaded by two threads, then two servers loaded by one thread each, in turn.
fn two_against_one(rounds: u64, length: Duration) -> Result<(), Box<dyn Error>> {
    let servers = [dflockd(&[]), dflockd(&[])];
    let [first, second] = &servers;
    println!("{:>6} {:>12} {:>12} {:>9}", "conns", "one/s", "two/s", "rate");
    for connections in [10, 100, 1000] {
        let mut columns = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..rounds {
            let one = load_both([first, first], connections, length)?;
            let two = load_both([first, second], connections, length)?;
            for (column, figure) in columns.iter_mut().zip([one, two, two / one]) {
                column.push(figure);
            }
        }
        let [one, two, rate] = columns.each_mut().map(|column| median(column));
        println!("{connections:>6} {one:>12.0} {two:>12.0} {rate:>9.3}");
    }
    Ok(())
}

fn load_both(
    servers: [&Daemon; 2],
    connections: u32,
    length: Duration,
) -> Result<f64, Box<dyn Error>> {
    let rates = thread::scope(|scope| {
        let loads = ["a", "b"].iter().zip(servers).map(|(prefix, server)| {
            scope.spawn(move || {
                let report = report(server, connections / 2, length, &["--prefix", prefix]);
                report
                    .map(|report| figure(&report, "/pairs_per_s"))
                    .map_err(|error| error.to_string())
            })
        });
        let loads: Vec<_> = loads.collect();
        loads.into_iter().map(|load| load.join().expect("a load")).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(rates.iter().sum())
}

/// The report of `dflock bench`.
fn report(
    server: &Daemon,
    connections: u32,
    length: Duration,
    options: &[&str],
) -> Result<Value, Box<dyn Error>> {
    let ours = || testbed::program("dflock", "dflock", &["cli"]);
    let output = Command::new(word_after("load=").map_or_else(ours, PathBuf::from))
        .env_clear()
        .args(["--json", "--server", &server.address.to_string(), "bench"])
        .args(["--connections", &connections.to_string()])
        .args(["--duration", &length.as_secs().to_string()])
        .args(["--warm-up", &WARM_UP.as_millis().to_string()])
        .args(options)
        .stderr(Stdio::inherit())
        .output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn figure(report: &Value, place: &str) -> f64 {
    report.pointer(place).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

fn load(
    server: &Daemon,
    connections: u32,
    length: Duration,
    options: &[&str],
) -> Result<Measured, Box<dyn Error>> {
    let before = server.cpu_ticks();
    let report = report(server, connections, length, options)?;
    let ticks = server.cpu_ticks() - before;
    let cpu = Duration::from_millis(ticks * 1000 / ticks_per_second());
    let is_clean =
        report.get("refusals").and_then(Value::as_object).is_some_and(|it| it.is_empty());
    if !is_clean || figure(&report, "/closed") + figure(&report, "/overlaps") > 0.0 {
        return Err(format!("the server did not behave:\n{report}").into());
    }
    // The processor time includes the warm-up, the pairs do not: scale them to the same span.
    let share = length.as_secs_f64() / (length + WARM_UP).as_secs_f64();
    Ok(Measured {
        rate: figure(&report, "/pairs_per_s"),
        cpu_us: cpu.as_secs_f64() * 1e6 * share / figure(&report, "/pairs").max(1.0),
        p999_us: figure(&report, "/pair_us/p999"),
        load_us: figure(&report, "/client_cpu_s") * 1e6 / figure(&report, "/pairs").max(1.0),
    })
}

#[derive(Default)]
struct Row {
    columns: [Vec<f64>; 10],
}

impl Row {
    fn add(&mut self, floor: &Measured, ours: &Measured) {
        let figures = [
            floor.rate,
            ours.rate,
            ours.rate / floor.rate,
            floor.cpu_us,
            ours.cpu_us,
            ours.cpu_us / floor.cpu_us,
            floor.p999_us,
            ours.p999_us,
            ours.p999_us / floor.p999_us,
            ours.load_us,
        ];
        for (column, figure) in self.columns.iter_mut().zip(figures) {
            column.push(figure);
        }
    }

    fn print(&mut self, connections: u32) {
        let [a, b, rate, c, d, cpu, e, f, p999, load] = self.columns.each_mut().map(|c| median(c));
        print!(
            "{connections:>6} {a:>12.0} {b:>12.0} {rate:>9.3} {c:>10.2} {d:>10.2} {cpu:>9.3} {e:>10.0} {f:>10.0} {p999:>9.3} {load:>8.2}"
        );
    }

    fn print_of(&mut self, allowed: f64) {
        let [floor, ours, ..] = self.columns.each_mut().map(|column| median(column));
        print!("  {:.2} of {:.0}", ours / allowed.min(floor), allowed.min(floor));
    }
}

fn median(column: &mut [f64]) -> f64 {
    column.sort_by(f64::total_cmp);
    column.get(column.len() / 2).copied().unwrap_or(f64::NAN)
}

fn ticks_per_second() -> u64 {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    ticks.and_then(|ticks| u64::try_from(ticks).ok()).filter(|&ticks| ticks > 0).unwrap_or(100)
}

/// A `name=number` argument, or what holds without it.
fn argument(name: &str, default: u64) -> u64 {
    let word = word_after(&format!("{name}="));
    word.and_then(|word| word.parse().ok()).unwrap_or(default)
}

/// What an argument has behind its start.
fn word_after(start: &str) -> Option<String> {
    std::env::args().find_map(|word| Some(word.strip_prefix(start)?.to_owned()))
}
