//! Why tests are left out by `cargo test`: for a reason that `tests/run` counts, and in all their cases. Pure.

use crate::house::{Breach, House};

/// The reasons: by these words `tests/run` counts the tests, and leaves them out where they cannot run.
const REASONS: [&str; 6] = [
    "needs root: tests/run",
    "needs namespaces: tests/run",
    "needs programs: tests/run",
    "takes minutes: tests/run",
    "takes minutes: just etcd-long",
    "takes minutes: just report",
];

/// Tests that are left out for no known reason, or in one of their cases only: rstest applies what stands above a
/// case to that case alone. Programs with a `main` of their own say the reason to `run_tests`.
#[must_use]
pub fn needs(house: &House) -> Vec<Breach> {
    let mut found = Vec::new();
    for file in &house.tests {
        let mut lines = file.text.lines().map(str::trim).zip(1..).peekable();
        while let Some((attribute, line)) = lines.next() {
            let reason = if let Some(rest) = attribute.strip_prefix("#[ignore") {
                rest.strip_prefix(" = \"").and_then(|rest| rest.strip_suffix("\"]"))
            } else if let Some(rest) = attribute.strip_prefix("run_tests(&tests, Some(\"") {
                rest.strip_suffix("\"));")
            } else {
                continue;
            };
            let what = if !reason.is_some_and(|reason| REASONS.contains(&reason)) {
                format!("tests/run does not know the reason of {attribute}")
            } else if lines.peek().is_some_and(|(next, _)| next.starts_with("#[case")) {
                format!("{attribute} belongs below the last case")
            } else {
                continue;
            };
            found.push(Breach { path: file.path.clone(), line, what });
        }
    }
    found
}
