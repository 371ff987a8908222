//! What `lfp run` adds to a command's environment so that programs that make lock files
//! themselves find the port free, and their own lock when they ask for one
//! (`liblfp_preload.so`, liblfp_preload(7)).

use std::env;
use std::path::{Path, PathBuf};

use pidlockfile::Pid;
use ttylock::device::name::DeviceName;

use super::arguments::{Route, Run, Shim, ShimOnly};
use super::outcome::Failure;
use super::run::refused;

/// The library, as the package installs it.
const LIBRARY: &str = "liblfp_preload.so";

/// Where it is, seen from the directory of `lfp` itself: with the directories of several
/// architectures (Debian), and without.
const PLACES: [&str; 3] = [OF_THIS_ARCHITECTURE, "../lib/lfp", "../lib64/lfp"];

/// The directory for this architecture in Debian.
const OF_THIS_ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "../lib/aarch64-linux-gnu/lfp"
} else if cfg!(target_arch = "riscv64") {
    "../lib/riscv64-linux-gnu/lfp"
} else {
    "../lib/x86_64-linux-gnu/lfp"
};

/// Variables for the command.
#[derive(Debug, Default)]
pub(super) struct Additions(Vec<(&'static str, String)>);

impl Additions {
    /// As the standing-by process takes them.
    pub(super) fn pairs(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// As a process takes them that becomes the command.
    pub(super) fn owned(&self) -> Vec<(String, String)> {
        self.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }
}

/// What a command is to have in its environment that holds a device itself.
///
/// # Errors
/// The library was asked for and is not installed.
pub(super) fn additions(asked: &Run, route: &Route, pid: Pid) -> Result<Additions, Failure> {
    let shim = asked.shim();
    let library = match (shim, library()) {
        (Shim::Off, _) | (Shim::WhereInstalled, None) => return Ok(Additions::default()),
        (Shim::Files | Shim::Ports, None) => return Err(missing()),
        (Shim::WhereInstalled | Shim::Files | Shim::Ports, Some(library)) => library,
    };
    let mut variables = usual(&library, route);
    variables.push(("LFP_RUN_PID", pid.to_string()));
    if shim == Shim::Ports {
        let all = std::iter::once(&asked.device).chain(&asked.also);
        variables.push(ports(all));
    }
    Ok(Additions(variables))
}

/// Becomes a command that holds nothing yet, and locks what it uses.
///
/// # Errors
/// The library is not installed.
pub(super) fn run(asked: ShimOnly, route: &Route) -> Result<u8, Failure> {
    let mut variables = usual(&library().ok_or_else(missing)?, route);
    if asked.ports {
        variables.push(ports(asked.also.iter()));
    }
    let mut words = asked.command.into_iter();
    let program = words.next().unwrap_or_default();
    Ok(refused(&wrapcmd::execute(program, words, &Additions(variables).owned())))
}

fn usual(library: &str, route: &Route) -> Vec<(&'static str, String)> {
    let others = env::var("LD_PRELOAD").unwrap_or_default();
    let mut variables = vec![("LD_PRELOAD", before(&others, library))];
    if let Route::Server(address) = route {
        variables.push(("LFP_SERVER", address.to_string()));
    }
    variables
}

fn ports<'a>(also: impl Iterator<Item = &'a DeviceName>) -> (&'static str, String) {
    let also = also.map(|device| format!(":/dev/{}", device.as_str()));
    ("LFP_PORTS", std::iter::once("1".to_owned()).chain(also).collect())
}

pub(super) fn missing() -> Failure {
    Failure::system(format!("{LIBRARY} is not installed (package lfp-preload)"))
}

/// The library before whatever else is to be preloaded.
fn before(others: &str, library: &str) -> String {
    if others.is_empty() { library.to_owned() } else { format!("{library}:{others}") }
}

/// The path of the library, if it is installed. The loader takes blanks and colons for the end of
/// a path.
pub(super) fn library() -> Option<String> {
    let program = env::current_exe().ok()?;
    let directory = program.parent()?;
    let found = PLACES.iter().map(|place| directory.join(place).join(LIBRARY));
    let found = found.filter_map(|path| path.canonicalize().ok()).find(|path| is_loadable(path));
    found.and_then(|path: PathBuf| path.into_os_string().into_string().ok())
}

fn is_loadable(path: &Path) -> bool {
    path.is_file() && path.to_str().is_some_and(|text| !text.contains([' ', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_to_be_preloaded_is_kept() {
        assert_eq!(before("", "/l.so"), "/l.so");
        assert_eq!(before("/a.so /b.so", "/l.so"), "/l.so:/a.so /b.so");
    }
}
