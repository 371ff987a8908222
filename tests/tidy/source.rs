//! Reads the source tree, the tables of ARCHITECTURE.md and the manifests, as the checks need them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// One file of the source.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Below the workspace, with slashes.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
    /// Without the tests at its end.
    pub(crate) code: String,
}

/// One file in a table of ARCHITECTURE.md.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// As in [`File::path`].
    pub(crate) path: String,
    /// Values in, values out.
    pub(crate) pure: bool,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `src` and `crates/*/src` that is not of tests alone.
pub(crate) fn files() -> Vec<File> {
    let mut paths = Vec::new();
    walk(&root().join("src"), &mut paths);
    for crate_ in directories(&root().join("crates")) {
        walk(&crate_.join("src"), &mut paths);
    }
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let is_test =
            path.ends_with("_tests.rs") || path.ends_with("/tests.rs") || path.contains("/tests/");
        if !is_test {
            let code = without_tests(&text);
            files.push(File { path, text, code });
        }
    }
    files
}

fn directories(below: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// The tree is ours and not deep, so calling itself is safe.
fn walk(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

/// Up to the test module at the end. What a generator has written counts as nothing.
fn without_tests(text: &str) -> String {
    if text.lines().take(20).any(|line| line.contains("@generated")) {
        return String::new();
    }
    let ends = ["\n#[cfg(test)]\nmod ", "\n#[cfg(all(test"];
    let end = ends.iter().filter_map(|mark| text.find(mark)).min();
    text[..end.unwrap_or(text.len())].to_owned()
}

/// The rows of every table whose head is `| file | pure? | what |`. A cell may name several files
/// of one directory; those after the first without it.
pub(crate) fn rooms() -> Vec<Room> {
    let mut rooms = Vec::new();
    for [file, pure, _] in rows("| file | pure? | what |") {
        let mut directory = String::new();
        for name in file.split('`').skip(1).step_by(2) {
            if let Some((before, _)) = name.rsplit_once('/') {
                directory = before.to_owned();
            }
            let name = name.rsplit('/').next().unwrap();
            rooms.push(Room { path: format!("{directory}/{name}"), pure: pure == "yes" });
        }
    }
    rooms
}

/// Which crate of the workspace may use which: the table `| crate | may use | for |`.
pub(crate) fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let quoted =
        |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let rows = rows("| crate | may use | for |");
    rows.iter()
        .flat_map(|[name, used, _]| quoted(name).into_iter().map(|name| (name, quoted(used))))
        .collect()
}

fn rows(head: &str) -> Vec<[String; 3]> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut rows = Vec::new();
    let mut within = false;
    for line in text.lines() {
        within = line == head || (within && line.starts_with('|'));
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if let (true, [a, b, c @ ..]) =
            (within && line != head && !line.starts_with("|---"), &cells[..])
        {
            rows.push([(*a).to_owned(), (*b).to_owned(), c.join(" | ")]);
        }
    }
    assert!(!rows.is_empty(), "ARCHITECTURE.md has no table {head}");
    rows
}

/// The crates of the workspace, and which others of it each uses outside its tests.
pub(crate) fn crates() -> BTreeMap<String, BTreeSet<String>> {
    let mut manifests = vec![root().to_owned()];
    manifests.extend(directories(&root().join("crates")));
    let manifests: Vec<String> =
        manifests.iter().map(|path| fs::read_to_string(path.join("Cargo.toml")).unwrap()).collect();
    let name = |manifest: &str| {
        let line = manifest.lines().find(|line| line.starts_with("name = ")).unwrap();
        line.split('"').nth(1).unwrap().to_owned()
    };
    let names: BTreeSet<String> = manifests.iter().map(|manifest| name(manifest)).collect();
    let used = |manifest: &str| {
        let mut section = "";
        let mut used = BTreeSet::new();
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let key: String =
                line.chars().take_while(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
            let counts = section.ends_with("dependencies]")
                && !section.contains("dev-")
                && !section.contains("workspace");
            if counts && names.contains(&key) {
                used.insert(key);
            }
        }
        used
    };
    manifests.iter().map(|manifest| (name(manifest), used(manifest))).collect()
}

