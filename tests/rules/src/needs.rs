//! Which tests need a sandbox, become other users or give files away: `cargo test` leaves them out, and says so. A
//! sandbox is made by root, or by an ordinary user in a user namespace; the rest is done by root alone. Pure.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;

use crate::house::{Breach, House};

/// What a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Nothing,
    /// A sandbox, whose namespaces an ordinary user can make too.
    Namespaces,
    Root,
}

impl Need {
    /// What such a test is marked with: `#[ignore = "needs root: tests/run"]`.
    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Namespaces => Some("needs namespaces: tests/run"),
            Self::Root => Some("needs root: tests/run"),
        }
    }

    fn of_reason(reason: &str) -> Self {
        let is_it = |need: &Self| need.reason() == Some(reason);
        [Self::Root, Self::Namespaces].into_iter().find(is_it).unwrap_or(Self::Nothing)
    }

    fn of_name(name: &str) -> Self {
        if NAMES.contains(&name) {
            Self::Root
        } else if name == "Sandbox" {
            Self::Namespaces
        } else {
            Self::Nothing
        }
    }
}

/// What only root may call, and what is made with it.
const NAMES: [&str; 14] = [
    "Console",
    "OtherUser",
    "Package",
    "chown",
    "connect_in",
    "connect_to",
    "in_network",
    "lchown",
    "mknod",
    "mount",
    "setfsuid",
    "setns",
    "setuid",
    "unshare",
];

/// Programs that only root may start to some purpose.
const PROGRAMS: [&str; 4] = ["chroot", "nsenter", "setpriv", "unshare"];

/// The reasons why a test may be left out by `cargo test`: by these words `tests/run` counts them.
const REASONS: [&str; 6] = [
    "needs root: tests/run",
    "needs namespaces: tests/run",
    "needs programs: tests/run",
    "takes minutes: tests/run",
    "takes minutes: just etcd-long",
    "takes minutes: just report",
];

/// A function: of a type, or of none.
type Name = (Option<String>, String);

/// One function of a test program.
#[derive(Debug)]
struct Function {
    file: String,
    line: usize,
    name: String,
    is_test: bool,
    /// Why it is left out.
    ignored: Option<String>,
    needs: Need,
    calls: BTreeSet<Name>,
}

/// Tests that need root or a sandbox and do not say so, and tests that are left out for no known reason.
#[must_use]
pub fn needs(house: &House) -> Vec<Breach> {
    let files: BTreeMap<&str, &Functions> =
        house.tests.iter().map(|file| (file.path.as_str(), &*file.functions)).collect();
    let mut found = BTreeSet::new();
    for root in files.keys().filter(|path| is_program(path)) {
        let (mut left, mut parts): (Vec<&str>, Vec<&str>) = (vec![root], Vec::new());
        while let Some(path) = left.pop() {
            if let (Some(file), false) = (files.get(path), parts.contains(&path)) {
                parts.push(path);
                left.extend(file.modules.iter().map(String::as_str));
            }
        }
        let parts: BTreeMap<&str, &Functions> =
            parts.iter().filter_map(|path| Some((*path, *files.get(path)?))).collect();
        found.extend(breaches(&parts));
    }
    found.into_iter().collect()
}

/// Of each file of a program those that it can name: itself, and the modules whose names are in it. With `all`, also
/// those that these can name, and so on: a value may come from there.
fn known<'f>(
    parts: &BTreeMap<&'f str, &Functions>,
    all: bool,
) -> BTreeMap<&'f str, BTreeSet<&'f str>> {
    let named = |path: &'f str| -> Vec<&'f str> {
        let words = parts.get(path).map(|it| &it.words);
        let is_named = |other: &&str| words.is_some_and(|words| words.contains(module(other)));
        parts.keys().copied().filter(is_named).collect()
    };
    let mut known = BTreeMap::new();
    for path in parts.keys() {
        let mut seen = BTreeSet::from([*path]);
        let mut left = named(path);
        while let Some(next) = left.pop() {
            // The root names every module, and knows none by that.
            if seen.insert(next) && all && module(next) != ROOT {
                left.extend(named(next));
            }
        }
        known.insert(*path, seen);
    }
    known
}

/// How a file names the root of its program.
const ROOT: &str = "crate";

