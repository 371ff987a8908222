//! Runs a plan: a task for each connection, all in one thread.
//!
//! Ends in bounded time, whatever the server does: a run by time at its end plus a grace for outstanding answers, a run
//! by pairs when no answer comes for a while.

use super::super::outcome::Failure;
use super::ledger::Ledger;
use super::plan::{Keys, Length, Plan};
use super::report::Report;
use crate::dialogue::{self, Abilities};
use crate::terms::{Key, Kind, Seconds, Token};
use crate::transport::Stream;
use crate::{ClientError, Connection, ServerAddress, Settings};
use leases::wire::Ask;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, rlim_t, setrlimit};
use nix::sys::time::TimeVal;
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// How long answers under way are waited for when the time is over.
const GRACE: Duration = Duration::from_secs(3);
/// No answer to a lock command is longer.
const MAX_ANSWER_BYTES: u64 = 256;

/// Opens all connections, drives them to the end of the plan, closes them. Connections that the server closes during
/// the run are counted in the report.
pub(super) async fn run(
    plan: Plan,
    server: &ServerAddress,
    settings: &Settings,
) -> Result<Report, Failure> {
    allow_descriptors(plan.connections);
    let mut connections = Vec::new();
    for _ in 0..plan.connections {
        let mut connection = Connection::open(server, settings).await?;
        let abilities = connection.hello().await?;
        connections.push((connection.into_stream(), abilities));
    }
    let course = Course::begin(&plan)?;
    let plan = Arc::new(plan);
    let cpu_before = cpu_time();
    let mut tasks = JoinSet::new();
    for (number, (stream, abilities)) in (0..).zip(connections) {
        let lanes = Lanes::new(Arc::clone(&plan), number, abilities);
        tasks.spawn(drive(stream, lanes, Arc::clone(&course)));
    }
    let mut end = pin!(end(&plan, &course));
    loop {
        tokio::select! {
            biased;
            ended = tasks.join_next() => match ended {
                Some(Ok(Ok(()))) => {}
                Some(_) => lock(&course).report.closed += 1,
                None => break,
            },
            () = &mut end => break,
        }
    }
    tasks.shutdown().await;
    let mut course = lock(&course);
    course.stop();
    let mut report = std::mem::take(&mut course.report);
    report.client_cpu = cpu_time().saturating_sub(cpu_before);
    report.overlaps = course.ledger.overlaps;
    report.fence_regressions = course.ledger.fence_regressions;
    Ok(report)
}

/// Stops the run at its end. Resolves when no further answer is waited for.
async fn end(plan: &Plan, course: &Mutex<Course>) {
    match plan.length {
        Length::Time(time) => {
            let end = lock(course).measure_from + time;
            sleep_until(end).await;
            lock(course).stop();
            sleep(GRACE).await;
        }
        Length::Pairs(_) => loop {
            let before = lock(course).answers;
            sleep(plan.timeout + GRACE).await;
            if lock(course).answers == before {
                return;
            }
        },
    }
}

/// What the connections of a run share.
struct Course {
    keys: Vec<Key>,
    ledger: Ledger,
    report: Report,
    answers: u64,
    /// Pairs that end from here on count.
    measure_from: Instant,
    /// Pairs that may still be started. `None`: as many as fit into the time.
    pairs_left: Option<u64>,
    is_over: bool,
}

