//! The Rust code in documents is whole: where only rustdoc reads it, lines can be hidden that everybody else sees, or
//! needs. Each library has a README, whose code runs as a test. Pure.

use crate::api::LIBRARIES;
use crate::house::{Breach, House};

/// Hidden lines in documents, and libraries without a README that is tested.
#[must_use]
pub fn readmes(house: &House) -> Vec<Breach> {
    let mut found = Vec::new();
    for text in &house.texts {
        let hidden = code(&text.text).filter(|(_, line)| is_hidden(line));
        found.extend(hidden.map(|(line, what)| Breach {
            path: text.path.clone(),
            line,
            what: format!("only rustdoc hides this line: {what}"),
        }));
    }
    for library in LIBRARIES {
        let path = format!("crates/{library}/README.md");
        let breach = |what: &str| Breach { path: path.clone(), line: 0, what: what.to_owned() };
        let Some(text) = house.texts.iter().find(|text| text.path == path) else {
            found.push(breach("it is missing"));
            continue;
        };
        let source = format!("crates/{library}/src/lib.rs");
        let library = house.sources.iter().find(|file| file.path == source);
        let is_tested =
            library.is_some_and(|file| file.text.contains("include_str!(\"../README.md\")"));
        if !is_tested && code(&text.text).next().is_some() {
            found.push(breach("its code is not tested"));
        }
    }
    found
}

fn is_hidden(line: &str) -> bool {
    let line = line.trim_start();
    line == "#" || line.starts_with("# ")
}

/// The lines of Rust, with their numbers. As for rustdoc, a block without a language is Rust.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut language = None;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        if let Some(named) = line.trim_start().strip_prefix("```") {
            language = if language.is_some() { None } else { Some(named.to_owned()) };
            return false;
        }
        language.as_ref().is_some_and(|named| {
            let first = named.split(',').next().unwrap_or_default();
            matches!(first, "" | "rust" | "no_run" | "should_panic" | "compile_fail")
        })
    })
}
