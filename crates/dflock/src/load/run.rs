//! Runs a plan with all its connections in one thread.
//!
//! Ends in bounded time, whatever the server does: a run by time at its end plus a grace for outstanding
//! answers, a run by pairs when no answer comes for a while.

use super::connection::{Connection, Course, Requests};
use super::ledger::Ledger;
use super::plan::{Keys, Length, Plan, PlanError};
use super::report::Report;
use super::sys::{self, Ready, Watch};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// How long answers under way are waited for when the time is over.
const GRACE: Duration = Duration::from_secs(3);
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Why a run gave no report.
#[derive(Debug)]
pub enum LoadError {
    /// The plan cannot be done.
    Plan(PlanError),
    /// A connection could not be made or authenticated.
    Connect(io::Error),
    /// The system refused something else.
    System(io::Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::System(error) => write!(f, "cannot run the load: {error}"),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<Errno> for LoadError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Opens all connections, drives them to the end of the plan, closes them.
///
/// # Errors
/// A plan that cannot be done, or a server that cannot be reached. Connections the server closes
/// during the run are counted in the report instead.
pub fn run(plan: &Plan) -> Result<Report, LoadError> {
    plan.check().map_err(LoadError::Plan)?;
    allow_descriptors(plan.connections);
    let mut field = Field::open(plan)?;
    let mut course = course(plan);
    let cpu_before = cpu_time();
    field.start(&mut course)?;
    let end = match plan.length {
        Length::Time(time) => Some(course.measure_from + time),
        Length::Pairs(_) => None,
    };
    field.drive(&mut course, end, plan.timeout + GRACE)?;
    let mut report = course.report;
    report.client_cpu = cpu_time().saturating_sub(cpu_before);
    report.closed = field.closed;
    report.overlaps = course.ledger.overlaps;
    report.fence_regressions = course.ledger.fence_regressions;
    Ok(report)
}

fn course(plan: &Plan) -> Course {
    let report = Report {
        connections: plan.connections,
        keys: plan.key_count(),
        depth: plan.depth,
        ..Report::default()
    };
    Course {
        requests: Requests::new(plan),
        ledger: Ledger::new(plan.key_count(), plan.holders()),
        report,
        measure_from: Instant::now() + plan.warm_up,
        pairs_left: match plan.length {
            Length::Time(_) => None,
            Length::Pairs(count) => Some(count),
        },
        stopping: false,
        shared_keys: match plan.keys {
            Keys::Own => None,
            Keys::Shared(count) => usize::try_from(count).ok(),
        },
    }
}

/// All connections and the set they are watched in.
struct Field {
    watch: Watch,
    connections: Vec<Option<Connection>>,
    closed: u64,
}

impl Field {
    fn open(plan: &Plan) -> Result<Self, LoadError> {
        let mut watch = Watch::new()?;
        let mut connections = Vec::new();
        for number in 0..plan.connections {
            let connection = Connection::open(plan, number).map_err(LoadError::Connect)?;
            watch.add(&connection, connections.len())?;
            connections.push(Some(connection));
        }
        Ok(Self { watch, connections, closed: 0 })
    }

    fn start(&mut self, course: &mut Course) -> Result<(), LoadError> {
        for index in 0..self.connections.len() {
            let Some(Some(connection)) = self.connections.get_mut(index) else { continue };
            let outcome = connection.start(course);
            self.afterwards(index, outcome)?;
        }
        Ok(())
    }

    fn drive(
        &mut self,
        course: &mut Course,
        end: Option<Instant>,
        patience: Duration,
    ) -> Result<(), LoadError> {
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        let mut ready = Vec::new();
        let mut last_event = Instant::now();
        loop {
            let now = Instant::now();
            if !course.stopping && end.is_some_and(|end| now >= end) {
                course.stopping = true;
                course.report.elapsed = now.saturating_duration_since(course.measure_from);
            }
            let late = end.is_some_and(|end| now >= end + GRACE);
            let stuck = now.saturating_duration_since(last_event) > patience;
            if late || stuck || self.is_settled() {
                break;
            }
            match self.watch.wait(&self.connections, &mut ready) {
                Ok(()) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            if !ready.is_empty() {
                last_event = now;
            }
            for one in &ready {
                self.serve(*one, &mut buffer, course)?;
            }
        }
        if !course.stopping {
            course.report.elapsed = Instant::now().saturating_duration_since(course.measure_from);
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.connections.iter().flatten().all(Connection::is_settled)
    }

    fn serve(
        &mut self,
        ready: Ready,
        buffer: &mut [u8],
        course: &mut Course,
    ) -> Result<(), LoadError> {
        let index = ready.place;
        let Some(Some(connection)) = self.connections.get_mut(index) else { return Ok(()) };
        let had_backlog = connection.wants_write();
        let mut outcome = Ok(());
        if ready.writable {
            outcome = connection.flush();
        }
        if outcome.is_ok() && ready.readable {
            outcome = connection.readable(buffer, course);
        }
        if outcome.is_ok() && had_backlog == connection.wants_write() {
            return Ok(());
        }
        self.afterwards(index, outcome)
    }

    /// Watches for room to write when bytes are left, and lets a broken connection go.
    fn afterwards(&mut self, index: usize, outcome: io::Result<()>) -> Result<(), LoadError> {
        let Some(slot) = self.connections.get_mut(index) else { return Ok(()) };
        let Some(connection) = slot else { return Ok(()) };
        if outcome.is_err() {
            self.watch.remove(connection)?;
            *slot = None;
            self.closed += 1;
            return Ok(());
        }
        self.watch.change(connection, index)?;
        Ok(())
    }
}

/// Raises the soft limit of open files when the run needs more. Failing is no error here: opening
/// the connection that does not fit will say so.
fn allow_descriptors(connections: u32) {
    let needed = rlim_t::from(connections).saturating_add(64);
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if soft < needed {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard);
        }
    }
}

/// User and system time of this thread so far.
fn cpu_time() -> Duration {
    let Ok(usage) = sys::cpu_usage() else { return Duration::ZERO };
    let time = |value: nix::sys::time::TimeVal| {
        let seconds = u64::try_from(value.tv_sec()).unwrap_or(0);
        Duration::from_secs(seconds)
            + Duration::from_micros(u64::try_from(value.tv_usec()).unwrap_or(0))
    };
    time(usage.user_time()) + time(usage.system_time())
}
