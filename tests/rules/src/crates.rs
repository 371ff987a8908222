//! The crates of the workspace, by their manifests, and which of them may use which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::house::{self, Breach, House};

/// One crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crate {
    /// As its manifest says.
    pub name: String,
    /// Below the workspace; empty for the root package.
    pub directory: String,
    /// What it depends on outside of its tests, under the names that its code uses.
    pub uses: BTreeSet<String>,
}

pub(crate) fn read(root: &Path) -> Vec<Crate> {
    let mut manifests = vec![root.join("Cargo.toml")];
    let crates = house::walk(&root.join("crates"), "toml");
    manifests.extend(crates.into_iter().filter(|path| is_manifest(root, path)));
    manifests.iter().map(|path| manifest(root, path)).collect()
}

fn is_manifest(root: &Path, path: &Path) -> bool {
    path.ends_with("Cargo.toml") && house::below(root, path).split('/').count() == 3
}

fn manifest(root: &Path, path: &Path) -> Crate {
    let (mut section, mut name, mut uses) = (String::new(), String::new(), BTreeSet::new());
    for line in house::read(path).lines() {
        if line.starts_with('[') {
            section = line.to_owned();
        }
        if section == "[package]" && name.is_empty() && line.starts_with("name = ") {
            name = line.split('"').nth(1).unwrap_or_default().to_owned();
        }
        let key: String =
            line.chars().take_while(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
        let counts = section.ends_with("dependencies]")
            && !section.contains("dev-")
            && !section.contains("build-")
            && !section.contains("workspace");
        if counts && !key.is_empty() {
            uses.insert(key);
        }
    }
    let directory = path.parent().map_or(String::new(), |parent| house::below(root, parent));
    Crate { name, directory, uses }
}

impl House {
    /// The crates that this one can name, but for those of the workspace.
    pub(crate) fn outside(&self, crate_: &str) -> BTreeSet<String> {
        let names = |name: &String| name.replace('-', "_");
        let own: BTreeSet<String> = self.crates.iter().map(|owner| names(&owner.name)).collect();
        let this = self.crates.iter().find(|owner| names(&owner.name) == crate_);
        let uses = this.into_iter().flat_map(|owner| owner.uses.iter().map(names));
        uses.filter(|name| !own.contains(name)).collect()
    }
}

/// Crates that use another of the workspace, though the table `| crate | may use | for |` of
/// ARCHITECTURE.md does not say so.
#[must_use]
pub fn crates_use_only_what_they_may(house: &House) -> Vec<Breach> {
    let Some(plan) = house.texts.iter().find(|text| text.path == "ARCHITECTURE.md") else {
        return vec![breach("there is no ARCHITECTURE.md".to_owned())];
    };
    let allowed = allowed(&plan.text);
    let own: BTreeSet<&String> = house.crates.iter().map(|owner| &owner.name).collect();
    let mut found = Vec::new();
    for owner in &house.crates {
        let Some(may) = allowed.get(&owner.name) else {
            found.push(breach(format!("{} has no row", owner.name)));
            continue;
        };
        let unexpected =
            owner.uses.iter().filter(|used| own.contains(used) && !may.contains(*used));
        found.extend(unexpected.map(|used| breach(format!("{} may not use {used}", owner.name))));
    }
    let gone = allowed.keys().filter(|name| !own.contains(name));
    found.extend(gone.map(|name| breach(format!("there is no crate {name}"))));
    found
}

fn breach(what: String) -> Breach {
    Breach { path: "ARCHITECTURE.md".to_owned(), line: 0, what }
}

fn allowed(plan: &str) -> BTreeMap<String, BTreeSet<String>> {
    let quoted = |cell: &str| -> BTreeSet<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let mut rows = BTreeMap::new();
    let table = plan.lines().skip_while(|line| *line != "| crate | may use | for |").skip(2);
    for line in table.take_while(|line| line.starts_with('|')) {
        let mut cells = line.trim_matches('|').split(" | ");
        let (names, used) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        rows.extend(quoted(names).into_iter().map(|name| (name, quoted(used))));
    }
    rows
}
