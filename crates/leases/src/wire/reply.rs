//! Answer → bytes: every word that the server sends is in this file; it never contains a path, an errno or an
//! address. The reply to `watch` has a tag, by which the client later names the state that it saw last. Pure.
//!
//! The body of `stats` is one line of JSON, written in pieces, so that many keys neither stall the server nor fill its
//! memory. The caller passes the content of the table. After [`MOST_KEYS`] keys the body ends, with the member
//! `truncated`. Text and times are quoted in the reference's way.
//!
//! A body of one piece shows one moment. A longer one does not: keys that appear, vanish, or change between
//! pieces may be in it twice or not at all. Keys that do not change are in it once.

use crate::{Answer, Cursor, Grant, KeyLine, Label, Progress, Refusal, Seconds, Sight, Token};
use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;

/// Whole replies, newline included.
pub mod status {
    /// Success without more to say.
    pub const OK: &[u8] = b"ok\n";
    /// The beginning of the reply to `stats`, before the body.
    pub const OK_BODY: &[u8] = b"ok ";
    /// The reply to `ping` with the key line `hello`: the numbers in the tokens of this server are fences, and it
    /// sends the line `lost` to a client that understands it.
    pub const HELLO: &[u8] = b"ok fences lost\n";
    /// The same to a client that wants to know its slots, with them.
    pub const HELLO_SLOTS: &[u8] = b"ok fences lost slots\n";
    /// An error without a word of its own.
    pub const ERROR: &[u8] = b"error\n";
    /// Not authenticated.
    pub const ERROR_AUTH: &[u8] = b"error_auth\n";
    /// The server is shutting down.
    pub const ERROR_DRAINING: &[u8] = b"error_draining\n";
}

/// Appends the reply to `out`. A client that asked for it gets the slot of each grant that has one.
pub fn push_answer(out: &mut Vec<u8>, answer: &Answer, has_slots: bool) {
    match answer {
        Answer::Granted(_) | Answer::All(_) => push_grants(out, b"ok", answer.grants(), has_slots),
        Answer::Acquired(_) => push_grants(out, b"acquired", answer.grants(), has_slots),
        Answer::Queued => out.extend_from_slice(b"queued\n"),
        Answer::TimedOut => out.extend_from_slice(b"timeout\n"),
        Answer::Released => out.extend_from_slice(status::OK),
        Answer::Renewed(ttl) => push_seconds(out, ttl.span()),
        Answer::Refused(refusal) => {
            out.extend_from_slice(refusal_status(*refusal).as_bytes());
            out.push(b'\n');
        }
    }
}

/// Appends the line that an administrator has taken the hold of this token away. It answers no request.
pub fn push_lost(out: &mut Vec<u8>, token: Token) {
    out.extend_from_slice(&[b"lost ".as_slice(), &token.digits(), b"\n"].concat());
}

/// Appends the reply to `grace`: this many seconds, or as long as the lease lasts.
pub fn push_grace(out: &mut Vec<u8>, grace: Option<Seconds>) {
    match grace {
        Some(grace) => push_seconds(out, grace),
        None => out.extend_from_slice(b"ok lease\n"),
    }
}

/// The line of a refusal, without its end.
#[must_use]
pub const fn refusal_status(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::MaxLocks => "error_max_locks",
        Refusal::MaxWaiters => "error_max_waiters",
        Refusal::LimitMismatch => "error_limit_mismatch",
        Refusal::NotEnqueued => "error_not_enqueued",
        Refusal::AlreadyEnqueued => "error_already_enqueued",
        Refusal::LeaseExpired => "error_lease_expired",
        Refusal::NotHeld | Refusal::NoSpace => "error",
        Refusal::Draining => "error_draining",
    }
}

fn push_grants(out: &mut Vec<u8>, word: &[u8], grants: &[Grant], has_slots: bool) {
    out.extend_from_slice(word);
    for grant in grants {
        out.push(b' ');
        out.extend_from_slice(&grant.token.digits());
        out.push(b' ');
        push_number(out, grant.ttl.span().count());
        if let Some(slot) = grant.slot.filter(|_| has_slots) {
            out.push(b' ');
            push_number(out, slot.into());
        }
    }
    out.push(b'\n');
}

fn push_seconds(out: &mut Vec<u8>, seconds: Seconds) {
    out.extend_from_slice(b"ok ");
    push_number(out, seconds.count());
    out.push(b'\n');
}

/// Appends a number in decimal.
fn push_number(out: &mut Vec<u8>, number: u64) {
    if number >= 10 {
        push_number(out, number / 10);
    }
    out.push(b'0' + u8::try_from(number % 10).unwrap_or_default());
}

