//! Programs of this workspace that another package's tests start.
//!
//! Cargo tells a test where the programs of its own package are (`CARGO_BIN_EXE_lfpd`), but not
//! where those of other packages are. They lie in the same directory; and so that a test of one
//! package never runs an old program of another, they are built first: by `tests/run` all together,
//! before the first test; otherwise each by the first test that starts it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::peers::workspace;

/// The directory where `tests/run` has built everything, just now.
const BUILT_TOGETHER: &str = "LFPD_TEST_PROGRAMS";

/// The program `name` of `package`, built with these features as the running test was built.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn program(package: &str, name: &str, features: &[&str]) -> PathBuf {
    built(package, &["--bin", name], &[name], features)
}

/// An example program of `package`.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn example(package: &str, name: &str) -> PathBuf {
    built(package, &["--example", name], &["examples", name], &[])
}

/// The shared library `name.so` of `package`.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn library(package: &str, name: &str) -> PathBuf {
    built(package, &["--lib"], &[&format!("{name}.so")], &[])
}

/// Makes a script that can be run at once. Another process writes it: while this one has a file open for
/// writing, what another thread starts has it open, too, until it has become its program, and the kernel runs no
/// file that anybody may still write (ETXTBSY).
///
/// # Panics
/// When it cannot be written.
pub fn script(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut input = writer.stdin.take().expect("its input");
    input.write_all(text.as_bytes()).expect("a shell that reads");
    drop(input);
    assert!(writer.wait().expect("its end").success(), "{}", path.display());
}

/// Cargo as somebody starts it from a shell: without what the cargo that runs this test tells it about its
/// package. Build scripts may ask to be run again where that differs (ring's asks for all of it), and then
/// whatever needs their crate is compiled again for each test program.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}

fn built(package: &str, target: &[&str], place: &[&str], features: &[&str]) -> PathBuf {
    static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let deps = std::env::current_exe().expect("the running test");
    let directory = deps.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let path: PathBuf = std::iter::once(directory).chain(place.iter().map(Path::new)).collect();
    // Cargo builds the programs of a package before its tests, and says whose test it runs.
    let is_own = || std::env::var_os("CARGO_PKG_NAME").is_some_and(|own| own == package);
    let is_together =
        std::env::var_os(BUILT_TOGETHER).is_some_and(|it| Path::new(&it) == directory);
    if is_together || (target.contains(&"--bin") && is_own()) {
        return path;
    }
    let mut built = BUILT.lock().expect("no other thread has failed to build");
    if !built.contains(&path) {
        let profile = match directory.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(other) => other,
        };
        let features = features.iter().map(|feature| format!("{package}/{feature}"));
        // As `cargo test --workspace` builds it: with all packages and an example, cargo chooses the features of libraries
        // that it chooses for tests. Otherwise it would compile many of them again.
        let output = cargo()
            .args(["build", "--quiet", "--locked", "--workspace"])
            .args(target)
            .args(["--example", "one_at_a_time"])
            .args(["--profile", profile, "--features", &features.collect::<Vec<_>>().join(",")])
            .arg("--target-dir")
            .arg(directory.parent().expect("target"))
            .current_dir(workspace())
            .output()
            .expect("cargo");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        built.push(path.clone());
    }
    path
}
