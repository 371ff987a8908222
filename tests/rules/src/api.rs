//! The public API of each library, as a list in `tests/api/` that changes only on purpose. Pure.
//!
//! A line is an item, a field, a variant, a method or a trait's implementation; the names in it are whole paths, so that
//! a type of another crate is seen. What a macro makes, and whether a type is `Send`, is not in the list.

#![expect(clippy::wildcard_enum_match_arm, reason = "the enums of syn may grow")]

mod names;
mod spell;

use std::collections::{BTreeMap, BTreeSet};

use quote::{ToTokens, quote};
use syn::visit_mut::{self, VisitMut};
use syn::{Fields, ImplItem, Item, ItemImpl, ItemTrait, Signature, TraitItem, Type, Variant};

use crate::house::{Breach, House};
use names::{Found, Modules, Path};

/// The libraries that others build on. The other crates are programs and what is installed as C libraries.
pub const LIBRARIES: [&str; 8] = [
    "dflock",
    "file-semaphore",
    "leases",
    "leases-etcd",
    "lfp",
    "pidlockfile",
    "ttylock",
    "wrapcmd",
];

/// Where a library's list is.
#[must_use]
pub fn list_of(library: &str) -> String {
    format!("tests/api/{library}.txt")
}

/// The list of a library, where it differs from what the source says.
#[must_use]
pub fn unlisted(house: &House, library: &str) -> Vec<Breach> {
    let path = list_of(library);
    let listed = house.lists.get(&path).map_or("", String::as_str);
    let now = api(house, library);
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) =
        (listed.lines().collect(), now.lines().collect());
    let gone = old.difference(&new).map(|line| format!("was public: {line}"));
    let added = new.difference(&old).map(|line| format!("is not listed: {line}"));
    gone.chain(added).map(|what| Breach { path: path.clone(), line: 0, what }).collect()
}

/// What a library takes from another crate for good, by its name, and why.
const STAYS: [(&str, &str); 2] = [
    // A program that uses the journal runs on tokio itself, and 1.0 is promised to stay.
    ("leases-etcd", "tokio"),
    // The trait of every format.
    ("wrapcmd", "serde_core"),
];

/// Types and traits of crates outside of the workspace in the API of a library: with a new major version of such a crate,
/// the library would need one, too.
#[must_use]
pub fn foreign(house: &House) -> Vec<Breach> {
    let mut found = Vec::new();
    for library in LIBRARIES {
        let mut outside = house.outside(&library.replace('-', "_"));
        outside.retain(|name| !STAYS.contains(&(library, name.as_str())));
        let api = api(house, library);
        for line in api.lines() {
            let words = line.split(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
            let crates = words.filter_map(|word| Some(word.split_once("::")?.0));
            let named = crates.filter(|name| outside.contains(*name));
            let breach =
                |name| Breach { path: list_of(library), line: 0, what: format!("{name}: {line}") };
            found.extend(named.map(breach).take(1));
        }
    }
    found
}

/// The public API of a library, a line for each part of it, in the order of their paths.
#[must_use]
pub fn api(house: &House, library: &str) -> String {
    let modules = Modules::read(house, &format!("crates/{library}"));
    let mut list = List { modules: &modules, places: BTreeMap::new(), lines: BTreeSet::new() };
    list.walk(&[], &[], &[], &mut BTreeSet::new());
    list.items();
    list.implementations();
    list.lines.into_iter().map(|(_, _, line)| line + "\n").collect()
}

/// Where an item is public, and under which conditions.
type Place = (Path, Vec<String>);

struct List<'m> {
    modules: &'m Modules,
    /// The public paths of each item, by its module and name.
    places: BTreeMap<(Path, String), Vec<Place>>,
    /// What a line belongs to, its rank there, and the line.
    lines: BTreeSet<(Path, u8, String)>,
}

/// Ranks of the lines that belong to one item.
const ITSELF: u8 = 0;
const PART: u8 = 1;
const METHOD: u8 = 2;
const IMPLEMENTED: u8 = 3;

