//! Programs that cannot be installed side by side: `.ci/install` unpacks them.

use std::path::{Path, PathBuf};

/// The workspace, wherever the tests are run from.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The text of a file of the workspace.
///
/// # Panics
/// There is none.
#[must_use]
pub fn shipped(file: &str) -> String {
    std::fs::read_to_string(workspace().join(file))
        .unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Where a file of an unpacked Debian package is, such as `peer("xinetd", "usr/sbin/xinetd")`.
///
/// `LFPD_PEERS` names the directory if it is not `target/peers`.
///
/// # Panics
/// When it is not there: the message says what to do.
#[must_use]
pub fn peer(package: &str, file: &str) -> PathBuf {
    let peers = std::env::var_os("LFPD_PEERS")
        .map_or_else(|| workspace().join("target/peers"), PathBuf::from);
    let path = peers.join(package).join(file);
    assert!(path.exists(), "{} is missing: run .ci/install", path.display());
    path
}

/// The Debian package to name when a program is missing.
pub(crate) fn advice(program: &str) -> String {
    format!("{program} is not installed: run .ci/install (it reads .ci/packages)")
}
