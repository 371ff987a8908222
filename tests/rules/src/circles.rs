//! Files use each other in circles only within one type's module. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::house::{Breach, House};
use crate::paths::Files;

/// Two files in a circle that belong to different modules.
#[must_use]
pub fn circles(house: &House) -> Vec<Breach> {
    let uses = uses(house);
    let mut found = BTreeSet::new();
    for file in uses.keys() {
        for used in reachable(file, &uses) {
            if used != *file && reachable(&used, &uses).contains(file) && !same_module(file, &used)
            {
                let what = format!("{used} uses it, and is used by it");
                found.insert(Breach { path: file.clone(), line: 0, what });
            }
        }
    }
    found.into_iter().collect()
}

/// Which files of its own crate each file uses. A crate's root counts as used by nobody: it only lists.
fn uses(house: &House) -> BTreeMap<String, BTreeSet<String>> {
    let files = Files::of(house);
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (place, source) in &files.0 {
        let used =
            source.mentions.iter().filter_map(|mention| files.leads_to(place, &mention.path));
        let counts = |file: &&str| {
            *file != source.path
                && !file.ends_with("src/lib.rs")
                && own_crate(file) == own_crate(&source.path)
        };
        let used = used.filter(counts).map(str::to_owned);
        uses.entry(source.path.clone()).or_default().extend(used);
    }
    uses
}

fn own_crate(file: &str) -> &str {
    file.split_once("src/").map_or(file, |(directory, _)| directory)
}

fn reachable(from: &str, uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(path) = next.pop() {
        for used in uses.get(&path).into_iter().flatten() {
            if reached.insert(used.clone()) {
                next.push(used.clone());
            }
        }
    }
    reached
}

/// Whether both belong to one type's module: the same directory below the crate's own, or a file and the
/// directory of its name.
fn same_module(one: &str, other: &str) -> bool {
    let module = |path: &str| path.trim_end_matches("/mod.rs").trim_end_matches(".rs").to_owned();
    let parent = |path: &str| module(path).rsplit_once('/').map(|(parent, _)| parent.to_owned());
    let (a, b) = (module(one), module(other));
    let below_the_crate = |parent: &String| !parent.ends_with("/src") && parent != "src";
    (parent(one) == parent(other) && parent(one).as_ref().is_some_and(below_the_crate))
        || parent(one).as_ref() == Some(&b)
        || parent(other).as_ref() == Some(&a)
}
