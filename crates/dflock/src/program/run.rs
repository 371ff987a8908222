//! `dflock run`: the lease lives as long as the command, and the command no longer than the lease.

use super::args::Run;
use super::ask;
use super::child::{Change, Child};
use super::complain;
use super::outcome::Failure;
use super::signals::{ENDING, Signals};
use super::terminal::{Terminal, in_pipeline};
use crate::{Client, Lease, Loss};
use nix::sys::signal::{Signal, raise};
use std::ffi::OsString;
use std::future::pending;
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until, timeout};

/// What is heard while the command runs. All but SIGCHLD and SIGCONT are passed on.
const HEARD: [Signal; 9] = [
    Signal::SIGCHLD,
    Signal::SIGCONT,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
];
/// How often an emptying process group is looked at while it is being stopped.
const STOP_POLL: Duration = Duration::from_millis(10);
/// What KILL may take, so that the command is gone when the lease ends and not a little later.
const KILL_TIME: Duration = Duration::from_millis(200);
/// After KILL only the kernel is waited for.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How long before the end of a lease that cannot be renewed the command is told to stop.
pub(super) fn margin(run: &Run) -> Duration {
    Duration::from_secs(run.grace.into()) + KILL_TIME
}

/// As much of the margin as there is room for (see `Settings::margin`), less the time to die.
fn grace(run: &Run, lease: &Lease) -> Duration {
    margin(run).min(lease.renewal_interval()).saturating_sub(KILL_TIME)
}

pub(super) async fn run(run: &Run, client: Client, json: bool) -> Result<u8, Failure> {
    // Until the lock is ours, signals end this process as they end any other, and the place in
    // the line with it.
    let lease = tokio::select! {
        lease = ask::lease(&run.claimed, &client, json) => lease?,
        code = told_to_end_as_process_1() => return code,
    };
    let Some(lease) = lease else { return not_granted(run, json) };
    let granted_at = Instant::now();
    let signals = match Signals::catch(&HEARD) {
        Ok(signals) => signals,
        Err(error) => return give_up(lease, Failure::System("signals", error)).await,
    };
    match start(run, &lease) {
        Ok(child) => {
            let grace = grace(run, &lease);
            let hold_until = run.hold_for.map(|s| granted_at + Duration::from_secs(s.into()));
            let (terminal, is_on_stage) = (Terminal::controlling(), !in_pipeline());
            let held = Held { lease, child, terminal, is_on_stage, signals, grace, hold_until };
            held.see_through(json).await
        }
        Err(failure) => give_up(lease, failure).await,
    }
}

/// The first process of a container does not die of signals by itself (pid_namespaces(7)).
async fn told_to_end_as_process_1() -> Result<u8, Failure> {
    if std::process::id() != 1 {
        return pending().await;
    }
    let mut signals = Signals::catch(&ENDING).map_err(|error| Failure::System("signals", error))?;
    let signal = signals.next().await;
    Ok(wrapcmd::exit::by_signal(signal as i32))
}

/// Nothing was started: what went wrong matters more than whether the release went well.
async fn give_up(lease: Lease, failure: Failure) -> Result<u8, Failure> {
    let _ = lease.release().await;
    Err(failure)
}

fn not_granted(run: &Run, json: bool) -> Result<u8, Failure> {
    let failure = ask::not_granted(&run.claimed);
    match run.busy_exit_code {
        None => Err(failure),
        Some(code) => {
            complain(&failure, json);
            Ok(code)
        }
    }
}

fn start(run: &Run, lease: &Lease) -> Result<Child, Failure> {
    let fence = lease.fence().map(|fence| OsString::from(fence.to_string()));
    let token = OsString::from(lease.token().as_str());
    let mut additions = vec![("DFLOCK_KEY", run.claimed.key.as_os_str()), ("DFLOCK_TOKEN", &token)];
    if let Some(fence) = &fence {
        additions.push(("DFLOCK_FENCE", fence));
    }
    Child::start(&run.command, &additions)
}

