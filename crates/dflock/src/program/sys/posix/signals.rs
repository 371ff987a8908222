//! The signals that `dflock run` handles instead of dying of them.
//!
//! A signal that was ignored when this process began stays ignored: nohup(1) and background jobs of scripts
//! mean this for the command too, and the command inherits it only as long as no handler is installed.

use crate::program::outcome::Failure;
use nix::sys::signal::Signal;
use std::future::{pending, poll_fn};
use std::io;
use std::task::Poll;
use tokio::signal::unix::{self, SignalKind, signal};

/// Signals that ask a program to end.
pub(super) const ENDING: [Signal; 4] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals as something to wait for.
pub(in crate::program) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// From now on nothing that asks the program to end does so by itself.
    pub(in crate::program) fn catch() -> io::Result<Self> {
        Self::these(&ENDING)
    }

    /// Hears these signals from now on, as far as they were not ignored. SIGCHLD is always heard.
    pub(super) fn these(signals: &[Signal]) -> io::Result<Self> {
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

/// The first process of a container does not die of signals by itself (pid_namespaces(7)), and one that may hold some
/// of several keys must not. Any other does, and for it this never ends.
pub(in crate::program) async fn told_to_end(holds_some: bool) -> Result<u8, Failure> {
    if !holds_some && std::process::id() != 1 {
        return pending().await;
    }
    let mut signals = Signals::catch().map_err(|error| Failure::System("signals", error))?;
    let signal = signals.next().await;
    Ok(wrapcmd::exit::by_signal(signal as i32))
}
