//! What the documents say of the repository is so: each test that SECURITY.md names exists, and
//! each file that the README tells people to use is there.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust source of the workspace, as one text.
fn sources() -> String {
    let mut text = String::new();
    let mut rest: Vec<PathBuf> = ["src", "tests", "crates"].map(|dir| root().join(dir)).into();
    while let Some(path) = rest.pop() {
        if path.is_dir() {
            rest.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &fs::read_to_string(path).unwrap();
        }
    }
    text
}

/// The words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_line_of_the_threat_table_has_its_test() {
    let sources = sources();
    let document = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| threat |");
    let lines = document.lines().filter(is_row);
    let mut counted = 0;
    for line in lines {
        let tests = line.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names: Vec<_> = quoted(tests).collect();
        assert!(!names.is_empty(), "no test is named: {line}");
        for name in names {
            let found = sources.contains(&format!("fn {name}("))
                || sources.contains(&format!("fn {name}<"));
            assert!(found, "{name} is not there: {line}");
            counted += 1;
        }
    }
    assert!(counted > 40, "{counted} tests are named");
}

/// A program that wants the client alone is not made to build a command line.
#[test]
fn the_client_library_brings_little() {
    let words = "tree --package lfp --edges normal --no-default-features --prefix none --locked";
    let tree = Command::new(env!("CARGO")).args(words.split(' ')).current_dir(root()).output();
    let tree = tree.unwrap();
    assert!(tree.status.success(), "{tree:?}");
    let text = String::from_utf8(tree.stdout).unwrap();
    let names: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    let expected = [
        "bitflags",
        "cfg-if",
        "cfg_aliases",
        "libc",
        "lfp",
        "linux-raw-sys",
        "memoffset",
        "nix",
        "pidlockfile",
        "rustix",
        "ttylock",
    ];
    let more: Vec<_> = names.iter().filter(|name| !expected.contains(*name)).collect();
    assert!(more.is_empty(), "{more:?} are new");
}

#[test]
fn files_the_readme_tells_of_are_there() {
    let document = fs::read_to_string(root().join("README.md")).unwrap();
    let tops = [
        "etc/",
        "tests/",
        "man/",
        "xinetd.d/",
        "inetd.conf",
        "crates/",
        "benches/",
        ".ci/",
        "packaging/",
    ];
    let paths = quoted(&document).filter(|word| tops.iter().any(|top| word.starts_with(top)));
    let mut counted = 0;
    let commands = paths.map(|path| path.split(' ').next().unwrap());
    for path in commands.map(|path| path.trim_end_matches(['*', '?'])) {
        assert!(root().join(path).exists(), "{path} is not there");
        counted += 1;
    }
    assert!(counted > 5, "{counted} files are named");
}

/// Which machines the README promises, what runs their programs and what packs them, is what `.ci/targets` holds.
#[test]
fn the_readme_promises_the_targets_that_are_checked() {
    let script = fs::read_to_string(root().join(".ci/targets")).unwrap();
    let table = script.split_once("\ntable='\n").unwrap().1.split_once("\n'\n").unwrap().0;
    let held = table.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [target, architecture, _, runner, promise, more]: [&str; 6] = words.try_into().unwrap();
        let run = match (promise, runner) {
            ("here" | "runs", "-") => "natively".to_owned(),
            ("runs", runner) => format!("by {runner}"),
            (_, _) => "no".to_owned(),
        };
        let package = match (promise, architecture) {
            ("here" | "runs", _) if more.contains("windows") => "no".to_owned(),
            ("here" | "runs", "-") => "tarball".to_owned(),
            ("here" | "runs", architecture) => format!("`{architecture}`"),
            (_, _) => "no".to_owned(),
        };
        (target.to_owned(), [run, package])
    });
    let document = fs::read_to_string(root().join("README.md")).unwrap();
    let rows =
        document.split_once("<!-- .ci/targets -->\n").unwrap().1.split_once("\n\n").unwrap().0;
    let promised = rows.lines().filter(|row| row.starts_with("| `")).map(|row| {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let [target, _, run, package]: [&str; 4] = cells.try_into().unwrap();
        (target.trim_matches('`').to_owned(), [run.to_owned(), package.to_owned()])
    });
    assert_eq!(promised.collect::<BTreeMap<_, _>>(), held.collect::<BTreeMap<_, _>>());
}
