//! Files use each other in circles only if one is the module of the other. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::house::{Breach, House};
use crate::paths::Files;

/// Two files in a circle, neither of which is in the module of the other. Within one directory, what the files take from
/// the directory's own module does not count.
#[must_use]
pub fn circles(house: &House) -> Vec<Breach> {
    let uses = uses(house);
    let below: BTreeMap<String, BTreeSet<String>> = uses
        .iter()
        .map(|(file, used)| {
            (file.clone(), used.iter().filter(|it| !is_below(file, it)).cloned().collect())
        })
        .collect();
    let mut found = mutual(&uses, |file, used| !same_directory(file, used));
    found.extend(mutual(&below, |_, _| true));
    let breach = |(path, used): (String, String)| {
        let what = format!("{used} uses it, and is used by it");
        Breach { path, line: 0, what }
    };
    found.into_iter().map(breach).collect()
}

/// The files that use each other, of those that count.
fn mutual(
    uses: &BTreeMap<String, BTreeSet<String>>,
    counts: impl Fn(&str, &str) -> bool,
) -> BTreeSet<(String, String)> {
    let all: BTreeMap<&String, BTreeSet<String>> =
        uses.keys().map(|file| (file, reachable(file, uses))).collect();
    let pairs = all.iter().flat_map(|(file, used)| used.iter().map(move |used| (*file, used)));
    let is_circle = |(file, used): &(&String, &String)| {
        let is_mutual = all.get(used).is_some_and(|back| back.contains(*file));
        file != used
            && is_mutual
            && !is_below(file, used)
            && !is_below(used, file)
            && counts(file, used)
    };
    pairs.filter(is_circle).map(|(file, used)| (file.clone(), used.clone())).collect()
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

/// Whether a file is in the module of the other, below it.
fn is_below(file: &str, above: &str) -> bool {
    module(file).strip_prefix(module(above)).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether both are in one directory below the crate's own.
fn same_directory(one: &str, other: &str) -> bool {
    let parent = |path| module(path).rsplit_once('/').map(|(parent, _)| parent);
    let is_of_a_module = parent(one).is_some_and(|it| !it.ends_with("/src") && it != "src");
    is_of_a_module && parent(one) == parent(other)
}

fn module(path: &str) -> &str {
    path.trim_end_matches(".rs").trim_end_matches("/mod")
}
