//! What a command leaves behind: programs that still have its ports open when it has ended, such as itself in the
//! background.

use std::fs;
use std::iter::successors;
use std::time::Duration;

use pidlockfile::{Pid, process};

use super::actions::still_open;
use ttylock::Request;

/// How often, and at which interval, the ports are examined while a program may still be about to open them: gpsd forks,
/// ends, and opens its port then.
const LOOKS: usize = 20;
const INTERVAL: Duration = Duration::from_millis(50);

/// A process that began longer ago than this has opened its ports by now.
const RECENT_SECS: u64 = 10;

/// A sentence for each program that has one of the command's ports open. To be asked when the command has ended, and is
/// not waited for yet, and before the locks are released: the next holder may open the port at once.
pub(super) fn by(command: Pid, requests: &[Request]) -> Vec<String> {
    for _ in 1..LOOKS {
        let remarks = all_still_open(requests);
        if !remarks.is_empty() || !left_a_process(command) {
            return remarks;
        }
        wrapcmd::pause(None, None, Some(INTERVAL));
    }
    all_still_open(requests)
}

fn all_still_open(requests: &[Request]) -> Vec<String> {
    requests.iter().flat_map(still_open).collect()
}

/// Whether there is a process that looks like an orphan of the command: it is younger, began a moment ago, and its parent
/// is one that may have adopted it: the first process, or an ancestor of our caller's. A mistake costs nothing but time.
fn left_a_process(command: Pid) -> bool {
    let recent = ticks_of_uptime()
        .and_then(|now| now.checked_sub(process::ticks_per_second()?.checked_mul(RECENT_SECS)?));
    let Some(begin) = process::stat(command).map(|it| it.start.max(recent.unwrap_or_default()))
    else {
        return false;
    };
    let caller = process::parent(Pid::this());
    let line = successors(caller, |pid| process::parent(*pid)).skip(1);
    let adopters: Vec<i64> = line.map(|pid| pid.as_raw().into()).chain([1]).collect();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| Pid::parse(entry.file_name().as_encoded_bytes()).ok())
        .filter(|pid| *pid != Pid::this() && *pid != command)
        .filter_map(process::stat)
        .any(|it| it.start >= begin && adopters.contains(&it.parent) && !it.has_ended())
}

/// The time since the start of the machine, in the unit of [`process::Stat::start`]. Source: proc(5), `/proc/uptime`.
fn ticks_of_uptime() -> Option<u64> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, _) = text.split_once('.')?;
    seconds.parse::<u64>().ok()?.checked_mul(process::ticks_per_second()?)
}