/// A running command under a held lease.
struct Held {
    lease: Lease,
    child: Child,
    terminal: Terminal,
    /// Whether the command is to have the terminal whenever we have it.
    is_on_stage: bool,
    signals: Signals,
    grace: Duration,
    /// The lock is to be held until then, even if the command ends sooner.
    hold_until: Option<Instant>,
}

impl Held {
    async fn see_through(mut self, json: bool) -> Result<u8, Failure> {
        if self.is_on_stage && self.terminal.is_ours() {
            // It may have reached for the terminal before it is in the foreground.
            self.resume();
        }
        let outcome = self.wait().await;
        match outcome {
            Err(loss) => {
                complain(&Failure::Lost(loss), json);
                self.stop().await;
                self.terminal.take_back(self.child.group());
                Ok(Failure::Lost(loss).exit_code())
            }
            Ok(code) => {
                self.terminal.take_back(self.child.group());
                self.linger().await;
                if let Err(error) = self.lease.release().await {
                    complain(&Failure::Client(error), json);
                }
                Ok(code)
            }
        }
    }

    /// Until the command ends or the lease is lost; signals pass through meanwhile.
    async fn wait(&mut self) -> Result<u8, Loss> {
        loop {
            match self.child.change() {
                Change::Ended(code) => return Ok(code),
                Change::Stopped(signal) => self.stopped(signal)?,
                Change::Nothing => {}
            }
            tokio::select! {
                biased;
                loss = self.lease.lost() => return Err(loss),
                signal = self.signals.next() => self.pass_on(signal),
            }
        }
    }

    /// Holds on without the command, until the time has passed or somebody wants an end.
    async fn linger(&mut self) {
        let Some(until) = self.hold_until else { return };
        loop {
            tokio::select! {
                () = sleep_until(until.into()) => return,
                _ = self.lease.lost() => return,
                signal = self.signals.next() => if ENDING.contains(&signal) { return },
            }
        }
    }

    fn pass_on(&self, signal: Signal) {
        if signal == Signal::SIGCONT {
            self.resume();
        } else if signal != Signal::SIGCHLD {
            self.child.signal(signal);
        }
    }

    /// The terminal has stopped the command, by Ctrl-Z or because it reached for the terminal
    /// from the background. Who stopped it otherwise will continue it, too.
    fn stopped(&mut self, signal: Signal) -> Result<(), Loss> {
        let reached = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if !reached && signal != Signal::SIGTSTP {
            return Ok(());
        }
        self.is_on_stage |= reached;
        if !(reached && self.terminal.is_ours()) {
            self.pause()?;
        }
        if self.terminal.is_ours() || !reached {
            self.resume();
        }
        Ok(())
    }

    /// Stops as well, for the shell to see. Nobody renews meanwhile; if the lease is over when we
    /// wake, the command must not go on.
    fn pause(&self) -> Result<(), Loss> {
        self.terminal.take_back(self.child.group());
        // Not SIGSTOP: where no shell is there to continue us, the kernel leaves this one out.
        let _ = raise(Signal::SIGTTIN);
        match self.lease.held_until() {
            Some(until) if until > Instant::now() => Ok(()),
            Some(_) | None => Err(Loss::Unreachable),
        }
    }

    fn resume(&self) {
        if self.is_on_stage {
            self.terminal.lend(self.child.group());
        }
        self.child.signal(Signal::SIGCONT);
    }

    /// TERM, and KILL for whoever is left after the grace.
    async fn stop(&mut self) {
        self.child.signal(Signal::SIGTERM);
        self.child.signal(Signal::SIGCONT);
        if timeout(self.grace, self.emptied()).await.is_err() {
            self.child.signal(Signal::SIGKILL);
            let _ = timeout(KILL_LIMIT, self.emptied()).await;
        }
    }

    async fn emptied(&self) {
        loop {
            // Reaps the command, which else would count as somebody.
            let _ = self.child.change();
            if !self.child.is_populated() {
                return;
            }
            sleep(STOP_POLL).await;
        }
    }
}