impl List<'_> {
    /// Finds the public paths of all items.
    fn walk(
        &mut self,
        module: &[String],
        at: &[String],
        under: &[String],
        seen: &mut BTreeSet<(Path, Path)>,
    ) {
        if !seen.insert((module.to_vec(), at.to_vec())) {
            return;
        }
        let Some(here) = self.modules.0.get(module) else { return };
        for item in &here.items {
            let attrs = names::attributes(item);
            let Some((name, visibility)) = names::named(item) else { continue };
            if !names::is_public(visibility) || names::is_hidden(attrs) {
                continue;
            }
            let under = [under, &names::conditions(attrs)].concat();
            let path = [at, std::slice::from_ref(&name)].concat();
            if let Item::Mod(_) = item {
                let inner = [module, &[name]].concat();
                self.walk(&inner, &path, &under, seen);
            } else {
                self.places.entry((module.to_vec(), name)).or_default().push((path, under));
            }
        }
        for brought in here.uses.iter().filter(|brought| brought.is_public) {
            let under = [under, &brought.conditions].concat();
            let name: Path = brought.name.iter().cloned().collect();
            let path = [at, &name].concat();
            match self.modules.resolve(module, &brought.path) {
                Found::Module(inner) => self.walk(&inner, &path, &under, seen),
                Found::Item(module, name, _) => {
                    self.places.entry((module, name)).or_default().push((path, under));
                }
                Found::Outside(other) => {
                    let sign = if brought.name.is_none() { "::*" } else { "" };
                    let line = format!("pub use {}{sign}", other.join("::"));
                    self.push(&path, ITSELF, &under, &line);
                }
            }
        }
    }

    fn push(&mut self, of: &[String], rank: u8, under: &[String], line: &str) {
        let under: String = under.iter().map(|it| format!("#[{it}] ")).collect();
        self.lines.insert((of.to_vec(), rank, format!("{under}{line}")));
    }

    /// The first public path of an item.
    fn place(&self, module: &[String], name: &str) -> Option<&Place> {
        let places = self.places.get(&(module.to_vec(), name.to_owned()))?;
        places.iter().min_by_key(|(path, _)| path.len())
    }

    fn items(&mut self) {
        let all: Vec<_> = self.places.keys().cloned().collect();
        for (module, name) in all {
            let Some((path, under)) = self.place(&module, &name).cloned() else { continue };
            let others =
                self.places.get(&(module.clone(), name.clone())).cloned().unwrap_or_default();
            for (other, under) in others.iter().filter(|(other, _)| *other != path) {
                let line = format!("pub use {} as {}", path.join("::"), other.join("::"));
                self.push(other, ITSELF, under, &line);
            }
            let Some(here) = self.modules.0.get(&module) else { continue };
            let named = here
                .items
                .iter()
                .filter(|item| names::named(item).is_some_and(|(it, _)| it == name));
            for item in named.cloned().collect::<Vec<_>>() {
                self.item(&module, &path, &under, item);
            }
        }
    }

    fn item(&mut self, module: &[String], path: &[String], under: &[String], mut item: Item) {
        let mut whole = Whole { list: self, module };
        whole.visit_item_mut(&mut item);
        let name = path.join("::");
        let mark = if is_non_exhaustive(&item) { "#[non_exhaustive] " } else { "" };
        let (line, parts) = match &item {
            Item::Const(it) => (format!("pub const {name}: {}", text(&it.ty)), Vec::new()),
            Item::Static(it) => (format!("pub static {name}: {}", text(&it.ty)), Vec::new()),
            Item::Fn(it) => (format!("pub {}", signature(&it.sig, &name)), Vec::new()),
            Item::Type(it) => {
                (format!("pub type {name}{} = {}", text(&it.generics), text(&it.ty)), Vec::new())
            }
            Item::Struct(it) => {
                let (inside, parts) = fields(&it.fields, &name, "pub ");
                (format!("{mark}pub struct {name}{}{inside}", text(&it.generics)), parts)
            }
            Item::Enum(it) => {
                let parts = it.variants.iter().flat_map(|it| variant(it, &name)).collect();
                (format!("{mark}pub enum {name}{}", text(&it.generics)), parts)
            }
            Item::Trait(it) => (format!("pub {}", head(it, &name)), trait_items(it, &name)),
            _ => return,
        };
        let derived: Vec<String> =
            names::attributes(&item).iter().flat_map(|it| self.derived(module, it)).collect();
        self.push(path, ITSELF, under, &line);
        parts.iter().for_each(|part| self.push(path, PART, under, part));
        for name_of_trait in derived {
            self.push(path, IMPLEMENTED, under, &format!("impl {name_of_trait} for {name}"));
        }
    }

    fn derived(&self, module: &[String], attribute: &syn::Attribute) -> Vec<String> {
        let mut derived = Vec::new();
        if attribute.path().is_ident("derive") {
            // Whatever is no path there, the compiler refuses.
            let _ = attribute.parse_nested_meta(|meta| {
                let mut path = meta.path;
                Whole { list: self, module }.visit_path_mut(&mut path);
                derived.push(shortened(&path));
                Ok(())
            });
        }
        derived
    }

    fn implementations(&mut self) {
        for (module, here) in &self.modules.0 {
            for item in &here.items {
                if let Item::Impl(item) = item {
                    self.implementation(module, item.clone());
                }
            }
        }
    }

    /// What an `impl` block adds to the public types or traits that it names.
    fn implementation(&mut self, module: &[String], mut block: ItemImpl) {
        let Some((of, mut under)) = self.subject(module, &block) else { return };
        under.extend(names::conditions(&block.attrs));
        Whole { list: self, module }.visit_item_impl_mut(&mut block);
        let own = text(&block.self_ty);
        if let Some((path, _)) = &block.trait_ {
            let types = block.items.iter().filter_map(|item| match item {
                ImplItem::Type(it) => Some(format!("type {} = {}", it.ident, text(&it.ty))),
                _ => None,
            });
            let types = types.collect::<Vec<_>>().join("; ");
            let types = if types.is_empty() { types } else { format!(" {{ {types} }}") };
            let (generics, limits) = (text(&block.generics), &block.generics.where_clause);
            let limits = limits.as_ref().map_or(String::new(), |it| format!(" {}", text(it)));
            let line = format!("impl{generics} {} for {own}{limits}{types}", shortened(path));
            self.push(&of, IMPLEMENTED, &under, &line);
            return;
        }
        for item in &block.items {
            let (line, attrs) = match item {
                ImplItem::Fn(it) if names::is_public(&it.vis) => {
                    let name = format!("{own}::{}", it.sig.ident);
                    (signature(&it.sig, &name), &it.attrs)
                }
                ImplItem::Const(it) if names::is_public(&it.vis) => {
                    (format!("const {own}::{}: {}", it.ident, text(&it.ty)), &it.attrs)
                }
                _ => continue,
            };
            if !names::is_hidden(attrs) {
                let under = [under.as_slice(), &names::conditions(attrs)].concat();
                self.push(&of, METHOD, &under, &format!("pub {line}"));
            }
        }
    }

    /// The public item of this crate that a block is about; none if it is about private ones.
    fn subject(&self, module: &[String], block: &ItemImpl) -> Option<Place> {
        let (mut own, mut all) = (None, Vec::new());
        let paths = [block.trait_.as_ref().map(|(path, _)| path), path_of(&block.self_ty)];
        for path in paths.into_iter().flatten() {
            if let Found::Item(home, name, _) = self.modules.resolve(module, &words(path)) {
                let place = self.place(&home, &name)?;
                own = Some(place.clone());
                all.push(place);
            }
        }
        own.map(|(path, _)| (path, all.iter().flat_map(|(_, under)| under.clone()).collect()))
    }
}

