//! The body of `stats`: one line of JSON, written piece by piece so that a million keys neither
//! stall the server nor fill its memory.
//!
//! A body that fits one piece is a picture of one moment. A longer one is not: keys that change
//! between pieces may appear twice or not at all.

use super::keys::KeyEntry;
use super::request::Progress;
use super::slab::Id;
use super::state::Engine;
use super::terms::{Mint, Moment};
use std::fmt::Write as _;

/// Keys looked at in one turn: a section may have nothing to show in a table of millions.
const VISITS: usize = 100_000;

/// How far a `stats` body is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatsCursor {
    section: usize,
    place: u32,
    /// The body's beginning is written.
    begun: bool,
    /// This section's beginning is written.
    opened: bool,
    /// An entry of this section is written.
    filled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Locks,
    Semaphores,
    IdleLocks,
    IdleSemaphores,
}

/// In the order of the reference's members.
const SECTIONS: [(Section, &str); 4] = [
    (Section::Locks, ",\"locks\":["),
    (Section::Semaphores, "],\"semaphores\":["),
    (Section::IdleLocks, "],\"idle_locks\":["),
    (Section::IdleSemaphores, "],\"idle_semaphores\":["),
];

impl Section {
    fn of(entry: &KeyEntry) -> Self {
        match (entry.is_idle(), entry.limit) {
            (false, 1) => Self::Locks,
            (false, _) => Self::Semaphores,
            (true, 1) => Self::IdleLocks,
            (true, _) => Self::IdleSemaphores,
        }
    }
}

impl<M: Mint> Engine<M> {
    /// Appends the next piece of the body to `out`, about `room` bytes; `connections` is the
    /// first member's value. [`Progress::Done`] when the body is whole.
    pub fn stats(
        &self,
        now: Moment,
        connections: usize,
        cursor: &mut StatsCursor,
        out: &mut String,
        room: usize,
    ) -> Progress {
        let end = out.len().saturating_add(room);
        let mut visits = 0;
        if !std::mem::replace(&mut cursor.begun, true) {
            // Writing to a String cannot fail.
            let _ = write!(out, "{{\"connections\":{connections}");
        }
        while let Some((section, head)) = SECTIONS.get(cursor.section) {
            if !std::mem::replace(&mut cursor.opened, true) {
                out.push_str(head);
            }
            while cursor.place < self.keys.places() {
                if out.len() >= end || visits == VISITS {
                    return Progress::More;
                }
                visits += 1;
                let id = Id::new(cursor.place);
                cursor.place += 1;
                if let Some(entry) = self.keys.get(id).filter(|e| Section::of(e) == *section) {
                    if std::mem::replace(&mut cursor.filled, true) {
                        out.push(',');
                    }
                    self.stats_entry(now, *section, entry, out);
                }
            }
            let section = cursor.section + 1;
            *cursor = StatsCursor { section, begun: true, ..StatsCursor::default() };
        }
        out.push_str("]}");
        Progress::Done
    }

    fn stats_entry(&self, now: Moment, section: Section, entry: &KeyEntry, out: &mut String) {
        out.push_str("{\"key\":");
        push_json_string(out, &entry.name);
        let _ = match section {
            Section::Locks => {
                let holder = entry.holders.some().map(|id| &self.holders[id]);
                let (owner, left) =
                    holder.map_or((0, 0), |h| (h.serial, h.expires.micros_since(now)));
                let left = Decimal(left);
                let waiters = entry.waiters;
                write!(
                    out,
                    ",\"owner_conn_id\":{owner},\"lease_expires_in_s\":{left},\"waiters\":{waiters}}}"
                )
            }
            Section::Semaphores => write!(
                out,
                ",\"limit\":{},\"holders\":{},\"waiters\":{}}}",
                entry.limit, entry.held, entry.waiters
            ),
            Section::IdleLocks | Section::IdleSemaphores => {
                write!(out, ",\"idle_s\":{}}}", Decimal(now.micros_since(entry.touched)))
            }
        };
    }
}

/// Microseconds, shown as seconds without needless zeros.
pub(crate) struct Decimal(pub(crate) u64);

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

/// Quotes as Go's encoder does, which the reference's clients were written against.
pub(crate) fn push_json_string(out: &mut String, bytes: &[u8]) {
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
    fn decimals(#[case] micros: u64, #[case] want: &str) {
        assert_eq!(Decimal(micros).to_string(), want);
    }
}
