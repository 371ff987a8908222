//! Catches signals so that a program can wait for them, and for other things. Decides nothing about them.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise};
use nix::unistd::Pid;

use crate::sys::{self, Caught};
pub(crate) use crate::sys::{Arrived, Sender};
pub(crate) use crate::sys::{has_ended, was_stopped};

/// Signals that ask a program to end, or that a command may want to hear.
const ENDING: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGALRM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// What a terminal's Ctrl-Z sends: not to be stopped by it alone, but together with the command.
const STOP: Signal = Signal::SIGTSTP;

/// From now on, no signal that asks for an end interrupts the caller: for short work whose result is reported. A failure
/// is ignored, because the caller could do nothing about it.
pub fn hold_off() {
    let _ = ENDING.iter().copied().collect::<SigSet>().thread_block();
}

/// Why a pause ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever waits acts on each")]
pub enum Woken {
    /// A signal may have arrived.
    Signal,
    /// What else was waited for is readable.
    Ready,
    /// The time is over.
    Time,
}

/// The signals of this process, readable. Those that were ignored when the program began stay
/// ignored (nohup(1)).
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use std::time::Duration;
/// use wrapcmd::{Signals, Woken, pause};
///
/// let signals = Signals::catch()?;
/// if pause(Some(&signals), None, Some(Duration::from_secs(1))) == Woken::Signal {
///     println!("asked to end by signal {:?}", signals.ending());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Signals {
    caught: Caught,
    /// Those that were not held off before.
    newly_held: SigSet,
    /// The child with an end that is news. Others may be our children too: a program that became this
    /// one by execve(2) may have started some.
    child: Cell<Option<Pid>>,
}

impl Signals {
    /// Holds HUP, INT, QUIT, TERM, ALRM, USR1, USR2, TSTP and CHLD off and makes them readable. For the
    /// calling thread, and for those that it starts afterwards.
    ///
    /// # Errors
    /// The kernel gives no descriptor.
    pub fn catch() -> io::Result<Self> {
        let ignored = ignored();
        let heard = ENDING.into_iter().chain([STOP]).filter(|signal| !is_in(*signal, ignored));
        let set: SigSet = heard.chain([Signal::SIGCHLD]).collect();
        let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let caught = Caught::these(&set)?;
        let newly_held = set.iter().filter(|signal| !before.contains(*signal)).collect();
        Ok(Self { caught, newly_held, child: Cell::new(None) })
    }

    /// From now on the end of this child ends a wait.
    pub(crate) fn expect(&self, child: Pid) {
        self.child.set(Some(child));
    }

    /// For a child, which inherits what is held off: the numbers of the signals that it is to let
    /// through again with [`let_through`].
    pub(crate) fn newly_held(&self) -> String {
        let numbers = self.newly_held.iter().map(|signal| (signal as i32).to_string());
        numbers.collect::<Vec<_>>().join(",")
    }

    /// The next signal that has arrived. Does not wait. One that asks to stop is no answer: this
    /// process stops here, as it would have without [`Signals`], until it is continued.
    pub(crate) fn next(&self) -> Option<Arrived> {
        loop {
            match self.caught.next()? {
                Arrived { signal: STOP, .. } => stop_here(),
                other => return Some(other),
            }
        }
    }

    /// Hands the signals that have arrived to a child that has not been waited for, so its number is still its own. What
    /// a terminal sends it gets anyway. Whether one of them asks to stop.
    pub(crate) fn hand_on(&self, child: Pid) -> bool {
        let mut asks_to_stop = false;
        while let Some(Arrived { signal, sender }) = self.caught.next() {
            if sender == Sender::Process && signal != Signal::SIGCHLD {
                let _ = kill(child, signal);
            }
            asks_to_stop |= signal == STOP;
        }
        asks_to_stop
    }

    /// The number of the first signal that has arrived and asks for an end; CHLD only when the process that
    /// stands by has ended. Does not wait.
    pub fn ending(&self) -> Option<i32> {
        std::iter::from_fn(|| self.next())
            .map(|arrived| arrived.signal)
            .find(|signal| *signal != Signal::SIGCHLD || self.child.get().is_some_and(has_ended))
            .map(|signal| signal as i32)
    }
}

/// Readable when a signal has arrived.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.caught.as_fd()
    }
}

/// Waits for a signal, for the other descriptor to be readable, or for the end of the time. Without signals, they end the
/// program as they always do.
///
/// One poll(2), the signals first. The caller looks again whatever it says.
pub fn pause(
    signals: Option<&Signals>,
    other: Option<BorrowedFd<'_>>,
    time: Option<Duration>,
) -> Woken {
    let places = [signals.map(AsFd::as_fd), other];
    let open = places.iter().flatten();
    let mut open: Vec<PollFd<'_>> =
        open.map(|descriptor| PollFd::new(*descriptor, PollFlags::POLLIN)).collect();
    // Rounded up: a wait must not end early and then spin.
    let timeout = time.map_or(PollTimeout::NONE, |time| {
        PollTimeout::try_from(time.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut open, timeout) {
        Ok(0) => Woken::Time,
        Err(_) => Woken::Signal,
        Ok(_) => {
            let rang = open.first().is_some_and(|first| first.any().unwrap_or(true));
            if signals.is_some() && rang { Woken::Signal } else { Woken::Ready }
        }
    }
}

/// Waits for this time. Ends early, and is false, when standard output is a pipe whose reader has gone.
#[must_use]
pub fn wait_while_read(time: Duration) -> bool {
    let output = io::stdout();
    let mut watched = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
    matches!(poll(&mut watched, time), Ok(0) | Err(Errno::EINTR))
}

/// Stops this process, visibly for its parent, until it is continued.
pub(crate) fn stop_here() {
    let _ = raise(Signal::SIGSTOP);
}

/// Undoes [`Signals::catch`] in a child. `None`: these are no signals.
pub(crate) fn let_through(numbers: &str) -> Option<()> {
    let signal = |number: &str| Signal::try_from(number.parse::<i32>().ok()?).ok();
    let numbers = numbers.split(',').filter(|number| !number.is_empty());
    let set: SigSet = numbers.map(signal).collect::<Option<_>>()?;
    set.thread_unblock().ok()
}

/// Whether the signal of this number was ignored when the program began (nohup(1)). Always false on systems other than
/// Linux, which do not show it.
#[must_use]
pub fn is_ignored(number: i32) -> bool {
    Signal::try_from(number).is_ok_and(|signal| is_in(signal, ignored()))
}

/// The mask of the signals that were ignored when this was asked first, bit n-1 for signal n.
fn ignored() -> u64 {
    static IGNORED: OnceLock<u64> = OnceLock::new();
    *IGNORED.get_or_init(sys::ignored)
}

fn is_in(signal: Signal, mask: u64) -> bool {
    let bit = u32::try_from(signal as i32).ok().and_then(|number| number.checked_sub(1));
    bit.and_then(|bit| mask.checked_shr(bit)).is_some_and(|rest| rest & 1 == 1)
}
