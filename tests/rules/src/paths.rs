//! The paths that a file's code names, without its tests, and the files they lead to. Text is read here, not Rust: a name
//! that somebody hides on purpose is not found. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::house::{House, Source};

/// A path as it is written, with the name by which `use` brings it; `*` for all of a module's.
#[derive(Clone, Debug)]
pub(crate) struct Mention {
    pub(crate) path: Vec<String>,
    pub(crate) name: Option<String>,
    pub(crate) line: usize,
}

/// The lines of code with their numbers, without comments and without the items of tests, which begin at an attribute
/// and end where an item does that is as far from the margin.
pub(crate) fn code(text: &str) -> Vec<(usize, &str)> {
    let mut code = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let bare = line.trim_start();
        if bare.starts_with("#[cfg(test)]") || bare.starts_with("#[cfg(all(test,") {
            let margin = &line[..line.len() - bare.len()];
            let item = lines.find(|(_, line)| !line.trim_start().starts_with('#'));
            if item.is_some_and(|(_, line)| !line.ends_with([';', '}'])) {
                let _ = lines.find(|(_, line)| line.strip_prefix(margin) == Some("}"));
            }
        } else if !bare.starts_with("//") {
            code.push((number, line.split(" // ").next().unwrap_or_default()));
        }
    }
    code
}

/// What `use` brings, and what is named by a whole path.
pub(crate) fn mentions(text: &str) -> Vec<Mention> {
    let mut found = Vec::new();
    let mut lines = code(text).into_iter();
    while let Some((line, words)) = lines.next() {
        let bare =
            words.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
        let Some(used) = bare.trim_start_matches("pub ").strip_prefix("use ") else {
            found.extend(whole_paths(words).map(|path| Mention { path, name: None, line }));
            continue;
        };
        let mut used = used.to_owned();
        while !used.contains(';') {
            let Some((_, more)) = lines.next() else { break };
            used += more.trim();
        }
        expand(&[], used.trim_end_matches(';'), line, &mut found);
    }
    found
}

/// The paths of `use`, which may have braces within braces.
fn expand(before: &[String], tree: &str, line: usize, found: &mut Vec<Mention>) {
    let (path, group) =
        tree.split_once('{').map_or((tree, None), |(path, group)| (path, Some(group)));
    let (path, name) =
        path.split_once(" as ").map_or((path, None), |(path, name)| (path, Some(name)));
    let words = path.split("::").map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned);
    let mut path = [before, &words.collect::<Vec<_>>()].concat();
    if let Some(group) = group {
        parts(group.trim_end().trim_end_matches('}'))
            .for_each(|part| expand(&path, part, line, found));
        return;
    }
    let last = path.last().cloned().unwrap_or_default();
    if last == "self" || last == "*" {
        path.pop();
    }
    let own = if last == "self" { path.last().cloned().unwrap_or_default() } else { last };
    found.push(Mention { path, name: Some(name.map_or(own, |name| name.trim().to_owned())), line });
}

/// The parts of a group between its own commas.
fn parts(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let comma = move |sign: char| {
        depth += i32::from(sign == '{') - i32::from(sign == '}');
        sign == ',' && depth == 0
    };
    group.split(comma).map(str::trim).filter(|part| !part.is_empty())
}

/// Paths of several words in a line.
fn whole_paths(line: &str) -> impl Iterator<Item = Vec<String>> {
    let is_of_a_path = |sign: char| sign.is_alphanumeric() || "_:".contains(sign);
    let paths =
        line.split(move |sign: char| !is_of_a_path(sign)).filter(|path| path.contains("::"));
    paths.map(|path| path.split("::").filter(|it| !it.is_empty()).map(str::to_owned).collect())
}

/// A crate, and a module of it.
pub(crate) type Place = (String, Vec<String>);

/// The files of the workspace.
pub(crate) struct Files<'h>(pub(crate) BTreeMap<Place, &'h Source>);

/// Names of names are followed so far.
const DEPTH: usize = 8;

impl<'h> Files<'h> {
    pub(crate) fn of(house: &'h House) -> Self {
        let file = |source: &'h Source| Some((house.module(&source.path)?, source));
        Self(house.sources.iter().filter_map(file).collect())
    }

    /// The file that defines what a path in this module leads to; none if that is outside of the workspace, or a module.
    pub(crate) fn leads_to(&self, place: &Place, path: &[String]) -> Option<&'h str> {
        self.resolve(place, path, DEPTH)
    }

    fn resolve(&self, (crate_, here): &Place, path: &[String], depth: usize) -> Option<&'h str> {
        let ups = path.iter().take_while(|word| *word == "super").count();
        let above = here.get(..here.len().saturating_sub(ups)).unwrap_or_default();
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.below((crate_.clone(), Vec::new()), rest, depth),
            "super" => self.below(
                (crate_.clone(), above.to_vec()),
                path.get(ups..).unwrap_or_default(),
                depth,
            ),
            "self" => self.below((crate_.clone(), here.clone()), rest, depth),
            _ if self.0.contains_key(&(first.clone(), Vec::new())) => {
                self.below((first.clone(), Vec::new()), rest, depth)
            }
            _ => self.below((crate_.clone(), here.clone()), path, depth),
        }
    }

    /// What a name of this module is: a module below it, or defined here, or brought by `use`.
    fn below(&self, place: Place, path: &[String], depth: usize) -> Option<&'h str> {
        let (first, rest) = path.split_first()?;
        let file = self.0.get(&place).filter(|_| depth > 0)?;
        let inner = (place.0.clone(), [place.1.as_slice(), std::slice::from_ref(first)].concat());
        if self.0.contains_key(&inner) {
            return self.below(inner, rest, depth);
        }
        if file.defines.contains(first.as_str()) {
            return Some(&file.path);
        }
        let brought = |name: &str, rest: &[String]| {
            let named = file.mentions.iter().filter(|it| it.name.as_deref() == Some(name));
            let wholes = named.map(|it| [it.path.as_slice(), rest].concat());
            wholes.filter(|whole| whole != path).find_map(|it| self.resolve(&place, &it, depth - 1))
        };
        brought(first, rest).or_else(|| brought("*", path))
    }
}

/// The names that a file defines.
pub(crate) fn defined(text: &str) -> BTreeSet<String> {
    const KINDS: [&str; 9] =
        ["fn", "struct", "enum", "trait", "type", "const", "static", "macro_rules!", "mod"];
    let mut defined = BTreeSet::new();
    for (_, line) in code(text) {
        let mut words = line.split(' ').skip_while(|word| !KINDS.contains(word)).skip(1);
        let name = words.find(|word| !KINDS.contains(word)).unwrap_or_default();
        let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next();
        defined.extend(name.map(str::to_owned));
    }
    defined
}