/// The name of the module that a file is.
fn module(path: &str) -> &str {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let name = path.rsplit('/').next().unwrap_or(path);
    if name == "main" { ROOT } else { name }
}

fn breaches(parts: &BTreeMap<&str, &Functions>) -> Vec<Breach> {
    let (direct, all) = (known(parts, false), known(parts, true));
    let is_known = |from: &str, to: &str, name: &Name| {
        let known = if name.1.starts_with('.') { &all } else { &direct };
        known.get(from).is_some_and(|files| files.contains(to))
    };
    let functions: Vec<&(Name, Function)> = parts.values().flat_map(|it| &it.functions).collect();
    let mut by_name: BTreeMap<Name, Vec<&Function>> = BTreeMap::new();
    let mut methods: BTreeMap<Name, Vec<&Function>> = BTreeMap::new();
    for (name, function) in &functions {
        by_name.entry(name.clone()).or_default().push(function);
        if name.0.is_some() {
            methods.entry((None, format!(".{}", name.1))).or_default().push(function);
        }
    }
    // Whose method is called is known where one type alone has it.
    by_name.extend(methods.into_iter().filter(|(_, types)| types.len() == 1));
    let mut found = Vec::new();
    for function in functions.iter().map(|it| &it.1).filter(|it| it.is_test) {
        let breach = |what| Breach { path: function.file.clone(), line: function.line, what };
        let name = &function.name;
        match &function.ignored {
            Some(reason) if !REASONS.contains(&reason.as_str()) => {
                found
                    .push(breach(format!("{name}: tests/run does not know the reason {reason:?}")));
            }
            marked => {
                let said = marked.as_deref().map_or(Need::Nothing, Need::of_reason);
                let need = need_of(function, &by_name, &is_known);
                if let (true, Some(reason)) = (said < need, need.reason()) {
                    found.push(breach(format!("{name} needs #[ignore = \"{reason}\"]")));
                }
            }
        }
    }
    found
}

fn need_of(
    test: &Function,
    by_name: &BTreeMap<Name, Vec<&Function>>,
    is_known: &dyn Fn(&str, &str, &Name) -> bool,
) -> Need {
    let mut seen: BTreeSet<&Name> = BTreeSet::new();
    let mut left = vec![test];
    let mut need = Need::Nothing;
    while let Some(function) = left.pop() {
        need = need.max(function.needs);
        for name in &function.calls {
            if seen.insert(name) {
                let is_known = |it: &&&Function| is_known(&function.file, &it.file, name);
                let all = by_name.get(name).into_iter().flatten().filter(is_known);
                // A function of the same file hides those of others.
                let own: Vec<&Function> =
                    all.clone().filter(|it| it.file == function.file).copied().collect();
                left.extend(if own.is_empty() { all.copied().collect() } else { own });
            }
        }
    }
    need
}

/// Whether cargo makes a test program of this file; the tests within a source file are looked at one by one.
fn is_program(path: &str) -> bool {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    directory == "tests"
        || directory.ends_with("/tests")
        || (file == "main.rs" && directory.starts_with("tests/"))
        || path.contains("src/")
}

/// What a file says: its functions, and where the files of its modules may be.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    functions: Vec<(Name, Function)>,
    modules: Vec<String>,
    /// Every identifier in it, which may name a module.
    words: BTreeSet<String>,
}

impl Functions {
    pub(crate) fn of(path: &str, parsed: &syn::File) -> Self {
        let mut file = Self::default();
        read_items(path, &parsed.items, &mut file.functions);
        identifiers(parsed.to_token_stream(), &mut file.words);
        // Files of source are looked at one by one.
        if path.contains("src/") {
            return file;
        }
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let stem = name.trim_end_matches(".rs");
        let below = if is_program(path) || stem == "mod" {
            directory.to_owned()
        } else {
            format!("{directory}/{stem}")
        };
        for item in &parsed.items {
            let syn::Item::Mod(item) = item else { continue };
            let name = item.ident.to_string();
            file.modules.extend(match value(&item.attrs, "path") {
                Some(place) => vec![tidy(&format!("{directory}/{place}"))],
                None => vec![format!("{below}/{name}.rs"), format!("{below}/{name}/mod.rs")],
            });
        }
        file
    }
}

fn identifiers(tokens: TokenStream, words: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) => drop(words.insert(word.to_string())),
            TokenTree::Group(group) => identifiers(group.stream(), words),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Without `..`.
