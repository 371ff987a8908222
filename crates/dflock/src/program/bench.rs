//! `dflock bench`: loads a server over many connections, each a task of one thread, and checks that the locks really
//! excluded.
//!
//! Ends in bounded time, whatever the server does: a run by time at its end plus a grace for outstanding answers, a run
//! by pairs when no answer comes for a while.
//!
//! The results are the latencies and the holders of each key, as a table for people and as JSON for programs.
//! Latencies are counted by size. A value keeps its seven leading bits, so a quantile is at most 1.6 % above the value it
//! stands for, and there are few different ones.
//!
//! The ledger of holders detects a server that grants too much. A key counts as held from the moment when its grant is
//! read until just before its release is written. So the count is never too high, and a count above the limit is an
//! error of the server.

use super::args::{Bench, Reach};
use super::outcome::{Failure, answer};
use super::reach;
use crate::dialogue::{self, Abilities};
use crate::terms::{Key, Kind, seconds, seconds_to_wait};
use crate::{ClientError, Connection, ServerAddress, Settings};
use leases::wire::Ask;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, rlim_t, setrlimit};
use nix::sys::time::TimeVal;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use wrapcmd::Form;

pub(super) async fn bench(bench: Bench, reach: &Reach, form: Form) -> Result<u8, Failure> {
    let settings = reach::settings(reach)?;
    let [server] = settings.servers.addresses() else {
        return Err(Failure::Usage("bench loads one server; give --server once".to_owned()));
    };
    if bench.depth > 1 && bench.keys.is_some() {
        let words = "shared keys need a pipelining depth of 1: requests of one connection are served in order, so an \
                     acquire would wait for a release behind it";
        return Err(Failure::Usage(words.to_owned()));
    }
    let report = run(bench, server, &settings).await?;
    answer(form, || report.to_string(), || report.to_json())?;
    Ok(u8::from(report.ledger.overlaps > 0))
}

/// How long answers under way are waited for when the time is over.
const GRACE: Duration = Duration::from_secs(3);

/// Opens all connections, drives them to the end of the plan, closes them. Connections that the server closes during
/// the run are counted in the report.
async fn run(plan: Bench, server: &ServerAddress, settings: &Settings) -> Result<Report, Failure> {
    allow_descriptors(plan.connections);
    let mut course = Course::of(plan)?;
    let mut connections = Vec::new();
    for _ in 0..course.plan.connections {
        let mut connection = Connection::open(server, settings).await?;
        let abilities = connection.hello().await?;
        connections.push((connection, abilities));
    }
    course.measure_from = Instant::now() + Duration::from_millis(course.plan.warm_up.into());
    let course = Arc::new(course);
    let cpu_before = cpu_time();
    let mut tasks = JoinSet::new();
    for (number, (connection, abilities)) in (0..).zip(connections) {
        let course = Arc::clone(&course);
        tasks.spawn(async move { course.drive(number, connection, abilities).await });
    }
    let mut end = pin!(course.end());
    loop {
        tokio::select! {
            biased;
            ended = tasks.join_next() => match ended {
                Some(Ok(Ok(()))) => {}
                Some(_) => course.tally().report.closed += 1,
                None => break,
            },
            () = &mut end => break,
        }
    }
    tasks.shutdown().await;
    course.stop();
    let mut tally = course.tally();
    tally.report.client_cpu = cpu_time().saturating_sub(cpu_before);
    Ok(std::mem::take(&mut tally.report))
}

/// What the connections of a run share.
struct Course {
    plan: Bench,
    kind: Kind,
    /// Each with the request for it.
    keys: Vec<(Key, Vec<u8>)>,
    /// Pairs that end from here on count.
    measure_from: Instant,
    tally: Mutex<Tally>,
}

struct Tally {
    report: Report,
    answers: u64,
    /// Pairs that may still be started. `None`: as many as fit into the time.
    pairs_left: Option<u64>,
    is_over: bool,
}

