//! `dflock bench`: loads a server over many connections, each a task of one thread, and checks that the locks really
//! excluded.
//!
//! Ends in bounded time, whatever the server does: a run by time at its end plus a grace for outstanding answers, a run
//! by pairs when no answer comes for a while.

mod report;

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leases::wire::Ask;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, rlim_t, setrlimit};
use nix::sys::time::TimeVal;
use report::{Ledger, Report};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use wrapcmd::Form;

use super::args::{Bench, Reach};
use super::outcome::Failure;
use super::{answer, reach};
use crate::dialogue::{self, Abilities, Grant};
use crate::terms::{Key, Kind, Token, seconds, seconds_to_wait};
use crate::{ClientError, Connection, ServerAddress, Settings};

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
    keys: Vec<Key>,
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
        let key = |number| Key::new(format!("{}-{number}", plan.prefix));
        let keys = (0..count).map(key).collect::<Result<_, _>>()?;
        let kind = match (plan.shared, plan.limit) {
            (true, _) => Kind::Shared,
            (false, 1) => Kind::Lock,
            (false, limit) => Kind::Semaphore(limit),
        };
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
        let Bench { keys: shared, depth, timeout, ttl, .. } = self.plan;
        let (kind, ttl) = (self.kind, Some(ttl));
        // With shared keys, each pair has the next one.
        let begin = usize::try_from(if shared.is_some() { number } else { number * depth });
        let (mut begin, depth) = (begin.unwrap_or(0), usize::try_from(depth).unwrap_or(1));
        loop {
            begin += usize::from(shared.is_some());
            let numbers = (begin..).map(|number| number % self.keys.len()).take(depth);
            let keys = numbers.filter_map(|at| Some((at, self.keys.get(at)?)));
            let round: Vec<_> = keys.filter(|_| self.tally().may_start()).collect();
            if round.is_empty() {
                return Ok(());
            }
            let acquire = |(_, key): &(_, &Key)| {
                Ask::Acquire { key: key.as_bytes(), kind, timeout, ttl }.to_bytes()
            };
            let started = Instant::now();
            connection.send(&round.iter().flat_map(acquire).collect::<Vec<_>>()).await?;
            let mut held = Vec::new();
            for (at, key) in round {
                let line = connection.answer().await?;
                let mut tally = self.tally();
                tally.answers += 1;
                match dialogue::grant(&line, kind, abilities) {
                    Ok(Some(Grant { token, fence, .. })) => {
                        tally.report.ledger.granted(at, fence);
                        if Instant::now() >= self.measure_from {
                            tally.report.acquire.record(started.elapsed());
                        }
                        held.push((at, key, token));
                    }
                    Ok(None) | Err(_) => tally.refused(&line),
                }
            }
            let release = |(at, key, token): &(usize, &Key, Token)| {
                self.tally().report.ledger.releasing(*at);
                Ask::Release { key: key.as_bytes(), kind, token: token.as_str() }.to_bytes()
            };
            connection.send(&held.iter().flat_map(release).collect::<Vec<_>>()).await?;
            for _ in held {
                let line = connection.answer().await?;
                let mut tally = self.tally();
                tally.answers += 1;
                if line != "ok" {
                    tally.refused(&line);
                } else if Instant::now() >= self.measure_from {
                    tally.report.pairs += 1;
                    tally.report.pair.record(started.elapsed());
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
