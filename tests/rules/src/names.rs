//! Where a path leads: to a file of the workspace, or out of it. Pure.

use std::collections::BTreeMap;

use crate::syntax::{Mention, Module};

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To something that this file defines.
    Item(String),
    /// To a module as such, which is this file.
    Module(String),
    /// Out of the workspace: the path with its aliases resolved.
    Outside(Vec<String>),
}

/// Aliases of aliases are followed so far.
const DEPTH: usize = 16;

/// The names of the workspace.
pub(crate) struct Names<'a> {
    pub(crate) modules: &'a BTreeMap<(String, Vec<String>), &'a Module>,
}

impl Names<'_> {
    /// All that a path in this module may mean: one, or where modules are imported whole, several.
    pub(crate) fn targets(&self, crate_: &str, here: &Module, path: &Mention) -> Vec<Target> {
        self.resolve(crate_, here, &path.path, path.from_crates, DEPTH)
    }

    fn resolve(
        &self,
        crate_: &str,
        here: &Module,
        path: &[String],
        from_crates: bool,
        depth: usize,
    ) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        if depth == 0 {
            return Vec::new();
        }
        if from_crates {
            return self.a_crates(first, rest, path, depth);
        }
        match first.as_str() {
            "crate" | "$crate" => self.inside(crate_, Vec::new(), rest, depth),
            "self" => self.inside(crate_, here.path.clone(), rest, depth),
            "super" => {
                let above = here.path.split_last().map_or(&[][..], |(_, above)| above).to_vec();
                self.upwards(crate_, above, rest, depth)
            }
            "Self" => vec![Target::Item(here.file.clone())],
            _ => self.named(crate_, here, path, depth),
        }
    }

    fn upwards(
        &self,
        crate_: &str,
        mut module: Vec<String>,
        mut rest: &[String],
        depth: usize,
    ) -> Vec<Target> {
        while let Some((first, further)) = rest.split_first() {
            if first != "super" {
                break;
            }
            module.pop();
            rest = further;
        }
        self.inside(crate_, module, rest, depth)
    }

    /// A path that begins with a name of this module, or of one imported whole, or with a crate.
    fn named(&self, crate_: &str, here: &Module, path: &[String], depth: usize) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let found = self.within(crate_, here, path, depth);
        if !found.is_empty() {
            return found;
        }
        self.a_crates(first, rest, path, depth)
    }

    fn a_crates(&self, first: &str, rest: &[String], path: &[String], depth: usize) -> Vec<Target> {
        if self.modules.contains_key(&(first.to_owned(), Vec::new())) {
            return self.inside(first, Vec::new(), rest, depth);
        }
        vec![Target::Outside(path.to_vec())]
    }

    /// A path below this module of this crate.
    fn inside(
        &self,
        crate_: &str,
        module: Vec<String>,
        rest: &[String],
        depth: usize,
    ) -> Vec<Target> {
        let Some(at) = self.modules.get(&(crate_.to_owned(), module)) else { return Vec::new() };
        if rest.is_empty() {
            return vec![Target::Module(at.file.clone())];
        }
        self.within(crate_, at, rest, depth)
    }

    /// A path whose first word is a name of this module.
    fn within(&self, crate_: &str, at: &Module, path: &[String], depth: usize) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        if depth == 0 {
            return Vec::new();
        }
        let mut below = at.path.clone();
        below.push(first.trim_end_matches('!').to_owned());
        if self.modules.contains_key(&(crate_.to_owned(), below.clone())) {
            return self.inside(crate_, below, rest, depth);
        }
        let name = first.trim_end_matches('!');
        if at.defines.contains(name) {
            return vec![Target::Item(at.file.clone())];
        }
        let mut found = Vec::new();
        for import in at.imports.iter().filter(|import| import.name == name) {
            let path: Vec<String> = import.of.path.iter().chain(rest).cloned().collect();
            // `use disk as disk` and the like would go round for ever.
            if import.of.path.len() == 1 && import.of.path.first() == Some(first) {
                found.extend(self.a_crates(first, rest, &path, depth - 1));
                continue;
            }
            found.extend(self.resolve(crate_, at, &path, import.of.from_crates, depth - 1));
        }
        if found.is_empty() {
            for import in at.imports.iter().filter(|import| import.name == "*") {
                let whole: Vec<String> = import.of.path.iter().chain(path).cloned().collect();
                found.extend(self.resolve(crate_, at, &whole, import.of.from_crates, depth - 1));
            }
        }
        found
    }
}
