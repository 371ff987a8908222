//! One word for one thing: no two types of a crate have the same name, and the words of the register have one meaning. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::house::{Breach, House};
use crate::paths::code;

/// What begins the definition of a type.
const KINDS: [&str; 5] = ["struct ", "enum ", "trait ", "union ", "type "];

/// What may stand before it.
const VISIBLE: [&str; 4] = ["", "pub ", "pub(crate) ", "pub(super) "];

/// Files, or directories of files, for one kind of system: what they define exists once in each program.
const SYSTEMS: [&str; 5] = ["elsewhere", "linux", "posix", "unix", "windows"];

/// Pairs with a reason: the crate's directory, and the name.
const KNOWN: [(&str, &str); 7] = [
    // The same client, for programs without a runtime; its users name one or the other module.
    ("crates/dflock", "Claim"),
    ("crates/dflock", "Claims"),
    ("crates/dflock", "Client"),
    ("crates/dflock", "Connection"),
    ("crates/dflock", "Lease"),
    ("crates/dflock", "Leases"),
    ("crates/dflock", "Watch"),
];

/// Types that are named by a word of the register in CONTRIBUTING.md, and have its meaning. Another type of such a name needs
/// a name of its own, or stands here, too.
const REGISTERED: [(&str, &[&str]); 6] = [
    (
        "crates/dflock",
        &["Answer", "Claim", "Grant", "Hold", "Outcome", "Patience", "Refusal", "Watch"],
    ),
    (
        "crates/file-semaphore",
        &[
            "Answer", "Claim", "Holder", "Judge", "Liveness", "Outcome", "Patience", "Queue",
            "Request", "Watch",
        ],
    ),
    (
        "crates/leases",
        &[
            "Answer", "Claim", "Grant", "Hold", "Holder", "Record", "Refusal", "Request", "Scan",
            "Waiter", "Watch",
        ],
    ),
    ("crates/lfp", &["Waiter"]),
    ("crates/ttylock", &["Answer", "Holder", "Outcome", "Request", "Standing"]),
    ("", &["Queue", "Refusal", "Waiter"]),
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

/// Types that are named by a word of the register in another sense: none but the registered ones have such a name.
#[must_use]
pub fn senses(house: &House) -> Vec<Breach> {
    let register = house.texts.iter().filter(|text| text.path == "CONTRIBUTING.md");
    let words: BTreeSet<String> = register.flat_map(|text| register_words(&text.text)).collect();
    let mut found = Vec::new();
    for source in house.sources.iter().filter(|source| !is_of_a_system(&source.path)) {
        let owner = source.path.split("src/").next().unwrap_or_default().trim_end_matches('/');
        let registered = REGISTERED.iter().find(|(name, _)| *name == owner);
        let has_it = |name: &str| registered.is_some_and(|(_, types)| types.contains(&name));
        for (line, text) in code(&source.text) {
            let Some(name) = type_name(text).filter(|name| words.contains(*name)) else { continue };
            if !has_it(name) {
                let what =
                    format!("{name} is a word of the register: does this type have its meaning?");
                found.push(Breach { path: source.path.clone(), line, what });
            }
        }
    }
    found
}

/// The words of the first table below the heading "Words", as names of types.
fn register_words(text: &str) -> Vec<String> {
    let below = text.split("\n## ").find(|part| part.contains("Words\n")).unwrap_or_default();
    let rows = below.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let words = cells.flat_map(|cell| cell.split(',')).map(str::trim);
    let capital = |word: &str| {
        let (first, rest) = word.split_at_checked(1)?;
        Some(format!("{}{rest}", first.to_ascii_uppercase()))
    };
    words.filter_map(capital).collect()
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
