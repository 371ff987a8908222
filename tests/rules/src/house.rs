//! The source tree as values: every file of every crate, read once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::crates::{self, Crate};
use crate::paths::{self, Mention};
use crate::words::{self, Text};

/// One file of Rust source.
#[derive(Clone, Debug)]
pub struct Source {
    /// Below the workspace, with slashes.
    pub path: String,
    /// All of it.
    pub text: Arc<str>,
    /// What it names, and what it defines, if it is no test.
    pub(crate) mentions: Arc<[Mention]>,
    pub(crate) defines: Arc<BTreeSet<String>>,
}

/// The tree: sources, manifests, and texts for people.
#[derive(Clone, Debug)]
pub struct House {
    /// Every file below `src` and `crates/*/src` but those of tests.
    pub sources: Vec<Source>,
    /// The crates, by their directories.
    pub crates: Vec<Crate>,
    /// Every file of Rust source, with tests and without.
    pub tests: Vec<Source>,
    /// What people read.
    pub texts: Vec<Text>,
    /// The lists of public APIs, by their paths.
    pub lists: BTreeMap<String, String>,
    /// Every word that stands outside of comments and of texts for people, or names a file.
    pub known: Arc<BTreeSet<String>>,
}

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breach {
    /// The file.
    pub path: String,
    /// Counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong, in words.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl Source {
    /// A file with this path and text.
    #[must_use]
    pub fn new(path: String, text: &str) -> Self {
        let read = if is_source(&path) && !is_generated(text) { text } else { "" };
        let (mentions, defines) = (paths::mentions(read).into(), paths::defined(read).into());
        Self { path, text: text.into(), mentions, defines }
    }
}

impl House {
    /// Reads the workspace that this package belongs to.
    ///
    /// # Panics
    /// Where a file cannot be read: a rule that looks at less than everything would pass in silence.
    #[must_use]
    pub fn read() -> Self {
        let root = root();
        let file = |path: &PathBuf| Source::new(below(&root, path), &read(path));
        let tests: Vec<Source> = walk(&root, "rs").iter().map(file).collect();
        let sources = tests.iter().filter(|file| is_source(&file.path)).cloned().collect();
        Self {
            sources,
            tests,
            crates: crates::read(&root),
            texts: words::texts(&root),
            lists: walk(&root.join("tests/api"), "txt")
                .iter()
                .map(|path| (below(&root, path), read(path)))
                .collect(),
            known: Arc::new(words::known(&root)),
        }
    }

    /// The crate of a file, as code names it, and the module that the file is.
    pub(crate) fn module(&self, path: &str) -> Option<(String, Vec<String>)> {
        let (directory, inner) = place(path);
        let owner = self.crates.iter().find(|owner| owner.directory == directory)?;
        Some((owner.name.replace('-', "_"), module_of(inner)))
    }
}

/// The directory of a file's crate, and the path below its `src`.
fn place(path: &str) -> (&str, &str) {
    let own = path.strip_prefix("src/").map(|inner| ("", inner));
    own.or_else(|| path.split_once("/src/")).unwrap_or(("", path))
}

/// The module that a file is. Programs are none that others can name.
fn module_of(inner: &str) -> Vec<String> {
    let inner = inner.trim_end_matches(".rs");
    match inner {
        "lib" => Vec::new(),
        "main" => vec!["main!".to_owned()],
        _ => inner
            .trim_end_matches("/mod")
            .split('/')
            .map(|word| if word == "bin" { "bin!" } else { word }.to_owned())
            .collect(),
    }
}

/// What a generator has written follows its own rules.
fn is_generated(text: &str) -> bool {
    text.lines().take(20).any(|line| line.contains("@generated"))
}

fn is_source(path: &str) -> bool {
    let of_a_crate = path.starts_with("src/")
        || path.strip_prefix("crates/").is_some_and(|inner| {
            inner.split_once('/').is_some_and(|(_, inner)| inner.starts_with("src/"))
        });
    let of_tests =
        path.ends_with("_tests.rs") || path.ends_with("/tests.rs") || path.contains("/tests/");
    of_a_crate && !of_tests
}

/// The directory of the workspace that this package belongs to.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().and_then(Path::parent).unwrap_or(here).to_owned()
}

pub(crate) fn below(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

#[expect(clippy::panic, reason = "see House::read")]
pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file with this ending, but for what is built or belongs to git. An empty ending means all.
#[expect(clippy::panic, reason = "see House::read")]
pub(crate) fn walk(root: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        let entries = fs::read_dir(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default();
            if path.is_symlink() || name == "target" || name == ".git" || name == "node_modules" {
                continue;
            }
            if path.is_dir() {
                left.push(path);
            } else if ending.is_empty() || path.extension().is_some_and(|have| have == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
