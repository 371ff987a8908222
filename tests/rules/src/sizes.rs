//! How long functions are, and that every file says first what it is for. Pure.

use crate::house::{Breach, House};

/// A function, in lines.
const FUNCTION: usize = 70;

/// Functions that are too long.
#[must_use]
pub fn sizes(house: &House) -> Vec<Breach> {
    let mut found = Vec::new();
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