fn lock(course: &Mutex<Course>) -> MutexGuard<'_, Course> {
    course.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Course {
    fn begin(plan: &Plan) -> Result<Arc<Mutex<Self>>, ClientError> {
        let count = plan.key_count();
        let keys = (0..count).map(|number| Key::new(format!("{}-{number}", plan.key_prefix)));
        let (connections, depth) = (plan.connections, plan.depth);
        Ok(Arc::new(Mutex::new(Self {
            keys: keys.collect::<Result<_, _>>()?,
            ledger: Ledger::new(count, plan.holders()),
            report: Report { connections, keys: count, depth, ..Report::default() },
            answers: 0,
            measure_from: Instant::now() + plan.warm_up,
            pairs_left: match plan.length {
                Length::Time(_) => None,
                Length::Pairs(count) => Some(count),
            },
            is_over: false,
        })))
    }

    /// No further pair is started.
    fn stop(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.report.elapsed = Instant::now().saturating_duration_since(self.measure_from);
        }
    }

    fn may_start(&mut self) -> bool {
        match &mut self.pairs_left {
            _ if self.is_over => false,
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    fn refused(&mut self, line: &str) {
        let word = line.split(' ').next().filter(|word| !word.is_empty()).unwrap_or("(empty line)");
        *self.report.refusals.entry(word.escape_debug().to_string()).or_default() += 1;
    }
}

/// The pairs of one connection, each in its own lane.
struct Lanes {
    plan: Arc<Plan>,
    kind: Kind,
    abilities: Abilities,
    lanes: Vec<Lane>,
    /// The lanes that await an answer, in the order of the requests.
    expected: VecDeque<usize>,
    /// Requests to be sent.
    outbox: Vec<u8>,
}

struct Lane {
    key: usize,
    started: Instant,
    is_releasing: bool,
}

impl Lanes {
    fn new(plan: Arc<Plan>, number: u32, abilities: Abilities) -> Self {
        let first = match plan.keys {
            Keys::Own => number.saturating_mul(plan.depth),
            Keys::Shared(count) => number.checked_rem(count).unwrap_or(0),
        };
        let started = Instant::now();
        let lane = |n: u32| Lane {
            key: usize::try_from(first.saturating_add(n)).unwrap_or(usize::MAX),
            started,
            is_releasing: false,
        };
        let kind = match (plan.is_shared, plan.limit) {
            (true, _) => Kind::Shared,
            (false, 1) => Kind::Lock,
            (false, limit) => Kind::Semaphore(limit),
        };
        let lanes = (0..plan.depth).map(lane).collect();
        Self { plan, kind, abilities, lanes, expected: VecDeque::new(), outbox: Vec::new() }
    }

    fn start(&mut self, course: &mut Course) {
        for lane in 0..self.lanes.len() {
            self.start_pair(lane, course);
        }
    }

    fn start_pair(&mut self, at: usize, course: &mut Course) {
        let Some(lane) = self.lanes.get_mut(at).filter(|_| course.may_start()) else { return };
        if let Keys::Shared(_) = self.plan.keys {
            lane.key = (lane.key + 1).checked_rem(course.keys.len()).unwrap_or(0);
        }
        (lane.started, lane.is_releasing) = (Instant::now(), false);
        let Some(key) = course.keys.get(lane.key) else { return };
        let timeout = Seconds::to_wait(self.plan.timeout).unwrap_or_default().count();
        let ttl = Seconds::of_lease(self.plan.ttl).ok().map(Seconds::count);
        let ask = Ask::Acquire { key: key.as_bytes(), kind: self.kind, timeout, ttl };
        self.outbox.extend(ask.to_bytes());
        self.expected.push_back(at);
    }

    fn answer(&mut self, line: &str, course: &mut Course) -> io::Result<()> {
        let at = self.expected.pop_front().ok_or(io::ErrorKind::InvalidData)?;
        course.answers += 1;
        let Some(lane) = self.lanes.get_mut(at) else { return Ok(()) };
        let now = Instant::now();
        let time = now.saturating_duration_since(lane.started);
        let counts = now >= course.measure_from;
        if lane.is_releasing {
            if line != "ok" {
                course.refused(line);
            } else if counts {
                course.report.pairs += 1;
                course.report.pair.record(time);
            }
            self.start_pair(at, course);
            return Ok(());
        }
        let Ok(Some(grant)) = dialogue::grant(line, self.abilities) else {
            course.refused(line);
            self.start_pair(at, course);
            return Ok(());
        };
        if counts {
            course.report.acquire.record(time);
        }
        course.ledger.granted(lane.key, grant.fence);
        course.ledger.releasing(lane.key);
        lane.is_releasing = true;
        let key = lane.key;
        self.release(at, key, &grant.token, course);
        Ok(())
    }

    fn release(&mut self, at: usize, key: usize, token: &Token, course: &Course) {
        let Some(key) = course.keys.get(key) else { return };
        let (key, token) = (key.as_bytes(), token.as_str());
        self.outbox.extend(Ask::Release { key, kind: self.kind, token }.to_bytes());
        self.expected.push_back(at);
    }
}

/// One connection, until nothing more is to be asked.
async fn drive(
    mut stream: BufReader<Box<dyn Stream>>,
    mut lanes: Lanes,
    course: Arc<Mutex<Course>>,
) -> io::Result<()> {
    lanes.start(&mut lock(&course));
    let mut line = String::new();
    while !lanes.expected.is_empty() {
        if !stream.buffer().contains(&b'\n') {
            stream.get_mut().write_all(&lanes.outbox).await?;
            stream.get_mut().flush().await?;
            lanes.outbox.clear();
        }
        line.clear();
        (&mut stream).take(MAX_ANSWER_BYTES).read_line(&mut line).await?;
        let answer = line.strip_suffix('\n').ok_or(io::ErrorKind::UnexpectedEof)?;
        lanes.answer(answer.trim_end_matches('\r'), &mut lock(&course))?;
    }
    Ok(())
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
