//! The modules of a crate, and what a path in one of them leads to. Pure.

#![expect(clippy::wildcard_enum_match_arm, reason = "the enums of syn may grow")]

use std::collections::{BTreeMap, BTreeSet};

use syn::{Attribute, Item, UseTree, Visibility};

use crate::house::House;

/// A path without its arguments.
pub(super) type Path = Vec<String>;

/// Names of names are followed so far.
const DEPTH: usize = 16;

/// One module: what it defines, and what `use` brings into it.
#[derive(Default)]
pub(super) struct Module {
    pub(super) items: Vec<Item>,
    pub(super) uses: Vec<Use>,
    names: BTreeSet<String>,
}

/// One leaf of a `use`.
pub(super) struct Use {
    /// None for `*`.
    pub(super) name: Option<String>,
    pub(super) path: Path,
    pub(super) is_public: bool,
    pub(super) conditions: Vec<String>,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Module(Path),
    /// Its module, its name, and how many names of the path it took to get there.
    Item(Path, String, usize),
    /// Something of another crate, or of the language.
    Outside(Path),
}

/// All modules of a crate, by their paths.
pub(super) struct Modules(pub(super) BTreeMap<Path, Module>);

impl Modules {
    /// Reads the library in this directory, from `lib.rs` down.
    pub(super) fn read(house: &House, directory: &str) -> Self {
        let files: BTreeMap<&str, &str> =
            house.sources.iter().map(|source| (source.path.as_str(), &*source.text)).collect();
        let mut modules = Self(BTreeMap::new());
        let root = format!("{directory}/src");
        modules.load(&files, &format!("{root}/lib.rs"), Vec::new(), &root);
        modules
    }

    #[expect(clippy::panic, reason = "see House::read")]
    fn load(&mut self, files: &BTreeMap<&str, &str>, file: &str, path: Path, below: &str) {
        let text = files.get(file).unwrap_or_else(|| panic!("{file} is missing"));
        let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        self.add(files, file, path, below, parsed.items);
    }

    #[expect(clippy::panic, reason = "see House::read")]
    fn add(
        &mut self,
        files: &BTreeMap<&str, &str>,
        file: &str,
        path: Path,
        below: &str,
        items: Vec<Item>,
    ) {
        let mut module = Module::default();
        for item in items.into_iter().filter(|item| is_built(attributes(item))) {
            match item {
                Item::Use(item) => {
                    let mut leaves = Vec::new();
                    expand(&item.tree, Vec::new(), &mut leaves);
                    let is_public = is_public(&item.vis) && !is_hidden(&item.attrs);
                    let conditions = conditions(&item.attrs);
                    module.uses.extend(leaves.into_iter().map(|(name, path)| Use {
                        name,
                        path,
                        is_public,
                        conditions: conditions.clone(),
                    }));
                }
                Item::Mod(mut item) => {
                    let name = item.ident.to_string();
                    let inner = [path.as_slice(), std::slice::from_ref(&name)].concat();
                    let deeper = format!("{below}/{name}");
                    if let Some((_, items)) = item.content.take() {
                        self.add(files, file, inner, &deeper, items);
                    } else {
                        let places = places(&item.attrs, file, &deeper);
                        let place = places.iter().find(|(place, _)| files.contains_key(&**place));
                        let (place, below) = place.unwrap_or_else(|| panic!("{deeper} is missing"));
                        self.load(files, place, inner, below);
                    }
                    module.items.push(Item::Mod(item));
                }
                item => {
                    module.names.extend(named(&item).map(|(name, _)| name));
                    module.items.push(item);
                }
            }
        }
        self.0.insert(path, module);
    }

    /// What a path that stands in this module leads to.
    pub(super) fn resolve(&self, here: &[String], path: &[String]) -> Found {
        self.follow(here, path, DEPTH)
    }

    fn follow(&self, here: &[String], path: &[String], depth: usize) -> Found {
        let (mut at, mut from) = (here.to_vec(), 0);
        for word in path {
            match word.as_str() {
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                "self" => {}
                _ => break,
            }
            from += 1;
        }
        while let Some(name) = path.get(from) {
            from += 1;
            match self.local(&at, name, depth) {
                Some(Found::Module(inner)) => at = inner,
                Some(Found::Item(module, name, _)) => return Found::Item(module, name, from),
                Some(Found::Outside(outside)) => {
                    let rest = path.get(from..).unwrap_or_default();
                    return Found::Outside([outside.as_slice(), rest].concat());
                }
                None => return Found::Outside(path.to_vec()),
            }
        }
        Found::Module(at)
    }