impl File {
    /// The files of the same crate that its code names by `crate::` or `super::`: where a module hands on
    /// what another file has, that file.
    pub(crate) fn uses(&self, files: &[File]) -> BTreeSet<String> {
        let source = &self.path[..self.path.find("src").unwrap() + 3];
        let here = self.module(source);
        let mut used = BTreeSet::new();
        for path in paths(&self.code) {
            let mut words: Vec<&str> = path.split("::").collect();
            let mut module = match words.remove(0) {
                "crate" => Vec::new(),
                _ => here[..here.len().saturating_sub(1)].to_vec(),
            };
            while words.first() == Some(&"super") {
                words.remove(0);
                module.pop();
            }
            module.extend(words);
            used.extend(longest(source, &module, files));
        }
        used.remove(&self.path);
        used
    }

    /// The path below this module of what it hands on under that name (`pub use store::{Store, Wish}`).
    fn hands_on(&self, item: &str) -> Option<String> {
        let statements = statements(&self.code);
        let shown = statements.iter().filter_map(|line| {
            let (before, path) = line.split_once("use ")?;
            before
                .trim_start()
                .split(']')
                .next_back()?
                .trim_start()
                .starts_with("pub")
                .then_some(path)
        });
        let mut paths = Vec::new();
        shown.for_each(|path| expand("", path.trim_start_matches("self::"), &mut paths));
        paths.into_iter().find(|path| path.rsplit("::").next() == Some(item) && path != item)
    }

    /// The module that this file is, such as `["serve", "listen"]`.
    fn module(&self, source: &str) -> Vec<&str> {
        let inner = self.path[source.len()..].trim_matches('/').trim_end_matches(".rs");
        let inner = inner.trim_end_matches("mod").trim_end_matches('/');
        let inner = if inner == "lib" || inner == "main" { "" } else { inner };
        inner.split('/').filter(|word| !word.is_empty()).collect()
    }
}

/// The file of the longest beginning of a path that is a module, or the one from which that module hands
/// on what the path names next; never the crate's own root.
fn longest(source: &str, module: &[&str], files: &[File]) -> Option<String> {
    let (length, file) = (1..=module.len()).rev().find_map(|length| {
        let inner = module[..length].join("/");
        let names = [format!("{source}/{inner}.rs"), format!("{source}/{inner}/mod.rs")];
        files.iter().find(|file| names.contains(&file.path)).map(|file| (length, file))
    })?;
    let from = module.get(length).and_then(|item| file.hands_on(item));
    let further = from.and_then(|from| {
        let path: Vec<&str> = module[..length].iter().copied().chain(from.split("::")).collect();
        longest(source, &path, files).filter(|further| *further != file.path)
    });
    Some(further.unwrap_or_else(|| file.path.clone()))
}

/// Every path that begins with `crate::` or `super::`, those in braces each for itself.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in statements(code) {
        for start in ["crate::", "super::"] {
            let mut rest = line.as_str();
            while let Some(at) = rest.find(start) {
                let before = rest[..at].chars().next_back();
                let whole = !before
                    .is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$');
                rest = &rest[at..];
                if whole {
                    expand("", rest, &mut found);
                }
                rest = &rest[start.len()..];
            }
        }
    }
    found
}

/// The code without comments, each statement that spans lines on one.
fn statements(code: &str) -> Vec<String> {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let all: Vec<&str> = lines.map(str::trim).collect();
    all.join(" ").split(';').map(str::to_owned).collect()
}

/// `a::{b, c::d}` to `a::b` and `a::c::d`. Braces nest as deep as people write them.
fn expand(prefix: &str, text: &str, found: &mut Vec<String>) {
    let end =
        text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    let path = format!("{prefix}{}", &text[..end]);
    if !(path.ends_with("::") && text[end..].starts_with('{')) {
        found.push(path.trim_end_matches(':').to_owned());
        return;
    }
    let (mut depth, mut begin) = (0, end + 1);
    for (at, c) in text.char_indices().skip_while(|(at, _)| *at < end) {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 1 => {
                expand(&path, text[begin..at].trim(), found);
                begin = at + 1;
                if c == '}' {
                    return;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}
