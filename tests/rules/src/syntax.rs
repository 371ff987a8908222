//! One file's modules: what each defines, imports and names, without its tests. Pure.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A module: a file, or one in braces within a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Module {
    /// From the crate's root.
    pub(crate) path: Vec<String>,
    /// The file it stands in.
    pub(crate) file: String,
    /// Names it defines.
    pub(crate) defines: BTreeSet<String>,
    /// Names it imports, each with where from.
    pub(crate) imports: Vec<Import>,
    /// Every path that its code names, also within macros.
    pub(crate) mentions: Vec<Mention>,
    /// Every method that its code calls.
    pub(crate) methods: Vec<(String, usize)>,
    /// Its functions, and how many lines each has.
    pub(crate) functions: Vec<(String, usize, usize)>,
}

/// One name that `use` brings; `*` for all of a module's.
#[derive(Clone, Debug)]
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) of: Mention,
}

/// A path as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Mention {
    pub(crate) path: Vec<String>,
    /// It begins with `::`, so its first word is a crate.
    pub(crate) from_crates: bool,
    pub(crate) line: usize,
}

/// What a block of foreign functions is mentioned as: no path of Rust has this name.
pub(crate) const EXTERN: &str = "extern";

/// What a module in a file of another name is mentioned as.
pub(crate) const PATH: &str = "#[path]";

/// The modules of a file that is this module.
pub(crate) fn modules(file: &str, path: Vec<String>, parsed: &syn::File) -> Vec<Module> {
    let mut reader = Reader { here: module(file, path), done: Vec::new() };
    if !is_test(&parsed.attrs) {
        parsed.items.iter().for_each(|item| reader.visit_item(item));
    }
    reader.done.push(reader.here);
    reader.done
}

fn module(file: &str, path: Vec<String>) -> Module {
    Module { path, file: file.to_owned(), ..Module::default() }
}

/// `#[cfg(test)]`, also with more conditions.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("test") || attribute.path().is_ident("rstest") {
            return true;
        }
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let said = list.tokens.to_string().replace(' ', "");
        attribute.path().is_ident("cfg") && (said == "test" || said.starts_with("all(test,"))
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "more kinds may come")]
fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "more kinds may come")]
fn defined(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::TraitAlias(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// A name without the `r#` before it.
fn word(name: &syn::Ident) -> String {
    name.unraw().to_string()
}

struct Reader {
    /// The module that is being read.
    here: Module,
    done: Vec<Module>,
}

impl Reader {
    fn mention(&mut self, path: Vec<String>, from_crates: bool, line: usize) {
        self.here.mentions.push(Mention { path, from_crates, line });
    }

    fn import(&mut self, tree: &syn::UseTree, mut path: Vec<String>, from_crates: bool) {
        let line = tree.span().start().line;
        let (name, last) = match tree {
            syn::UseTree::Path(inner) => {
                path.push(word(&inner.ident));
                return self.import(&inner.tree, path, from_crates);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path.clone(), from_crates);
                }
                return;
            }
            syn::UseTree::Name(name) => (word(&name.ident), word(&name.ident)),
            syn::UseTree::Rename(name) => (word(&name.rename), word(&name.ident)),
            syn::UseTree::Glob(_) => ("*".to_owned(), "self".to_owned()),
        };
        let name = match (name.as_str(), path.last()) {
            ("self", Some(last)) => last.clone(),
            _ => name,
        };
        if last != "self" {
            path.push(last);
        }
        self.here.imports.push(Import { name, of: Mention { path, from_crates, line } });
    }

    /// Paths and calls of methods in what a macro is given, which no parser knows the form of.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons, mut from_crates, mut after_dot) = (0, 0, false, false);
        let mut called: Option<String> = None;
        for token in tokens {
            let method = called.take();
            match token {
                TokenTree::Ident(name) => {
                    if colons == 2 && !path.is_empty() {
                        path.push(word(&name));
                    } else {
                        self.end_of_path(&mut path, from_crates, line, false);
                        from_crates = colons == 2;
                        line = name.span().start().line;
                        path.push(word(&name));
                        if after_dot {
                            called = path.pop();
                        }
                    }
                    (colons, after_dot) = (0, false);
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' => colons += 1,
                TokenTree::Punct(sign) => {
                    self.end_of_path(&mut path, from_crates, line, sign.as_char() == '!');
                    (colons, after_dot) = (0, sign.as_char() == '.');
                }
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Parenthesis {
                        self.here.methods.extend(method.map(|name| (name, line)));
                    }
                    self.end_of_path(&mut path, from_crates, line, false);
                    (colons, after_dot) = (0, false);
                    self.tokens(group.stream());
                }
                TokenTree::Literal(_) => {
                    self.end_of_path(&mut path, from_crates, line, false);
                    (colons, after_dot) = (0, false);
                }
            }
        }
        self.end_of_path(&mut path, from_crates, line, false);
    }

    fn end_of_path(&mut self, path: &mut Vec<String>, from_crates: bool, line: usize, call: bool) {
        let mut path = std::mem::take(path);
        if let (true, Some(last)) = (call, path.last_mut()) {
            last.push('!');
        }
        if !path.is_empty() {
            self.mention(path, from_crates, line);
        }
    }

    fn function(&mut self, name: &syn::Ident, whole: proc_macro2::Span) {
        let lines = whole.end().line - name.span().start().line + 1;
        self.here.functions.push((name.to_string(), name.span().start().line, lines));
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attributes(item)) {
            return;
        }
        if let Some(name) = defined(item) {
            self.here.defines.insert(name);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = word(&item.ident);
        if let Some(elsewhere) =
            item.attrs.iter().find(|attribute| attribute.path().is_ident("path"))
        {
            self.mention(vec![PATH.to_owned()], false, elsewhere.span().start().line);
        }
        self.here.defines.insert(name.clone());
        let Some((_, items)) = &item.content else { return };
        let mut path = self.here.path.clone();
        path.push(name);
        let inner = module(&self.here.file.clone(), path);
        let above = std::mem::replace(&mut self.here, inner);
        items.iter().for_each(|item| self.visit_item(item));
        self.done.push(std::mem::replace(&mut self.here, above));
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast syn::ItemForeignMod) {
        self.mention(vec![EXTERN.to_owned()], false, item.abi.span().start().line);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, Vec::new(), item.leading_colon.is_some());
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        let name = item.rename.as_ref().map_or(&item.ident, |(_, name)| name);
        let name = word(name);
        let line = item.ident.span().start().line;
        let of = Mention { path: vec![word(&item.ident)], from_crates: true, line };
        self.here.imports.push(Import { name, of });
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words = path.segments.iter().map(|segment| word(&segment.ident)).collect();
        self.mention(words, path.leading_colon.is_some(), path.span().start().line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let mut words: Vec<String> =
            call.path.segments.iter().map(|segment| word(&segment.ident)).collect();
        if let Some(last) = words.last_mut() {
            last.push('!');
        }
        self.mention(words, call.path.leading_colon.is_some(), call.path.span().start().line);
        self.tokens(call.tokens.clone());
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.here.methods.push((word(&call.method), call.method.span().start().line));
        visit::visit_expr_method_call(self, call);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig.ident, item.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig.ident, item.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.sig.ident, item.span());
        visit::visit_trait_item_fn(self, item);
    }

    // Attributes (`#[derive(..)]`, `#[expect(clippy::..)]`) name no code.
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}
