//! The body of `stats`: one line of JSON, written in pieces, so that many keys neither stall the server nor fill its
//! memory. The caller passes the content of the table. After [`MOST_KEYS`] keys the body ends, with the member
//! `truncated`. Text and times are quoted in the reference's way.
//!
//! A body of one piece shows one moment. A longer one does not: keys that appear, vanish, or change between
//! pieces may be in it twice or not at all. Keys that do not change are in it once.
//!
//! Pure.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use crate::{Cursor, KeyLine, Progress};

/// The most keys in one body.
pub const MOST_KEYS: usize = 10_000;

/// The progress of writing a `stats` body.
#[derive(Clone, Debug, Default)]
pub struct StatsCursor {
    /// Whether names of connections and numbers of readers are shown.
    names: bool,
    section: usize,
    place: Cursor,
    /// Whether the beginning of the body is written.
    begun: bool,
    /// Whether an entry of this section is written.
    filled: bool,
    /// The number of keys written.
    keys: usize,
    /// Whether keys are left out.
    truncated: bool,
}

impl StatsCursor {
    /// With the names of holders, or without.
    #[must_use]
    pub fn new(names: bool) -> Self {
        Self { names, ..Self::default() }
    }

    /// Whether a part of the body is written.
    pub const fn has_begun(&self) -> bool {
        self.begun
    }
}

/// In the order of the reference's members.
const SECTIONS: [&str; 4] = ["locks", "semaphores", "idle_locks", "idle_semaphores"];

/// The place of a key's section among [`SECTIONS`].
const fn section_of(line: &KeyLine<'_>) -> usize {
    match (line.is_idle(), line.limit) {
        (false, 1) => 0,
        (false, _) => 1,
        (true, 1) => 2,
        (true, _) => 3,
    }
}

/// Appends the next piece of the body to `out`, at most about `room` bytes. `connections` is the value of the first
/// member. `look_over` reads some keys from the cursor on, passes each one on until the callback says stop, and says
/// whether the last key was among them. Returns [`Progress::Done`] when the body is complete.
pub fn push_stats(
    out: &mut String,
    room: usize,
    cursor: &mut StatsCursor,
    connections: usize,
    mut look_over: impl FnMut(&mut Cursor, &mut dyn FnMut(&KeyLine<'_>) -> ControlFlow<()>) -> Progress,
) -> Progress {
    let end = out.len().saturating_add(room);
    if !std::mem::replace(&mut cursor.begun, true) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{{\"connections\":{connections},\"locks\":[");
    }
    let StatsCursor { names, section, place, filled, keys, truncated, .. } = cursor;
    while *section < SECTIONS.len() {
        // After too many keys, the other sections stay empty.
        let progress = if *truncated {
            Progress::Done
        } else {
            look_over(place, &mut |line| {
                if section_of(line) == *section {
                    *truncated = *keys >= MOST_KEYS;
                    if *truncated {
                        return ControlFlow::Break(());
                    }
                    *keys += 1;
                    if std::mem::replace(filled, true) {
                        out.push(',');
                    }
                    push_line(out, *names, line);
                }
                if out.len() < end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
        };
        if progress == Progress::More && !*truncated {
            return progress;
        }
        (*place, *filled) = (Cursor::default(), false);
        *section += 1;
        if let Some(name) = SECTIONS.get(*section) {
            let _ = write!(out, "],\"{name}\":[");
        }
    }
    out.push_str(if *truncated { "],\"truncated\":true}" } else { "]}" });
    Progress::Done
}

fn push_line(out: &mut String, has_names: bool, line: &KeyLine<'_>) {
    out.push_str("{\"key\":");
    push_json_string(out, line.name);
    let is_lock = !line.is_idle() && line.limit == 1;
    if let Some(name) = line.owner_name.filter(|_| is_lock && has_names) {
        out.push_str(",\"owner\":");
        push_json_string(out, name.as_bytes());
    }
    if line.readers > 0 && has_names {
        // Writing to a String cannot fail.
        let _ = write!(out, ",\"readers\":{}", line.readers);
    }
    let (held, waiters) = (line.held, line.waiters);
    let _ = match (line.is_idle(), line.limit) {
        (false, 1) => write!(
            out,
            ",\"owner_conn_id\":{},\"lease_expires_in_s\":{},\"waiters\":{waiters}}}",
            line.owner,
            Decimal(line.left_micros),
        ),
        (false, _) => {
            write!(out, ",\"limit\":{},\"holders\":{held},\"waiters\":{waiters}}}", line.limit)
        }
        (true, _) => write!(out, ",\"idle_s\":{}}}", Decimal(line.idle_micros)),
    };
}

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
        for c in chunk.valid().chars() {
            push_json_char(out, c);
        }
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
