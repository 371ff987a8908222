//! Signals to processes. After SIGSTOP, a process has really stopped when this returns: its threads run on for a moment
//! after the signal, and on a busy machine they finish what they were asked to do.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::comes;

/// Sends a signal to a process of this machine.
///
/// # Panics
/// If the process has ended already, or does not stop within [`crate::LIMIT`].
pub fn signal(pid: u32, signal: Signal) {
    let number = i32::try_from(pid).expect("a process number");
    kill(Pid::from_raw(number), signal).expect("a process that has not ended");
    if signal == Signal::SIGSTOP {
        wait_until_stopped(Path::new("/proc"), pid);
    }
}

/// Waits until no thread of a process runs, by what this /proc shows.
pub(crate) fn wait_until_stopped(proc: &Path, pid: u32) {
    assert!(comes(|| is_stopped(&proc.join(format!("{pid}/task")))), "process {pid} does not stop");
}

fn is_stopped(threads: &Path) -> bool {
    let threads = fs::read_dir(threads).into_iter().flatten().flatten();
    threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok()).all(|stat| {
        // proc(5): the state comes after the name in parentheses, which may have any characters.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        matches!(state, Some('T' | 't' | 'Z' | 'X'))
    })
}
