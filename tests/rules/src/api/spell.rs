//! Source as one line of text: words and signs with the spaces that people write. Pure.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// Words before which no space stands, whatever they follow.
const CLOSE: &[&str] = &[",", ";", ":", "::", ")", "]", ">", "<", "?", "."];
/// Words after which none stands.
const OPEN: &[&str] = &["", "(", "[", "<", "::", "&", "'", "!", "#", "."];
/// Words before which a bracket begins a tuple, not arguments.
const APART: &[&str] = &[
    "->", "=", "+", ":", ",", "const", "dyn", "for", "impl", "in", "mut", "pub", "where", "fn",
    "as",
];

/// The tokens as one line.
pub(super) fn spell(tokens: TokenStream) -> String {
    let (mut text, mut last) = (String::new(), String::new());
    write(tokens, &mut text, &mut last);
    text
}

fn write(tokens: TokenStream, text: &mut String, last: &mut String) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{ ", " }"),
                    Delimiter::None => ("", ""),
                };
                push(open, text, last);
                write(group.stream(), text, last);
                push(close, text, last);
            }
            TokenTree::Punct(sign) => {
                let is_joint = sign.spacing() == Spacing::Joint;
                let next = tokens.next_if(|next| is_joint && is_half(sign.as_char(), next));
                push(
                    &format!("{sign}{}", next.map_or(String::new(), |next| next.to_string())),
                    text,
                    last,
                );
            }
            TokenTree::Ident(word) => push(&word.to_string(), text, last),
            TokenTree::Literal(word) => push(&word.to_string(), text, last),
        }
    }
}

/// The second sign of `::`, `->` or `=>`.
fn is_half(first: char, next: &TokenTree) -> bool {
    let TokenTree::Punct(next) = next else { return false };
    matches!((first, next.as_char()), (':', ':') | ('-' | '=', '>'))
}

fn push(word: &str, text: &mut String, last: &mut String) {
    if word.is_empty() {
        return;
    }
    let bare = word.trim();
    let joins = OPEN.contains(&last.as_str())
        || CLOSE.contains(&bare)
        || bare == "(" && !APART.contains(&last.as_str())
        || bare == "!" && last != "->"
        || last == "{"
        || bare == "::" && last != "->";
    if !joins && !text.ends_with(' ') {
        text.push(' ');
    }
    text.push_str(bare);
    if word.ends_with(' ') {
        text.push(' ');
    }
    bare.clone_into(last);
}
