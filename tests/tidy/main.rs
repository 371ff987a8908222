//! The shape of the source against ARCHITECTURE.md: every file has its row there, pure files do
//! no input or output and use no shell files, no file is too long, files do not use each other in
//! circles across directories, and crates use only the crates they may.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod source;

use std::collections::{BTreeMap, BTreeSet};

use source::{File, Room, crates, files, rooms};

/// A file without its tests, in lines.
const LINES: usize = 450;

/// What a pure file may not mention: files, sockets, processes, clocks, the environment,
/// randomness, and the crates that do such things.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::env::",
    "std::net::Tcp",
    "std::net::Udp",
    "std::os::unix::net",
    "std::process::Command",
    "std::process::id",
    "std::thread",
    "fs::",
    "File::",
    "Instant::now",
    "SystemTime::now",
    "nix::",
    "rustix::",
    "socket2::",
    "tokio::",
    "hyper::",
    "getrandom::",
    "println!",
    "eprintln!",
];

/// Names of the field that are values, in crates that do more: numbers of errors and signals.
const VALUES: &[&str] = &["nix::errno::Errno", "nix::sys::signal::Signal"];

#[test]
fn every_file_has_a_row_and_every_row_a_file() {
    let files: BTreeSet<String> = files().into_iter().map(|file| file.path).collect();
    let rows: BTreeSet<String> = rooms().into_iter().map(|room| room.path).collect();
    let missing: Vec<_> = files.difference(&rows).collect();
    let gone: Vec<_> = rows.difference(&files).collect();
    assert!(missing.is_empty() && gone.is_empty(), "no row: {missing:#?}\nno file: {gone:#?}");
}

#[test]
fn every_file_says_first_what_it_is_for() {
    let silent: Vec<_> = files()
        .into_iter()
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| file.path)
        .collect();
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<_> = files()
        .into_iter()
        .map(|file| (file.code.lines().count(), file.path))
        .filter(|(lines, _)| *lines > LINES)
        .collect();
    assert!(long.is_empty(), "over {LINES} lines without tests: {long:#?}");
}

#[test]
fn pure_files_do_no_input_or_output() {
    let pure = pure();
    let mut found = Vec::new();
    for file in files().iter().filter(|file| pure.contains(&file.path)) {
        for line in file.code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let rest = VALUES.iter().fold(line.to_owned(), |rest, value| rest.replace(value, ""));
            if IMPURE.iter().any(|word| mentions(&rest, word)) {
                found.push(format!("{}: {}", file.path, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The word, but not as the end of another.
fn mentions(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    })
}

#[test]
fn pure_files_use_no_shell_files() {
    let files = files();
    let pure = pure();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| pure.contains(&file.path)) {
        for used in file.uses(&files) {
            if !pure.contains(&used) {
                found.push(format!("{} uses {used}", file.path));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn files_use_each_other_in_circles_only_within_one_module() {
    let files = files();
    let uses: BTreeMap<String, BTreeSet<String>> =
        files.iter().map(|file| (file.path.clone(), file.uses(&files))).collect();
    let mut found = BTreeSet::new();
    for file in &files {
        for used in reachable(&file.path, &uses) {
            let back = reachable(&used, &uses).contains(&file.path);
            if used != file.path && back && !same_module(&file.path, &used) {
                found.insert((file.path.clone(), used));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

fn reachable(from: &str, uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(path) = next.pop() {
        for used in uses.get(&path).into_iter().flatten() {
            if reached.insert(used.clone()) {
                next.push(used.clone());
            }
        }
    }
    reached
}

/// Whether both belong to one type's module: the same directory below the crate's own, or a file and the
/// directory of its name.
fn same_module(one: &str, other: &str) -> bool {
    let module = |path: &str| path.trim_end_matches("/mod.rs").trim_end_matches(".rs").to_owned();
    let parent = |path: &str| module(path).rsplit_once('/').map(|(parent, _)| parent.to_owned());
    let (a, b) = (module(one), module(other));
    (parent(one) == parent(other)
        && parent(one).is_some_and(|parent| !parent.ends_with("/src") && parent != "src"))
        || parent(one).as_ref() == Some(&b)
        || parent(other).as_ref() == Some(&a)
}

#[test]
fn crates_use_only_what_the_table_allows() {
    let allowed = source::arrows();
    let known: BTreeSet<&String> = allowed.keys().collect();
    let crates = crates();
    assert_eq!(
        crates.keys().collect::<BTreeSet<_>>(),
        known,
        "a crate without a row, or a row too many"
    );
    for (name, used) in &crates {
        let unexpected: Vec<_> = used.difference(&allowed[name]).collect();
        assert!(unexpected.is_empty(), "{name} may not use {unexpected:?}");
    }
}

fn pure() -> BTreeSet<String> {
    rooms().into_iter().filter(|room| room.pure).map(|Room { path, .. }| path).collect()
}

/// The checks see what they are made to see.
mod themselves {
    use super::*;

    fn file(path: &str, code: &str) -> File {
        File { path: path.to_owned(), text: code.to_owned(), code: code.to_owned() }
    }

    #[test]
    fn uses_are_found() {
        let files = [
            file("src/lib.rs", "pub mod a;"),
            file("src/a/mod.rs", "mod b;"),
            file("src/a/b.rs", "use crate::c::{Thing, d::Other};\nuse super::Inner;"),
            file("src/c/mod.rs", "pub struct Thing;"),
            file("src/c/d.rs", "pub struct Other;"),
        ];
        let used = files[2].uses(&files);
        let expected = ["src/a/mod.rs", "src/c/d.rs", "src/c/mod.rs"];
        assert_eq!(used, expected.iter().map(ToString::to_string).collect());
    }

    #[test]
    fn what_a_module_hands_on_counts_as_where_it_is() {
        let files = [
            file("src/a.rs", "use crate::c::{Thing, Other, Own};"),
            file(
                "src/c/mod.rs",
                "mod d;\nmod e;\npub use self::d::Thing;\npub(crate) use e::{Other, More};",
            ),
            file("src/c/d.rs", "pub struct Thing;"),
            file("src/c/e.rs", "pub struct Other;"),
        ];
        let expected = ["src/c/d.rs", "src/c/e.rs", "src/c/mod.rs"];
        assert_eq!(files[0].uses(&files), expected.iter().map(ToString::to_string).collect());
    }

    #[test]
    fn words_are_whole() {
        assert!(mentions("use std::fs;", "std::fs"));
        assert!(mentions("    fs::read(path)", "fs::"));
        assert!(!mentions("offs::read", "fs::"));
        assert!(!mentions("crate::fs::read", "fs::"));
    }

    #[test]
    fn modules_are_told_apart() {
        assert!(same_module("src/a/b.rs", "src/a/c.rs"));
        assert!(same_module("src/a.rs", "src/a/c.rs"));
        assert!(same_module("src/a/mod.rs", "src/a/c.rs"));
        assert!(!same_module("src/a/b.rs", "src/d/c.rs"));
        assert!(!same_module("src/a.rs", "src/b.rs"));
        assert!(!same_module("crates/x/src/a.rs", "crates/x/src/b.rs"));
    }
}
