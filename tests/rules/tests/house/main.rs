//! The rules, held against this tree.

#[cfg(test)]
mod planted;

use std::sync::LazyLock;

use rstest::rstest;
use rules::{Breach, House};

/// The tree, read once for all tests.
static HOUSE: LazyLock<House> = LazyLock::new(House::read);

#[rstest]
#[case::purity(rules::purity)]
#[case::sizes(rules::sizes)]
#[case::heads(rules::heads)]
#[case::circles(rules::circles)]
#[case::crates(rules::crates_use_only_what_they_may)]
#[case::words(rules::words)]
#[case::promises(rules::promises)]
#[case::needs(rules::needs)]
#[case::sleepers(rules::sleepers)]
#[case::twins(rules::twins)]
#[case::senses(rules::senses)]
#[case::foreign(rules::foreign)]
#[case::readmes(rules::readmes)]
fn the_tree_keeps_every_rule(#[case] rule: fn(&House) -> Vec<Breach>) {
    let found: Vec<String> = rule(&HOUSE).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}

/// With LFPD_UPDATE in the environment, the lists are written anew instead.
#[test]
fn the_public_api_of_each_library_is_listed() {
    if std::env::var_os("LFPD_UPDATE").is_some() {
        for library in rules::LIBRARIES {
            let path = rules::root().join(rules::list_of(library));
            std::fs::write(path, rules::api(&HOUSE, library)).unwrap();
        }
        return;
    }
    let found = rules::LIBRARIES.iter().flat_map(|library| rules::unlisted(&HOUSE, library));
    let found: Vec<String> = found.map(|breach| breach.to_string()).collect();
    let advice = "if the change is meant: LFPD_UPDATE=1 cargo test -p rules public_api";
    assert!(found.is_empty(), "{} lines; {advice}\n{}", found.len(), found.join("\n"));
}
