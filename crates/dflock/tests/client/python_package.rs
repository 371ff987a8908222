//! The Python package `dflock` against the real server, by its own tests (`python/dflock/tests`), with every Python there is.

use crate::program::PATH;
use rstest::rstest;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use testbed::dflockd::{is_on_etcd, store};

const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/dflock");
const SYSTEM: &str = "/usr/bin/python3";
/// For a module of tests: some hold leases for longer than they last.
const LIMIT: Duration = Duration::from_secs(500);

/// That of the system, and the oldest and the newest of those that pyenv has made. Over etcd that of the system alone: what
/// another Python does otherwise is seen with holds in memory.
fn interpreters() -> Vec<PathBuf> {
    if is_on_etcd() {
        return vec![PathBuf::from(SYSTEM)];
    }
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = root.and_then(|root| root.join("versions").read_dir().ok());
    let found = versions.into_iter().flatten().filter_map(Result::ok);
    let minor = |path: &PathBuf| -> Option<u32> {
        let name = path.file_name()?.to_str()?.strip_prefix("3.")?;
        name.split('.').next()?.parse().ok()
    };
    let mut versions: Vec<_> = found.map(|it| it.path()).collect();
    versions.retain(|path| minor(path).is_some_and(|minor| minor >= 9));
    versions.sort_by_key(minor);
    let newest = versions.pop();
    let others = versions.into_iter().next().into_iter().chain(newest);
    let others = others.map(|version| version.join("bin/python3"));
    [PathBuf::from(SYSTEM)].into_iter().chain(others).collect()
}

fn python(interpreter: &PathBuf, words: &[&str]) -> Command {
    let store = store();
    let mut command = Command::new(interpreter);
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C.UTF-8").envs(store.environment);
    if let Some(standby) = std::env::var_os("DFLOCKD_TEST_STANDBY") {
        command.env("DFLOCKD_TEST_STANDBY", standby);
    }
    command.env("DFLOCKD", testbed::program("dflockd", "dflockd", &[]));
    command.env("DFLOCK", env!("CARGO_BIN_EXE_dflock"));
    command.env("PYTHONPATH", format!("{PACKAGE}/src:{PACKAGE}/tests"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(PACKAGE);
    command.args(words).stdin(Stdio::null());
    command
}

#[rstest]
#[case::pure("test_pure")]
#[case::blocking("test_blocking")]
#[case::asyncio("test_aio")]
#[case::faults("test_faults")]
#[case::interrupts("test_interrupts")]
#[case::documents("test_docs")]
#[ignore = "needs programs: tests/run"]
fn the_tests_of_the_package_pass(#[case] module: &str) {
    // At once: they mostly wait.
    std::thread::scope(|scope| {
        for interpreter in interpreters() {
            scope.spawn(move || {
                let words = ["-W", "error::RuntimeWarning", "-m", "unittest", "--verbose", module];
                let tests = testbed::local::start(&mut python(&interpreter, &words));
                let end = tests.end_in(LIMIT);
                let is_run = end.err.contains("\nRan ") && !end.err.contains("\nRan 0 tests");
                assert!(
                    end.code == 0 && is_run,
                    "{} ended with {}:\n{}{}",
                    interpreter.display(),
                    end.code,
                    end.out,
                    end.err
                );
            });
        }
    });
}
