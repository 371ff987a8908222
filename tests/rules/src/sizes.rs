//! How long functions are, and that every file says first what it is for. Pure.

use crate::house::{Breach, House};
use crate::paths::code;

/// A function, in lines.
const FUNCTION: usize = 70;

/// What may stand before a function's name.
const QUALIFIERS: [&str; 8] =
    ["", "pub", "pub(crate)", "pub(super)", "const", "async", "unsafe", "extern"];

/// Functions that are too long. One ends at the brace that is as far from the margin as its name's line.
#[must_use]
pub fn sizes(house: &House) -> Vec<Breach> {
    let mut found = Vec::new();
    for source in &house.sources {
        let code = code(&source.text);
        for (at, (line, text)) in code.iter().enumerate() {
            let Some((before, name)) = text.split_once("fn ") else { continue };
            let margin = text.len() - text.trim_start().len();
            let ends = |text: &str| {
                let is_of_it = text.len() - text.trim_start().len() == margin;
                is_of_it && text.ends_with([';', '}'])
            };
            let end = code.iter().skip(at).find(|(_, text)| ends(text));
            let lines = end.map_or(0, |(end, _)| end - line + 1);
            if before.split(' ').all(|it| QUALIFIERS.contains(&it)) && lines > FUNCTION {
                let name = name.split(['(', '<']).next().unwrap_or_default();
                let what = format!("{name} has {lines} lines, {FUNCTION} at most");
                found.push(Breach { path: source.path.clone(), line: *line, what });
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
