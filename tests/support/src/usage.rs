//! What a process of this machine has used.

use std::fs;

/// A field of `/proc/PID/status` in kilobytes.
///
/// # Panics
/// There is none.
#[must_use]
pub fn status_kib(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let rest = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    rest.unwrap().trim_end_matches(" kB").trim().parse().unwrap()
}

/// Its processor time, by itself and by the system for it, in clock ticks: a hundred are a second.
///
/// # Panics
/// It has ended.
#[must_use]
pub fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
