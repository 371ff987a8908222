//! `dflock run`: the lease lives as long as the command, and the command no longer than the lease.

use super::args::Run;
use super::ask;
use super::child::{Change, Child};
use super::complain;
use super::outcome::Failure;
use super::terminal::Terminal;
use crate::client::{Client, Lease, Loss};
use nix::sys::signal::{Signal, raise};
use std::ffi::OsString;
use std::io;
use std::time::{Duration, Instant};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::{sleep, timeout};

/// How often an emptying process group is looked at while it is being stopped.
const STOP_POLL: Duration = Duration::from_millis(10);
/// After KILL only the kernel is waited for.
const KILL_LIMIT: Duration = Duration::from_secs(5);

pub(super) fn grace(run: &Run) -> Duration {
    Duration::from_secs(run.grace.into())
}

pub(super) async fn run(run: &Run, client: Client, json: bool) -> Result<u8, Failure> {
    // Until the lock is ours, signals end this process as they end any other, and the place in
    // the line with it.
    let claim = ask::claim(&run.claimed, &client)?;
    let lease = match claim.acquire(ask::timeout_s(&run.claimed)).await? {
        Some(lease) => lease,
        None => return not_granted(run, json),
    };
    let signals = Signals::catch().map_err(|error| Failure::System("signals", error))?;
    let command = Held::start(run, lease, signals);
    command?.see_through(json).await
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

/// A running command under a held lease.
struct Held {
    lease: Lease,
    child: Child,
    terminal: Option<Terminal>,
    signals: Signals,
    grace: Duration,
}

impl Held {
    fn start(run: &Run, lease: Lease, signals: Signals) -> Result<Self, Failure> {
        let fence = lease.fence().map(|fence| OsString::from(fence.to_string()));
        let token = OsString::from(lease.token().as_str());
        let mut additions =
            vec![("DFLOCK_KEY", run.claimed.key.as_os_str()), ("DFLOCK_TOKEN", &token)];
        if let Some(fence) = &fence {
            additions.push(("DFLOCK_FENCE", fence));
        }
        let terminal = Terminal::ours();
        let child = Child::start(&run.command, &additions)?;
        if let Some(terminal) = &terminal {
            terminal.lend(child.group());
            // It may have reached for the terminal before it was in the foreground.
            child.signal(Signal::SIGCONT);
        }
        let third = Duration::from_secs(lease.ttl_s().into()) / 3;
        Ok(Self { lease, child, terminal, signals, grace: grace(run).min(third) })
    }

    async fn see_through(mut self, json: bool) -> Result<u8, Failure> {
        let outcome = self.wait().await;
        match outcome {
            Err(loss) => {
                complain(&Failure::Lost(loss), json);
                self.stop().await;
                self.give_terminal_back();
                Ok(Failure::Lost(loss).exit_code())
            }
            Ok(code) => {
                self.give_terminal_back();
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
                Change::Stopped => self.pause()?,
                Change::Nothing => {}
            }
            tokio::select! {
                biased;
                loss = self.lease.lost() => return Err(loss),
                caught = self.signals.next() => match caught {
                    Caught::Child => {}
                    Caught::Forward(signal) => self.child.signal(signal),
                },
            }
        }
    }

    /// Ctrl-Z: the command was stopped, so stop as well, for the shell to see. Nobody renews
    /// meanwhile; if the lease is over when we wake, the command must not go on.
    fn pause(&mut self) -> Result<(), Loss> {
        let Some(terminal) = &self.terminal else { return Ok(()) };
        terminal.take_back();
        let _ = raise(Signal::SIGSTOP);
        match self.lease.held_until() {
            Some(until) if until > Instant::now() => {}
            Some(_) | None => return Err(Loss::Unreachable),
        }
        if terminal.is_ours() {
            terminal.lend(self.child.group());
        }
        self.child.signal(Signal::SIGCONT);
        Ok(())
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

    fn give_terminal_back(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
        }
    }
}

enum Caught {
    Child,
    Forward(Signal),
}

/// The signals that are passed on, and the one that says something became of the command.
struct Signals {
    child: unix::Signal,
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    quit: unix::Signal,
    user_1: unix::Signal,
    user_2: unix::Signal,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self {
            child: signal(SignalKind::child())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
        })
    }

    async fn next(&mut self) -> Caught {
        tokio::select! {
            _ = self.child.recv() => Caught::Child,
            _ = self.terminate.recv() => Caught::Forward(Signal::SIGTERM),
            _ = self.interrupt.recv() => Caught::Forward(Signal::SIGINT),
            _ = self.hang_up.recv() => Caught::Forward(Signal::SIGHUP),
            _ = self.quit.recv() => Caught::Forward(Signal::SIGQUIT),
            _ = self.user_1.recv() => Caught::Forward(Signal::SIGUSR1),
            _ = self.user_2.recv() => Caught::Forward(Signal::SIGUSR2),
        }
    }
}
