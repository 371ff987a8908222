//! What all Unixes have: users by number, signals, terminals, process groups. It attends the command of `dflock run`, which
//! has a process group of its own and dies when `dflock` dies: passes signals to it, gives it the terminal, and stops
//! with it when it is stopped, so that the shell notices.
//!
//! A signal that was ignored when this process began stays ignored: nohup(1) and background jobs of scripts
//! mean this for the command too, and the command inherits it only as long as no handler is installed.
//!
//! Never takes the terminal from another process group: only the group in the foreground gives it away, and
//! it is taken back only from the group that got it. Without a terminal every step does nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::future::{pending, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::task::Poll;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, killpg, raise};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, User, geteuid, gethostname, getpgrp, getppid, tcgetpgrp, tcsetpgrp};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::{sleep, timeout};
use wrapcmd::exit;

use crate::program::outcome::{Failure, Survivors};
use crate::{Leases, Loss};

/// The pause between two checks whether anybody reads standard output.
const OUTPUT_PERIOD: Duration = Duration::from_secs(1);

/// An argument as the server is to have it.
pub(in crate::program) fn bytes(argument: &OsStr) -> Option<&[u8]> {
    Some(argument.as_bytes())
}

/// Ends when nobody reads standard output any more. May be given up and called again.
pub(in crate::program) async fn output_closed() {
    while wrapcmd::wait_while_read(Duration::ZERO) {
        sleep(OUTPUT_PERIOD).await;
    }
}

/// The user of this process: a name, or a number that has none.
pub(in crate::program) fn user() -> String {
    let uid = geteuid();
    User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |it| it.name)
}

/// What this machine calls itself.
pub(in crate::program) fn host() -> String {
    gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// Signals that ask a program to end.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals as something to wait for.
pub(in crate::program) struct Endings(Vec<(Signal, unix::Signal)>);

impl Endings {
    /// From now on nothing that asks the program to end does so by itself.
    pub(in crate::program) fn catch() -> io::Result<Self> {
        Self::these(&ENDING)
    }

    /// Hears these signals from now on, as far as they were not ignored. SIGCHLD is always heard.
    fn these(signals: &[Signal]) -> io::Result<Self> {
        let is_heard = |it: Signal| it == Signal::SIGCHLD || !wrapcmd::is_ignored(it as i32);
        let heard = signals.iter().filter(|&&it| is_heard(it));
        let streams = heard.map(|&it| Ok((it, signal(SignalKind::from_raw(it as i32))?)));
        streams.collect::<io::Result<_>>().map(Self)
    }

    /// The next signal. May be given up and called again.
    pub(in crate::program) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Waits for a signal that asks this process to end, if the process does not simply die of it: the first process of a
/// container does not (pid_namespaces(7)), and one that may hold some of several keys must not. For any other process
/// this never ends.
pub(in crate::program) async fn asked_to_end(holds_some: bool) -> Result<u8, Failure> {
    if !holds_some && std::process::id() != 1 {
        return pending().await;
    }
    let mut signals = Endings::catch().map_err(|error| Failure::System("signals", error))?;
    let signal = signals.next().await;
    Ok(exit::by_signal(signal as i32))
}

/// The terminal of this session, if it has one.
struct Terminal(Option<File>);

impl Terminal {
    /// Looks for it.
    fn controlling() -> Self {
        Self(File::open("/dev/tty").ok())
    }

    /// Whether our process group is in the foreground.
    fn is_ours(&self) -> bool {
        self.belongs_to(getpgrp())
    }

    /// Puts a group into the foreground in our place.
    fn lend(&self, group: Pid) {
        self.hand_over(getpgrp(), group);
    }

    /// Puts ourselves back into the foreground in place of that group.
    fn take_back(&self, group: Pid) {
        self.hand_over(group, getpgrp());
    }

    fn belongs_to(&self, group: Pid) -> bool {
        self.0.as_ref().is_some_and(|file| tcgetpgrp(file) == Ok(group))
    }

    fn hand_over(&self, from: Pid, to: Pid) {
        let Some(file) = self.0.as_ref().filter(|_| self.belongs_to(from)) else { return };
        // From the background, the system would stop us for asking; see tcsetpgrp(3).
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        if stop.thread_block().is_ok() {
            let _ = tcsetpgrp(file, to);
        }
    }
}

/// Whether we stand between others in a pipeline of a shell. They are in our process group and may
/// want the terminal (a pager behind us, somebody typing before us), so the command gets it only
/// when it asks.
fn in_pipeline() -> bool {
    is_pipe(&io::stdin()) || is_pipe(&io::stdout())
}

fn is_pipe(descriptor: &impl AsFd) -> bool {
    let Ok(status) = fstat(descriptor) else { return false };
    let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
    kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK
}

/// A started command and everything it starts, as long as that stays in its group.
struct Child {
    group: Pid,
}

/// What became of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// It ended, with this exit code as a shell would give it.
    Ended(u8),
    /// It was stopped by this signal, most often by Ctrl-Z.
    Stopped(Signal),
    /// Nothing new.
    Nothing,
}

impl Child {
    /// Starts the step before the command, which leads the group.
    fn start(mut step: Command) -> io::Result<Self> {
        let child = step.process_group(0).spawn()?;
        let pid = i32::try_from(child.id()).map_err(|_| io::Error::from(io::ErrorKind::Other))?;
        Ok(Self { group: Pid::from_raw(pid) })
    }

    /// Sends a signal to the command and what it started. It may be gone.
    fn signal(&self, signal: Signal) {
        let _ = killpg(self.group, signal);
    }

    /// Kills the whole group. Returns whether at least one process of it may be killed.
    fn kill(&self) -> bool {
        killpg(self.group, Signal::SIGKILL) != Err(Errno::EPERM)
    }

    /// The processes of the group that are left.
    fn survivors(&self) -> Option<Survivors> {
        let number = self.group.as_raw();
        self.is_populated().then(|| match kill(self.group, None) {
            Err(Errno::ESRCH) => Survivors::Group(number),
            Ok(()) | Err(_) => Survivors::Command(number),
        })
    }

    /// Whether anybody is left in the group. Not being allowed to ask means there is.
    fn is_populated(&self) -> bool {
        killpg(self.group, None) != Err(Errno::ESRCH)
    }

    /// What became of the command since the last call. Does not wait.
    fn change(&self) -> Change {
        match waitpid(self.group, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Exited(_, code)) => {
                Change::Ended(u8::try_from(code & 0xff).unwrap_or(1))
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => Change::Ended(exit::by_signal(signal as i32)),
            Ok(WaitStatus::Stopped(_, signal)) => Change::Stopped(signal),
            Ok(_) | Err(_) => Change::Nothing,
        }
    }
}

/// The kernel kills this process when the one that started it ends, where the system can do that.
pub(in crate::program) struct KillOnParentDeath(());

impl KillOnParentDeath {
    /// `None` if that one has ended already.
    pub(in crate::program) fn of(parent: u32) -> Option<Self> {
        let is_set = die_with_parent().is_ok();
        (is_set && u32::try_from(getppid().as_raw()) == Ok(parent)).then_some(Self(()))
    }

    /// Becomes the command; returns only with the reason why it cannot.
    pub(in crate::program) fn run(self, mut command: Command) -> io::Result<u8> {
        Err(command.exec())
    }
}

/// Asks the kernel to kill this process when the thread that started it ends (prctl(2)).
#[cfg(target_os = "linux")]
fn die_with_parent() -> io::Result<()> {
    Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?)
}