impl Course {
    /// # Errors
    /// A prefix or a time that the protocol cannot express.
    fn of(plan: Bench) -> Result<Self, ClientError> {
        seconds_to_wait(seconds(plan.timeout.max(plan.ttl)))?;
        let (connections, depth, count) = (plan.connections, plan.depth, plan.key_count());
        let kind = match (plan.shared, plan.limit) {
            (true, _) => Kind::Shared,
            (false, 1) => Kind::Lock,
            (false, limit) => Kind::Semaphore(limit),
        };
        let (timeout, ttl) = (plan.timeout, Some(plan.ttl));
        let key = |number| {
            let key = Key::new(format!("{}-{number}", plan.prefix))?;
            let request = Ask::Acquire { key: key.as_bytes(), kind, timeout, ttl }.to_bytes();
            Ok::<_, ClientError>((key, request))
        };
        let keys = (0..count).map(key).collect::<Result<_, _>>()?;
        let ledger = Ledger::new(count, plan.holders());
        let tally = Tally {
            report: Report { connections, keys: count, depth, ledger, ..Report::default() },
            answers: 0,
            pairs_left: plan.pairs,
            is_over: false,
        };
        Ok(Self { plan, kind, keys, measure_from: Instant::now(), tally: Mutex::new(tally) })
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the run at its end. Resolves when no further answer is waited for.
    async fn end(&self) {
        if self.plan.pairs.is_none() {
            sleep_until(self.measure_from + seconds(self.plan.duration)).await;
            self.stop();
            return sleep(GRACE).await;
        }
        loop {
            let before = self.tally().answers;
            sleep(seconds(self.plan.timeout) + GRACE).await;
            if self.tally().answers == before {
                return;
            }
        }
    }

    /// No further pair is started.
    fn stop(&self) {
        let mut tally = self.tally();
        if !std::mem::replace(&mut tally.is_over, true) {
            tally.report.elapsed = self.measure_from.elapsed();
        }
    }

    /// One connection, until no further pair is started. In each round as many pairs as the plan says are under way at
    /// once.
    async fn drive(
        &self,
        number: u32,
        mut connection: Connection,
        abilities: Abilities,
    ) -> Result<(), ClientError> {
        let (kind, is_shared) = (self.kind, self.plan.keys.is_some());
        // With shared keys, each pair has the next one.
        let begin = usize::try_from(if is_shared { number } else { number * self.plan.depth });
        let (mut begin, depth) =
            (begin.unwrap_or(0), usize::try_from(self.plan.depth).unwrap_or(1));
        let mut requests = Vec::new();
        loop {
            begin += usize::from(is_shared);
            let numbers = (begin..).map(|number| number % self.keys.len()).take(depth);
            let round: Vec<_> = numbers.filter(|_| self.tally().may_start()).collect();
            if round.is_empty() {
                return Ok(());
            }
            let keys = round.iter().filter_map(|at| self.keys.get(*at));
            keys.for_each(|(_, acquire)| requests.extend_from_slice(acquire));
            let started = Instant::now();
            connection.send(&requests).await?;
            requests.clear();
            let mut held = Vec::with_capacity(round.len());
            for at in round {
                let line = connection.answer().await?;
                let mut tally = self.tally();
                tally.answers += 1;
                let granted = dialogue::grant(&line, kind, abilities).ok().flatten();
                let (Some(grant), Some((key, _))) = (granted, self.keys.get(at)) else {
                    tally.refused(&line);
                    continue;
                };
                let now = Instant::now();
                if now >= self.measure_from {
                    tally.report.acquire.record(now - started);
                }
                tally.report.ledger.granted(at, grant.fence);
                let (key, token) = (key.as_bytes(), grant.token.as_str());
                requests.extend(Ask::Release { key, kind, token }.to_bytes());
                held.push(at);
            }
            // Before it is sent: the next grant may be read before the answer to the release.
            self.tally().report.ledger.releasing(&held);
            connection.send(&requests).await?;
            requests.clear();
            for _ in held {
                let line = connection.answer().await?;
                let mut tally = self.tally();
                tally.answers += 1;
                let now = Instant::now();
                if line != "ok" {
                    tally.refused(&line);
                } else if now >= self.measure_from {
                    tally.report.pairs += 1;
                    tally.report.pair.record(now - started);
                }
            }
        }
    }
}

impl Tally {
    fn may_start(&mut self) -> bool {
        let may = !self.is_over && self.pairs_left != Some(0);
        if let Some(left) = self.pairs_left.as_mut().filter(|_| may) {
            *left -= 1;
        }
        may
    }

    fn refused(&mut self, line: &str) {
        let word = line.split(' ').next().filter(|word| !word.is_empty()).unwrap_or("(empty line)");
        *self.report.refusals.entry(word.escape_debug().to_string()).or_default() += 1;
    }
}

/// Raises the soft limit of open files if the run needs more. If that fails, the connection that does not fit says so.
fn allow_descriptors(connections: u32) {
    let needed = rlim_t::from(connections).saturating_add(64);
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if soft < needed {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard);
        }
    }
}

