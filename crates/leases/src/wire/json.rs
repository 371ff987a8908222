//! Text and times as JSON, in the reference's way of quoting. Pure.

use std::fmt::Write as _;

/// Microseconds, shown as seconds without needless zeros.
#[expect(clippy::exhaustive_structs, reason = "a number and nothing else")]
pub struct Decimal(pub u64);

impl std::fmt::Display for Decimal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, part) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if part == 0 {
            return write!(out, "{whole}");
        }
        let digits = format!("{part:06}");
        write!(out, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// Quotes like Go's encoder, because the clients of the reference expect that.
pub fn push_json_string(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push_json_char(out, c));
        // Go counts every byte of a broken sequence by itself.
        chunk.invalid().iter().for_each(|_| out.push_str("\\ufffd"));
    }
    out.push('"');
}

fn push_json_char(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\x1f' => {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
        _ => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(b"plain", r#""plain""#)]
    #[case(b"a\"b\\c", r#""a\"b\\c""#)]
    #[case(b"<&>", r#""\u003c\u0026\u003e""#)]
    #[case(b"\0\x1f\x7f", "\"\\u0000\\u001f\x7f\"")]
    #[case(b"\xe2\x80\xa8", r#""\u2028""#)]
    #[case(b"\xff", r#""\ufffd""#)]
    #[case(b"\xe2\x80", r#""\ufffd\ufffd""#)]
    #[case("ü".as_bytes(), "\"ü\"")]
    fn strings_are_quoted_as_the_reference_does(#[case] bytes: &[u8], #[case] want: &str) {
        let mut out = String::new();
        push_json_string(&mut out, bytes);
        assert_eq!(out, want);
    }

    #[rstest]
    #[case(0, "0")]
    #[case(33_000_000, "33")]
    #[case(18_500_000, "18.5")]
    #[case(1, "0.000001")]
    fn microseconds_are_written_as_seconds(#[case] micros: u64, #[case] want: &str) {
        assert_eq!(Decimal(micros).to_string(), want);
    }
}
