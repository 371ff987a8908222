//! Programs of this workspace that another package's tests start.
//!
//! Cargo tells a test where the programs of its own package are (`CARGO_BIN_EXE_lfpd`), but not
//! where those of other packages are. They lie in the same directory; and so that a test of one
//! package never runs an old program of another, they are built first.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use crate::peers::workspace;

/// The program `name` of `package`, built with these features as the running test was built.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn program(package: &str, name: &str, features: &[&str]) -> PathBuf {
    static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let deps = std::env::current_exe().expect("the running test");
    let directory = deps.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let path = directory.join(name);
    let mut built = BUILT.lock().expect("no other thread has failed to build");
    if !built.contains(&path) {
        let profile = match directory.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(other) => other,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["build", "--quiet", "--locked", "--package", package, "--bin", name])
            .args(["--profile", profile, "--features", &features.join(",")])
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