/// User and system time of this process so far.
fn cpu_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let time = |value: TimeVal| {
        let seconds = Duration::from_secs(u64::try_from(value.tv_sec()).unwrap_or(0));
        seconds + Duration::from_micros(u64::try_from(value.tv_usec()).unwrap_or(0))
    };
    time(usage.user_time()) + time(usage.system_time())
}

/// The result of a load run. Only pairs that ended after the warm-up are in the figures; refusals
/// and violations are counted from the first request on.
#[derive(Clone, Default)]
struct Report {
    /// Connections of the run.
    connections: u32,
    /// Different keys of the run.
    keys: u32,
    /// Pairs under way per connection.
    depth: u32,
    /// Measured time.
    elapsed: Duration,
    /// Completed pairs.
    pairs: u64,
    /// From sending the acquire to reading the answer to the release.
    pair: Histogram,
    /// From sending the acquire to reading the grant.
    acquire: Histogram,
    /// Answers that were neither grant nor `ok`.
    refusals: BTreeMap<String, u64>,
    /// Connections the server closed.
    closed: u64,
    /// The holders of each key.
    ledger: Ledger,
    /// User and system time this process spent in the measured time.
    client_cpu: Duration,
}

impl Report {
    /// Completed pairs per second of measured time.
    fn pairs_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.pairs as f64 / seconds } else { 0.0 }
    }

    /// One JSON object on one line; times in microseconds.
    fn to_json(&self) -> serde_json::Value {
        let refusals: serde_json::Map<String, serde_json::Value> =
            self.refusals.iter().map(|(word, count)| (word.clone(), (*count).into())).collect();
        serde_json::json!({
            "connections": self.connections,
            "keys": self.keys,
            "depth": self.depth,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "pairs": self.pairs,
            "pairs_per_s": self.pairs_per_second(),
            "pair_us": latencies(&self.pair),
            "acquire_us": latencies(&self.acquire),
            "refusals": refusals,
            "closed": self.closed,
            "overlaps": self.ledger.overlaps,
            "fence_regressions": self.ledger.fence_regressions,
            "client_cpu_s": self.client_cpu.as_secs_f64(),
        })
    }
}

fn latencies(row: &Histogram) -> serde_json::Value {
    columns(row).into_iter().map(|(name, micros)| (name.to_owned(), micros)).collect()
}

/// In microseconds, to a tenth of one, which is below what a clock reading costs.
fn columns(row: &Histogram) -> [(&'static str, f64); 6] {
    [
        ("mean", row.mean()),
        ("p50", row.quantile(500)),
        ("p90", row.quantile(900)),
        ("p99", row.quantile(990)),
        ("p999", row.quantile(999)),
        ("max", row.max()),
    ]
    .map(|(name, time)| (name, (time.as_secs_f64() * 1e7).round() / 10.0))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} connections, {} keys, depth {}: {} pairs in {:.2} s = {:.0} pairs/s",
            self.connections,
            self.keys,
            self.depth,
            self.pairs,
            self.elapsed.as_secs_f64(),
            self.pairs_per_second(),
        )?;
        writeln!(
            f,
            "{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>11}",
            "us", "mean", "p50", "p90", "p99", "p99.9", "max"
        )?;
        row(f, "pair", &self.pair)?;
        row(f, "acquire", &self.acquire)?;
        for (word, count) in &self.refusals {
            writeln!(f, "refused {count} times: {word}")?;
        }
        if self.closed > 0 {
            writeln!(f, "closed by the server: {} connections", self.closed)?;
        }
        let Ledger { overlaps, fence_regressions, .. } = self.ledger;
        if overlaps > 0 {
            writeln!(f, "FAULT: {overlaps} grants beyond the limit")?;
        }
        if fence_regressions > 0 {
            writeln!(f, "fencing numbers that did not grow: {fence_regressions}")?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, row: &Histogram) -> fmt::Result {
    let [times @ .., (_, max)] = columns(row);
    write!(f, "{name:>10}")?;
    times.iter().try_for_each(|(_, time)| write!(f, "{time:>10.1}"))?;
    writeln!(f, "{max:>11.1}")
}