/// Writes whole paths for the names of a module: those by which other crates know the items.
struct Whole<'l, 'm> {
    list: &'l List<'m>,
    module: &'l [String],
}

impl VisitMut for Whole<'_, '_> {
    fn visit_path_mut(&mut self, path: &mut syn::Path) {
        visit_mut::visit_path_mut(self, path);
        let said = words(path);
        let (whole, used) = match self.list.modules.resolve(self.module, &said) {
            Found::Item(module, name, used) => {
                let place = self.list.place(&module, &name).map(|(path, _)| path.clone());
                let hidden = || {
                    [&["crate".to_owned()], module.as_slice(), std::slice::from_ref(&name)].concat()
                };
                (place.unwrap_or_else(hidden), used)
            }
            Found::Outside(whole) if whole != said => (whole, said.len()),
            Found::Outside(_) | Found::Module(_) => return,
        };
        let segment = |word: &String| syn::PathSegment::from(quote::format_ident!("{word}"));
        let mut segments: Vec<syn::PathSegment> = whole.iter().map(segment).collect();
        let arguments =
            path.segments.iter().nth(used.saturating_sub(1)).map(|it| it.arguments.clone());
        if let (Some(last), Some(arguments)) = (segments.last_mut(), arguments) {
            last.arguments = arguments;
        }
        segments.extend(path.segments.iter().skip(used).cloned());
        path.segments = segments.into_iter().collect();
    }
}

fn text(tokens: impl ToTokens) -> String {
    spell::spell(tokens.to_token_stream())
}

