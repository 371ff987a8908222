//! One word for one thing: no two types of a crate have the same name. Pure.

use std::collections::BTreeMap;

use crate::house::{Breach, House};
use crate::paths::code;

/// What begins the definition of a type.
const KINDS: [&str; 5] = ["struct ", "enum ", "trait ", "union ", "type "];

/// What may stand before it.
const VISIBLE: [&str; 4] = ["", "pub ", "pub(crate) ", "pub(super) "];

/// Files, or directories of files, for one kind of system: what they define exists once in each program.
const SYSTEMS: [&str; 6] = ["elsewhere", "inotify", "linux", "posix", "unix", "windows"];

/// Pairs with a reason: the crate's directory, and the name.
const KNOWN: [(&str, &str); 8] = [
    // The same client, for programs without a runtime; its users name one or the other module.
    ("crates/dflock", "Claim"),
    ("crates/dflock", "Claims"),
    ("crates/dflock", "Client"),
    ("crates/dflock", "Connection"),
    ("crates/dflock", "Lease"),
    ("crates/dflock", "Leases"),
    ("crates/dflock", "Watch"),
    // The engine's, and that of the text, in the public module `wire`.
    ("crates/leases", "Request"),
];

/// Types that have the name of another type of their crate. Those behind an attribute `cfg` do not count.
#[must_use]
pub fn twins(house: &House) -> Vec<Breach> {
    let mut defined: BTreeMap<(&str, &str), Vec<(&str, usize)>> = BTreeMap::new();
    for source in house.sources.iter().filter(|source| !is_of_a_system(&source.path)) {
        let owner = source.path.split("src/").next().unwrap_or_default().trim_end_matches('/');
        let mut is_of_a_build = false;
        for (line, text) in code(&source.text) {
            if let Some(name) = type_name(text).filter(|_| !is_of_a_build) {
                defined.entry((owner, name)).or_default().push((&source.path, line));
            }
            is_of_a_build = text.starts_with("#[") && (is_of_a_build || text.starts_with("#[cfg("));
        }
    }
    let twins = defined.into_iter().filter(|(type_, _)| !KNOWN.contains(type_));
    let mut found = Vec::new();
    for ((_, name), places) in twins.filter(|(_, places)| places.len() > 1) {
        found.extend(places.into_iter().map(|(path, line)| Breach {
            path: path.to_owned(),
            line,
            what: format!("another type of the crate is a {name}, too"),
        }));
    }
    found
}

/// The name of the type that a line at the margin defines.
fn type_name(line: &str) -> Option<&str> {
    let mut rests = VISIBLE.iter().filter_map(|word| line.strip_prefix(word));
    let rest = rests.find_map(|rest| KINDS.iter().find_map(|kind| rest.strip_prefix(kind)))?;
    rest.split(|sign: char| !sign.is_alphanumeric() && sign != '_').next()
}

fn is_of_a_system(path: &str) -> bool {
    let words = path.trim_end_matches(".rs").split(['/', '_']);
    words.into_iter().any(|word| SYSTEMS.contains(&word))
}