    /// What a single name means in this module; none if nothing there defines or brings it.
    fn local(&self, at: &[String], name: &str, depth: usize) -> Option<Found> {
        let module = self.0.get(at).filter(|_| depth > 0)?;
        let inner = [at, &[name.to_owned()]].concat();
        if self.0.contains_key(&inner) {
            return Some(Found::Module(inner));
        }
        if module.names.contains(name) {
            return Some(Found::Item(at.to_vec(), name.to_owned(), 0));
        }
        let named = module.uses.iter().find(|brought| brought.name.as_deref() == Some(name));
        if let Some(brought) = named {
            // `use nix;` brings what is outside already.
            let is_itself = brought.path.as_slice() == [name];
            return (!is_itself).then(|| self.follow(at, &brought.path, depth - 1));
        }
        let globs = module.uses.iter().filter(|brought| brought.name.is_none());
        let modules = globs.filter_map(|brought| match self.follow(at, &brought.path, depth - 1) {
            Found::Module(module) if module != at => Some(module),
            Found::Module(_) | Found::Item(..) | Found::Outside(_) => None,
        });
        modules.into_iter().find_map(|module| self.local(&module, name, depth - 1))
    }
}

/// The files that a module may be in, with the directory of the modules below it: where it is by its name, and where
/// `path` says, under any condition.
fn places(attrs: &[Attribute], file: &str, deeper: &str) -> [(String, String); 4] {
    let directory = |file: &str| file.rsplit_once('/').map_or("", |(it, _)| it).to_owned();
    let said = attrs.iter().filter_map(|attribute| {
        let words = spelled(attribute);
        let (_, said) = words.split_once("path = \"")?;
        Some(format!("{}/{}", directory(file), said.split('"').next()?))
    });
    let mut said = said.map(|place| (place.clone(), directory(&place)));
    [
        (format!("{deeper}.rs"), deeper.to_owned()),
        (format!("{deeper}/mod.rs"), deeper.to_owned()),
        said.next().unwrap_or_default(),
        said.next().unwrap_or_default(),
    ]
}

fn expand(tree: &UseTree, mut before: Path, leaves: &mut Vec<(Option<String>, Path)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            expand(&path.tree, before, leaves);
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| expand(tree, before.clone(), leaves));
        }
        UseTree::Glob(_) => leaves.push((None, before)),
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push((before.last().cloned(), before));
        }
        UseTree::Name(name) => {
            before.push(name.ident.to_string());
            leaves.push((before.last().cloned(), before));
        }
        UseTree::Rename(name) => {
            if name.ident != "self" {
                before.push(name.ident.to_string());
            }
            leaves.push((Some(name.rename.to_string()), before));
        }
    }
}

pub(super) fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The name of an item, and who may use it.
pub(super) fn named(item: &Item) -> Option<(String, &Visibility)> {
    let (name, visibility) = match item {
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        Item::Mod(item) => (&item.ident, &item.vis),
        Item::Static(item) => (&item.ident, &item.vis),
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        Item::Union(item) => (&item.ident, &item.vis),
        _ => return None,
    };
    Some((name.to_string(), visibility))
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// An attribute's words, with single spaces.
fn spelled(attribute: &Attribute) -> String {
    super::spell::spell(quote::ToTokens::to_token_stream(&attribute.meta))
}

/// The conditions under which something exists.
pub(super) fn conditions(attrs: &[Attribute]) -> Vec<String> {
    attrs.iter().filter(|it| it.path().is_ident("cfg")).map(spelled).collect()
}

/// False for what is there for tests, for documents and for the fuzzer alone.
fn is_built(attrs: &[Attribute]) -> bool {
    let unbuilt = ["cfg(test)", "cfg(doctest)", "cfg(fuzzing)", "cfg(all(test"];
    !conditions(attrs).iter().any(|have| unbuilt.iter().any(|it| have.starts_with(it)))
}

/// Whether the documentation hides it: then it is no part of the API.
pub(super) fn is_hidden(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|it| it.path().is_ident("doc") && spelled(it) == "doc(hidden)")
}
