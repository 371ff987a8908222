//! Starts `dflock` as a user would, without the environment of the user that runs the tests, and never lets it
//! outlive the test.

use std::fs::File;
use std::process::{Command, Stdio};
use testbed::dflockd::Daemon;

pub(crate) use testbed::local::{End, Running, lives, start};

/// Longer than any test, for commands that must be stopped.
pub(crate) const LONG: &str = "1000";
/// Where `sh` and its kin are.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> End {
    patient(testbed::local::run(command))
}

/// Without what dflock says when it has looked for a server for a second: the machine may be busy for so long.
pub(crate) fn patient(mut end: End) -> End {
    let is_patient = |line: &&str| !line.starts_with("dflock: no answer yet from ");
    end.err = end.err.split_inclusive('\n').filter(is_patient).collect();
    end
}

/// `dflock` towards this server.
pub(crate) fn dflock(daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = bare(arguments);
    command.env("DFLOCK_SERVERS", daemon.address.to_string());
    command
}

/// `dflock` that knows no server.
pub(crate) fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dflock"));
    command.env_clear().env("PATH", PATH).args(arguments).stdin(Stdio::null());
    command
}

/// A shell with `dflock` in its path.
pub(crate) fn shell(daemon: &Daemon, script: &str) -> Command {
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_dflock")).parent().unwrap();
    let mut command = Command::new("sh");
    command.env_clear().env("PATH", format!("{}:{PATH}", own.display()));
    command.env("DFLOCK_SERVERS", daemon.address.to_string());
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

/// Nobody holds or waits for anything.
pub(crate) fn assert_free(daemon: &Daemon) {
    daemon.until_stats("\"locks\":[],\"semaphores\":[]");
}

/// The same command with standard output that takes nothing.
pub(crate) fn into_full(command: &mut Command) -> (i32, String) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}