fn words(path: &syn::Path) -> Path {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// A trait's path; of the standard library's, the name: derived or written, it is the same trait.
fn shortened(path: &syn::Path) -> String {
    let own = ["std", "core", "alloc"];
    let is_standard = path.segments.first().is_some_and(|it| own.iter().any(|own| it.ident == own));
    if is_standard { path.segments.last().map_or(String::new(), text) } else { text(path) }
}

fn path_of(own: &Type) -> Option<&syn::Path> {
    match own {
        Type::Path(own) => Some(&own.path),
        Type::Reference(own) => path_of(&own.elem),
        _ => None,
    }
}

fn is_non_exhaustive(item: &Item) -> bool {
    names::attributes(item).iter().any(|it| it.path().is_ident("non_exhaustive"))
}

/// A function without its body, under its public name.
fn signature(signature: &Signature, name: &str) -> String {
    let mut whole = signature.clone();
    whole.inputs.pop_punct();
    for input in &mut whole.inputs {
        match input {
            syn::FnArg::Receiver(own) => {
                own.attrs.clear();
                // `mut self` is of no concern to the caller; `&mut self` is another kind.
                own.mutability = None;
            }
            syn::FnArg::Typed(input) => {
                input.attrs.clear();
                if let syn::Pat::Ident(pattern) = &mut *input.pat {
                    (pattern.mutability, pattern.by_ref) = (None, None);
                }
            }
        }
    }
    let placed = text(&whole);
    placed.replacen(&format!("fn {}", signature.ident), &format!("fn {name}"), 1)
}

/// What stands behind the name of a struct or variant, and a line for each named field.
fn fields(fields: &Fields, name: &str, mark: &str) -> (String, Vec<String>) {
    let is_open = |field: &syn::Field| mark.is_empty() || names::is_public(&field.vis);
    match fields {
        Fields::Unit => (String::new(), Vec::new()),
        Fields::Unnamed(all) => {
            let one = |it: &syn::Field| if is_open(it) { text(&it.ty) } else { "_".to_owned() };
            let all: Vec<String> = all.unnamed.iter().map(one).collect();
            (format!("({})", all.join(", ")), Vec::new())
        }
        Fields::Named(all) => {
            let inside = if all.named.iter().all(is_open) { " {}" } else { " { .. }" };
            let open = all.named.iter().filter(|it| is_open(it) && !names::is_hidden(&it.attrs));
            let line = |it: &syn::Field| {
                let field = it.ident.as_ref().map_or(String::new(), ToString::to_string);
                format!("pub {name}::{field}: {}", text(&it.ty))
            };
            (inside.to_owned(), open.map(line).collect())
        }
    }
}

fn variant(variant: &Variant, name: &str) -> Vec<String> {
    let name = format!("{name}::{}", variant.ident);
    let (inside, parts) = fields(&variant.fields, &name, "");
    let is_open = variant.attrs.iter().any(|it| it.path().is_ident("non_exhaustive"));
    let mark = if is_open { "#[non_exhaustive] " } else { "" };
    let value =
        variant.discriminant.as_ref().map_or(String::new(), |(_, it)| format!(" = {}", text(it)));
    [vec![format!("{mark}pub {name}{inside}{value}")], parts].concat()
}

fn head(item: &ItemTrait, name: &str) -> String {
    let (_, limits) = (&item.generics, &item.generics.where_clause);
    let above = &item.supertraits;
    let above = if above.is_empty() { String::new() } else { format!(": {}", text(above)) };
    let limits = limits.as_ref().map_or(String::new(), |it| format!(" {}", text(it)));
    format!("trait {name}{}{above}{limits}", text(&item.generics))
}

/// The items of a trait; `{ .. }` marks those that an implementation may leave out.
fn trait_items(item: &ItemTrait, name: &str) -> Vec<String> {
    let line = |item: &TraitItem| match item {
        TraitItem::Fn(it) => {
            let own = if it.default.is_some() { " { .. }" } else { "" };
            Some(format!("pub {}{own}", signature(&it.sig, &format!("{name}::{}", it.sig.ident))))
        }
        TraitItem::Type(it) => {
            let (ident, limits) = (&it.ident, &it.bounds);
            let limits = if limits.is_empty() { quote!() } else { quote!(: #limits) };
            Some(format!("pub type {name}::{ident}{}", text(limits)))
        }
        TraitItem::Const(it) => {
            let own = if it.default.is_some() { " { .. }" } else { "" };
            Some(format!("pub const {name}::{}: {}{own}", it.ident, text(&it.ty)))
        }
        _ => None,
    };
    item.items.iter().filter_map(line).collect()
}
