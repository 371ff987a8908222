//! Starts `dflock` as a user would, without the environment of the user that runs the tests, and never lets it
//! outlive the test.

use nix::sys::signal::Signal;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use testbed::dflockd::{Daemon, Store, free_port, program_on};

pub(crate) use testbed::local::{End, Met, Running, start};

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
    end.err = without_patience(&end.err);
    end
}

fn without_patience(said: &str) -> String {
    let is_patient = |line: &&str| !line.starts_with("dflock: no answer yet from ");
    said.split_inclusive('\n').filter(is_patient).collect()
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
    let own = Path::new(env!("CARGO_BIN_EXE_dflock")).parent().unwrap();
    let mut command = Command::new("sh");
    command.env_clear().env("PATH", format!("{}:{PATH}", own.display()));
    command.env("DFLOCK_SERVERS", daemon.address.to_string());
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

/// A shell in a network of its own, with `dflock` and `dflockd` in its path behind these directories. It and all that it
/// starts end with the test.
pub(crate) fn apart(script: &str, before: &[&Path]) -> Command {
    let programs =
        [PathBuf::from(env!("CARGO_BIN_EXE_dflock")), testbed::program("dflockd", "dflockd", &[])];
    let places = programs.iter().map(|it| it.parent().unwrap());
    let path: String =
        before.iter().copied().chain(places).map(|it| format!("{}:", it.display())).collect();
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "180", "unshare", "--net", "--pid", "--fork", "--kill-child"]);
    command.args(["--mount-proc", "sh", "-c", script]).stdin(Stdio::null());
    command.env_clear().env("PATH", format!("{path}{PATH}:/usr/sbin:/sbin"));
    command
}

/// A server that is started again where it was, and knows then what it knew.
pub(crate) struct Restarting {
    pub(crate) daemon: Daemon,
    store: Store,
    state: TempDir,
    options: Vec<String>,
}

impl Restarting {
    pub(crate) fn start(options: &[&str]) -> Self {
        let (store, state) = (testbed::dflockd::store(), tempfile::tempdir().unwrap());
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let daemon = Self::run(&store, &state, &options, free_port());
        Self { daemon, store, state, options }
    }

    fn run(store: &Store, state: &TempDir, options: &[String], port: u16) -> Daemon {
        let mut command = program_on(store);
        command.args(["--port", &port.to_string(), "--state-dir"]).arg(state.path());
        Daemon::run(command.args(options))
    }

    /// Ends it by this signal.
    pub(crate) fn end(&mut self, signal: Signal) {
        self.daemon.signal(signal);
        self.daemon.ended();
    }

    /// After [`Self::end`].
    pub(crate) fn start_again(&mut self) {
        let port = self.daemon.address.port();
        self.daemon = Self::run(&self.store, &self.state, &self.options, port);
    }
}

/// The runs of a test with faults: `FAULT_RUNS` says how many, `FAULT_SEED` where they begin (0). Each is made by its number.
pub(crate) fn fault_runs(usual: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let first = number("FAULT_SEED").unwrap_or(0);
    first..first + number("FAULT_RUNS").unwrap_or(usual)
}

/// Nobody holds or waits for anything.
pub(crate) fn assert_free(daemon: &Daemon) {
    daemon.until_stats("\"locks\":[],\"semaphores\":[]");
}

/// The same command with standard output that takes nothing.
pub(crate) fn into_full(command: &mut Command) -> (i32, String) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
    (output.status.code().unwrap(), without_patience(&String::from_utf8(output.stderr).unwrap()))
}