/// Asks the kernel to kill this process when its parent ends (procctl(2), `PROC_PDEATHSIG_CTL`). Type-checked, never run so
/// far.
#[cfg(target_os = "freebsd")]
fn die_with_parent() -> io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};

    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// The system cannot do that: a command outlives a `dflock` that was killed with SIGKILL, and goes on without its lock
/// when the lease is over.
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
fn die_with_parent() -> io::Result<()> {
    Ok(())
}

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
/// The pause between two checks of a process group that is being stopped.
const STOP_POLL: Duration = Duration::from_millis(10);
/// After KILL only the kernel is waited for.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// A running command.
pub(in crate::program) struct Attended {
    child: Child,
    terminal: Terminal,
    /// Whether the command is to have the terminal whenever we have it.
    wants_terminal: bool,
    signals: Endings,
}

impl Attended {
    /// Starts the step before a command. Must be called on the main thread: the kernel kills the command
    /// when the starting *thread* ends.
    pub(in crate::program) fn start(step: Command) -> io::Result<Self> {
        let signals = Endings::these(&HEARD)?;
        let child = Child::start(step)?;
        let (terminal, wants_terminal) = (Terminal::controlling(), !in_pipeline());
        let attended = Self { child, terminal, wants_terminal, signals };
        if attended.wants_terminal && attended.terminal.is_ours() {
            // It may have reached for the terminal before it is in the foreground.
            attended.resume();
        }
        Ok(attended)
    }

    /// The exit code when the command has ended by now, and we have the terminal back. Where its terminal has stopped it,
    /// this process stops as well, unless it only hands over the terminal. Nobody renews the lease meanwhile: if that is
    /// over then, the command does not go on.
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
    pub(in crate::program) async fn pass_on_signal(&mut self) {
        let signal = self.signals.next().await;
        if signal == Signal::SIGCONT {
            self.resume();
        } else if signal != Signal::SIGCHLD {
            self.child.signal(signal);
        }
    }

    /// Until this process is asked to end, once the command has. May be given up and called again.
    pub(in crate::program) async fn asked_to_end(&mut self) {
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
        self.wants_terminal |= reached;
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
        if self.wants_terminal {
            self.terminal.lend(self.child.group);
        }
        self.child.signal(Signal::SIGCONT);
    }
}