/// Counts of values by size.
#[derive(Clone, Default)]
struct Histogram {
    /// By the greatest value with the same leading bits, in nanoseconds.
    counts: BTreeMap<u64, u64>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Histogram {
    /// Counts one value.
    fn record(&mut self, value: Duration) {
        let nanos = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        *self.counts.entry(rounded_up(nanos)).or_default() += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    /// The largest value, exact.
    fn max(&self) -> Duration {
        self.max
    }

    /// The arithmetic mean, zero when empty.
    fn mean(&self) -> Duration {
        let mean = self.sum.as_nanos().checked_div(self.count.into()).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The value below or at which `per_mille` thousandths of all values lie, rounded up but never above the maximum.
    /// Zero when empty.
    fn quantile(&self, per_mille: u32) -> Duration {
        let wanted = (u128::from(self.count) * u128::from(per_mille.min(1000))).div_ceil(1000);
        let mut seen = 0_u128;
        let found = self.counts.iter().find(|(_, count)| {
            seen += u128::from(**count);
            seen >= wanted
        });
        found.map_or(Duration::ZERO, |(&nanos, _)| Duration::from_nanos(nanos).min(self.max))
    }
}

fn rounded_up(value: u64) -> u64 {
    let bits = value.checked_ilog2().unwrap_or(0).saturating_sub(6);
    value | ((1 << bits) - 1)
}

/// Per key: holders now, and the fencing number of the last grant.
#[derive(Clone, Default)]
struct Ledger {
    keys: Vec<KeyHolders>,
    limit: u32,
    /// Grants beyond the limit.
    overlaps: u64,
    /// Grants whose fencing number was not above the one before (counted for locks only: the
    /// answers to two holders of one semaphore may be read in either order).
    fence_regressions: u64,
}

#[derive(Clone, Copy, Default)]
struct KeyHolders {
    holders: u32,
    fence: u64,
}

impl Ledger {
    fn new(keys: u32, limit: u32) -> Self {
        let keys = usize::try_from(keys).unwrap_or(usize::MAX);
        let keys = vec![KeyHolders::default(); keys];
        Self { keys, limit, overlaps: 0, fence_regressions: 0 }
    }

    fn granted(&mut self, key: usize, fence: Option<u64>) {
        let Some(entry) = self.keys.get_mut(key) else { return };
        entry.holders += 1;
        if entry.holders > self.limit {
            self.overlaps += 1;
        }
        let Some(fence) = fence else { return };
        if self.limit == 1 && fence <= entry.fence {
            self.fence_regressions += 1;
        }
        entry.fence = fence;
    }

    fn releasing(&mut self, keys: &[usize]) {
        for key in keys {
            if let Some(entry) = self.keys.get_mut(*key) {
                entry.holders = entry.holders.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Histogram, Ledger, rounded_up};
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case(0, 0)]
    #[case(127, 127)]
    #[case(128, 129)]
    #[case(129, 129)]
    #[case(1_000_000, 1_007_615)]
    #[case(u64::MAX - 1, u64::MAX)]
    #[case(u64::MAX, u64::MAX)]
    fn a_value_keeps_its_leading_bits(#[case] value: u64, #[case] want: u64) {
        assert_eq!(rounded_up(value), want);
        assert!(want - value <= value / 64);
    }

    #[test]
    fn quantiles_of_a_known_row() {
        let mut row = Histogram::default();
        for value in 1..=1000_u64 {
            row.record(Duration::from_nanos(value * 1000));
        }
        assert_eq!(row.count, 1000);
        assert_eq!(row.mean(), Duration::from_nanos(500_500));
        assert_eq!(row.max(), Duration::from_millis(1));
        for (per_mille, exact) in [(500, 500_000_u128), (990, 990_000), (999, 999_000)] {
            let got = row.quantile(per_mille).as_nanos();
            assert!(got >= exact && got <= exact + exact / 60, "{per_mille}: {got}");
        }
        assert_eq!(row.quantile(1000), row.max());
    }

    #[test]
    fn a_second_holder_and_a_fence_that_goes_back_are_counted() {
        let mut ledger = Ledger::new(2, 1);
        ledger.granted(0, Some(5));
        ledger.granted(1, Some(6));
        assert_eq!((ledger.overlaps, ledger.fence_regressions), (0, 0));
        ledger.granted(0, Some(7));
        assert_eq!((ledger.overlaps, ledger.fence_regressions), (1, 0));
        ledger.releasing(&[0]);
        ledger.releasing(&[0]);
        ledger.granted(0, Some(7));
        assert_eq!((ledger.overlaps, ledger.fence_regressions), (1, 1));
    }

    #[test]
    fn a_semaphore_may_have_its_limit_of_holders_in_any_order() {
        let mut ledger = Ledger::new(1, 2);
        ledger.granted(0, Some(9));
        ledger.granted(0, Some(8));
        assert_eq!((ledger.overlaps, ledger.fence_regressions), (0, 0));
        ledger.granted(0, Some(10));
        assert_eq!(ledger.overlaps, 1);
    }
}
