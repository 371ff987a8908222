//! The rules, held against this tree.

use rstest::rstest;
use rules::{Breach, House};

#[rstest]
#[case::purity(rules::purity)]
#[case::sizes(rules::sizes)]
#[case::heads(rules::heads)]
#[case::circles(rules::circles)]
#[case::crates(rules::crates_use_only_what_they_may)]
#[case::words(rules::words)]
#[case::needs(rules::needs)]
fn the_tree_keeps(#[case] rule: fn(&House) -> Vec<Breach>) {
    let found: Vec<String> = rule(&House::read()).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}
