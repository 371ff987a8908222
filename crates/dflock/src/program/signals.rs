//! The signals that a program in front of a lease hears instead of dying of them.
//!
//! Never hears what was ignored when this process began: nohup(1) and background jobs of scripts
//! mean that for the command, too, and the kernel hands it on only as long as nobody listens.

use nix::sys::signal::Signal;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{self, SignalKind, signal};

/// Signals that ask a program to end.
pub(super) const ENDING: [Signal; 4] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals as something to wait for.
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Hears these signals from now on, as far as they were not ignored. SIGCHLD is always heard.
    pub(super) fn catch(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored();
        let heard = signals.iter().filter(|&&it| it == Signal::SIGCHLD || !is_in(it, ignored));
        let streams = heard.map(|&it| Ok((it, signal(SignalKind::from_raw(it as i32))?)));
        streams.collect::<io::Result<_>>().map(Self)
    }

    /// The next signal. May be given up and called again.
    pub(super) async fn next(&mut self) -> Signal {
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

/// The mask of ignored signals, bit n-1 for signal n (proc(5), `SigIgn`).
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(signal: Signal, mask: u64) -> bool {
    let bit = u32::try_from(signal as i32).ok().and_then(|number| number.checked_sub(1));
    bit.and_then(|bit| mask.checked_shr(bit)).is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::is_in;
    use nix::sys::signal::Signal;
    use rstest::rstest;

    #[rstest]
    #[case(Signal::SIGHUP, 0b1, true)]
    #[case(Signal::SIGHUP, 0b10, false)]
    #[case(Signal::SIGINT, 0b10, true)]
    #[case(Signal::SIGTERM, 1 << 14, true)]
    #[case(Signal::SIGTERM, !(1 << 14), false)]
    #[case(Signal::SIGTERM, 0, false)]
    fn bit_n_minus_one_is_signal_n(#[case] signal: Signal, #[case] mask: u64, #[case] is: bool) {
        assert_eq!(is_in(signal, mask), is);
    }
}
