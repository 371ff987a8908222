//! How long files and functions are, and that every file says first what it is for. Pure.

use crate::house::{Breach, House, is_generated};

/// A file without its tests, in lines.
const FILE: usize = 450;

/// A function, in lines.
const FUNCTION: usize = 70;

/// Files and functions that are too long.
#[must_use]
pub fn sizes(house: &House) -> Vec<Breach> {
    let mut found = Vec::new();
    for source in &house.sources {
        let lines = without_tests(&source.text).lines().count();
        if lines > FILE {
            let what = format!("{lines} lines without tests, {FILE} at most");
            found.push(Breach { path: source.path.clone(), line: 0, what });
        }
    }
    for module in house.modules().values() {
        for (name, line, lines) in &module.functions {
            if *lines > FUNCTION {
                let what = format!("{name} has {lines} lines, {FUNCTION} at most");
                found.push(Breach { path: module.file.clone(), line: *line, what });
            }
        }
    }
    found
}

/// Files that do not say first what they are for, or say in other words that they are pure.
#[must_use]
pub fn heads(house: &House) -> Vec<Breach> {
    let mut found = Vec::new();
    for source in &house.sources {
        for (number, line) in source.text.lines().enumerate() {
            let otherwise = |word: &str| word.starts_with("Pure") && word != "Pure.";
            if line.starts_with("//!") && line.split(' ').any(otherwise) {
                let what = "purity has one spelling, a sentence: Pure.".to_owned();
                found.push(Breach { path: source.path.clone(), line: number + 1, what });
            }
        }
    }
    let silent = house.sources.iter().filter(|source| !source.text.starts_with("//! "));
    let what = || "the first line does not say what the file is for (//! ...)".to_owned();
    found.extend(silent.map(|source| Breach { path: source.path.clone(), line: 1, what: what() }));
    found
}

/// Up to the test module at the end.
fn without_tests(text: &str) -> &str {
    if is_generated(text) {
        return "";
    }
    let ends = ["\n#[cfg(test)]\nmod ", "\n#[cfg(all(test"];
    let end = ends.iter().filter_map(|mark| text.find(mark)).min();
    text.get(..end.unwrap_or(text.len())).unwrap_or(text)
}