fn tidy(path: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in path.split('/') {
        if word == ".." {
            words.pop();
        } else {
            words.push(word);
        }
    }
    words.join("/")
}

/// `#[name = "value"]`; `#[ignore]` alone has an empty one.
fn value(attributes: &[syn::Attribute], name: &str) -> Option<String> {
    let attribute = attributes.iter().find(|it| it.path().is_ident(name))?;
    if let syn::Meta::NameValue(pair) = &attribute.meta {
        if let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value {
            return Some(text.value());
        }
    }
    Some(String::new())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "more kinds may come")]
fn read_items(path: &str, items: &[syn::Item], functions: &mut Vec<(Name, Function)>) {
    for item in items {
        match item {
            syn::Item::Fn(item) => {
                let body = item.block.to_token_stream();
                functions.push(function(path, None, &item.attrs, &item.sig, body));
            }
            syn::Item::Impl(item) => {
                let of = match &*item.self_ty {
                    syn::Type::Path(path) => {
                        path.path.segments.last().map(|it| it.ident.to_string())
                    }
                    _ => None,
                };
                for part in &item.items {
                    if let syn::ImplItem::Fn(part) = part {
                        let body = part.block.to_token_stream();
                        functions.push(function(path, of.clone(), &part.attrs, &part.sig, body));
                    }
                }
            }
            syn::Item::Mod(item) => {
                let inner = item.content.as_ref().map(|(_, items)| items.as_slice());
                read_items(path, inner.unwrap_or_default(), functions);
            }
            _ => {}
        }
    }
}

fn function(
    path: &str,
    of: Option<String>,
    attributes: &[syn::Attribute],
    signature: &syn::Signature,
    body: TokenStream,
) -> (Name, Function) {
    let is_test = attributes.iter().any(|attribute| {
        let last = attribute.path().segments.last().map(|it| it.ident.to_string());
        matches!(last.as_deref(), Some("test" | "rstest"))
    });
    let name = signature.ident.to_string();
    let mut function = Function {
        file: path.to_owned(),
        line: signature.ident.span().start().line,
        name: name.clone(),
        is_test,
        // What stands above a case belongs to that case alone.
        ignored: value(attributes.rsplit(is_case).next().unwrap_or_default(), "ignore"),
        needs: Need::Nothing,
        calls: BTreeSet::new(),
    };
    words(body, of.as_deref(), &mut function);
    ((of, name), function)
}

fn is_case(attribute: &syn::Attribute) -> bool {
    attribute.path().segments.first().is_some_and(|first| first.ident == "case")
}

/// Notes what a body calls by name, and whether it has something that needs root itself.
fn words(tokens: TokenStream, of: Option<&str>, function: &mut Function) {
    let mut path: Vec<String> = Vec::new();
    let (mut colons, mut after_dot) = (0, false);
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                let word = word.to_string();
                if !after_dot {
                    function.needs = function.needs.max(Need::of_name(&word));
                }
                if colons < 2 {
                    path.clear();
                }
                path.push(if after_dot { format!(".{word}") } else { word });
                (colons, after_dot) = (0, false);
                continue;
            }
            TokenTree::Punct(sign) if sign.as_char() == ':' => {
                colons += 1;
                continue;
            }
            TokenTree::Punct(sign) => after_dot = sign.as_char() == '.',
            TokenTree::Group(group) => {
                words(group.stream(), of, function);
                after_dot = false;
            }
            TokenTree::Literal(text) => {
                let text = text.to_string();
                let mut words =
                    text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-' && c != '.');
                if words.any(|word| PROGRAMS.contains(&word)) {
                    function.needs = Need::Root;
                }
                after_dot = false;
            }
        }
        // A function's name may be handed on without being called.
        note_call(&path, of, function);
        path.clear();
        colons = 0;
    }
    note_call(&path, of, function);
}

fn note_call(path: &[String], of: Option<&str>, function: &mut Function) {
    let mut words = path.iter().rev();
    let Some(name) = words.next() else { return };
    let owner = words.next().filter(|it| it.starts_with(char::is_uppercase));
    let owner = if owner.is_some_and(|it| it == "Self") { of } else { owner.map(String::as_str) };
    function.calls.insert((owner.map(str::to_owned), name.clone()));
}
