//! JSON (RFC 8259). Values in, text out. Ours is flat and small: a page of code instead of a
//! dependency.

use std::fmt::Write;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(u64),
    Text(String),
    List(Vec<Value>),
    Object(Vec<(&'static str, Value)>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Value {
    /// On one line, without blanks.
    pub(super) fn compact(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    /// Our values nest four deep at most, so calling itself is safe here.
    fn write(&self, text: &mut String) {
        match self {
            Self::Null => text.push_str("null"),
            Self::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            Self::Number(value) => text.push_str(&value.to_string()),
            Self::Text(value) => quote(text, value),
            Self::List(values) => {
                enclose(text, ['[', ']'], values, |text, value| value.write(text));
            }
            Self::Object(members) => {
                enclose(text, ['{', '}'], members, |text, (key, value)| {
                    quote(text, key);
                    text.push(':');
                    value.write(text);
                });
            }
        }
    }
}

fn enclose<T>(
    text: &mut String,
    [open, close]: [char; 2],
    items: &[T],
    write: impl Fn(&mut String, &T),
) {
    text.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write(text, item);
    }
    text.push(close);
}

fn quote(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            // RFC 8259 asks for the first 32; the others move terminals as well.
            control if control.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(control));
            }
            plain => text.push(plain),
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
}
