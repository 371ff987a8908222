//! Writes JSON (RFC 8259). Values in, text out. Our JSON is flat and small, so this is a page of code instead
//! of a dependency.
//!
//! Pure.

use std::fmt::Write;

/// The form of what a program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// For programs: one value on one line.
    Json,
    /// No answer, and nothing about a lock that is busy: the exit code says it. Errors as text.
    Quiet,
}

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `null`: not known.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number; ours are never negative.
    Number(u64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Value>),
    /// An object, its members in this order.
    Object(Vec<(&'static str, Value)>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Value {
    /// On one line, without blanks.
    #[must_use]
    pub fn compact(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, None);
        text
    }

    /// Indented by two blanks a level, as JavaScript's `JSON.stringify(value, null, 2)`.
    #[must_use]
    pub fn indented(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, Some(0));
        text
    }

    /// Values nest as deep as the code that makes them writes them down, so calling itself is safe.
    fn write(&self, text: &mut String, level: Option<usize>) {
        let ([open, close], items): (_, Vec<(Option<&str>, &Self)>) = match self {
            Self::Null => return text.push_str("null"),
            Self::Bool(value) => return text.push_str(if *value { "true" } else { "false" }),
            Self::Number(value) => return text.push_str(&value.to_string()),
            Self::Text(value) => return quote(text, value),
            Self::List(values) => (['[', ']'], values.iter().map(|value| (None, value)).collect()),
            Self::Object(members) => {
                (['{', '}'], members.iter().map(|(key, value)| (Some(*key), value)).collect())
            }
        };
        text.push(open);
        let inner = level.map(|level| level + 1);
        for (index, (key, value)) in items.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            new_line(text, inner);
            if let Some(key) = key {
                quote(text, key);
                text.push_str(if level.is_some() { ": " } else { ":" });
            }
            value.write(text, inner);
        }
        if !items.is_empty() {
            new_line(text, level);
        }
        text.push(close);
    }
}

fn new_line(text: &mut String, level: Option<usize>) {
    if let Some(level) = level {
        text.push('\n');
        text.push_str(&"  ".repeat(level));
    }
}

fn quote(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            // RFC 8259 asks for the first 32; the others move terminals as well.
            c if c.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::null(Value::Null, "null")]
    #[case::yes(Value::Bool(true), "true")]
    #[case::number(Value::Number(u64::MAX), "18446744073709551615")]
    #[case::text("a b".into(), "\"a b\"")]
    #[case::quotes("a\"b\\c".into(), r#""a\"b\\c""#)]
    #[case::control("\n\r\t\0\x1b\x7f\u{9b}".into(), r#""\n\r\t\u0000\u001b\u007f\u009b""#)]
    #[case::unicode("é部🦀".into(), "\"é部🦀\"")]
    #[case::empty_list(Value::List(vec![]), "[]")]
    #[case::empty_object(Value::Object(vec![]), "{}")]
    #[case::list(Value::List(vec![Value::Null, Value::Null]), "[null,null]")]
    #[case::object(
        Value::Object(vec![("a", Value::Null), ("b", Value::Bool(false))]),
        r#"{"a":null,"b":false}"#
    )]
    fn compact(#[case] value: Value, #[case] text: &str) {
        assert_eq!(value.compact(), text);
    }

    #[test]
    fn indented_by_two() {
        let inner = Value::Object(vec![("pid", Value::Number(1))]);
        let empty = Value::List(vec![]);
        let value = Value::Object(vec![("info", inner), ("none", empty)]);
        let text = "{\n  \"info\": {\n    \"pid\": 1\n  },\n  \"none\": []\n}";
        assert_eq!(value.indented(), text);
    }
}
