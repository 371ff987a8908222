//! Attends a running command: passes signals to it, gives it the terminal, and stops with it when it is
//! stopped, so that the shell notices.

use super::child::{Change, Child};
use super::signals::{ENDING, Signals};
use super::terminal::{Terminal, in_pipeline};
use crate::program::outcome::Survivors;
use crate::{Leases, Loss};
use nix::sys::signal::{Signal, raise};
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

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
/// After KILL only the kernel is waited for.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// A running command.
pub(in crate::program) struct Attended {
    child: Child,
    terminal: Terminal,
    /// Whether the command is to have the terminal whenever we have it.
    is_on_stage: bool,
    signals: Signals,
}

impl Attended {
    /// Starts the step before a command. Must be called on the main thread: the kernel kills the command
    /// when the starting *thread* ends.
    pub(in crate::program) fn start(step: Command) -> io::Result<Self> {
        let signals = Signals::these(&HEARD)?;
        let child = Child::start(step)?;
        let (terminal, is_on_stage) = (Terminal::controlling(), !in_pipeline());
        let attended = Self { child, terminal, is_on_stage, signals };
        if attended.is_on_stage && attended.terminal.is_ours() {
            // It may have reached for the terminal before it is in the foreground.
            attended.resume();
        }
        Ok(attended)
    }

    /// The exit code when the command has ended by now, and we have the terminal back. Where it was
    /// stopped, this process stops as well, and nobody renews the lease meanwhile: if that is over
    /// then, the command does not go on.
    pub(in crate::program) fn end(&mut self, leases: &Leases) -> Result<Option<u8>, Loss> {
        match self.child.change() {
            Change::Ended(code) => {
                self.terminal.take_back(self.child.group);
                Ok(Some(code))
            }
            Change::Stopped(signal) => self.stopped(signal, leases).map(|()| None),
            Change::Nothing => Ok(None),
        }
    }

    /// Until there may be something new; passes on one signal. May be given up and called again.
    pub(in crate::program) async fn stirred(&mut self) {
        let signal = self.signals.next().await;
        if signal == Signal::SIGCONT {
            self.resume();
        } else if signal != Signal::SIGCHLD {
            self.child.signal(signal);
        }
    }

    /// Until this process is asked to end, once the command has. May be given up and called again.
    pub(in crate::program) async fn told_to_end(&mut self) {
        while !ENDING.contains(&self.signals.next().await) {}
    }

    /// TERM, and KILL for the processes that are left after the grace. Returns those that are left nevertheless: another
    /// user's processes may not be signalled.
    pub(in crate::program) async fn stop(&mut self, grace: Duration) -> Option<Survivors> {
        self.child.signal(Signal::SIGTERM);
        self.child.signal(Signal::SIGCONT);
        let mut survivors = None;
        if timeout(grace, self.emptied()).await.is_err() {
            let is_killed = self.child.kill();
            if !is_killed || timeout(KILL_LIMIT, self.emptied()).await.is_err() {
                survivors = self.child.survivors();
            }
        }
        self.terminal.take_back(self.child.group);
        survivors
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

    /// The terminal has stopped the command, by Ctrl-Z or because it reached for the terminal
    /// from the background. Any other process that stopped it will continue it, too.
    fn stopped(&mut self, signal: Signal, leases: &Leases) -> Result<(), Loss> {
        let reached = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if !reached && signal != Signal::SIGTSTP {
            return Ok(());
        }
        self.is_on_stage |= reached;
        if !(reached && self.terminal.is_ours()) {
            self.pause(leases)?;
        }
        if self.terminal.is_ours() || !reached {
            self.resume();
        }
        Ok(())
    }

    /// Stops as well, for the shell to see. Nobody renews meanwhile; if the lease is over when we
    /// wake, the command must not go on.
    fn pause(&self, leases: &Leases) -> Result<(), Loss> {
        self.terminal.take_back(self.child.group);
        // Not SIGSTOP: where no shell is there to continue us, the kernel leaves this one out.
        let _ = raise(Signal::SIGTTIN);
        match leases.held_until() {
            Some(until) if until > Instant::now() => Ok(()),
            Some(_) | None => Err(Loss::Unreachable),
        }
    }

    fn resume(&self) {
        if self.is_on_stage {
            self.terminal.lend(self.child.group);
        }
        self.child.signal(Signal::SIGCONT);
    }
}