/// A number for the state, without its time: equal on every server that sees the same state.
#[must_use]
pub fn tag_of(sight: Option<&Sight>) -> u64 {
    let Some(sight) = sight else { return Tag::FIRST.0 };
    let tag = Tag::FIRST.with(&sight.fence.to_be_bytes()).with(&sight.holders.to_be_bytes());
    let Some(label) = &sight.label else { return tag.with(b"\n").0 };
    tag.with(label.name.as_bytes()).with(b"\n").with(label.value.as_bytes()).0
}

/// FNV-1a.
#[derive(Clone, Copy)]
struct Tag(u64);

impl Tag {
    const FIRST: Self = Self(0xcbf2_9ce4_8422_2325);

    fn with(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        Self(bytes.iter().fold(self.0, step))
    }
}

/// Appends the reply: `free TAG`, or `held TAG FENCE MILLISECONDS HOLDERS NAME VALUE`.
pub fn push_sight(out: &mut Vec<u8>, sight: Option<&Sight>) {
    let word = if sight.is_some() { "held" } else { "free" };
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{word} {:016x}", tag_of(sight));
    if let Some(Sight { holders, fence, since_micros, label }) = sight {
        let _ = write!(out, " {fence} {} {holders}", since_micros / 1000);
        let Label { name, value } = label.as_deref().cloned().unwrap_or_default();
        push_word(out, &name);
        push_word(out, &value);
    }
    out.push(b'\n');
}

/// One word of text: bytes other than those of plain addresses and names as `%` and two hexadecimal
/// digits, and nothing as `-`.
fn push_word(out: &mut Vec<u8>, text: &str) {
    out.push(b' ');
    if text.is_empty() {
        out.push(b'-');
    }
    for byte in text.bytes() {
        let is_sign = text != "-" && b"-._~:/@[],=+()".contains(&byte);
        if byte.is_ascii_alphanumeric() || is_sign {
            out.push(byte);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

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
    use std::sync::Arc;

    fn sight(fence: u64, holders: u32, label: Option<(&str, &str)>) -> Sight {
        let label =
            label.map(|(name, value)| Arc::new(Label { name: name.into(), value: value.into() }));
        Sight { holders, fence, since_micros: 1_999_999, label }
    }

    #[rstest]
    #[case(None, "free cbf29ce484222325\n")]
    #[case(Some(sight(7, 1, None)), "held TAG 7 1999 1 - -\n")]
    #[case(Some(sight(7, 2, Some(("", "10.0.0.1:80")))), "held TAG 7 1999 2 - 10.0.0.1:80\n")]
    #[case(Some(sight(7, 1, Some(("al@db[1] x y", "-")))), "held TAG 7 1999 1 al@db[1]%20x%20y %2D\n")]
    #[case(Some(sight(7, 1, Some(("\u{e9}%", "[::1]:8")))), "held TAG 7 1999 1 %C3%A9%25 [::1]:8\n")]
    fn the_reply_to_watch_is_one_line_of_words(#[case] sight: Option<Sight>, #[case] want: &str) {
        let mut out = Vec::new();
        push_sight(&mut out, sight.as_ref());
        let want = want.replace("TAG", &format!("{:016x}", tag_of(sight.as_ref())));
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    /// Each of these states has a different tag, and the time does not change a tag.
    #[test]
    fn different_states_have_different_tags() {
        let sights = [
            None,
            Some(sight(1, 1, None)),
            Some(sight(2, 1, None)),
            Some(sight(1, 2, None)),
            Some(sight(1, 1, Some(("a", "")))),
            Some(sight(1, 1, Some(("", "a")))),
            Some(sight(1, 1, Some(("a", "b")))),
        ];
        for (place, one) in sights.iter().enumerate() {
            for (other_place, other) in sights.iter().enumerate() {
                let equal = tag_of(one.as_ref()) == tag_of(other.as_ref());
                assert_eq!(equal, place == other_place);
            }
        }
        let later = Sight { since_micros: 9, ..sight(1, 1, None) };
        assert_eq!(tag_of(Some(&later)), tag_of(sights[1].as_ref()));
    }

    #[rstest]
    #[case(b"cbf29ce484222325", Some(0xcbf2_9ce4_8422_2325))]
    #[case(b"cbf29ce48422232", None)]
    #[case(b"+bf29ce484222325", None)]
    #[case(b"0", None)]
    fn tags_are_read(#[case] text: &[u8], #[case] want: Option<u64>) {
        assert_eq!(crate::read_hex(text), want);
    }

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
