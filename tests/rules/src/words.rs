//! Texts name only what exists: an identifier or a path in backquotes, in ARCHITECTURE.md, in the heads of files, in each
//! README, in docs and in SECURITY.md, stand somewhere in the tree; and what is promised in a table names its tests.

use std::collections::BTreeSet;
use std::path::Path;

use crate::house::{self, Breach, House};

/// A text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Below the workspace.
    pub path: String,
    /// All of it.
    pub text: String,
}

/// Names of other people's things, which nothing in the tree spells out.
const ELSEWHERE: &[&str] = &[
    "F_GETLK",
    "NAME_tests.rs", // for any NAME
    "RENAME_EXCHANGE",
    "SO_PEERPIDFD",
    "clap_builder",
    "clap_derive",
    "clap_lex",
    "XDG_DATA_DIRS",
    "dflockd_watchers", // by its prefix and the figure's name
    "locks_start",
    "no_run",
    "openPort",
    "pg_advisory_lock", // its sister, which does not wait, is
    "seq_read_iter",
    "src/lfd/",
    "vVERSION",
];

pub(crate) fn texts(root: &Path) -> Vec<Text> {
    let mut paths = house::walk(&root.join("docs"), "md");
    let own = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "tests/README.md"];
    paths.extend(own.map(|name| root.join(name)));
    let of_crates = house::walk(&root.join("crates"), "md");
    paths.extend(of_crates.into_iter().filter(|path| path.ends_with("README.md")));
    let text = |path: &Path| Text { path: house::below(root, path), text: house::read(path) };
    paths.iter().map(|path| text(path)).collect()
}

/// Words of everything that is not text for people; comments do not count. Names of files and their parts.
pub(crate) fn known(root: &Path) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for path in house::walk(root, "") {
        let name = house::below(root, &path);
        let mut rest = name.as_str();
        known.insert(rest.to_owned());
        while let Some((directory, _)) = rest.rsplit_once('/') {
            known.extend([directory.to_owned(), format!("{directory}/")]);
            rest = directory;
        }
        known.extend(split(&name).map(str::to_owned));
        if name.ends_with(".md") || is_page(&name) || name.ends_with(".lock") {
            continue;
        }
        // The test of this rule has names of nothing.
        if name.starts_with("tests/rules/") {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        known.extend(code.flat_map(split).map(str::to_owned));
    }
    known
}

/// Documents whose tables promise something, and name the tests of it in the last cell of each row.
const PROMISES: [&str; 3] = ["SECURITY.md", "crates/pidlockfile/README.md", "tests/README.md"];

/// Rows of such tables that name no test, or one that does not exist.
#[must_use]
pub fn promises(house: &House) -> Vec<Breach> {
    let mut found = Vec::new();
    let all = house.tests.iter().flat_map(|source| source.text.split("fn ").skip(1));
    let functions: BTreeSet<&str> =
        all.filter_map(|rest| Some(rest.split_once(['(', '<'])?.0)).collect();
    for Text { path, text } in &house.texts {
        if !PROMISES.contains(&path.as_str()) {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("| ")) {
            if lines.get(at + 1).is_some_and(|below| below.starts_with("|--")) {
                continue;
            }
            let cell = line.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
            let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            let missing = tests.iter().filter(|test| !functions.contains(*test));
            let whats = missing.map(|test| format!("there is no test `{test}`"));
            let none = tests.is_empty().then(|| "no test is named".to_owned());
            let breach = |what| Breach { path: path.clone(), line: at + 1, what };
            found.extend(whats.chain(none).map(breach));
        }
    }
    found
}

fn is_page(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(before, section)| section.len() == 1 && before.contains("man/"))
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Names in backquotes that nothing in the tree has.
#[must_use]
pub fn words(house: &House) -> Vec<Breach> {
    let mut found = Vec::new();
    for text in &house.texts {
        look(house, &text.path, &text.text, &mut found);
    }
    for source in &house.sources {
        let head: Vec<&str> =
            source.text.lines().take_while(|line| line.starts_with("//!")).collect();
        look(house, &source.path, &head.join("\n"), &mut found);
    }
    found
}

fn look(house: &House, path: &str, text: &str, found: &mut Vec<Breach>) {
    for (number, line) in text.lines().enumerate() {
        for quoted in line.split('`').skip(1).step_by(2) {
            if let Some(missing) = missing(house, quoted) {
                let what = format!("`{missing}` is nowhere in the tree");
                found.push(Breach { path: path.to_owned(), line: number + 1, what });
            }
        }
    }
}

/// The part of a name in backquotes that does not exist; nothing where it is a command, a call of the
/// system's or prose.
fn missing(house: &House, quoted: &str) -> Option<String> {
    // The first word of a command may be the name of a file.
    let file = quoted.split(' ').next().unwrap_or_default().trim_end_matches(['*', '?']);
    let roots =
        ".ci/ benches/ crates/ etc/ fuzz/ inetd.conf man/ packaging/ python/ src/ tests/ xinetd.d/";
    if file.ends_with(".rs") || roots.split(' ').any(|root| file.starts_with(root)) {
        let below = format!("/{file}");
        let is_known = house.known.contains(file)
            || ELSEWHERE.contains(&file)
            || house.known.iter().any(|known| known.ends_with(&below));
        return (!is_known).then(|| file.to_owned());
    }
    let name = quoted.trim_end_matches("()").trim_end_matches('!');
    let plain = |c: char| c.is_alphanumeric() || "_:./-".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return None;
    }
    let identifier = name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':');
    let telling = name.contains('_')
        || name.contains("::")
        || name.chars().skip(1).any(char::is_uppercase) && name.chars().any(char::is_lowercase);
    if !(identifier && telling) {
        return None;
    }
    let unknown = |word: &&str| !house.known.contains(*word) && !ELSEWHERE.contains(word);
    split(name).find(unknown).map(str::to_owned)
}
