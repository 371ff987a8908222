//! JSON: the values that our programs print, the one function that writes all of them, and the form of what they say.
//!
//! Pure.

use std::fmt::Write;

use serde_core::{Serialize, Serializer};

/// The form of what a program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a program answers in each")]
pub enum Form {
    /// For people.
    Text,
    /// For programs: one value on one line.
    Json,
    /// No answer, and nothing about a lock that is busy: the exit code says it. Errors as text.
    Quiet,
}

/// A JSON value.
///
/// ```
/// use wrapcmd::Value;
///
/// let value = Value::Object(vec![("locked", Value::Bool(true)), ("pid", Value::Number(17))]);
/// assert_eq!(value.compact(), r#"{"locked":true,"pid":17}"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "JSON has no others")]
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
    /// On one line, without blanks: [`json`].
    #[must_use]
    pub fn compact(&self) -> String {
        json(self)
    }

    /// Indented by two blanks a level, as JavaScript's `JSON.stringify(value, null, 2)`.
    #[must_use]
    pub fn indented(&self) -> String {
        harmless(serde_json::to_string_pretty(self))
    }
}

/// A value as JSON on one line. Control characters are escaped, also those that JSON allows and that move a terminal
/// (U+007F to U+009F).
///
/// # Panics
/// If a map of the value has keys that are no text, or its own `Serialize` fails.
#[must_use]
pub fn json(value: &impl Serialize) -> String {
    harmless(serde_json::to_string(value))
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => serializer.serialize_u64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => serializer.collect_seq(values),
            Self::Object(members) => {
                serializer.collect_map(members.iter().map(|(key, it)| (key, it)))
            }
        }
    }
}

/// RFC 8259 asks to escape the first 32 control characters; the others move terminals as well.
#[expect(clippy::expect_used, reason = "callers have text for keys, and memory takes every byte")]
fn harmless(written: serde_json::Result<String>) -> String {
    let mut text = String::new();
    for c in written.expect("JSON in memory").chars() {
        if c.is_control() && c != '\n' {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text
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
    #[case::control_with_a_letter("\x08\x0c".into(), r#""\b\f""#)]
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
