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
fn the_tree_keeps_every_rule(#[case] rule: fn(&House) -> Vec<Breach>) {
    let found: Vec<String> = rule(&HOUSE).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}
