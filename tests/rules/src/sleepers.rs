//! Which files below `/proc/PID` no program of ours may read: their reading waits for the address space of that process,
//! which can keep it for ever. Pure.

use crate::house::{Breach, House};
use crate::paths::code;

/// The files whose reading sleeps for as long as the process likes (proc(5)). Those that we read do not: `comm`, `stat`,
/// `status`, `fd`, `fdinfo`, `exe`, `cwd`, `root`, `ns`, `task`, `uid_map`, `mountinfo`.
const SLEEPING: [&str; 9] =
    ["cmdline", "environ", "auxv", "maps", "smaps", "smaps_rollup", "numa_maps", "pagemap", "mem"];

/// Here a child reads, which is left behind.
const IN_A_CHILD: &str = "crates/lfp/src/command/command_lines.rs";

/// Places in code that name such a file.
#[must_use]
pub fn sleepers(house: &House) -> Vec<Breach> {
    let mut found = Vec::new();
    for file in house.sources.iter().filter(|file| file.path != IN_A_CHILD) {
        for (line, text) in code(&file.text) {
            let is_named = |name: &&&str| {
                text.contains(&format!("\"{name}\""))
                    || text.contains("/proc/") && text.contains(&format!("/{name}\""))
            };
            let Some(name) = SLEEPING.iter().find(is_named) else { continue };
            let what = format!("the reading of /proc/PID/{name} may take for ever");
            found.push(Breach { path: file.path.clone(), line, what });
        }
    }
    found
}
